"""What a handful of drills teaches about downtime, and what it does not."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.downtime import DowntimeModel, downtime_priors
from models.quantities import EVENT_KINDS, Interval, RecoveryEvent, student_quantiles

pytestmark = pytest.mark.fast
REAL = Path(__file__).parents[2] / "bench" / "real.json"
unhurried = settings(deadline=None)

DOWNTIMES = st.lists(st.floats(0.0, 500.0), max_size=12)


def drills(downtimes, kind="driver_kill"):
    return [RecoveryEvent(kind, 3, 100.0 * i, float(d), math.inf) for i, d in enumerate(downtimes)]


def width(interval):
    return math.log((interval.high + 1.0) / (interval.low + 1.0))


class TestBeforeAnyDrill:
    @pytest.mark.parametrize("kind", EVENT_KINDS)
    def test_every_kind_has_an_interval(self, kind):
        interval = DowntimeModel.fit().interval(kind)
        assert isinstance(interval, Interval)
        assert interval.confidence == 0.9
        assert 0.0 <= interval.low < interval.mid < interval.high < math.inf

    def test_a_frozen_executor_is_missed_after_the_heartbeat_time_out(self):
        for timeout_s in (20.0, 120.0):
            model = DowntimeModel.fit(priors=downtime_priors(heartbeat_timeout_s=timeout_s))
            assert model.interval("executor_freeze").mid == pytest.approx(timeout_s)
            assert model.interval("executor_kill").mid == pytest.approx(8.0)  # nobody waits for that one

    def test_a_cold_start_decides_what_a_restart_costs(self):
        model = DowntimeModel.fit(priors=downtime_priors(cold_start_s=90.0))
        for kind in ("driver_kill", "restart_out", "restart_in"):
            assert model.interval(kind).mid == pytest.approx(90.0)


class TestLearning:
    def test_a_few_drills_move_it_and_many_decide_it(self):
        mids = [
            DowntimeModel.fit(drills([80.0, 90.0, 85.0] * n)).interval("driver_kill").mid
            for n in (0, 1, 4, 30)
        ]
        assert mids[0] == pytest.approx(37.0)
        assert mids == sorted(mids)
        assert mids[1] > 65.0
        assert mids[3] == pytest.approx(85.0, rel=0.02)

    def test_one_kind_teaches_nothing_about_another(self):
        learnt = DowntimeModel.fit(drills([300.0] * 5))
        assert learnt.interval("executor_kill") == DowntimeModel.fit().interval("executor_kill")
        assert (learnt.events("driver_kill"), learnt.events("executor_kill")) == (5, 0)

    def test_a_prior_that_is_far_off_widens_and_does_not_persist(self):
        surprising = DowntimeModel.fit(drills([300.0, 310.0, 305.0])).interval("driver_kill")
        assert surprising.low < 305.0 < surprising.high
        expected = DowntimeModel.fit(drills([36.0, 37.2, 36.6])).interval("driver_kill")
        assert width(surprising) > width(expected)

    @unhurried
    @given(downtimes=st.lists(st.floats(28.0, 48.0), min_size=1, max_size=6))
    def test_more_of_what_was_expected_is_narrower(self, downtimes):
        intervals = [DowntimeModel.fit(drills(downtimes * n)).interval("driver_kill") for n in (1, 3, 9)]
        widths = [width(interval) for interval in intervals]
        assert widths == sorted(widths, reverse=True)

    @unhurried
    @given(downtimes=DOWNTIMES, data=st.data())
    def test_neither_order_nor_portions_matter(self, downtimes, data):
        events = drills(downtimes)
        shuffled, cut = data.draw(st.permutations(events)), data.draw(st.integers(0, len(events)))
        whole, parts = (
            DowntimeModel.fit(events),
            DowntimeModel.fit(shuffled[:cut]).with_events(shuffled[cut:]),
        )
        one_by_one = DowntimeModel.fit()
        for event in events:
            one_by_one = one_by_one.update(event)
        levels = [0.05, 0.5, 0.95]
        expected = whole.quantiles("driver_kill", levels)
        np.testing.assert_allclose(parts.quantiles("driver_kill", levels), expected, rtol=1e-8, atol=1e-8)
        np.testing.assert_array_equal(one_by_one.quantiles("driver_kill", levels), expected)

    def test_no_downtime_at_all_is_a_value(self):
        interval = DowntimeModel.fit(drills([0.0] * 20, "executor_kill")).interval("executor_kill")
        assert interval.low == 0.0
        assert interval.high < 1.0


class TestNoReturn:
    def test_a_job_that_never_came_back_leaves_its_share(self):
        model = DowntimeModel.fit(drills([30.0] * 8 + [math.inf]))
        assert model.lost_share("driver_kill") == pytest.approx(0.1)
        samples = model.samples("driver_kill", paths=200, seed=1)
        assert np.isinf(samples).mean() == pytest.approx(0.1, abs=0.01)
        assert model.interval("driver_kill").high == math.inf
        assert "1 of them without return" in model.describe("driver_kill")

    def test_the_others_are_as_long_as_before(self):
        back, lost = DowntimeModel.fit(drills([30.0] * 8)), DowntimeModel.fit(drills([30.0] * 8 + [math.inf]))
        expected = back.quantiles("driver_kill", [0.2, 0.5, 0.9])
        np.testing.assert_allclose(lost.quantiles("driver_kill", [0.18, 0.45, 0.81]), expected)

    def test_unless_it_is_rare(self):
        model = DowntimeModel.fit(drills([30.0] * 48 + [math.inf]))
        assert math.isfinite(model.interval("driver_kill").high)

    def test_a_recovery_that_was_not_seen_does_not_spoil_the_downtime(self):
        seen = RecoveryEvent("driver_kill", 3, 0.0, 30.0, 95.0)
        unseen = RecoveryEvent("driver_kill", 3, 0.0, 30.0, math.inf)
        assert DowntimeModel.fit([seen]) == DowntimeModel.fit([unseen])


class TestSamples:
    def test_the_seed_changes_only_the_order(self):
        model = DowntimeModel.fit(drills([30.0, 45.0]))
        first, again, other = (model.samples("driver_kill", paths=200, seed=seed) for seed in (4, 4, 5))
        np.testing.assert_array_equal(first, again)
        assert not np.array_equal(first, other)
        np.testing.assert_array_equal(np.sort(first), np.sort(other))

    def test_kinds_are_independent_of_each_other(self):
        model = DowntimeModel.fit()
        kill, freeze = (model.samples(kind, paths=2000, seed=1) for kind in ("driver_kill", "driver_freeze"))
        ranks = [np.argsort(np.argsort(x)) for x in (kill, freeze)]
        assert abs(np.corrcoef(*ranks)[0, 1]) < 0.08

    def test_their_shares_are_the_probabilities(self):
        model = DowntimeModel.fit(drills([30.0, 45.0, 60.0]))
        samples, interval = model.samples("driver_kill", paths=200, seed=1), model.interval("driver_kill")
        assert (samples <= interval.high).sum() == 190
        assert (samples < interval.low).sum() == 10

    def test_one_path_is_the_median(self):
        model = DowntimeModel.fit()
        assert model.samples("live_out", paths=1, seed=0)[0] == pytest.approx(model.interval("live_out").mid)


@pytest.mark.parametrize("events", [3, 10, 30])
@pytest.mark.parametrize("shape", ["lognormal", "gamma"])
def test_the_interval_covers_the_next_event_of_jobs_never_seen(shape, events):
    """Typical downtimes off by a factor 1.6, spreads 0.2–0.8: 90 % intervals hold 85–95 % of what follows."""
    rng = np.random.default_rng([events, len(shape)])
    covered, widths = [], []
    for _ in range(300):
        typical, spread = 37.0 * math.exp(rng.normal(0.0, 0.5)), rng.uniform(0.2, 0.8)
        drawn = (
            typical * np.exp(spread * rng.standard_normal(events + 50))
            if shape == "lognormal"
            else rng.gamma(spread**-2, typical * spread**2, events + 50)
        )
        interval = DowntimeModel.fit(drills(drawn[:events])).interval("driver_kill")
        covered.append(np.mean((drawn[events:] >= interval.low) & (drawn[events:] <= interval.high)))
        widths.append(width(interval))
    assert 0.85 <= np.mean(covered) <= 0.95
    assert np.mean(widths) < width(DowntimeModel.fit().interval("driver_kill"))


@pytest.mark.parametrize(
    ("degrees", "at_95", "at_999"),
    [
        (1, 6.3138, 318.309),
        (2, 2.9200, 22.3271),
        (3, 2.3534, 10.2145),
        (7, 1.8946, 4.7853),
        (30, 1.6973, 3.3852),
        (1e6, 1.644855, 3.090238),
    ],
)
def test_the_quantiles_are_those_of_the_printed_tables(degrees, at_95, at_999):
    low, mid, high, far = student_quantiles(np.array([0.05, 0.5, 0.95, 0.999]), degrees=degrees)
    assert mid == pytest.approx(0.0, abs=1e-9)
    assert high == pytest.approx(at_95, rel=3e-5)
    assert far == pytest.approx(at_999, rel=3e-5)
    assert low == pytest.approx(-high)


MEASURED = {
    row[0]: [float(r[6]) for r in ROWS if r[0] == row[0]]
    for ROWS in [json.loads(REAL.read_text())["parts"]["drills"]["rows"]]
    for row in ROWS
}
"""Kind -> downtimes of the drills on real Spark, with a heartbeat time-out of 20 s."""


@pytest.mark.parametrize("kind", MEASURED)
def test_before_the_first_drill_the_prior_says_what_real_spark_takes(kind: str) -> None:
    prior = DowntimeModel.fit(priors=downtime_priors(heartbeat_timeout_s=20.0)).interval(kind)
    assert prior.mid == pytest.approx(sorted(MEASURED[kind])[len(MEASURED[kind]) // 2], rel=0.15)
    assert all(prior.low < downtime_s < prior.high for downtime_s in MEASURED[kind])


def test_a_first_kill_of_a_slower_job_outweighs_the_prior() -> None:
    model, live = DowntimeModel.fit(), (9.8, 9.8, 14.9)
    assert model.interval("executor_kill").mid == pytest.approx(live[0], rel=0.25)
    assert "prior only" in model.describe("executor_kill")
    after = DowntimeModel.fit(drills([14.9], kind="executor_kill")).interval("executor_kill")
    assert after.mid > 0.5 * (model.interval("executor_kill").mid + 14.9)
