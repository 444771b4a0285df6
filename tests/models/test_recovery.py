"""The constitution of the recovery model: closed forms, properties, and what it refuses to answer."""

import math

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import models.recovery
from models.recovery import recovered_at, recovery_seconds, steady_recovery_s, utilisation_limit

pytestmark = pytest.mark.fast
unhurried = settings(deadline=None)  # a busy machine is no failure

RATE = st.integers(0, 40).map(lambda x: x * 25.0)
RATES = st.lists(RATE, min_size=4, max_size=40)
SECONDS = st.one_of(st.just(0.0), st.floats(1e-6, 20.0))
"""Shorter ones are lost in rounding: test_a_downtime_that_goes_to_zero_takes_recovery_along."""
LAG = st.one_of(st.just(0.0), st.floats(1e-3, 5000.0))  # one of 1e-83 records rounds away beside any arrival
JOB = st.fixed_dictionaries(
    {"capacity_rps": st.floats(50.0, 3000.0), "downtime_s": SECONDS, "lag_records": LAG}
)


class TestClosedForms:
    @pytest.mark.parametrize(
        ("utilisation", "expected_s"),
        [
            (0.4, 190.0),
            (0.5, 230.0),
            (0.501, 230.48096),
            (0.8, 590.0),
            (0.9, 1190.0),
            (1.0, math.inf),
            (1.2, math.inf),
        ],
    )
    def test_a_constant_load_recovers_as_the_formula_says(self, utilisation, expected_s):
        arrivals = np.full(2000, 1000.0 * utilisation)
        forecast = recovery_seconds(arrivals, capacity_rps=1000.0, downtime_s=110.0, replay_s=10.0)
        assert float(forecast) == pytest.approx(expected_s, abs=1e-4)
        formula = steady_recovery_s(utilisation=utilisation, downtime_s=110, replay_s=10)
        assert formula == pytest.approx(expected_s, abs=1e-4)

    @pytest.mark.parametrize(("downtime_s", "limit"), [(90, 0.474), (110, 0.368), (130, 0.263)])
    def test_the_target_limits_the_utilisation(self, downtime_s, limit):
        answer = utilisation_limit(target_s=180, downtime_s=downtime_s, replay_s=10)
        assert answer == pytest.approx(limit, abs=5e-4)
        assert steady_recovery_s(utilisation=answer, downtime_s=downtime_s, replay_s=10) == pytest.approx(
            180.0
        )


@pytest.mark.parametrize(
    ("target_s", "downtime_s", "replay_s", "expected"),
    [(60, 61, 0, -math.inf), (60, 60, 10, 0.0), (60, 0, 0, 1.0), (0, 0, 0, 1.0)],
)
def test_the_edges_of_the_utilisation_limit(target_s, downtime_s, replay_s, expected):
    assert utilisation_limit(target_s=target_s, downtime_s=downtime_s, replay_s=replay_s) == expected


@unhurried
@given(
    utilisation=st.floats(0.0, 0.95),
    downtime_s=SECONDS,
    replay_s=SECONDS,
    step_s=st.sampled_from([0.1, 0.5, 1.0, 7.0]),
)
def test_fractions_of_a_step_are_exact(utilisation, downtime_s, replay_s, step_s):
    expected = steady_recovery_s(utilisation=utilisation, downtime_s=downtime_s, replay_s=replay_s)
    arrivals = np.full(math.ceil(expected / step_s) + 1, 1000.0 * utilisation)
    answer = recovery_seconds(
        arrivals, capacity_rps=1000.0, downtime_s=downtime_s, replay_s=replay_s, step_s=step_s
    )
    assert float(answer) == pytest.approx(expected, rel=1e-9, abs=1e-9)


def crawl(rates, *, capacity, downtime_s, backlog, dt=1 / 64):
    """The definition itself in small steps: wait for the downtime, then work until nothing is left."""
    if downtime_s > len(rates):
        return math.inf
    if backlog + sum(rates[: math.ceil(downtime_s)]) == 0:
        return downtime_s
    t = 0.0
    while t < len(rates):
        backlog += rates[int(t)] * dt
        t += dt
        if t > downtime_s:
            backlog -= capacity * min(dt, t - downtime_s)
            if backlog <= 1e-9:
                return t
    return math.inf


@unhurried
@given(rates=RATES, capacity=st.floats(50.0, 2000.0), downtime_s=SECONDS, lag=LAG)
def test_it_agrees_with_working_through_the_backlog_bit_by_bit(rates, capacity, downtime_s, lag):
    slow = crawl(rates, capacity=capacity, downtime_s=downtime_s, backlog=lag)
    fast = float(recovery_seconds(rates, capacity_rps=capacity, downtime_s=downtime_s, lag_records=lag))
    assume(math.isfinite(slow) or math.isinf(fast) or fast < len(rates) - 0.1)
    assert fast == pytest.approx(slow, abs=1 / 32)


class TestProperties:
    @unhurried
    @given(rates=RATES, extra=st.data(), job=JOB)
    def test_more_load_never_shortens_recovery_nor_makes_it_feasible(self, rates, extra, job):
        more = extra.draw(st.lists(RATE, min_size=len(rates), max_size=len(rates)))
        less_s = recovery_seconds(rates, replay_s=3.0, **job)
        assert recovery_seconds(np.add(rates, more), replay_s=3.0, **job) >= less_s - 1e-9
        assert less_s >= job["downtime_s"]

    @unhurried
    @given(rates=RATES, downtime_s=SECONDS, lag=LAG, replay_s=SECONDS)
    def test_more_executors_never_lengthen_it(self, rates, downtime_s, lag, replay_s):
        capacity = np.linspace(0.0, 3000.0, 61)
        answer = recovery_seconds(
            rates, capacity_rps=capacity, downtime_s=downtime_s, replay_s=replay_s, lag_records=lag
        )
        finite = answer[np.isfinite(answer)]
        assert (np.diff(finite) <= 1e-9).all()
        assert np.isinf(answer[: answer.size - finite.size]).all()

    @unhurried
    @given(rates=RATES, pieces=st.integers(2, 5), replay_s=st.floats(0.0, 4.0), job=JOB)
    def test_the_grid_does_not_matter(self, rates, pieces, replay_s, job):
        past, job = [300.0, 0.0, 50.0, 700.0], job | {"replay_s": replay_s}
        finer = {"past_rps": np.repeat(past, pieces), "step_s": 1 / pieces}
        coarse = float(recovery_seconds(rates, past_rps=past, **job))
        fine = float(recovery_seconds(np.repeat(rates, pieces), **finer, **job))
        assume(math.isinf(coarse) == math.isinf(fine) or min(coarse, fine) < len(rates) - 1e-6)
        assert fine == pytest.approx(coarse, rel=1e-9, abs=1e-7)

    def test_slices_of_a_large_question_do_not_show(self, monkeypatch):
        rng = np.random.default_rng(7)
        arrivals = rng.uniform(0, 900, (5, 3, 50))
        job = {
            "capacity_rps": np.array([0.0, 500.0, 800.0, 2000.0]),
            "downtime_s": rng.uniform(0, 20, (5, 3, 1)),
            "replay_s": rng.uniform(0, 5, (3, 4)),
            "lag_records": 100.0,
        }
        whole = recovery_seconds(arrivals, **job)
        monkeypatch.setattr(models.recovery, "CHUNK", 64)
        np.testing.assert_array_equal(recovery_seconds(arrivals, **job), whole)
        for path in np.ndindex(5, 3):  # and every lane is the question asked alone
            for size in range(4):
                alone = recovery_seconds(
                    arrivals[path],
                    capacity_rps=job["capacity_rps"][size],
                    downtime_s=job["downtime_s"][(*path, 0)],
                    replay_s=job["replay_s"][path[1], size],
                    lag_records=100.0,
                )
                assert whole[(*path, size)] == alone


class TestShapes:
    @pytest.mark.parametrize(
        ("arrivals", "capacity", "more", "expected"),
        [
            ((9,), (), {}, ()),
            ((9,), (4,), {}, (4,)),
            ((6, 9), (), {}, (6,)),
            ((6, 9), (4,), {}, (6, 4)),
            ((6, 9), (), {"downtime_s": (6,)}, (6,)),
            ((6, 9), (4,), {"downtime_s": (6, 1)}, (6, 4)),
            ((6, 9), (4,), {"lag_records": (6, 4)}, (6, 4)),
            ((2, 6, 9), (4,), {"replay_s": (4,)}, (2, 6, 4)),
            ((9,), (), {"downtime_s": (3,)}, (3,)),
            ((6, 9), (6, 4), {}, (6, 4)),
            ((0, 9), (4,), {}, (0, 4)),
        ],
    )
    def test_a_result_has_the_paths_and_the_scale_outs(self, arrivals, capacity, more, expected):
        arguments = {name: np.ones(shape) for name, shape in more.items()}
        answer = recovery_seconds(
            np.ones(arrivals), capacity_rps=np.full(capacity, 5.0), **{"downtime_s": 1.0, **arguments}
        )
        assert isinstance(answer, np.ndarray)
        assert answer.shape == expected
        assert np.isfinite(answer).all()

    def test_each_path_has_its_own_past(self):
        arrivals = np.full((2, 100), 100.0)
        past = [[500.0, 0.0, 100.0], [500.0, 300.0, 100.0]]
        answer = recovery_seconds(arrivals, capacity_rps=200.0, downtime_s=0.0, replay_s=2.5, past_rps=past)
        np.testing.assert_allclose(answer, [(250 + 0 + 100) / 100, (250 + 300 + 100) / 100])
        one_rate = recovery_seconds(arrivals, capacity_rps=200.0, downtime_s=0, replay_s=2, past_rps=50.0)
        np.testing.assert_allclose(one_rate, [1.0, 1.0])


class TestZeroIsAValue:
    @pytest.mark.parametrize(
        ("rate", "capacity", "downtime_s", "lag", "expected_s"),
        [
            (0.0, 100.0, 12.5, 0.0, 12.5),  # nothing to do: it is back when it is back
            (0.0, 0.0, 12.5, 0.0, 12.5),
            (0.0, 0.0, 12.5, 1.0, math.inf),  # something to do and nothing to do it with
            (1.0, 0.0, 12.5, 0.0, math.inf),
            (0.0, 100.0, 12.5, 250.0, 15.0),
            (50.0, 100.0, 0.0, 0.0, 0.0),
            (50.0, 50.0, 0.0, 1.0, math.inf),
            (0.0, 100.0, 60.0, 0.0, 60.0),  # just inside the horizon
            (0.0, 100.0, 60.1, 0.0, math.inf),  # later than anything that is known
            (0.0, 100.0, math.inf, 0.0, math.inf),
            (10.0, 100.0, math.inf, 5.0, math.inf),
        ],
    )
    def test_nothing_is_special_about_zero(self, rate, capacity, downtime_s, lag, expected_s):
        answer = recovery_seconds(
            np.full(60, rate), capacity_rps=capacity, downtime_s=downtime_s, lag_records=lag
        )
        assert float(answer) == pytest.approx(expected_s)

    @pytest.mark.parametrize(
        ("downtime_s", "expected_s"),
        [(0.0, 0.0), (5e-324, 0.0), (1e-153, 0.0), (1e-14, 0.01), (3e-12, 3.0), (1e-10, math.inf)],
    )
    def test_a_downtime_that_goes_to_zero_takes_recovery_along(self, downtime_s, expected_s):
        """Load = capacity: only a backlog below the rounding of the sums is ever worked off."""
        full = {"capacity_rps": 1000.0, "downtime_s": downtime_s}
        assert float(recovery_seconds(np.full(60, 1000.0), **full)) == pytest.approx(expected_s, abs=1e-3)

    def test_what_comes_after_the_catch_up_does_not_undo_it(self):
        arrivals = np.r_[np.full(30, 100.0), np.zeros(30), np.full(200, 5000.0)]
        capacity = np.array([100.0, 50.0, 40.0])  # 3 000 records at 100/s, and at 50/s not before the flood
        answer = recovery_seconds(arrivals, capacity_rps=capacity, downtime_s=10.0)
        np.testing.assert_allclose(answer, [40.0, math.inf, math.inf])
        pause = recovery_seconds(arrivals, capacity_rps=capacity[1], downtime_s=0.0)
        assert float(pause) == 0.0


class TestRecoveredAt:
    """Lag is sampled every second, the failure is at 1 000, the band is 3 s."""

    @pytest.mark.parametrize(
        ("lag", "hold_s", "recovery_s"),
        [
            ([1, 5, 9, 4, 2, 2, 2, 2, 2, 2], 5, 4),
            ([1, 5, 9, 4, 2, 2, 2, 2, 2], 5, math.inf),  # the record ends too early to tell
            ([1, 5, 9, 2, 2, 4, 2, 2, 2, 2], 3, 6),  # back for a moment is not back
            ([1, 5, 9, 4, 3, 3, 3, 3], 3, 4),  # on the edge is inside
            ([1, 2, 2, 1, 2, 2, 1, 2], 3, 0),  # never left its band
            ([1, 5, 9, 9, 9, 9, 9, 9], 3, math.inf),
            ([1, math.inf, math.inf, 2, 2, 2, 2, 2], 3, 3),
            ([1, 5, 2, 5, 2, 5, 2, 5], 0, 0),
            ([9, 5, 2, 5, 2, 5, 2, 5], 0, 2),
        ],
    )
    def test_the_first_instant_from_which_it_stays(self, lag, hold_s, recovery_s):
        times = 1000.0 + np.arange(len(lag))
        answer = recovered_at(times, lag, failed_at_s=1000.0, band_s=3.0, hold_s=hold_s)
        assert answer - 1000.0 == recovery_s

    def test_only_what_is_after_the_failure_counts(self):
        times, lag = np.arange(20.0), [1.0] * 10 + [8.0] * 4 + [1.0] * 6
        assert recovered_at(times, lag, failed_at_s=9.5, band_s=3.0, hold_s=4.0) == 14.0
        assert recovered_at(times, lag, failed_at_s=25.0, band_s=3.0, hold_s=0.0) == math.inf

    def test_epoch_seconds_keep_their_resolution(self):
        start = 1.76e9
        times = start + 0.1 * np.arange(400)
        lag = np.where(np.arange(400) < 100, 9.0, 1.0)
        assert recovered_at(times, lag, failed_at_s=start, band_s=3.0, hold_s=29.9) == times[100]
