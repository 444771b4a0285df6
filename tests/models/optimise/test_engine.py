"""What each engine makes of a backlog, checked by hand, and the draws of a capacity."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench import _truths_promises
from models.optimise.judging import capacity_draws, normal_draws
from models.optimise.question import BatchEngine, ContinuousEngine, Events, largest_bin_mean
from models.promise import Input
from models.quantities import Interval
from models.recovery import Batches, Inflow, batch_recovery_seconds, recovery_seconds, uncommitted_records

pytestmark = pytest.mark.fast

LOAD = np.random.default_rng(0).uniform(50.0, 150.0, (6, 400))
CAPACITY = np.array([180.0, 200.0, 250.0, 300.0, 400.0, 90.0])
DOWNTIME = np.array([10.0, 30.0, 20.0, 5.0, 60.0, 10.0])
ASKED = {"scale_out": 4, "target_s": 180.0, "reach_s": 270.0}


def events(
    load=LOAD, *, capacity=CAPACITY, downtime=DOWNTIME, lag=0.0, phase=0.5, moments=(0.0,), past=100.0
):
    draws = len(capacity)
    return Events(
        Input(np.broadcast_to(load, (draws, np.shape(load)[-1])), step_s=1.0, past_rps=np.full(draws, past)),
        path=np.arange(draws),
        capacity_rps=np.asarray(capacity),
        sustained_rps=np.asarray(capacity),
        downtime_s=np.broadcast_to(downtime, (draws,)),
        phase=np.full(draws, phase),
        lag_records=lag,
        moments_s=np.asarray(moments),
    )


@pytest.mark.parametrize(
    "limit", [None, math.inf, 1500.0], ids=["continuously", "in batches", "in limited batches"]
)
def test_every_draw_recovers_with_its_own_capacity(limit) -> None:
    batches = (
        {} if limit is None else {"overhead_s": 1.0, "limit_records": limit, "trigger_s": 5.0, "band_s": 15.0}
    )
    alone, engine = (batch_recovery_seconds, BatchEngine) if batches else (recovery_seconds, ContinuousEngine)
    one_by_one = [
        float(alone(f, capacity_rps=t, downtime_s=d, lag_records=3000.0, **batches))
        for f, t, d in zip(LOAD, CAPACITY, DOWNTIME, strict=True)
    ]
    found = engine(**batches).recoveries_s(events(lag=3000.0), **ASKED)
    np.testing.assert_allclose(found, [[one if one <= 270.0 else math.inf for one in one_by_one]])
    assert math.isinf(one_by_one[-1])


@pytest.mark.parametrize("moment", [1.0, 10.0, 20.9])
def test_a_failure_during_a_batch_loses_the_whole_batch(moment) -> None:
    """Drained continuously, a backlog left 57 % of the choices of `bench promises` too small."""
    engine, load = BatchEngine(overhead_s=1.0, band_s=15.0), np.full((1, 400), 100.0)
    draw = {"capacity": [200.0], "downtime": 20.0}
    during = engine.recoveries_s(events(load, lag=4000.0, moments=[moment], **draw), **ASKED)
    nothing_done = engine.recoveries_s(events(load, lag=4000.0 + 100.0 * moment, **draw), **ASKED)
    assert during == pytest.approx(nothing_done)


def test_more_lag_than_steady_batches_cause_is_a_backlog() -> None:
    """A cycle of 10 s and a batch of 7 s cause 17 s of lag: 19 s wait in a batch that has only begun."""
    engine, load = BatchEngine(overhead_s=2.0, trigger_s=10.0), np.full((1, 400), 100.0)
    draw = {"capacity": [200.0], "downtime": 20.0}
    usual, more = (
        engine.recoveries_s(events(load, lag=lag, moments=[5.0], **draw), **ASKED) for lag in (1690.0, 1900.0)
    )
    nothing_done = engine.recoveries_s(events(load, lag=1900.0 + 500.0, **draw), **ASKED)
    assert more == pytest.approx(nothing_done)
    assert usual < more
    late = {"scale_out": 1, "rate_rps": 100.0}
    assert engine.losing_moments_s(200.0, lag_records=1690.0, **late).size == 0
    assert engine.losing_moments_s(200.0, lag_records=1900.0, **late).max() == pytest.approx(1.1 * 11.5)


@pytest.mark.parametrize(("jump_at_s", "held"), [(22.0, False), (60.0, True)])
def test_three_short_batches_are_no_recovery_if_the_load_jumps_within_their_hold(jump_at_s, held) -> None:
    """Short batches: three of them are over after 2 s, and a recovery is measured over 15 s."""
    load = np.where(np.arange(400) < jump_at_s, 100.0, 170.0)
    engine = BatchEngine(overhead_s=0.3, band_s=2.0)
    found = engine.recoveries_s(events(load, capacity=[200.0], downtime=5.0), **ASKED)[0, 0]
    assert (found < jump_at_s) == held


def test_a_lag_is_followed_to_its_end_as_by_the_independent_simulator() -> None:
    rng = np.random.default_rng(3)
    moments = np.array([0.0, 7.0, 23.0, 60.0, 119.0])
    for limit, trigger in [(math.inf, 0.0), (math.inf, 12.0), (900.0, 0.0), (2500.0, 9.0)]:
        load, capacity = rng.uniform(70.0, 130.0, (40, 500)), rng.uniform(180.0, 400.0, 40)
        for lag in (0.0, 9000.0):
            engine = BatchEngine(overhead_s=0.8, limit_records=limit, trigger_s=trigger)
            phase = rng.uniform(size=40)
            asked = events(load, capacity=capacity, downtime=20.0, lag=lag, moments=moments)
            found = engine.recoveries_s(replace(asked, phase=phase), **ASKED)
            truth = _truths_promises.Engine(0.8, limit, trigger)
            futures = _truths_promises.Futures(load, lag, 100.0)
            left = _truths_promises.uncommitted(futures, truth, capacity, phase, moments)
            band = truth.band_s(
                _truths_promises.busiest(futures, np.arange(40), np.zeros(40), 180.0) / capacity, 180.0
            )
            for i, moment in enumerate(moments):
                taken, _ = _truths_promises.recoveries(
                    futures,
                    truth,
                    np.arange(40),
                    capacity=capacity,
                    failed_s=np.full(40, moment),
                    waiting=left[:, i],
                    start_s=np.full(40, 20.0),
                    band_s=band,
                    longest_s=270.0,
                )
                assert np.median(abs(found[i] - taken)) < 2.0, (limit, trigger, lag, moment)


@pytest.mark.parametrize(
    ("engine", "capacity", "sustained"),
    [
        (ContinuousEngine(), 1000.0, 1000.0),
        (BatchEngine(overhead_s=2.0), 1000.0, 1000.0),  # ever larger batches make the overhead vanish
        (BatchEngine(overhead_s=2.0, limit_records=8000), 1000.0, 800.0),
        (BatchEngine(overhead_s=2.0, limit_records=8000, trigger_s=20.0), 1000.0, 400.0),
        (BatchEngine(overhead_s=2.0, limit_records=8000, trigger_s=5.0), 0.0, 0.0),
        (BatchEngine(overhead_s={1: 2.0, 4: 12.0}, limit_records=8000), 1000.0, 400.0),
        (BatchEngine(overhead_s={6: 2.0, 9: 12.0}, limit_records=8000), 1000.0, 800.0),
    ],
)
def test_the_rate_that_can_be_kept_up(engine, capacity, sustained) -> None:
    assert engine.sustained_rps(np.array([capacity]), scale_out=4) == pytest.approx([sustained], abs=1e-6)


@pytest.mark.parametrize("moment", [0.0, 50.0])
@pytest.mark.parametrize(
    ("phase", "seconds"),
    # a cycle of 10 s with a batch of 2 + 0.5·10 = 7 s: before its commit the cycle before it is open as well
    [(0.0, 10.0), (0.5, 15.0), (0.69, 16.9), (0.7, 7.0), (0.9, 9.0)],
)
def test_a_failure_meets_the_batch_that_is_not_committed(phase, seconds, moment) -> None:
    inflow = Inflow.of("load", np.full((1, 300), 100.0), step_s=1.0)
    one = (np.array([x]) for x in (200.0, 2.0, math.inf, 10.0))
    at = {"begin_s": np.array([100.0]), "at_s": np.array([100.0 + moment])}
    open_ = uncommitted_records(
        inflow, np.array([0]), Batches(*one), waiting=np.array([math.inf]), phase=np.array([phase]), **at
    )
    assert open_ == pytest.approx([100.0 * seconds])


def test_what_batches_make_by_themselves_is_no_lag() -> None:
    usual = {"scale_out": 1, "capacity_rps": 200.0, "target_s": 180.0}
    assert BatchEngine(overhead_s=2.0, trigger_s=10.0).usual_lag_s(100.0, **usual) == pytest.approx(1.25 * 17)
    assert BatchEngine(trigger_s=10.0).usual_lag_s(0.0, **usual) == 20.0
    assert BatchEngine(trigger_s=10.0).usual_lag_s(500.0, **usual) == pytest.approx(
        1.25 * 19.5
    )  # overloaded: as at 95 %
    assert BatchEngine(trigger_s=60.0).usual_lag_s(50.0, **usual) == 90.0  # at most half the target
    assert BatchEngine(trigger_s=10.0, band_s=33.0).usual_lag_s(500.0, **usual) == 33.0
    assert ContinuousEngine(band_s=7.0).usual_lag_s(100.0, **usual) == 7.0


@pytest.mark.parametrize(
    ("rates", "largest"),
    [([1.0] * 10, 1.0), ([0, 0, 0, 0, 0, 0, 6, 8, 0, 0], 7.0), ([3.0], 3.0), ([1.0, 5.0, 2.0], 5.0)],
)
def test_the_projected_rate_is_the_largest_of_five_means(rates, largest) -> None:
    assert largest_bin_mean(np.array(rates, dtype=float)) == largest


# Draws of a capacity


@settings(max_examples=25, deadline=None)
@given(st.tuples(*[st.floats(1.0, 100.0)] * 3).map(sorted), st.sampled_from([0.5, 0.9, 0.99]))
def test_the_draws_have_the_quantiles_of_the_interval(ends, confidence) -> None:
    drawn = capacity_draws([Interval(*ends, confidence)], normal_draws(2001, seed=5))[0]
    levels = [(1 - confidence) / 2, 0.5, (1 + confidence) / 2]
    np.testing.assert_allclose(np.quantile(drawn, levels), ends, rtol=0.05)
    assert drawn.min() > 0


def test_every_size_is_off_in_the_same_direction() -> None:
    sizes = [Interval(s * 0.9, s, s * 1.2, 0.9) for s in (1.0, 2.0, 8.0)]
    drawn = capacity_draws(sizes, normal_draws(200, seed=1))
    np.testing.assert_allclose(drawn[1], 2 * drawn[0])
    assert (np.diff(drawn, axis=0) > 0).all()


@pytest.mark.parametrize(
    ("interval", "lowest", "highest"),
    [
        (Interval(5.0, 5.0, 5.0, 0.9), 5.0, 5.0),
        (Interval(0.0, 5.0, 5.0, 0.9), 0.0, 5.0),  # a low end of zero: the lower half may be nothing
        (Interval(0.0, 0.0, 0.0, 0.9), 0.0, 0.0),
        (Interval(4.0, 5.0, 5.0, 1.0), 4.0, 5.0),  # certain: hardly ever beyond its ends
    ],
)
def test_intervals_at_their_limits(interval, lowest, highest) -> None:
    drawn = capacity_draws([interval], normal_draws(100, seed=0))
    assert np.isfinite(drawn).all()
    assert drawn.min() >= lowest
    assert drawn.max() <= highest


def test_draws_are_fixed_by_the_seed_alone() -> None:
    np.testing.assert_array_equal(normal_draws(50, seed=3), normal_draws(50, seed=3))
    assert (normal_draws(50, seed=3) != normal_draws(50, seed=4)).any()
    np.testing.assert_array_equal(np.sort(normal_draws(50, seed=3)), np.sort(normal_draws(50, seed=4)))
