"""What Prometheus is given of the jobs: values from the store, and nothing where nothing is known."""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
from evaluations import evaluation, record
from temporary_store import TemporaryStore

from models.ports import Directive
from models.quantities import RecoveryEvent, Unknown
from pipelines.server.metrics import FAMILIES, Exporter, Samples
from pipelines.settings import loading
from profiling_jobs.control_loop.memory import Evaluation
from profiling_jobs.training.champions import Champions

pytestmark = pytest.mark.fast

AT_S = 1_795_000_000.0
TOML = """
[deployment]
kind = "simulated"
[job.orders]
build = "a:b"
inputs = {events = "in"}
recovery_target_s = 60
confidence = 0.9
"""
PAIR = r'[a-z_]+="[^"]*"'
SAMPLE = re.compile(rf"(?P<name>[a-z_]+)\{{(?P<labels>{PAIR}(?:,{PAIR})*)\}} (?P<value>\S+)")
NOTHING = Unknown("nothing was read")


@dataclass
class World:
    """A server's context, and its metrics as Prometheus reads them."""

    now_s: float = AT_S + 20.0
    store: TemporaryStore = field(default_factory=TemporaryStore)
    champions: Champions = field(default_factory=lambda: no_champions())

    def __post_init__(self) -> None:
        context: Any = SimpleNamespace(
            settings=loading.parse(TOML, environment={}),
            environment=SimpleNamespace(store=self.store, clock=SimpleNamespace(now_s=lambda: self.now_s)),
            champions=SimpleNamespace(champions=lambda job: self.champions),
        )
        self.exporter = Exporter(context)

    def evaluated(self, at_s: float = AT_S, **changes: Any) -> None:
        record(self.store, tick(at_s, **changes))

    def scraped(self) -> dict[str, float]:
        """`recovery_probability driver_kill` and so on: without `headroom_job_`, and without the job."""
        return {
            " ".join([name.removeprefix("headroom_job_"), *labels[1:]]): value
            for name, labels, value in samples(self.exporter.text())
        }


def no_champions(**known: Any) -> Champions:
    return Champions("orders", NOTHING, NOTHING, NOTHING, NOTHING, NOTHING, **{"versions": {}, **known})


def samples(text: str) -> list[tuple[str, list[str], float]]:
    found = []
    for line in text.splitlines():
        if not line.startswith("#"):
            one = SAMPLE.fullmatch(line)
            assert one, line
            labels = re.findall(r'="([^"]*)"', one["labels"])
            found.append((one["name"], labels, float(one["value"])))
    return found


def interval(low: float, mid: float | None, high: float | None) -> dict[str, Any]:
    return {"low": low, "mid": mid, "high": high, "confidence": 0.9}


def tick(at_s: float, **changes: Any) -> Evaluation:
    given: dict[str, Any] = {
        "observation": {
            "executors_alive": 3,
            "arrival_rps": 1912.4,
            "throughput_rps": 1900.0,
            "lag_records": 0.0,
        },
        "lag_s": 0.0,
        "decision": {
            "scale_out": 5,
            "verdicts": [
                {"scale_out": 4, "status": "infeasible", "probability": 0.81},
                {"scale_out": 5, "status": "feasible", "probability": 0.97},
            ],
        },
        "recoveries": {
            "driver_kill": interval(20.0, 31.5, 70.0) | {"promised": 66.0, "probability": 0.88},
            "executor_kill": {"unknown": "no drill yet"},
        },
        "capacity": {"profile": {"unknown": "no profile"}, "used": interval(2400.0, 2500.0, 2600.0)},
        "forecast": {"by": "champion", "peak": interval(1900.0, 2000.0, 2100.0)},
    }
    return evaluation(at_s, **given | changes)


@pytest.fixture
def world() -> World:
    return World()


def test_the_newest_evaluation_is_shown(world: World) -> None:
    world.evaluated(AT_S - 60.0, lag_s=9.0)
    world.evaluated()
    found = world.scraped()
    expected = {
        "load_records_per_second": 1912.4,
        "throughput_records_per_second": 1900,
        "forecast_peak_records_per_second": 2000,
        "forecast_peak_low_records_per_second": 1900,
        "forecast_peak_high_records_per_second": 2100,
        "capacity_records_per_second": 2500,
        "capacity_low_records_per_second": 2400,
        "capacity_high_records_per_second": 2600,
        "lag_records": 0,
        "lag_seconds": 0,
        "executors_declared": 4,
        "executors_alive": 3,
        "executors_wanted": 5,
        "recovery_target_seconds": 60,
        "promise_confidence": 0.9,
        "promise_kept": 0,
        "promise_probability": 0.81,
        "recovery_probability driver_kill": 0.88,
        "predicted_recovery_seconds driver_kill": 31.5,
        "predicted_recovery_high_seconds driver_kill": 66,
        "evaluation_interval_seconds": 60,
        "last_evaluation_timestamp_seconds": AT_S,
    }
    in_force = dict.fromkeys(("paused", "pinned", "held", "alarms"), 0.0)
    counters = [name for name in found if name.endswith("_total")]
    assert {name: value for name, value in found.items() if name not in counters} == expected | in_force


def test_what_is_not_known_is_left_out(world: World) -> None:
    unknown = {"unknown": "the broker does not answer"}
    world.evaluated(
        scale_out=NOTHING,
        observation={"arrival_rps": unknown, "lag_records": unknown, "executors_alive": None},
        lag_s=NOTHING,
        decision=unknown,
        recoveries={"driver_kill": interval(20.0, None, None) | {"promised": None, "probability": 0.4}},
        capacity={},
        forecast=unknown,
    )
    found = world.scraped()
    left = {name for name in found if not name.endswith("_total")}
    assert left == {
        *("recovery_target_seconds", "promise_confidence", "evaluation_interval_seconds"),
        *("last_evaluation_timestamp_seconds", "recovery_probability driver_kill"),
        *("alarms", "paused", "pinned", "held"),
    }


def test_before_the_first_evaluation_there_is_what_is_promised(world: World) -> None:
    found = world.scraped()
    assert (found["recovery_target_seconds"], found["evaluations_total"]) == (60.0, 0.0)
    assert "last_evaluation_timestamp_seconds" not in found
    world.evaluated()
    assert world.scraped()["last_evaluation_timestamp_seconds"] == AT_S


def test_an_old_evaluation_says_nothing_of_now(world: World) -> None:
    world.evaluated()
    world.now_s = AT_S + 180.0
    assert world.scraped()["load_records_per_second"] == 1912.4
    world.now_s = AT_S + 181.0
    found = world.scraped()
    assert found["last_evaluation_timestamp_seconds"] == AT_S
    assert not {"load_records_per_second", "promise_kept", "lag_seconds", "executors_alive"} & set(found)


def test_an_evaluation_of_another_version_is_counted_and_not_read(world: World) -> None:
    world.scraped()
    world.evaluated(AT_S - 60.0)
    document = {"schema": 99, "job": "orders"}
    assert world.store.record_evaluation("orders", interval=99, at_s=AT_S, evaluation=document)
    found = world.scraped()
    assert (found["last_evaluation_timestamp_seconds"], found["evaluations_total"]) == (AT_S, 2.0)
    assert "load_records_per_second" not in found


def test_counters_grow_by_what_came_since_the_last_scrape(world: World) -> None:
    def counted() -> list[float]:
        found = world.scraped()
        names = ("evaluations", "evaluation_errors", "changes", "alarms")
        return [found[f"{name}_total"] for name in names]

    world.evaluated(trouble=["the broker is silent"], alarms=["no size is enough: 8 miss it"])
    assert counted() == [0, 0, 0, 0], "what was before the start of the server is not counted again"
    scaled = {"do": "scale", "to": 5, "would": None, "reason": "more"}
    world.evaluated(AT_S + 60.0, trouble=["a", "b"], alarms=["c", "d"])
    world.evaluated(AT_S + 120.0, instruction=scaled)
    world.now_s = AT_S + 130.0
    assert counted() == [2, 1, 1, 2]
    assert counted() == [2, 1, 1, 2]


def test_an_alarm_is_in_force_until_it_is_not_raised_again(world: World) -> None:
    world.evaluated(alarms=["no size is enough: 8 miss it by 12 s", "the broker is silent"])
    assert world.scraped()["alarms"] == 2
    world.now_s = AT_S + 1870.0
    world.evaluated(AT_S + 1860.0, alarms=["no size is enough: 8 miss it by 14 s"])
    assert world.scraped()["alarms"] == 2
    world.now_s = AT_S + 1930.0
    assert world.scraped()["alarms"] == 1
    world.now_s = AT_S + 3900.0
    assert world.scraped()["alarms"] == 0


def test_an_alarm_that_is_in_force_when_the_server_starts_is_shown() -> None:
    before = World()
    before.evaluated(AT_S - 600.0, alarms=["no size is enough: 8 miss it"])
    before.evaluated()
    found = World(store=before.store).scraped()
    assert (found["alarms"], found["alarms_total"]) == (1, 0)


def test_of_measured_recoveries_the_newest_of_each_kind_is_shown(world: World) -> None:
    for kind, at_s, recovery_s in (
        ("driver_kill", 100.0, 40.0),
        ("driver_kill", 200.0, 50.0),
        ("executor_kill", 150.0, 12.0),
        ("executor_kill", 250.0, math.inf),
    ):
        world.store.add_event("orders", RecoveryEvent(kind, 4, at_s, 5.0, recovery_s), details={})
    found = world.scraped()
    assert found["last_recovery_seconds driver_kill"] == 50.0
    assert found["last_recovery_timestamp_seconds driver_kill"] == 200.0
    assert "last_recovery_seconds executor_kill" not in found, "the job did not recover in time"
    assert found["last_recovery_timestamp_seconds executor_kill"] == 250.0


def test_models_in_charge_have_a_version_an_age_and_whether_they_are_provisional(world: World) -> None:
    world.champions = no_champions(
        versions={"capacity": 3, "recovery": 1},
        trained_on={"capacity": {"digest": "x", "to_s": AT_S - 5.0}, "recovery": {"digest": "y"}},
        provisional={"recovery": ("2 more drills",)},
    )
    found = world.scraped()
    assert {name: value for name, value in found.items() if name.startswith("model")} == {
        "model_version capacity": 3,
        "model_version recovery": 1,
        "model_provisional capacity": 0,
        "model_provisional recovery": 1,
        "model_trained_timestamp_seconds capacity": AT_S - 5.0,
    }


def test_orders_in_force_are_shown_at_once(world: World) -> None:
    world.store.direct(Directive("orders", "pause", "me", "a look", since_s=AT_S, until_s=AT_S + 30.0))
    world.store.direct(Directive("orders", "pin", "me", "sale", since_s=AT_S, value=6))
    found = world.scraped()
    assert (found["paused"], found["pinned"], found["held"]) == (1, 1, 0)
    world.now_s = AT_S + 40.0
    found = world.scraped()
    assert (found["paused"], found["pinned"]) == (0, 1)


def test_names_and_labels_follow_the_conventions_of_prometheus() -> None:
    for name, family in FAMILIES.items():
        assert re.fullmatch(r"headroom_job(_[a-z]+)+", name)
        assert set(family.labels) <= {"job_name", "kind", "model"}, "Prometheus sets job and instance itself"
        assert family.help.endswith("."), name


def test_each_metric_has_its_help_and_its_type_once_before_its_samples(world: World) -> None:
    world.evaluated()
    lines = world.exporter.text().splitlines()
    heads = [json.dumps(line.split()[1:3]) for line in lines if line.startswith("#")]
    assert len(heads) == len(set(heads))
    at = lines.index("# TYPE headroom_job_lag_seconds gauge")
    assert lines[at - 1 : at + 2] == [
        "# HELP headroom_job_lag_seconds Lag in seconds of input.",
        "# TYPE headroom_job_lag_seconds gauge",
        'headroom_job_lag_seconds{job_name="orders"} 0.0',
    ]
    assert "# TYPE headroom_job_evaluations_total counter" in lines


def test_labels_are_escaped() -> None:
    found = Samples()
    found.add("headroom_job_lag_seconds", 1.0, 'a"b\\c\nd')
    assert r'{job_name="a\"b\\c\nd"} 1.0' in found.text()
