"""The promise at its worst moment, against a plain second-by-second count of the same story."""

from __future__ import annotations

import math
from itertools import pairwise
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from models.promise import Input, Kept
from models.promise import kept as kept_per_kind
from models.quantities import Misuse

pytestmark = pytest.mark.fast


def recovery_by_hand(arrivals, *, capacity, downtime, failed_at, replay, past, lag, step):
    """Follow the lag of one path through one failure, piece by piece; no formula."""

    def rate(t):
        return past if t < 0 else arrivals[min(int(t / step + 1e-9), len(arrivals) - 1)]

    def pieces(start, end):
        edges = {start, end} | {k * step for k in range(len(arrivals) + 1) if start < k * step < end}
        edges |= {0.0} if start < 0 < end else set()
        ordered = sorted(edges)
        return [(a, b) for a, b in pairwise(ordered) if b > a]

    for a, b in pieces(0.0, failed_at):
        lag = max(0.0, lag + (rate(a) - capacity) * (b - a))
    lag += sum(rate(a) * (b - a) for a, b in pieces(failed_at - replay, failed_at))
    lag += sum(rate(a) * (b - a) for a, b in pieces(failed_at, failed_at + downtime))
    if lag <= 1e-9:
        return downtime
    for a, b in pieces(failed_at + downtime, len(arrivals) * step):
        fall = capacity - rate(a)
        if fall > 0 and lag <= fall * (b - a) * (1 + 1e-12):
            return a + lag / fall - failed_at
        lag -= fall * (b - a)
    return math.inf


def kept_by_hand(paths, *, capacity, downtime, target, moments, replay, past, lag, step):
    """(scale-outs, moments): the share of draws back in time."""
    return np.array(
        [
            [
                np.mean(
                    [
                        recovery_by_hand(
                            path,
                            capacity=capacity[s, p],
                            downtime=downtime[p],
                            failed_at=moment,
                            replay=replay,
                            past=path[0] if past is None else past,
                            lag=lag,
                            step=step,
                        )
                        <= target * (1 + 1e-6)
                        for p, path in enumerate(paths)
                    ]
                )
                for moment in moments
            ]
            for s in range(len(capacity))
        ]
    )


@st.composite
def stories(draw):
    """Loads with quiet stretches and bursts, capacities around them, downtimes up to beyond the target."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    step = draw(st.sampled_from([1.0, 1.0, 0.5, 2.0, 5.0, 1.5]))
    target = draw(st.sampled_from([6.0, 9.0, 7.25]))
    last = draw(st.sampled_from([1.0, 12.0, 20.0]))
    steps = math.ceil((last + target) / step) + draw(st.integers(0, 3))
    sizes, paths = draw(st.sampled_from([4, 9])), 3
    shape = draw(st.sampled_from(["noise", "burst", "fall", "rise", "zero", "blocks"]))
    load = {
        "noise": rng.uniform(0, 20, (paths, steps)),
        "burst": 4 + 30.0 * (rng.random((paths, steps)) < 0.15),
        "fall": np.linspace(25, 1, steps) * rng.uniform(0.8, 1.2, (paths, 1)),
        "rise": np.linspace(1, 25, steps) * rng.uniform(0.8, 1.2, (paths, 1)),
        "zero": np.zeros((paths, steps)),
        "blocks": np.repeat(rng.uniform(0, 20, (paths, steps)), 4, axis=1)[:, :steps],
    }[shape]
    capacity = np.sort(rng.uniform(0, 45, (sizes, 1)), axis=0) * rng.uniform(0.8, 1.25, (1, paths))
    if draw(st.booleans()):  # relative uncertainty of each size's own: the order may cross
        capacity = capacity * rng.uniform(0.6, 1.6, (sizes, paths))
    return {
        "paths": load,
        "capacity": capacity,
        "downtime": rng.uniform(0.01, draw(st.sampled_from([1.5, 5.0, 12.0])), paths),
        "target": target,
        "last": last,
        "replay": draw(st.sampled_from([0.0, 0.0, 3.0, 2.5])),
        "past": draw(st.sampled_from([None, 0.0, 15.0])),
        "lag": draw(st.sampled_from([0.0, 0.0, 40.0, 200.0])),
        "step": step,
    }


def kept(paths, *, capacity_rps, downtime_s, past_rps=None, step_s=1.0, **asked) -> Kept:
    """(scale-outs,) for downtimes (paths,), else (kinds, scale-outs)."""
    paths, downtime = np.array(paths), np.array(downtime_s)
    past = paths[:, 0] if past_rps is None else np.full(len(paths), past_rps)
    found = kept_per_kind(
        Input(paths, step_s=step_s, past_rps=past),
        capacity_rps=np.array(capacity_rps),
        downtime_s=np.atleast_2d(downtime),
        **{"lag_records": 0.0, "replay_s": 0.0} | asked,
    )
    return found if downtime.ndim == 2 else Kept(found.probability[0], found.worst_moment_s[0])


def answer(story) -> Kept:
    return kept(
        story["paths"],
        capacity_rps=story["capacity"],
        downtime_s=story["downtime"],
        target_s=story["target"],
        moments_s=story["last"],
        lag_records=story["lag"],
        replay_s=story["replay"],
        past_rps=story["past"],
        step_s=story["step"],
    )


def grid(story):
    step = story["step"] / max(1, math.ceil(story["step"]))
    return np.arange(math.ceil(story["last"] / step - 1e-9)) * step


BURST_BEFORE = {
    # 3 s of 40/s at capacity 12/s leave 84 records of backlog: a failure after the burst meets them
    "paths": np.array([[2.0] * 3 + [40.0] * 3 + [2.0] * 30]),
    "capacity": np.array([[8.0], [12.0], [20.0], [50.0]]),
    "downtime": np.array([2.0]),
    "target": 9.0,
    "last": 20.0,
    "replay": 0.0,
    "past": None,
    "lag": 0.0,
    "step": 1.0,
}


@settings(max_examples=80, deadline=None)
@given(stories())
@example(BURST_BEFORE)
@example(BURST_BEFORE | {"lag": 100.0})
def test_equals_a_count_second_by_second(story) -> None:
    truth = kept_by_hand(moments=grid(story), **{k: v for k, v in story.items() if k != "last"})
    with patch("models.promise.BLOCK", 3):  # several blocks, and scale-outs settled by their neighbours
        result = answer(story)
    np.testing.assert_allclose(result.probability, truth.min(axis=1), atol=1e-12)
    at = np.searchsorted(grid(story), result.worst_moment_s - 1e-9)
    np.testing.assert_allclose(truth[np.arange(len(at)), at], result.probability, atol=1e-12)


def test_the_lag_built_up_before_the_failure_counts() -> None:
    # One path has its burst at 3 s and is still behind at 9 s, when a failure hits the other path's burst.
    # Without that backlog no moment would be bad for both.
    early, late = [2.0] * 3 + [60.0] * 3 + [2.0] * 30, [2.0] * 10 + [60.0] * 3 + [2.0] * 23
    asked = {"capacity_rps": [[12.0, 12.0]], "downtime_s": [2.0, 2.0], "target_s": 9.0, "moments_s": 20.0}
    result = kept([early, late], **asked)
    assert result.probability[0] == 0.0
    assert 8 <= result.worst_moment_s[0] <= 12
    assert kept([early[6:] + [2.0] * 6, late], **asked).probability[0] == 0.5


@pytest.mark.parametrize(
    ("target", "downtime", "replay", "limit"),
    [(180, 90, 10, 90 / 190), (180, 110, 10, 70 / 190), (180, 130, 10, 50 / 190), (190, 110, 10, 0.4)],
)
def test_constant_load_is_kept_exactly_up_to_the_utilisation_limit(target, downtime, replay, limit) -> None:
    load = np.full((1, 300), 40_000.0)
    sizes = 40_000 / (limit * np.array([[1.001], [1.0], [0.999]]))
    result = kept(
        load, capacity_rps=sizes, downtime_s=[downtime], target_s=target, moments_s=100, replay_s=replay
    )
    assert result.probability.tolist() == [0.0, 1.0, 1.0]


LOADS = np.random.default_rng(3).uniform(0, 20, (8, 60))
DOWNTIMES = np.random.default_rng(4).uniform(1, 9, 8)
SIZES = np.linspace(1, 60, 12)[:, None] * np.random.default_rng(5).uniform(0.8, 1.2, 8)


def share(load=LOADS, **changed):
    question = {"capacity_rps": SIZES, "downtime_s": DOWNTIMES, "target_s": 20.0, "moments_s": 40.0} | changed
    return kept(load, **question).probability


def test_never_less_likely_with_more_executors_more_time_or_less_of_everything_else() -> None:
    base = share()
    assert 0 < base.mean() < 1
    assert (np.diff(base) >= 0).all()
    assert (share(target_s=19.0) <= base).all()
    assert (share(moments_s=20.0) >= base).all()
    assert (share(LOADS * 1.2) <= base).all()
    assert (share(downtime_s=DOWNTIMES + 1) <= base).all()
    assert (share(lag_records=50.0) <= base).all()
    assert (share(replay_s=3.0) <= base).all()


def test_several_kinds_are_the_same_as_one_after_the_other() -> None:
    both = share(downtime_s=np.stack([DOWNTIMES, DOWNTIMES / 2]), lag_records=30.0)
    assert both.shape == (2, 12)
    np.testing.assert_array_equal(both[0], share(lag_records=30.0))
    np.testing.assert_array_equal(both[1], share(downtime_s=DOWNTIMES / 2, lag_records=30.0))


def test_a_forecast_that_ends_too_early_is_misuse() -> None:
    with pytest.raises(Misuse, match=r"paths_rps: reach 50 s.*forecast at least 59 s"):
        share(LOADS[:, :50])
