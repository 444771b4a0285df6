"""The alert rules and the dashboard of deploy/, evaluated by Prometheus' own engine on what we export.

`main.go` is Prometheus' parser of rules and its engine of queries, without its server.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from models.ports import Directive
from models.quantities import RecoveryEvent
from tests.pipelines.test_metrics import AT_S, World, interval, no_champions
from tests.test_monitoring import RULES, panels

pytestmark = pytest.mark.real

MINUTES = 40  # the longest range of a rule is half an hour
LAST_S = AT_S + 60.0 * (MINUTES - 1)
WELL = interval(20.0, 31.5, 50.0) | {"promised": 46.0, "probability": 0.97}
HEALTHY: Mapping[str, Any] = {
    "decision": {
        "scale_out": 4,
        "verdicts": [{"scale_out": 4, "status": "feasible", "probability": 0.97}],
    },
    "recoveries": {"driver_kill": WELL, "executor_kill": WELL},
}
TOO_SMALL = {
    "scale_out": 5,
    "verdicts": [{"scale_out": 4, "status": "infeasible", "probability": 0.81}],
}
NOT_KNOWN = {"driver_kill": {"unknown": "no drill yet"}}
Found = Mapping[str, Sequence[Mapping[str, str]]]
Ask = Callable[..., Found]


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program, built from the modules that go.sum names."""
    go = shutil.which("go")
    if go is None:
        pytest.skip("no Go here, which builds Prometheus' engine: https://go.dev/dl")
    where = Path(__file__).parent
    environment = {**os.environ, "GOFLAGS": "-mod=readonly", "GOTOOLCHAIN": "local", "CGO_ENABLED": "0"}
    fetched = subprocess.run(
        [go, "mod", "download"], cwd=where, env=environment, capture_output=True, text=True
    )
    if fetched.returncode:
        pytest.skip(f"Prometheus' modules cannot be fetched: {fetched.stderr.strip()[-200:]}")
    program = tmp_path_factory.mktemp("prometheus") / "engine"
    subprocess.run([go, "build", "-o", str(program), "."], cwd=where, env=environment, check=True)
    return program


@pytest.fixture
def ask(prometheus: Path) -> Ask:
    """The series of every alert, and of these expressions, after these scrapes."""

    def asked(scrapes: Sequence[Mapping[str, Any]], expressions: Mapping[str, str] | None = None) -> Found:
        question = {"rules": str(RULES), "expressions": expressions or {}, "at_s": LAST_S, "scrapes": scrapes}
        done = subprocess.run(
            [prometheus], input=json.dumps(question), capture_output=True, text=True, check=True
        )
        answer = json.loads(done.stdout)
        assert answer["problems"] == []
        found: Found = answer["found"]
        return found

    return asked


def scraped(
    world: World, *, evaluated: float = 1.0, changes: Mapping[str, Any] | None = None
) -> list[dict[str, Any]]:
    """What is scraped each minute. `evaluated`: the share of the time in which the job is evaluated."""
    found = []
    for minute in range(MINUTES):
        world.now_s = AT_S + 60.0 * minute
        if minute < evaluated * MINUTES:
            world.evaluated(world.now_s, **{**HEALTHY, **(changes or {})})
        found.append({"at_s": world.now_s, "text": world.exporter.text()})
    return found


def alerts(found: Found) -> set[str]:
    return {name.removeprefix("Headroom") for name, series in found.items() if series}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, set()),
        ({"decision": TOO_SMALL}, {"PromiseAtRisk"}),
        ({"recoveries": {"driver_kill": WELL | {"probability": 0.6}}}, {"RecoveryTooLong"}),
        ({"recoveries": NOT_KNOWN}, {"PromiseUnknown"}),
        ({"lag_s": 61.0}, {"LagBeyondTarget"}),
        ({"alarms": ["no metrics for 120 s"]}, {"Alarm"}),
        ({"trouble": ["the broker does not answer"]}, {"EvaluationErrors"}),
    ],
)
def test_what_is_wrong_raises_its_alert_and_no_other(
    ask: Ask, changes: Mapping[str, Any], expected: set[str]
) -> None:
    found = ask(scraped(World(), changes=changes))
    assert alerts(found) == expected
    for name in expected:
        assert {one["job_name"] for one in found[f"Headroom{name}"]} == {"orders"}


@pytest.mark.parametrize(
    ("evaluated", "expected"), [(0.5, {"LoopStandsStill", "PromiseUnknown"}), (0.0, {"LoopStandsStill"})]
)
def test_a_loop_that_stands_still_is_noticed(ask: Ask, evaluated: float, expected: set[str]) -> None:
    assert alerts(ask(scraped(World(), evaluated=evaluated))) == expected


def test_a_target_that_is_gone_is_noticed(ask: Ask) -> None:
    assert alerts(ask([])) == {"ScrapeMissing"}


@pytest.mark.parametrize(
    ("model", "days", "expected"),
    [
        ("workload", 2, set()),
        ("workload", 4, {"ModelOld"}),
        ("capacity", 4, set()),
        ("latency", 31, {"ModelOld"}),
        ("recovery", 31, set()),
        ("recovery", 91, {"ModelOld"}),
    ],
)
def test_models_that_are_old_are_noticed(ask: Ask, model: str, days: int, expected: set[str]) -> None:
    trained_on = {model: {"to_s": LAST_S - 86_400.0 * days}}
    world = World(champions=no_champions(versions={model: 3}, trained_on=trained_on))
    assert alerts(ask(scraped(world))) == expected


def test_a_provisional_model_is_noticed(ask: Ask) -> None:
    provisional = no_champions(
        versions={"recovery": 1},
        trained_on={"recovery": {"to_s": LAST_S}},
        provisional={"recovery": ("2 more drills",)},
    )
    assert alerts(ask(scraped(World(champions=provisional)))) == {"ModelProvisional"}


def test_every_panel_shows_something(ask: Ask) -> None:
    world = World(
        champions=no_champions(versions={"capacity": 3}, trained_on={"capacity": {"to_s": LAST_S - 60.0}})
    )
    world.store.add_event("orders", RecoveryEvent("driver_kill", 4, AT_S - 900.0, 20.0, 34.2), details={})
    world.store.direct(Directive("orders", "pause", "me", "a sale", since_s=AT_S))
    world.store.direct(Directive("orders", "pin", "me", "a sale", since_s=AT_S, value=4))
    world.store.direct(Directive("orders", "hold", "me", "a sale", since_s=AT_S, value=4))
    expressions = {
        f"{panel['title']} {number}": target["expr"].replace("$__rate_interval", "5m").replace("$job", ".*")
        for panel in panels()
        for number, target in enumerate(panel["targets"])
    }
    found = ask(scraped(world), expressions)
    assert [name for name in expressions if not found[name]] == []
