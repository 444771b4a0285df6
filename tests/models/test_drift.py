"""Drift is found, and steady numbers raise no alarm more often than stated."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from models import codec
from models.drift import Drift
from models.quantities import Misuse

STEADY = {
    "normal": lambda r, n: r.normal(size=n),
    "skewed": lambda r, n: r.exponential(size=n),
    "without a variance": lambda r, n: r.standard_cauchy(n),
    "often equal": lambda r, n: r.integers(0, 3, n),
}


@pytest.mark.parametrize("kind", STEADY)
def test_a_thousand_steady_numbers_raise_an_alarm_once_in_a_hundred(kind):
    runs = [Drift().update(STEADY[kind](np.random.default_rng(seed), 1_000)) for seed in range(60)]
    assert sum(run.drifted for run in runs) <= 3  # more than that has a chance of 0.3 % at the stated rate
    assert "0.01 false alarms per 1000" in runs[0].reason


def test_the_stated_chance_is_the_chance():
    """Neither more nor much fewer: a detector that never speaks would pass the test above."""
    runs = [Drift(0.5).update(np.random.default_rng(seed).normal(size=1_000)) for seed in range(120)]
    assert 0.35 <= np.mean([run.drifted for run in runs]) <= 0.65


@pytest.mark.fast
@pytest.mark.parametrize(
    ("shift", "within", "at_least"), [(2.0, 20, 20), (-2.0, 20, 20), (1.0, 60, 15), (5.0, 9, 20)]
)
def test_a_shift_is_found_in_time(shift, within, at_least):
    found = 0
    for seed in range(20):
        random = np.random.default_rng(100 + seed)
        before = Drift().update(random.normal(size=100))
        after = before.update(shift + random.normal(size=within))
        assert not before.drifted
        found += after.drifted
        if after.drifted:
            assert ("larger" if shift > 0 else "smaller") in after.reason
    assert found >= at_least


@pytest.mark.fast
def test_equal_numbers_never_drift():
    assert not Drift().update(np.full(3_000, 7.0)).drifted


@pytest.mark.fast
@given(values=st.lists(st.floats(-1e9, 1e9), max_size=60), cut=st.integers(0, 60))
def test_one_by_one_or_all_at_once_is_the_same(values, cut):
    whole = Drift(0.5).update(values)
    assert Drift(0.5).update(values[:cut]).update(values[cut:]) == whole
    assert codec.from_json(Drift, codec.loads(codec.dumps("data", codec.to_json(whole)))) == whole


@pytest.mark.fast
def test_an_alarm_stays():
    drifted = Drift().update([*np.random.default_rng(0).normal(size=100), *[9.0] * 20])
    assert drifted.drifted
    assert drifted.update([0.0] * 50).drifted_at == drifted.drifted_at


@pytest.mark.fast
@pytest.mark.parametrize(
    ("question", "named"),
    [
        (lambda: Drift().update([float("nan")]), "values"),
        (lambda: Drift().update([[1.0]]), "values"),
        (lambda: Drift(0.0), "false_alarms_per_1000"),
        (lambda: Drift(1.0), "false_alarms_per_1000"),
        (lambda: codec.from_json(Drift, {}), "data.schema"),
    ],
)
def test_a_wrong_question_is_refused_by_name(question, named):
    with pytest.raises(Misuse) as caught:
        question()
    assert caught.value.argument == named
