"""The demo as a user runs it, without its pages: every stage of the story, in less than two minutes."""

import json
import math
import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner
from simulated_service import ORDERS, opened

from pipelines.command_line import main
from pipelines.demo.on_kubernetes import OVERLAY
from pipelines.demo.scenes import JOB, SCENES
from pipelines.demo.show import Lines, Outcome, summary, what_to_type, where_to_click
from pipelines.demo.story import STAGES, Evaluator
from pipelines.integrations.stores.opening import STORE
from pipelines.integrations.stores.sqlite import SqliteStore
from pipelines.processes.owner import holder, owner_id
from pipelines.processes.processes import marked
from pipelines.settings import loading
from profiling_jobs.training.champions import Champions

HEADROOM = (sys.executable, "-c", "from pipelines.command_line import main; main()")
PATIENCE_S = 900.0  # a machine with nothing else to do takes a minute


@pytest.mark.long
def test_from_nothing_to_a_decision_that_was_carried_out(tmp_path):
    folder = tmp_path / "demo"
    done = subprocess.run(
        [*HEADROOM, "demo", "--deployment", "simulated", "--no-pages", "--json", "--folder", str(folder)],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["applied"]
    assert list(found["took_s"]) == list(STAGES)
    assert found["promise"] == {"target_s": 120.0, "confidence": 0.9}
    assert {change["path"] for change in found["changes"]} == {"live"}
    for change in found["changes"]:  # the reason is of the change that was carried out
        assert change["why"].startswith(f"scale out from {change['before']} to {change['to']} executors")
    assert found["changes"][0]["before"] == 2 < found["changes"][-1]["to"]
    assert set(found["models"]) == {"capacity", "latency", "recovery", "workload"}
    capacity = {int(size): one["mid"] for size, one in found["capacity_rps"].items()}
    assert capacity == pytest.approx({1: 714, 2: 1176, 4: 1739, 6: 2069}, rel=0.03)  # what the twin sustains
    assert found["headroom"]["sustained_rps"]["mid"] > found["headroom"]["forecast_rps"]
    (proved,) = [row for row in found["drills"] if row["stage"] == "prove"]
    said = proved["details"]["predicted_recovery_s"]
    assert proved["kept"]
    assert said["low"] <= proved["recovery_s"] <= said["high"]
    for stage in STAGES:
        assert f"] {stage}: " in done.stderr
    # Commands show the size that the summary has shown.
    with SqliteStore(folder / ".headroom" / STORE) as store:
        ((_, newest),) = store.evaluations(JOB, limit=1)
    assert newest["scale_out"] == found["changes"][-1]["to"]
    # Nothing is left but what was learnt.
    assert holder(folder / ".headroom") is None
    assert marked(owner_id(folder / ".headroom")) == ()
    champions = Champions.load(folder / ".headroom", JOB)
    assert champions.version == "capacity 1, latency 1, recovery 1, workload 1"


@pytest.mark.fast
def test_a_folder_that_is_not_of_a_demo_is_left_alone(tmp_path):
    (tmp_path / "thesis.txt").write_text("the only copy")
    result = CliRunner().invoke(main, ["demo", "--deployment", "simulated", "--folder", str(tmp_path)])
    assert result.exit_code == 2
    assert "something that is not of a demo: name another --folder" in result.output
    assert (tmp_path / "thesis.txt").read_text() == "the only copy"


@pytest.mark.fast
@pytest.mark.parametrize("kind", sorted(SCENES))
def test_the_settings_of_the_demo_are_right(kind):
    cluster = (OVERLAY / "headroom.toml").read_text() if kind == "kubernetes" else ""
    settings = loading.parse(cluster + SCENES[kind].settings, environment={})
    assert (settings.deployment.kind, list(settings.jobs)) == (kind, [JOB])
    assert settings.jobs[JOB].mode == "apply"


@pytest.mark.fast
def test_lines_do_not_repeat_themselves():
    said = []
    lines = Lines(said.append, seconds=iter((0.0, 10.0, 71.6)).__next__)
    lines.stage("profile", "copies say", number=3, of=8)
    lines.say("probe 0")
    lines.progress(0.3, "probe 0")
    lines.progress(None, "probe 0")
    lines.progress(None, "hold 2 executors")
    lines.done("13 probes")
    assert said[0] == "[3/8] profile: copies say"
    assert [line.strip() for line in said[1:]] == ["probe 0", "hold 2 executors", "→ 13 probes (62 s)"]


@pytest.mark.fast
def test_a_bar_shows_what_happens_between_the_lines_of_a_stage():
    said, shown = [], []
    lines = Lines(said.append, bar=lambda *now: shown.append(now), seconds=lambda: 0.0)
    lines.stage("profile", "copies say", number=3, of=8)
    lines.say("probe 0")
    lines.progress(0.3, "probe 1")
    lines.done("13 probes")
    assert said == ["[3/8] profile: copies say", "      → 13 probes (0 s)"]
    assert shown == [(None, "probe 0"), (0.3, "probe 1")]


@pytest.mark.fast
def test_the_summary_says_what_was_decided_and_why():
    drill = {"kind": "driver_kill", "scale_out": 4, "rate_rps": 1150.0, "kept": True, "recovery_s": 51.0}
    predicted = {"predicted_recovery_s": {"low": 26.0, "mid": 59.4, "high": None}}
    outcome = Outcome(
        "simulated",
        promise={"target_s": 120.0, "confidence": 0.9},
        changes=[{"did": "scaled", "why": "the load rises", "reason": "scaled from 2 to 4 executors, live"}],
        drills=[
            {"stage": "drill", "kind": "driver_kill", "scale_out": 2, "rate_rps": None, "invalid": "a gap"},
            {"stage": "prove", **drill, "details": predicted},
        ],
        models={
            "capacity": {"version": 3, "to_make_it_firm": ["a drill", "a profile"]},
            "workload": {"version": 1, "to_make_it_firm": []},
        },
        headroom={"scale_out": 4, "sustained_rps": {"mid": 2000.0}, "forecast_rps": 1500.0},
        evaluation={
            "instruction": {"reason": "hold 4 executors"},
            "decision": {
                "scale_out": 4,
                "verdicts": [
                    {"scale_out": 2, "excuses": [{"sentence": "far too few"}]},
                    {"scale_out": 3, "excuses": [{"sentence": "recovered too late"}]},
                    {"scale_out": 4, "excuses": []},
                ],
            },
        },
    )
    said = summary(outcome)
    assert [name for name, _ in said] == [
        *("promise", "decided", "applied", "now", "not fewer", "headroom", "drilled", "proved", "models", "")
    ]
    text = "\n".join(line for _, line in said)
    for part in (
        "within 120 s, with a probability of 90 %",
        "3 executors: recovered too late",
        "25 %: 4 executors sustain 2,000 records/s, at most about 1,500 are expected",
        "2 executors: invalid, a gap",
        "recovered after 51 s, predicted 59 s (26 to ?)",
        "capacity 3 (provisional), workload 1",
    ):
        assert part in text
    where = {"pages": "http://p", "dagster": "http://p/dagster", "mlflow": "http://p/mlflow"}
    clicks = where_to_click(where)
    assert clicks[:2] == ["Pages      http://p", "             `headroom open` lets your browser in"]
    assert clicks[2] == "Dagster    http://p/dagster/asset-groups"
    assert where_to_click(where, opened="http://p/?token=t")[0] == "Pages      http://p/?token=t"
    assert what_to_type(Path("/a demo")).startswith("Commands   cd '/a demo' && /")
    assert what_to_type(Path("/demo")).endswith("headroom explain enrichment")


@pytest.mark.fast
def test_every_interval_is_evaluated_until_dagster_takes_over(tmp_path):
    with opened(tmp_path, ORDERS, since_s=time.time() - 1200.0) as there:
        there.environment.pace.set(60.0)
        there.launched()
        settings = there.here.context.settings
        interval_s = settings.jobs["orders"].evaluation_interval_s
        service = SimpleNamespace(environment=there.environment, server=there.server, settings=settings)
        evaluator = Evaluator(service, "orders", interval_s=interval_s)
        evaluator.start()
        evaluator.next_tick()
        there.environment.pace.catch_up()
        evaluator.hand_over()
        evaluator.close()
        found = [one["interval"] for _, one in there.environment.store.evaluations("orders")]
    assert found == list(range(found[0], found[-1] + 1))
    assert found[-1] >= math.floor(time.time() / interval_s) - 1


@pytest.mark.fast
def test_ctrl_c_before_a_decision_is_no_traceback(tmp_path, monkeypatch):
    def interrupted(*arguments, **more):
        raise KeyboardInterrupt

    monkeypatch.setattr("pipelines.command_line.demo._performed", interrupted)
    options = ["demo", "--deployment", "simulated", "--no-pages", "--folder", str(tmp_path / "demo")]
    said = CliRunner().invoke(main, options)
    assert (said.exit_code, said.exception.__class__) == (130, SystemExit)
