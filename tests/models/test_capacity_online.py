"""What the running job shows about its capacity: least squares for any split, forgetting, skew, honesty."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench._truths_capacity import LiveJob
from models.capacity import CapacityModel, OnlineCapacity
from models.capacity.online import joined, said_live
from models.quantities import Interval, Measurement, Misuse, Unknown

pytestmark = pytest.mark.fast

NAN = float("nan")


def _rows(seed, count, workers=2, *, lowest=0.1, highest=0.6, noise=0.03):
    """CPU wanders between two levels; worker w carries 100 + (900 − 100 w)·cpu records/s."""
    rng = np.random.default_rng(seed)
    level = rng.uniform(lowest, highest, (count, 1)) * (1.0 - 0.15 * np.arange(workers))
    rates = (100.0 + (900.0 - 100.0 * np.arange(workers)) * level) * (
        1 + noise * rng.standard_normal(level.shape)
    )
    return level, rates


def _least_squares(cpu, rates, weights=None):
    weights = np.ones(len(cpu)) if weights is None else weights
    means = np.array([np.average(column, weights=weights) for column in cpu.T])
    total = 0.0
    for x, y, mean in zip(cpu.T, rates.T, means, strict=True):
        slope, intercept = np.polyfit(x, y, 1, w=np.sqrt(weights))
        total += intercept + slope * mean / means.max()
    return total


@given(st.integers(0, 10_000), st.lists(st.integers(1, 40), min_size=1, max_size=8))
def test_any_split_gives_least_squares(seed, batches):
    cpu, rates = _rows(seed, max(sum(batches), 5))
    online, at = OnlineCapacity(), 0
    for size in [*batches, len(cpu)]:
        online.update(cpu[at : at + size], rates[at : at + size])
        at += size
    assert online.total().mid == pytest.approx(_least_squares(cpu, rates), rel=1e-6)


@given(st.integers(0, 10_000), st.floats(2.0, 500.0), st.integers(1, 99), st.floats(0.2, 5.0))
def test_with_a_half_life_every_sample_weighs_by_its_age(seed, half_life_s, cut, step_s):
    cpu, rates = _rows(seed, 100)
    weights = 0.5 ** (step_s * np.arange(99, -1, -1) / half_life_s)
    split = OnlineCapacity(half_life_s=half_life_s)
    split.update(cpu[:cut], rates[:cut], step_s=step_s).update(cpu[cut:], rates[cut:], step_s=step_s)
    early, late = OnlineCapacity(half_life_s=half_life_s), OnlineCapacity(half_life_s=half_life_s)
    merged = early.update(cpu[:cut], rates[:cut], step_s=step_s)
    merged.merge(late.update(cpu[cut:], rates[cut:], step_s=step_s))
    if weights.sum() ** 2 / (weights**2).sum() < 3.5:
        return  # a slope through three samples is anything
    expected = _least_squares(cpu, rates, weights)
    if isinstance(split.total(), Unknown):
        assert (
            min(np.polyfit(x, y, 1, w=np.sqrt(weights))[0] for x, y in zip(cpu.T, rates.T, strict=True)) <= 0
        )
        return
    assert split.total().mid == pytest.approx(expected, rel=1e-6)
    assert merged.total().mid == pytest.approx(expected, rel=1e-6)
    assert merged.total().high == pytest.approx(split.total().high, rel=1e-6)


def test_mapping_and_array_are_two_spellings_of_the_same():
    cpu, rates = _rows(1, 50)
    by_name = OnlineCapacity().update(
        {"a": cpu[:, 0], "b": list(cpu[:, 1])}, {"b": rates[:, 1], "a": rates[:, 0]}
    )
    assert by_name.total() == OnlineCapacity().update(cpu, rates).total()
    one_by_one = OnlineCapacity()
    for x, y in zip(cpu, rates, strict=True):
        one_by_one.update({"a": x[0], "b": x[1]}, {"a": y[0], "b": y[1]})
    assert one_by_one.total().mid == pytest.approx(by_name.total().mid, rel=1e-9)


def test_a_missing_sample_is_skipped_but_time_goes_on():
    cpu, rates = _rows(2, 60, workers=1)
    holes = cpu.copy()
    holes[50:] = NAN
    weights = np.where(np.arange(60) < 50, 0.5 ** (np.arange(59, -1, -1) / 20.0), 0.0)
    online = OnlineCapacity(half_life_s=20.0).update(holes, rates)
    assert online.total().mid == pytest.approx(_least_squares(cpu[:50], rates[:50], weights[:50]), rel=1e-6)
    assert online._moments["0"].weight == pytest.approx(weights.sum())


def test_capacity_is_found_from_cpu_below_0_6():
    """The product's setting: noisy samples, a small intercept, CPU never above 0.6."""
    job, errors = LiveJob(), []
    for seed in range(60):
        online = OnlineCapacity(prior_weight=1.0).update(*job.samples(1800, seed))
        errors.append(abs(online.total().mid / job.capacity - 1.0))
    assert max(errors) < 0.05


def test_the_prior_goes_through_the_origin_until_cpu_has_varied():
    rng = np.random.default_rng(3)
    flat = np.clip(0.3 + 0.002 * rng.standard_normal((60, 1)), 0, 1)
    rates = 1000.0 * 0.3 * (1.0 + 0.03 * rng.standard_normal((60, 1)))
    wild = OnlineCapacity().update(flat, rates).total()
    calm = OnlineCapacity(prior_weight=30.0).update(flat, rates).total()
    assert calm.mid == pytest.approx(1000.0, rel=0.02)
    assert calm.low < 900.0 < 1100.0 < calm.high  # all of it rests on the prior, and that is said
    assert isinstance(wild, Unknown) or wild.high - wild.low > 3.0 * (calm.high - calm.low)
    level = np.linspace(0.1, 0.6, 3600)[:, None]
    learnt = OnlineCapacity(prior_weight=30.0).update(level, 100.0 + 900.0 * level).total()
    assert learnt.mid == pytest.approx(1000.0, rel=0.01)


def test_the_workers_of_the_last_update_count():
    cpu, rates = _rows(5, 100, workers=3)
    names = ["a", "b", "c"]
    online = OnlineCapacity()
    online.update({n: cpu[:, i] for i, n in enumerate(names)}, {n: rates[:, i] for i, n in enumerate(names)})
    three = online.total()
    online.update({"a": 0.3}, {"a": 370.0})
    assert online.total().mid < 0.5 * three.mid
    online.update({"a": 0.3, "new": NAN}, {"a": 370.0, "new": NAN})
    assert "new" in online.total().reason
    idle = OnlineCapacity().update(
        np.column_stack([cpu[:, 0], 0 * cpu[:, 0]]), np.column_stack([rates[:, 0], 0 * rates[:, 0]])
    )
    assert idle.total().mid == pytest.approx(1000.0, rel=0.05)  # an executor without a partition adds nothing


def test_other_scale_outs_are_scaled_up_to_a_factor_of_two():
    online = OnlineCapacity().update(*_rows(6, 300))
    seen = online.total()
    assert online.total(2) == seen
    assert online.total(4).mid == pytest.approx(2 * seen.mid)
    assert online.total(1).mid == pytest.approx(seen.mid / 2)
    assert (online.total(4).high / online.total(4).mid) > (seen.high / seen.mid)
    assert "factor of 2" in online.total(5).reason


CASES = {
    "limited by CPU": (LiveJob(), False),
    "CPU read with a scatter": (LiveJob(cpu_noise=0.03), False),
    "batches that get cheaper": (LiveJob(bend=1.3), True),
    "batches that get dearer": (LiveJob(bend=0.8), True),
    "limited by waiting": (LiveJob(limit=0.6), False),
    "twelve workers, one of them noisy": (LiveJob(workers=12, noisy=1), True),
}


@pytest.mark.parametrize("case", CASES)
def test_intervals_hold_what_they_promise(case):
    """At least 85 % of the intervals hold the truth, whatever makes a line mislead."""
    job, limiting = CASES[case]
    inside = []
    for seed in range(40):
        answer = OnlineCapacity(limiting=limiting).update(*job.samples(400, seed, swing_s=30.0)).total()
        inside.append(answer.low <= job.capacity <= answer.high)
    assert np.mean(inside) >= 0.85


def test_a_share_that_limits_narrows_the_interval():
    cpu, rates = LiveJob().samples(600, 1)
    plain, limiting = (OnlineCapacity(limiting=kind).update(cpu, rates).total() for kind in (False, True))
    assert plain.mid == limiting.mid
    assert plain.low < 0.95 * limiting.low


def test_one_noisy_worker_of_twelve_silences_nobody():
    """A total by the second minute; the noisy one takes the slope of the others."""
    for seed in range(20):
        job = LiveJob(workers=12, noisy=1)
        online = OnlineCapacity(limiting=True).update(*job.samples(120, seed, swing=0.1, swing_s=20.0))
        answer = said_live(online, 12)
        assert isinstance(answer, Interval)
        assert answer.mid == pytest.approx(job.capacity, rel=0.15)


def test_json_both_ways_and_learning_goes_on():
    cpu, rates = _rows(7, 100)
    online = OnlineCapacity(half_life_s=60.0, prior_weight=5.0).update(cpu[:60], rates[:60])
    again = OnlineCapacity.from_json(json.loads(json.dumps(online.to_json())))
    assert again.total() == online.total()
    assert again.update(cpu[60:], rates[60:]).total() == online.update(cpu[60:], rates[60:]).total()
    with pytest.raises(Misuse, match="schema"):
        OnlineCapacity.from_json({"schema": 2})


UNKNOWN = {
    "nothing yet": (lambda o: o, "no worker"),
    "no workers": (lambda o: o.update({}, {}), "no worker"),
    "cpu constant": (lambda o: o.update({"a": [0.3, 0.3, 0.3]}, {"a": [1.0, 2.0, 3.0]}), "not varied"),
    "one sample": (lambda o: o.update({"a": 0.3}, {"a": 10.0}), "not varied"),
    "two samples": (lambda o: o.update({"a": [0.3, 0.4]}, {"a": [1.0, 2.0]}), "too few"),
    "all missing": (lambda o: o.update({"a": [NAN]}, {"a": [1.0]}), "no sample"),
    "cpu zero": (lambda o: o.update({"a": [0.0, 0.0]}, {"a": [0.0, 0.0]}), "no worker has used"),
    "idle": (lambda o: o.update({"a": [0.1, 0.2]}, {"a": [0.0, 0.0]}), "processed anything"),
    "falling": (lambda o: o.update({"a": [0.1, 0.2, 0.3, 0.4]}, {"a": [4.0, 3, 2, 1]}), "does not rise"),
}


@pytest.mark.parametrize("case", UNKNOWN)
def test_what_cannot_be_told_says_so(case):
    feed, reason = UNKNOWN[case]
    answer = feed(OnlineCapacity()).total()
    assert isinstance(answer, Unknown)
    assert reason in answer.reason


def test_a_wrong_update_leaves_the_state_alone():
    online = OnlineCapacity(half_life_s=10.0).update(*_rows(8, 20))
    before = online.to_json()
    for cpu, rates in (({"a": [0.1]}, {"a": [math.inf]}), ({"a": [0.1]}, {"b": [1.0]})):
        with pytest.raises(Misuse):
            online.update(cpu, rates)
        assert online.to_json() == before


@settings(max_examples=40)
@given(st.integers(0, 1000), st.floats(0.01, 100.0))
def test_rates_k_times_as_high_mean_a_capacity_k_times_as_high(seed, factor):
    cpu, rates = _rows(seed, 50)
    for options in ({}, {"prior_weight": 10.0, "half_life_s": 100.0}):
        plain = OnlineCapacity(**options).update(cpu, rates).total()
        scaled = OnlineCapacity(**options).update(cpu, factor * rates).total()
        assert isinstance(plain, Interval)
        assert (scaled.low, scaled.mid, scaled.high) == pytest.approx(
            (factor * plain.low, factor * plain.mid, factor * plain.high)
        )


def test_workers_that_are_long_gone_are_forgotten():
    online = OnlineCapacity(half_life_s=60.0, prior_weight=1.0)
    for run in range(100):
        online.update({f"run-{run}/0": 0.5}, {f"run-{run}/0": 500.0}, step_s=60.0)
    assert len(online.to_json()["moments"]) < 30
    assert online.total().mid == pytest.approx(1000.0)


# Profile and live job together


def profile(rate, sizes=(1, 2, 4, 8)):
    return CapacityModel.fit([Measurement(s, 1.3 * rate * s, rate * s, False) for s in sizes])


def live(rate, workers, *, rows=600, noise=0.02, seed=0):
    random = np.random.default_rng(seed)
    cpu = random.uniform(0.3, 0.7, (rows, 1)) * np.ones((1, workers))
    return OnlineCapacity(limiting=True).update(
        cpu, rate * cpu * (1 + noise * random.standard_normal(cpu.shape))
    )


def blended(model, online, size):
    return joined(
        model.predict(size),
        online.total(size),
        was_probed=size in model.saturated_at,
        is_running=size == len(online.workers),
    )


def test_where_both_agree_the_blend_is_sharper_than_either():
    model, online = profile(1000.0), live(1000.0, 4, rows=60, noise=0.1)
    both = blended(model, online, 4)
    for one in (model.predict(4), online.total(4)):
        assert both.high / both.low < one.high / one.low
    assert both.mid == pytest.approx(4000.0, rel=0.02)


def test_the_running_size_outranks_an_extrapolated_profile():
    """Profiled up to 4, running on 8 that carry a quarter less than a straight line says."""
    model, online = profile(1000.0, sizes=(1, 2, 3, 4)), live(750.0, 8)
    assert blended(model, online, 8).mid == pytest.approx(6000.0, rel=0.02)
    assert blended(model, online, 8).mid < 0.9 * model.predict(8).mid


def test_a_profiled_size_outranks_live_workers_scaled_to_it():
    model, online = profile(1000.0), live(700.0, 4)
    assert blended(model, online, 8).mid == pytest.approx(8000.0, rel=0.05)


def test_where_both_saw_it_and_disagree_the_interval_holds_both():
    model, online = profile(1000.0), live(700.0, 4)
    both, now, then = blended(model, online, 4), online.total(4), model.predict(4)
    assert now.mid < both.mid < then.mid
    assert both.low <= now.mid
    assert both.high >= then.mid


def test_a_job_that_may_end_by_waiting_does_not_overrule_its_profile():
    """Profiled at 6,000; CPU stands at 0.2 … 0.5 there, and a line through it says 10,000."""
    job, model = LiveJob(workers=4, limit=0.6), profile(LiveJob(workers=4, limit=0.6).capacity / 4)
    online = OnlineCapacity().update(*job.samples(600, 3))
    assert online.total().mid > 1.5 * job.capacity
    assert blended(model, online, 4).mid == pytest.approx(job.capacity, rel=0.03)


def test_the_one_that_knows_speaks_alone():
    model, online, nothing = profile(1000.0), live(1000.0, 4), CapacityModel.fit([])
    assert blended(model, OnlineCapacity(), 4) == model.predict(4)
    assert blended(nothing, online, 4) == online.total(4)
    neither = blended(nothing, OnlineCapacity(), 4)
    assert "nothing was measured" in neither.reason
    assert "no worker" in neither.reason


def test_the_blend_lies_between_the_two():
    model = profile(1000.0)
    for rate in (800.0, 950.0, 1000.0, 1050.0, 1300.0):
        online = live(rate, 4)
        both = blended(model, online, 4)
        assert isinstance(both, Interval)
        low, high = sorted((model.predict(4).mid, online.total(4).mid))
        assert low * 0.999 <= both.mid <= high * 1.001
