"""Numbers as a person reads them."""

from __future__ import annotations

import math

import numpy as np
import pytest

from models.optimise.question import Recoveries, against_promise, percent, rate, seconds, span
from models.promise import Promise

pytestmark = pytest.mark.fast


@pytest.mark.parametrize(
    ("rps", "text"),
    [
        (0.0, "0"),
        (0.25, "0.25"),
        (950.0, "950"),
        (999.4, "999"),
        (999.6, "1k"),
        (1500.0, "1.5k"),
        (9_960.0, "10k"),
        (36_400.0, "36k"),
        (999_600.0, "1M"),
        (1_234_567.0, "1.2M"),
        (42e6, "42M"),
    ],
)
def test_rates(rps, text) -> None:
    assert rate(rps) == text


@pytest.mark.parametrize(
    ("low", "high", "text"),
    [("31k", "36k", "31–36k"), ("950", "1.2k", "950–1.2k"), ("36k", "36k", "36k"), ("0", "950", "0–950")],
)
def test_spans(low, high, text) -> None:
    assert span(low, high) == text


@pytest.mark.parametrize(
    ("share", "text"),
    [(0.95, "95 %"), (0.9499, "94.9 %"), (0.9996, "99.9 %"), (1.0, "100 %"), (0.0, "0 %"), (0.29, "29 %")],
)
def test_a_share_is_never_rounded_up_to_what_was_promised(share, text) -> None:
    assert percent(share) == text


@pytest.mark.parametrize(
    ("within_s", "share", "confidence", "text"),
    [
        (112.2, 0.985, 0.95, "95 % of recoveries within 112 s ≤ 120 s"),
        (9.2, 1.0, 0.999, "99.9 % of recoveries within 9.2 s ≤ 120 s"),
        (147.0, 0.94, 0.95, "95 % of recoveries within 147 s > 120 s"),
        (120.01, 0.94, 0.95, "95 % of recoveries within 120.1 s > 120 s"),
        (119.99, 0.95, 0.95, "95 % of recoveries within 120 s ≤ 120 s"),
        (math.inf, 0.83, 0.95, "recovery within 120 s in 83 % < 95 %"),
        # judged by a neighbour: the share is what was compared
        (123.0, 0.96, 0.95, "recovery within 120 s in 96 % ≥ 95 %"),
        (118.0, 0.9496, 0.95, "recovery within 120 s in 94.9 % < 95 %"),
    ],
)
def test_a_recovery_beside_its_promise(within_s, share, confidence, text) -> None:
    taken = Recoveries(2.0, 3.0, 900.0, 0.9, within_s)
    assert against_promise(taken, share, Promise(120.0, confidence)) == text


@pytest.mark.parametrize("confidence", [0.05, 0.29, 0.5, 0.9, 0.95, 0.999])
@pytest.mark.parametrize("count", [1, 7, 60, 200])
def test_in_time_often_enough_is_within_the_promised_time(confidence, count) -> None:
    promise = Promise(100.0, confidence)
    for kept in range(count + 1):
        recoveries = np.array([99.0] * kept + [math.inf] * (count - kept))
        assert promise.keeps(kept / count) == (promise.within_s(recoveries) <= 100.0)


@pytest.mark.parametrize(("value", "text"), [(0.0, "0.0"), (9.96, "10"), (179.6, "180"), (5.25, "5.2")])
def test_seconds(value, text) -> None:
    assert seconds(value) == text
