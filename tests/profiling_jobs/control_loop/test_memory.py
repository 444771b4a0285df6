"""What the loop remembers comes back as it was; what cannot be read is begun anew, what is newer is left."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from temporary_store import TemporaryStore

from models import codec, control
from models.control import Settings
from models.errors import Unsafe
from models.ports import Control
from models.promise import Promise
from models.quantities import Measurement, Misuse, RecoveryEvent, Unknown
from profiling_jobs.control_loop.forecasting import Rates
from profiling_jobs.control_loop.memory import (
    DAY_S,
    LEAST_LIVE,
    Evaluation,
    Memory,
    Outcome,
    deliver,
    fact_from_json,
    fact_to_json,
    next_epoch,
    outcome,
    recall,
    save,
    save_outcome,
)

pytestmark = pytest.mark.fast

SETTINGS = Settings(promise=Promise(180.0), max_scale_out=12)


def memory(**changes: Any) -> Memory:
    given = {"epoch": 7, "rates": Rates(60.0, 3, (1.0,)), **changes}
    return Memory(control.start(SETTINGS), **given)


def test_it_comes_back_as_it_was() -> None:
    store = TemporaryStore()
    kept = memory()
    kept.online.update({"0": 0.5}, {"0": 500.0})
    assert save(store, "orders", kept, expected_epoch=None)
    again = recall(store, "orders", SETTINGS)
    assert codec.to_json(again) == codec.to_json(kept)
    assert (again.epoch, again.trouble) == (7, "")


def test_only_one_of_two_that_started_from_the_same_epoch_is_kept() -> None:
    store = TemporaryStore()
    save(store, "orders", memory(epoch=7), expected_epoch=None)
    assert save(store, "orders", memory(epoch=8), expected_epoch=7)
    assert not save(store, "orders", memory(epoch=8, rates=None), expected_epoch=7)
    assert recall(store, "orders", SETTINGS).rates is not None


def test_epochs_grow_with_every_tick_and_a_lost_store_does_not_make_them_older() -> None:
    assert next_epoch(memory(epoch=8), interval=28_333_334) == 9
    assert next_epoch(memory(epoch=None), interval=28_333_334) == 28_333_334


@pytest.mark.parametrize(
    "broken",
    [
        {},
        {"schema": 2},
        {"schema": "x"},
        {**codec.to_json(memory()), "rates": 3},
        {**codec.to_json(memory()), "control": {}},
    ],
)
def test_a_memory_that_cannot_be_read_is_begun_anew_and_says_so(broken: dict[str, Any]) -> None:
    store = TemporaryStore()
    store.save_control(Control("orders", 9, broken), expected_epoch=None)
    found = recall(store, "orders", SETTINGS)
    assert (found.epoch, found.rates) == (9, None)
    assert found.trouble.startswith("the control state of orders could not be read (")
    assert save(store, "orders", replace(found, epoch=10), expected_epoch=9)


def test_what_a_newer_version_wrote_is_left_alone() -> None:
    store = TemporaryStore()
    store.save_control(Control("orders", 9, {"schema": 3}), expected_epoch=None)
    with pytest.raises(Unsafe, match="run the version that wrote it"):
        recall(store, "orders", SETTINGS)


def test_an_outcome_comes_back() -> None:
    store = TemporaryStore()
    assert outcome(store, "orders") is None
    kept = Outcome(7, 4, 6, "later", 60.0, 70.0, tries=2, problem="silent")
    save_outcome(store, "orders", kept)
    assert outcome(store, "orders") == kept


# Evaluations that are written down


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


def test_what_is_too_old_goes_when_a_day_begins_and_probes_and_the_newest_of_each_sort_stay() -> None:
    store, now_s = TemporaryStore(), 20_000 * DAY_S + 5.0
    measured = Measurement(2, 900.0, 880.0, sustained=True, origin="live")
    old_s = now_s - 9.0 * DAY_S
    for number in range(LEAST_LIVE + 3):
        at_s = old_s + number
        store.add_measurement("orders", f"live/e2/steady/{at_s:.0f}", measured, at_s=at_s)
    store.add_measurement("orders", "live/e2/saturated/1", measured, at_s=old_s)  # the newest of its sort
    store.add_measurement("orders", "orders/e2/r900", measured, at_s=old_s)  # of a probe
    for days in (9, 6, 1):
        at_s = now_s - days * DAY_S
        store.record_evaluation("orders", interval=20_000 - days, at_s=at_s, evaluation={})
    loop: Any = SimpleNamespace(store=store, remembered={}, kept_s=7 * DAY_S)
    yesterday = evaluation(at_s=now_s - 10.0, epoch=6, interval=1)
    deliver(loop, evaluation(at_s=now_s, interval=20_000), before=yesterday)
    assert [at_s for at_s, _ in store.evaluations("orders")] == [now_s - 6 * DAY_S, now_s - DAY_S, now_s]
    kept = [key for key, *_ in store.measurements("orders")]
    assert {"live/e2/saturated/1", "orders/e2/r900"} <= set(kept)
    assert len(kept) == LEAST_LIVE + 2
    assert f"live/e2/steady/{old_s + 2:.0f}" not in kept, "the oldest three"
    deliver(loop, evaluation(at_s=now_s + 9 * DAY_S, epoch=8, interval=20_001), before=None)
    assert len(store.measurements("orders")) == len(kept), "not at every tick"
