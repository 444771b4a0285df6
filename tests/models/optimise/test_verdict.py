"""Numbers as a person reads them."""

from __future__ import annotations

import math

import pytest

from models.optimise.verdict import percent, rate, recovery, seconds, span
from models.quantities import Interval

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
    ("ends", "text"),
    [
        ((74.2, 80.0, 95.7), "74–96 s"),
        ((2.04, 3.0, 9.2), "2.0–9.2 s"),
        ((80.0, 80.0, 80.0), "80 s"),
        ((80.0, 90.0, math.inf), "80–beyond what was looked at"),
        ((math.inf, math.inf, math.inf), "not within the time looked at"),
    ],
)
def test_recoveries(ends, text) -> None:
    assert recovery(Interval(*ends, 0.9)) == text


@pytest.mark.parametrize(("value", "text"), [(0.0, "0.0"), (9.96, "10"), (179.6, "180"), (5.25, "5.2")])
def test_seconds(value, text) -> None:
    assert seconds(value) == text
