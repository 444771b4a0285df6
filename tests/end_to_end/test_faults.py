"""Broker, driver, Worker and our own process die in the middle of a real probe: nothing becomes a number."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from waiting import until

from models.probing import Probe, Result
from models.quantities import Unknown
from pipelines.environments import base
from pipelines.environments.base import Environment
from pipelines.integrations.java import Java
from pipelines.processes.owner import Owner, cleanup
from pipelines.processes.processes import marked
from pipelines.settings import job_plans, loading
from pipelines.settings.schema import Settings
from profiling_jobs.experiments.copies import Copies, Copy
from profiling_jobs.experiments.probe import ProbeRun, Rules

pytestmark = pytest.mark.real

PATIENCE_S = 400.0
ROOT = Path(__file__).parents[2]
TOML = """
[spark]
slots = 2

[job.enrichment]
build = "profiling_jobs.jobs.enrichment:build"
inputs = {events = "orders"}
outputs = {results = "answers"}
max_offsets_per_trigger = 500
events = "generator:enrichment?count=20000"
scale_out_max = 2
profile_scale_outs = [1]
probe_s = 60
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, real_java: Java) -> Path:
    return tmp_path_factory.mktemp("faults") / ".headroom"


@pytest.fixture(scope="module")
def settings() -> Settings:
    return loading.parse(TOML, environment={})


@pytest.fixture
def here(folder: Path, settings: Settings) -> Iterator[Environment]:
    """An environment per test, because each breaks it."""
    try:
        with base.opened(settings, folder) as found:
            yield found
    finally:
        cleanup(folder, end_owner=True)


def _copies(here: Environment, settings: Settings, folder: Path) -> Copies:
    job = settings.jobs["enrichment"]
    plan = job_plans.live_plan("enrichment", job, folder=folder)
    return Copies(plan, here.around("enrichment", job), partitions={"events": 2, "results": 2})


def _probe(here: Environment, copies: Copies, disturb: Callable[[ProbeRun, Copy], bool]) -> Result:
    """A probe during which `disturb` is called every second until it says that it has done it."""
    copy = copies.launch(1)
    run = ProbeRun(
        Probe(0, 1, 100.0, warm_up_s=60.0, probe_s=120.0),
        copy,
        clock=here.clock,
        rules=Rules(limit_records=500),
    )
    steps, done, until = run.steps(), False, time.monotonic() + 2 * PATIENCE_S
    result: Result | None = None
    try:
        while result is None:
            try:
                next(steps)
            except StopIteration as finished:
                result = finished.value
            done = done or disturb(run, copy)
            assert time.monotonic() < until
            time.sleep(1.0)
    finally:
        assert copies.clear() == ()
    assert done, f"it ended before it was disturbed: {result}"
    return result


def _works(run: ProbeRun, copy: Copy) -> bool:
    """Whether it is complete: what is lost from then on is a doubt."""
    if isinstance(copy.watch.timeline.first_commit_after(0.0), Unknown):
        return False
    return copy.watch.status.executors_alive == copy.plan.scale_out and not copy.watch.sees_more


def test_driver_broker_and_worker_die_in_a_probe(here: Environment, folder: Path, settings: Settings) -> None:
    copies = _copies(here, settings, folder)

    def kill_driver(run: ProbeRun, copy: Copy) -> bool:
        if _works(run, copy):
            here.failures.inject(copy.plan.name, "driver_kill")
            return True
        return False

    result = _probe(here, copies, kill_driver)
    assert (result.verdict, result.throughput_rps) == ("invalid", None)
    for injection in here.failures.active():
        here.failures.clear(injection.id)

    def lose_broker(run: ProbeRun, copy: Copy) -> bool:
        if not _works(run, copy):
            return False
        broker = _role(folder, "kafka")
        os.kill(broker, signal.SIGSTOP)  # as a network that is gone: connections stay, nothing answers
        threading.Timer(45.0, os.kill, (broker, signal.SIGCONT)).start()
        return True

    result = _probe(here, copies, lose_broker)
    assert (result.verdict, result.throughput_rps) == ("invalid", None), result

    def kill_worker(run: ProbeRun, copy: Copy) -> bool:
        if not _works(run, copy):
            return False
        os.kill(_role(folder, "spark-worker"), signal.SIGKILL)
        return True

    result = _probe(here, copies, kill_worker)
    assert (result.verdict, result.throughput_rps) == ("invalid", None), result
    assert here.store.measurements("enrichment") == ()
    assert here.deployments.names() == ()


def test_our_own_death_in_the_middle_of_a_probe(folder: Path) -> None:
    project = folder.parent
    (project / "headroom.toml").write_text(TOML)
    code = (
        "import os\nfrom pathlib import Path\nfrom pipelines.environments import base\n"
        "from pipelines.settings import job_plans, loading\n"
        "from profiling_jobs.experiments.profiling import Profiling\n"
        "found = loading.load(Path('headroom.toml'), environment={})\n"
        "job, folder = found.jobs['enrichment'], Path('.headroom')\n"
        "with base.opened(found, folder) as here:\n"
        "    plan = job_plans.live_plan('enrichment', job, folder=folder)\n"
        "    around = here.around('enrichment', job)\n"
        "    search = job_plans.search('enrichment', job, found.spark)\n"
        "    parts, rules = {'events': 2, 'results': 2}, job_plans.rules(job)\n"
        "    Profiling(plan, search, around, partitions=parts, rules=rules).run()\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = subprocess.Popen([sys.executable, "-c", code], cwd=project, env=environment)
    try:
        driver = "driver.enrichment-p"
        until(lambda: any(role.startswith(driver) for role in _roles(folder)), "a copy", timeout_s=PATIENCE_S)
        until(
            lambda: any(role.startswith("replay.") for role in _roles(folder)),
            "a source",
            timeout_s=PATIENCE_S,
        )
    finally:
        command.kill()
        command.wait()
    assert _roles(folder)  # nobody has stopped them
    cleaned = subprocess.run(
        [sys.executable, "-c", "from pipelines.command_line import main; main()", "cleanup", "--json"],
        cwd=project, env=environment, capture_output=True, text=True, check=True,
    )  # fmt: skip
    ended = {row["role"] for row in json.loads(cleaned.stdout)["ended"]}
    assert {"kafka", "spark-master", "spark-worker"} <= ended
    assert any(role.startswith(driver) for role in ended)
    assert _roles(folder) == []


def _roles(folder: Path) -> list[str]:
    return [process.role for process in marked(Owner(folder).id)]


def _role(folder: Path, role: str) -> int:
    """The JVM of that role."""
    found = [one.pid for one in marked(Owner(folder).id) if one.role == role and "java" in one.command[0]]
    assert found, f"no process is {role}"
    return found[0]
