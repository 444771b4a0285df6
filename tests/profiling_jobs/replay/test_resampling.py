"""Deleted or replicated, the keys keep their shares and their order."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from profiling_jobs.replay.sources import MICRO, Block, Source, draw

pytestmark = pytest.mark.fast


def replayed(*, records: int, factor: float, slice_records: int, seed: int = 7) -> np.ndarray:
    """Every record walked over once, in slices, at `factor` times its own rate."""
    chosen, due = [], 0.0
    for number, start in enumerate(range(0, records, slice_records)):
        before, due = due, due + slice_records * factor
        chosen.append(
            draw(
                position=start * MICRO,
                advance=min(slice_records, records - start) * MICRO,
                count=int(due) - int(before),
                seed=seed,
                number=number,
            )
        )
    return np.concatenate(chosen)


@pytest.mark.parametrize("factor", [0.1, 0.37, 0.5, 0.9, 1.0, 1.3, 2.0, 3.7])
@pytest.mark.parametrize("pattern", ["zipf", "in turn"])
def test_the_key_shares_pass_a_chi_square_test(factor: float, pattern: str) -> None:
    """Keys that come in turn are what plain systematic sampling fails on: its step meets theirs."""
    records, keys = 100_000, 10
    zipf = np.minimum(np.random.default_rng(1).zipf(1.5, records), keys) - 1
    recorded = np.arange(records) % keys if pattern == "in turn" else zipf
    chosen = recorded[replayed(records=records, factor=factor, slice_records=1000)]
    seen = np.bincount(chosen, minlength=keys)
    expected = np.bincount(recorded, minlength=keys) * (chosen.size / records)
    assert chosen.size == int(records * factor)
    assert stats.chisquare(seen, expected).pvalue > 0.01


@given(st.integers(0, 10**12), st.integers(0, 10**10), st.integers(0, 3000), st.integers(0, 100))
def test_a_slice_draws_what_is_due_from_its_own_stretch_in_order_and_evenly(
    position: int, advance: int, count: int, number: int
) -> None:
    chosen = draw(position=position, advance=advance, count=count, seed=3, number=number)
    first, behind = position // MICRO, (position + advance) // MICRO
    assert chosen.size == count
    assert (np.diff(chosen) >= 0).all()
    if count and behind > first:
        assert first <= chosen[0] <= chosen[-1] < behind
        times = np.bincount(chosen - first, minlength=behind - first)
        assert times.max() - times.min() <= 1, "none twice while another one is left out"
    elif count:
        assert (chosen == first).all()
    assert (chosen == draw(position=position, advance=advance, count=count, seed=3, number=number)).all()


@given(st.integers(1, 10**6), st.integers(1, 200))
def test_every_record_has_its_turn_however_slowly_it_is_walked_through(advance: int, slices: int) -> None:
    places = [
        draw(position=slice_ * advance, advance=advance, count=1, seed=0, number=slice_)[0]
        for slice_ in range(slices)
    ]
    assert (np.diff([*places]) <= 1).all()
    assert places[-1] == (slices - 1) * advance // MICRO


def test_positions_are_exact_after_months() -> None:
    day_us = 86_400_000_000
    source = Source("seven", (Block(("one.parquet",), 7, 0),), day_us, frozenset({"value"}))
    assert source.position(30 * day_us, 0) == 210 * MICRO
