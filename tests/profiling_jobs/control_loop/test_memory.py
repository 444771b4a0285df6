"""What the loop remembers comes back as it was; what cannot be read is begun anew, what is newer is left."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from memory_store import MemoryStore

from models import codec, control
from models.control import Settings
from models.errors import Unsafe
from models.ports import Control
from models.promise import Promise
from profiling_jobs.control_loop.forecasting import Rates
from profiling_jobs.control_loop.memory import (
    Memory,
    Outcome,
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
    store = MemoryStore()
    kept = memory()
    kept.online.update({"0": 0.5}, {"0": 500.0})
    assert save(store, "orders", kept, expected_epoch=None)
    again = recall(store, "orders", SETTINGS)
    assert codec.to_json(again) == codec.to_json(kept)
    assert (again.epoch, again.trouble) == (7, "")


def test_only_one_of_two_that_started_from_the_same_epoch_is_kept() -> None:
    store = MemoryStore()
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
    store = MemoryStore()
    store.save_control(Control("orders", 9, broken), expected_epoch=None)
    found = recall(store, "orders", SETTINGS)
    assert (found.epoch, found.rates) == (9, None)
    assert found.trouble.startswith("the control state of orders could not be read (")
    assert save(store, "orders", replace(found, epoch=10), expected_epoch=9)


def test_what_a_newer_version_wrote_is_left_alone() -> None:
    store = MemoryStore()
    store.save_control(Control("orders", 9, {"schema": 3}), expected_epoch=None)
    with pytest.raises(Unsafe, match="run the version that wrote it"):
        recall(store, "orders", SETTINGS)


def test_an_outcome_comes_back() -> None:
    store = MemoryStore()
    assert outcome(store, "orders") is None
    kept = Outcome(7, 4, 6, "later", 60.0, 70.0, tries=2, problem="silent")
    save_outcome(store, "orders", kept)
    assert outcome(store, "orders") == kept
