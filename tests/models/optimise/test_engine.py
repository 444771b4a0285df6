"""What each engine makes of a backlog, checked against the recovery forms and by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from models.optimise.engine import BatchEngine, ContinuousEngine, largest_bin_mean
from models.recovery import batch_recovery_seconds, recovery_seconds

pytestmark = pytest.mark.fast

LOAD = np.random.default_rng(0).uniform(50.0, 150.0, (6, 400))
CAPACITY = np.array([180.0, 200.0, 250.0, 300.0, 400.0, 90.0])
DOWNTIME = np.array([10.0, 30.0, 20.0, 5.0, 60.0, 10.0])
LAG = np.array([0.0, 500.0, 3000.0, 0.0, 100.0, 50.0])
ASKED = {
    "capacity_rps": CAPACITY,
    "downtime_s": DOWNTIME,
    "lag_records": LAG,
    "scale_out": 4,
    "target_s": 180.0,
    "step_s": 1.0,
}


def test_every_draw_recovers_with_its_own_capacity_continuously() -> None:
    one_by_one = [
        float(recovery_seconds(f, capacity_rps=t, downtime_s=d, lag_records=lag))
        for f, t, d, lag in zip(LOAD, CAPACITY, DOWNTIME, LAG, strict=True)
    ]
    np.testing.assert_allclose(ContinuousEngine().recovery_s(LOAD, **ASKED), one_by_one)
    assert math.isinf(one_by_one[-1])


@pytest.mark.parametrize("limit", [math.inf, 1500.0])
def test_every_draw_recovers_with_its_own_capacity_in_batches(limit) -> None:
    engine = BatchEngine(overhead_s=1.0, limit_records=limit, trigger_s=5.0, band_s=15.0)
    one_by_one = [
        float(
            batch_recovery_seconds(
                f,
                capacity_rps=t,
                overhead_s=1.0,
                limit_records=limit,
                trigger_s=5.0,
                downtime_s=d,
                lag_records=lag,
                band_s=15.0,
            )
        )
        for f, t, d, lag in zip(LOAD, CAPACITY, DOWNTIME, LAG, strict=True)
    ]
    np.testing.assert_allclose(engine.recovery_s(LOAD, **ASKED), one_by_one)


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


@pytest.mark.parametrize(
    ("phase", "seconds"),
    # a cycle of 10 s with a batch of 2 + 0.5·10 = 7 s: before its commit the cycle before it is open as well
    [(0.0, 10.0), (0.5, 15.0), (0.69, 16.9), (0.7, 7.0), (0.9, 9.0)],
)
def test_a_failure_meets_the_batch_that_is_not_committed(phase, seconds) -> None:
    engine = BatchEngine(overhead_s=2.0, trigger_s=10.0)
    open_ = engine.unread_records(
        np.array([100.0]), capacity_rps=np.array([200.0]), scale_out=1, phase=np.array([phase])
    )
    assert open_ == pytest.approx([100.0 * seconds])


def test_an_overloaded_job_has_no_cycle_to_be_in() -> None:
    engine, full = BatchEngine(overhead_s=2.0, trigger_s=10.0), np.array([200.0])
    assert engine.unread_records(full, capacity_rps=full, scale_out=1, phase=np.array([0.5])) == [0.0]


def test_what_batches_make_by_themselves_is_no_lag() -> None:
    usual = {"scale_out": 1, "capacity_rps": 200.0, "target_s": 180.0}
    assert BatchEngine(overhead_s=2.0, trigger_s=10.0).usual_lag_s(100.0, **usual) == pytest.approx(1.25 * 17)
    assert BatchEngine(trigger_s=10.0).usual_lag_s(0.0, **usual) == 20.0
    assert BatchEngine(trigger_s=10.0).usual_lag_s(500.0, **usual) == 90.0  # overloaded: half the target
    assert BatchEngine(trigger_s=10.0, band_s=33.0).usual_lag_s(500.0, **usual) == 33.0
    assert ContinuousEngine(band_s=7.0).usual_lag_s(100.0, **usual) == 7.0


def test_the_first_commit_is_later_than_the_first_start() -> None:
    # 30 s to the first commit: 20 s to its start, then 2 s overhead and 20·0.4 s of records
    assert BatchEngine(overhead_s=2.0).dead_s(np.array([30.0]), rate_rps=100.0) == pytest.approx([20.0])
    # at most 500 records a batch: 2 s at 250 rps
    limited = BatchEngine(overhead_s={3: 2.0, 9: 4.0}, limit_records=500)
    assert limited.dead_s(np.array([30.0, math.inf]), rate_rps=100.0).tolist() == [26.0, math.inf]
    assert BatchEngine(overhead_s=2.0).dead_s(np.array([30.0]), rate_rps=0.0) == pytest.approx([28.0])
    assert ContinuousEngine().dead_s(np.array([30.0]), rate_rps=100.0) == [30.0]


@pytest.mark.parametrize(
    ("rates", "largest"),
    [([1.0] * 10, 1.0), ([0, 0, 0, 0, 0, 0, 6, 8, 0, 0], 7.0), ([3.0], 3.0), ([1.0, 5.0, 2.0], 5.0)],
)
def test_the_projected_rate_is_the_largest_of_five_means(rates, largest) -> None:
    assert largest_bin_mean(np.array(rates, dtype=float)) == largest
