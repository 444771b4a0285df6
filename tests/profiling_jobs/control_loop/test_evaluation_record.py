"""What is written down of an evaluation comes back, and is plain."""

from __future__ import annotations

import json
import math

import pytest

from models.quantities import Measurement, Misuse, RecoveryEvent, Unknown
from profiling_jobs.control_loop.evaluation_record import Evaluation, fact_from_json, fact_to_json

pytestmark = pytest.mark.fast


def evaluation(**changes: object) -> Evaluation:
    given: dict[str, object] = {
        "job": "orders",
        "at_s": 1_700_000_060.123456,
        "interval": 28333334,
        "interval_s": 60.0,
        "mode": "apply",
        "epoch": 7,
        "scale_out": 4,
        "instruction": {"do": "hold", "to": None, "would": None, "reason": "fits"},
        "apply": None,
        **changes,
    }
    return Evaluation(**given)  # type: ignore[arg-type]


def test_it_comes_back_as_it_was_written() -> None:
    written = evaluation(scale_out=Unknown("silent"), alarms=["look"]).to_json()
    again = Evaluation.from_json(json.loads(json.dumps(written)))
    assert again.scale_out == Unknown("silent")
    assert again.alarms == ["look"]
    assert again.reason == "fits"
    assert again.to_json() == written


def test_a_clock_keeps_its_milliseconds_and_figures_five_digits() -> None:
    written = evaluation(observation={"arrival_rps": 1234.56789, "at_s": 1_700_000_060.123456}).to_json()
    assert written["observation"] == {"arrival_rps": 1234.6, "at_s": 1_700_000_060.123}
    assert written["at_s"] == 1_700_000_060.123


def test_another_schema_is_refused() -> None:
    with pytest.raises(Misuse, match="schema 2, this version reads 1"):
        Evaluation.from_json(evaluation().to_json() | {"schema": 2})


@pytest.mark.parametrize(
    "fact",
    [
        Measurement(4, 1000.0, 990.0, True, latency_ms=12.0, origin="live"),
        RecoveryEvent("driver_kill", 4, 1_700_000_000.0, 12.0, 60.0),
        RecoveryEvent("driver_kill", 4, 1_700_000_000.0, 12.0, math.inf),
    ],
)
def test_a_fact_comes_back(fact: Measurement | RecoveryEvent) -> None:
    assert fact_from_json(json.loads(json.dumps(fact_to_json(fact)))) == fact
