"""The local cluster: its configuration, then a real one with a job that loses what it stands on."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from models.errors import Misconfigured, NotReady
from pipelines.integrations import jars, ports, spark
from pipelines.integrations.java import Java
from pipelines.integrations.spark import BACKEND, MASTER, WORKER, ClusterStatus, LocalSpark
from pipelines.processes.owner import Owner, cleanup
from pipelines.processes.processes import OWNER, ROLE, Process, marked
from pipelines.settings import spark_timeouts
from pipelines.settings.schema import SparkSettings


def until(condition: Callable[[], object], timeout_s: float = 300.0) -> None:
    limit = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < limit, "the condition was not reached"
        time.sleep(0.1)


@pytest.fixture
def unstarted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LocalSpark:
    monkeypatch.setattr(jars, "fetch", lambda *groups, **given: (Path("/jars/a.jar"), Path("/jars/b.jar")))
    cluster = LocalSpark(Owner(tmp_path / ".headroom"))
    cluster.folder.mkdir(parents=True)
    (cluster.folder / "ports.json").write_text("[20001, 20002]")
    return cluster


def test_a_job_can_be_found_again_rescaled_and_told_from_others(unstarted: LocalSpark) -> None:
    conf = unstarted.job_conf("orders-profile-e4")
    assert conf["spark.master"] == unstarted.url == "spark://127.0.0.1:20001"
    assert conf["spark.jars"] == "/jars/a.jar,/jars/b.jar"
    assert conf[f"spark.executorEnv.{ROLE}"] == "executor.orders-profile-e4"
    assert len(conf[f"spark.executorEnv.{OWNER}"]) == 16
    assert conf["spark.dynamicAllocation.enabled"] == "false"
    assert "spark.cores.max" not in conf
    assert all(isinstance(value, str) for value in conf.values())


def test_a_silent_executor_is_given_up_after_the_time_that_was_set(unstarted: LocalSpark) -> None:
    unstarted._settings = SparkSettings(network_timeout_s=30, heartbeat_s=5)
    conf = unstarted.job_conf("orders")
    seconds = {key: int(conf[f"spark.{key}"].removesuffix("s")) for key in TIMEOUTS}
    assert seconds["network.timeout"] == 30
    assert seconds["executor.heartbeatInterval"] == 5
    assert seconds["storage.blockManagerHeartbeatTimeoutMs"] <= 30
    assert seconds["network.timeoutInterval"] <= 3


@pytest.mark.parametrize(
    ("chosen", "silent", "expected"),
    [
        ({"spark.network.timeout": "90s"}, 90.0, ("90s", "9s", "90s", "4s")),
        ({"spark.network.timeout": "2m"}, 120.0, ("2m", "12s", "120s", "4s")),
        ({"spark.executor.heartbeatInterval": "500"}, 20.0, ("20s", "2s", "20s", "500")),
    ],
)
def test_a_time_out_that_a_job_chooses_moves_those_that_hang_on_it(
    unstarted: LocalSpark, chosen: dict[str, str], silent: float, expected: tuple[str, ...]
) -> None:
    conf = unstarted.job_conf("orders", conf=chosen)
    assert tuple(conf[f"spark.{key}"] for key in TIMEOUTS) == expected
    assert spark_timeouts.silence_s(SparkSettings(), chosen) == silent


@pytest.mark.parametrize(
    ("chosen", "said"),
    [
        ({"spark.network.timeout": "soon"}, r'conf\."spark\.network\.timeout": \'soon\' is no duration'),
        ({"spark.network.timeout": "7s"}, r"spark\.heartbeat_s: 4 s is more than half of spark\.network"),
        (
            {"spark.executor.heartbeatInterval": "11s"},
            r'conf\."spark\.executor\.heartbeatInterval": 11 s .* spark\.network_timeout_s \(20 s\)',
        ),
    ],
)
def test_time_outs_that_cannot_be_are_refused(
    unstarted: LocalSpark, chosen: dict[str, str], said: str
) -> None:
    with pytest.raises(Misconfigured, match=said):
        unstarted.job_conf("orders", conf=chosen)


def test_jars_of_a_job_come_beside_the_connector(unstarted: LocalSpark) -> None:
    conf = unstarted.job_conf("orders", conf={"spark.jars": "/mine.jar,/yours.jar"})
    assert conf["spark.jars"] == "/jars/a.jar,/jars/b.jar,/mine.jar,/yours.jar"
    assert unstarted.job_conf("orders", conf={"spark.jars": ""})["spark.jars"] == "/jars/a.jar,/jars/b.jar"


TIMEOUTS = (
    "network.timeout",
    "network.timeoutInterval",
    "storage.blockManagerHeartbeatTimeoutMs",
    "executor.heartbeatInterval",
)


def test_the_settings_file_comes_before_the_job_and_both_after_our_defaults(unstarted: LocalSpark) -> None:
    unstarted._settings = SparkSettings(conf={"spark.ui.port": "1", "spark.x": "settings"})
    conf = unstarted.job_conf("orders", conf={"spark.x": "job"})
    assert (conf["spark.ui.port"], conf["spark.x"]) == ("1", "job")


@pytest.mark.parametrize(
    "key",
    [
        *("spark.master", "spark.cores.max", "spark.dynamicAllocation.enabled", "spark.executor.cores"),
        *("spark.storage.blockManagerHeartbeatTimeoutMs", "spark.executor.memory"),
    ],
)
def test_what_would_break_rescaling_is_refused_by_name(unstarted: LocalSpark, key: str) -> None:
    with pytest.raises(Misconfigured, match=key):
        unstarted.job_conf("orders", conf={key: "1"})


def test_a_heartbeat_that_is_too_slow_is_refused(unstarted: LocalSpark) -> None:
    unstarted._settings = SparkSettings(network_timeout_s=20, heartbeat_s=11)
    with pytest.raises(Misconfigured, match=r"spark\.heartbeat_s"):
        unstarted.job_conf("orders")


def test_more_memory_than_the_machine_has_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Misconfigured, match=r"spark\.slots.*lower"):
        LocalSpark(Owner(tmp_path), SparkSettings(slots=10_000, executor_memory_mb=4096)).ensure()


def test_before_it_was_started_there_is_no_address_and_nothing_runs(tmp_path: Path) -> None:
    cluster = LocalSpark(Owner(tmp_path))
    with pytest.raises(NotReady, match="never started"):
        cluster.url
    assert cluster.status() == ClusterStatus(master=False, worker=False)
    assert not cluster.status().ready
    assert cluster.executors("orders") == ()
    cluster.stop()


def test_only_what_executors_have_left_that_no_longer_live_is_cleared(
    unstarted: LocalSpark, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders = [unstarted.folder / "work" / "app-1" / str(number) for number in range(3)]
    for folder in folders:
        folder.mkdir(parents=True)
        os.utime(folder, (0.0, 0.0))
    words = ("java", BACKEND, "--executor-id", "1", "--app-id", "app-1")
    monkeypatch.setattr(spark, "marked", lambda owner: (Process(7, 7, "executor.orders", words),))
    unstarted.tidy()
    assert [folder.exists() for folder in folders] == [False, True, False]


@pytest.mark.parametrize(("role", "cleared"), [("executor.orders", False), ("kafka", True)])
def test_a_new_worker_clears_what_killed_ones_have_left_unless_something_lives(
    unstarted: LocalSpark, monkeypatch: pytest.MonkeyPatch, role: str, cleared: bool
) -> None:
    left = unstarted.folder / "local" / "spark-1" / "executor-2"
    left.mkdir(parents=True)
    monkeypatch.setattr(spark, "marked", lambda owner: (Process(7, 7, role, ()),))
    monkeypatch.setattr(unstarted, "_spawn", lambda role, *words, options: Process(8, 8, role, ()))
    monkeypatch.setattr(unstarted, "_wait", lambda process, ready: True)
    unstarted._start_worker()
    assert left.exists() is not cleared


# ------------------------------------------------------------------------------------------------- real

DRIVER = """
import json, os, sys, time
from pyspark.sql import SparkSession
builder = SparkSession.builder
for key, value in json.load(open(sys.argv[1])).items():
    builder = builder.config(key, value)
spark = builder.getOrCreate()
sc = spark.sparkContext
def role(number):
    time.sleep(0.05)
    return os.environ["HEADROOM_ROLE"], os.environ["HEADROOM_OWNER"], sys.executable
while True:
    print(json.dumps(sc.parallelize(range(4), 4).map(role).distinct().collect()), flush=True)
    time.sleep(0.2)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, real_java: Java) -> Iterator[Path]:
    path = tmp_path_factory.mktemp("spark") / ".headroom"
    yield path
    cleanup(path, end_owner=True)


@pytest.fixture(scope="module")
def owner(folder: Path) -> Iterator[Owner]:
    with Owner(folder) as owner:
        yield owner


@pytest.fixture(scope="module")
def cluster(owner: Owner) -> LocalSpark:
    cluster = LocalSpark(owner, SparkSettings(slots=2))
    assert cluster.ensure() == ClusterStatus(master=True, worker=True, slots=2)
    return cluster


@pytest.fixture(scope="module")
def driver(owner: Owner, cluster: LocalSpark, folder: Path) -> Process:
    (folder / "driver.py").write_text(DRIVER)
    (folder / "conf.json").write_text(json.dumps(cluster.job_conf("counting")))
    return owner.start(
        "driver.counting",
        [sys.executable, folder / "driver.py", folder / "conf.json"],
        environment=cluster.environment(),
    )


def rounds(owner: Owner) -> list[str]:
    return [line for line in owner.log("driver.counting").read_text().splitlines() if line.startswith("[")]


@pytest.mark.real
def test_a_job_runs_and_its_executors_are_known(owner: Owner, cluster: LocalSpark, driver: Process) -> None:
    until(lambda: len(rounds(owner)) >= 2)
    assert json.loads(rounds(owner)[-1]) == [["executor.counting", owner.id, sys.executable]]
    until(lambda: len(cluster.executors("counting")) == 2)
    status = cluster.status()
    assert (status.slots, status.slots_used, status.applications) == (2, 2, ("counting",))
    first, second = cluster.executors("counting")
    assert (first.executor_id, second.executor_id) == ("0", "1")
    assert first.application_id.startswith("app-")
    assert cluster.executors("other") == ()
    before = owner.running()
    assert cluster.ensure() == status, "what runs is left alone"
    assert owner.running() == before


@pytest.mark.real
def test_nobody_else_runs_code_in_our_name_and_the_secret_is_on_no_command_line(
    owner: Owner, cluster: LocalSpark, driver: Process, folder: Path
) -> None:
    defaults = cluster.folder / "conf" / "spark-defaults.conf"
    assert defaults.stat().st_mode & 0o777 == 0o600
    secret = defaults.read_text().split()[-1]
    until(lambda: len(cluster.executors("counting")) == 2)
    assert not [one for one in owner.everything() if any(secret in word for word in one.command)]
    stranger = {**cluster.environment(), "SPARK_CONF_DIR": str(folder)}
    owner.start(
        "driver.stranger",
        [sys.executable, folder / "driver.py", folder / "conf.json"],
        environment=stranger,
    )
    until(lambda: "Failed to connect to master" in owner.log("driver.stranger").read_text())
    assert "Expected SaslMessage" in owner.log(MASTER).read_text()
    owner.stop(owner.running("driver.stranger")[0])
    assert cluster.status().applications == ("counting",)


@pytest.mark.real
def test_executors_that_are_killed_are_replaced(owner: Owner, cluster: LocalSpark, driver: Process) -> None:
    until(lambda: len(cluster.executors("counting")) == 2)
    for _ in range(3):
        victim = cluster.executors("counting")[0].process
        assert victim.signal(signal.SIGKILL)
        until(lambda victim=victim: len(cluster.executors("counting")) == 2 and not victim.alive)
    done = len(rounds(owner))
    until(lambda: len(rounds(owner)) > done + 1)


@pytest.mark.real
def test_a_worker_that_dies_is_seen_and_replaced_under_a_running_job(
    owner: Owner, cluster: LocalSpark, driver: Process
) -> None:
    (worker,) = owner.running(WORKER)
    orphans = [one.process for one in cluster.executors("counting")]
    worker.signal(signal.SIGKILL)
    until(lambda: not cluster.status().ready)
    assert cluster.status().master
    until(lambda: not any(process.alive for process in orphans))
    assert cluster.ensure().ready
    assert owner.running(WORKER) != (worker,)
    until(lambda: len(cluster.executors("counting")) == 2)
    done = len(rounds(owner))
    until(lambda: len(rounds(owner)) > done + 1)


@pytest.mark.real
def test_after_a_crash_of_ours_all_of_it_is_found_frozen_ones_too(
    owner: Owner, cluster: LocalSpark, driver: Process, folder: Path
) -> None:
    until(lambda: len(cluster.executors("counting")) == 2)
    cluster.executors("counting")[0].process.signal(signal.SIGSTOP)
    owner.release()  # as if we had died
    roles = {one.process.role for one in cleanup(folder)}
    assert roles >= {MASTER, WORKER, "driver.counting", "executor.counting"}
    assert marked(owner.id) == ()
    owner.acquire()
    assert cluster.status() == ClusterStatus(master=False, worker=False)


@pytest.mark.real
def test_a_master_that_died_is_replaced_on_the_same_port_with_its_worker(
    owner: Owner, cluster: LocalSpark
) -> None:
    assert cluster.ensure().ready
    url = cluster.url
    (worker,) = owner.running(WORKER)
    owner.stop(owner.running(MASTER)[0], kill=True)
    assert not cluster.status().ready
    assert cluster.ensure().ready
    assert cluster.url == url
    assert not worker.alive
    assert ports.answers(int(url.rpartition(":")[2]))
    cluster.stop()
    assert owner.everything() == ()
