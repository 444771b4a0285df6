"""Slots for operators, executors for a rate."""

import itertools
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.capacity import CapacityModel
from models.planning import bounded_inverse_ds2, smallest_scale_out
from models.planning.scale_out import MOST
from models.quantities import Interval, Measurement, Misuse, Unknown

pytestmark = pytest.mark.fast

positive = st.floats(0.01, 1e6)


def one_at_a_time(rates, weights, slots):
    """The definition, slot by slot."""
    vector = [1] * len(rates)

    def limit(i):
        return vector[i] * rates[i] / weights[i] if weights[i] else math.inf

    for _ in range(slots - len(rates)):
        vector[min(range(len(rates)), key=limit)] += 1
    return tuple(vector), min(limit(i) for i in range(len(rates)))


class TestBoundedInverseDs2:
    @pytest.mark.parametrize(
        ("story", "rates", "weights", "slots", "vector", "rate"),
        [
            ("one operator takes all", [100.0], [1.0], 7, (7,), 700.0),
            ("equal ones share", [100.0, 100.0], [1.0, 1.0], 6, (3, 3), 300.0),
            ("a tie goes to the earliest", [100.0, 100.0], [1.0, 1.0], 5, (3, 2), 200.0),
            ("the slow one gets more", [100.0, 25.0], [1.0, 1.0], 10, (2, 8), 200.0),
            ("a filter before it spares an operator", [100.0, 100.0], [1.0, 0.25], 5, (4, 1), 400.0),
            ("what receives nothing keeps one", [100.0, 5.0], [1.0, 0.0], 4, (3, 1), 300.0),
            ("exactly one each", [100.0, 50.0, 10.0], [1.0, 1.0, 1.0], 3, (1, 1, 1), 10.0),
        ],
    )
    def test_slots_go_where_they_limit(self, story, rates, weights, slots, vector, rate):
        assert bounded_inverse_ds2(rates_per_task=rates, weights=weights, slots=slots) == (vector, rate)

    @settings(max_examples=60)
    @given(st.lists(st.tuples(positive, positive), min_size=1, max_size=3), st.integers(0, 6))
    def test_no_other_vector_carries_more(self, operators, more):
        rates, weights = zip(*operators, strict=True)
        slots = len(rates) + more
        vector, rate = bounded_inverse_ds2(rates_per_task=rates, weights=weights, slots=slots)
        assert sum(vector) == slots
        every = itertools.product(range(1, slots + 1), repeat=len(rates))
        best = max(
            min(p * r / w for p, r, w in zip(v, rates, weights, strict=True))
            for v in every
            if sum(v) == slots
        )
        assert rate == pytest.approx(best, rel=1e-12)

    @settings(max_examples=60)
    @given(
        st.lists(st.tuples(positive, positive | st.just(0.0)), min_size=1, max_size=8).filter(
            lambda operators: any(w for _, w in operators)
        ),
        st.integers(0, 400),
    )
    def test_it_is_the_greedy_to_the_last_tie(self, operators, more):
        rates, weights = zip(*operators, strict=True)
        slots = len(rates) + more
        answer = bounded_inverse_ds2(rates_per_task=rates, weights=weights, slots=slots)
        assert answer == one_at_a_time(rates, weights, slots)

    def test_integer_ties_too(self):
        rates, weights = [2.0, 4.0, 6.0, 2.0], [1.0, 2.0, 3.0, 1.0]
        for slots in range(4, 60):
            answer = bounded_inverse_ds2(rates_per_task=rates, weights=weights, slots=slots)
            assert answer == one_at_a_time(rates, weights, slots)

    @given(st.lists(st.tuples(positive, positive), min_size=1, max_size=6), st.integers(0, 50))
    def test_one_more_slot_never_carries_less(self, operators, more):
        rates, weights = zip(*operators, strict=True)
        fewer, plus = (
            bounded_inverse_ds2(rates_per_task=rates, weights=weights, slots=len(rates) + more + k)
            for k in (0, 1)
        )
        assert plus[1] >= fewer[1]
        assert sum(b - a for a, b in zip(fewer[0], plus[0], strict=True)) == 1

    @pytest.mark.parametrize(
        ("rates", "weights", "slots", "word"),
        [
            ([1.0, 1.0], [1.0, 1.0], 1, "add 1 slots"),
            ([1.0, 1.0], [1.0, 1.0], 0, "add 2 slots"),
            ([1.0, 1.0], [0.0, 0.0], 4, "no operator receives"),
            ([1.0, 0.0], [1.0, 1.0], 4, "operator 1"),
        ],
    )
    def test_what_cannot_be_answered_says_why(self, rates, weights, slots, word):
        answer = bounded_inverse_ds2(rates_per_task=rates, weights=weights, slots=slots)
        assert isinstance(answer, Unknown)
        assert word in answer.reason

    @pytest.mark.parametrize(
        ("rates", "weights", "slots", "argument"),
        [
            ([], [], 3, "rates_per_task"),
            ([[1.0]], [[1.0]], 3, "rates_per_task"),
            ([math.nan], [1.0], 3, "rates_per_task"),
            ([-1.0], [1.0], 3, "rates_per_task"),
            ([math.inf], [1.0], 3, "rates_per_task"),
            ([1.0], [1.0, 2.0], 3, "weights"),
            ([1.0], [-0.1], 3, "weights"),
            ([1.0], [1.0], -1, "slots"),
            ([1.0], [1.0], 2.5, "slots"),
            ([1.0], [1.0], math.nan, "slots"),
        ],
    )
    def test_what_is_wrong_is_named(self, rates, weights, slots, argument):
        with pytest.raises(Misuse) as refused:
            bounded_inverse_ds2(rates_per_task=rates, weights=weights, slots=slots)
        assert refused.value.argument == argument


class Known:
    """A capacity from a list: entry s − 1 is T(s); None is unknown, and so is everything beyond the list."""

    def __init__(self, *rates, beyond=None):
        self.rates, self.beyond, self.asked = rates, beyond, 0

    def predict(self, scale_out):
        self.asked += 1
        rate = self.rates[scale_out - 1] if scale_out <= len(self.rates) else self.beyond
        if rate is None:
            return Unknown(f"probe at {scale_out}")
        return Interval(rate * 0.9, rate, rate * 1.1, 0.9)


class TestSmallestScaleOut:
    @pytest.mark.parametrize(
        ("story", "model", "target", "expected"),
        [
            ("in the middle", Known(10, 20, 30, 40, 50), 35, 4),
            ("exactly met", Known(10, 20, 30, 40, 50), 30, 3),
            ("one is enough", Known(10, 20), 5, 1),
            ("nothing needs one", Known(10, 20), 0, 1),
            ("the last that is known, no power of two", Known(10, 20, 30, 40, 50, 60, 70), 65, 7),
            ("the first of a plateau", Known(10, 20, 20, 20, 30, 30, 30, 30), 20, 2),
            (
                "small ones are unknown and too small anyway",
                Known(None, None, None, 40, 50, 60, 70, 80),
                55,
                6,
            ),
            ("known only between powers of two", Known(None, None, None, None, 50, 60, 70), 60, 6),
            ("a hole far from the answer", Known(10, None, 30, 40, 50, 60, 70, 80), 70, 7),
            ("a hole beside it is bridged by its neighbours", Known(10, 20, 30, 40, None, 60, 70, 80), 65, 7),
        ],
    )
    def test_the_smallest_that_reaches(self, story, model, target, expected):
        assert smallest_scale_out(model, target_rps=target) == expected

    @pytest.mark.parametrize(
        ("story", "model", "target", "words"),
        [
            ("beyond what is known", Known(10, 20, 30), 35, ("3 executors sustain 30", "probe at 4")),
            ("nothing is known", Known(), 5, ("probe at 1",)),
            (
                "the answer may hide in a hole",
                Known(10, 20, 30, 40, None, 60, 70, 80),
                45,
                ("6 exec", "probe at 5"),
            ),
            ("smaller ones are unknown", Known(None, None, None, 40), 30, ("4 executors", "probe at 1")),
            ("a plateau below the target", Known(10, 20, beyond=20), 30, ("out of reach", "20 of 30")),
        ],
    )
    def test_unknown_in_unknown_out(self, story, model, target, words):
        answer = smallest_scale_out(model, target_rps=target)
        assert isinstance(answer, Unknown)
        assert all(word in answer.reason for word in words)

    @given(st.lists(st.floats(0, 100), min_size=1, max_size=40).map(sorted), st.floats(0, 100))
    def test_it_is_the_first_of_any_rising_capacity(self, rates, target):
        answer = smallest_scale_out(Known(*rates), target_rps=target)
        first = next((s for s, rate in enumerate(rates, start=1) if rate >= target), None)
        assert isinstance(answer, Unknown) if first is None else answer == first

    def test_a_fitted_capacity_is_searched_too(self):
        probes = [Measurement(s, 1_500.0 * s, 1_000.0 * s, False) for s in (2, 4, 8, 16, 24)]
        model = CapacityModel.fit(probes)
        assert smallest_scale_out(model, target_rps=9_500.0) == 10
        assert smallest_scale_out(model, target_rps=500.0) == 1
        assert isinstance(smallest_scale_out(model, target_rps=1e12), Unknown)

    def test_it_is_quick_and_bounded(self):
        far = Known(*[float(s) for s in range(1, MOST + 1)])
        assert smallest_scale_out(far, target_rps=10_000) == 10_000
        assert far.asked < 60
        never = Known(beyond=1.0)
        assert isinstance(smallest_scale_out(never, target_rps=2.0), Unknown)
        assert never.asked < 60

    @pytest.mark.parametrize("target", [-1.0, math.nan, math.inf, None])
    def test_a_target_that_is_none_is_refused(self, target):
        with pytest.raises(Misuse, match="target_rps"):
            smallest_scale_out(Known(1.0), target_rps=target)

    def test_a_model_that_is_none_is_refused(self):
        with pytest.raises(Misuse, match="model"):
            smallest_scale_out(None, target_rps=1.0)
