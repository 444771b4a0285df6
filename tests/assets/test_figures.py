"""What a page shows of a number: the digits that somebody reads."""

import math

import pytest

from assets.metadata import figures

pytestmark = pytest.mark.fast


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (1171.6336165690109, 1171.6),
        (226.81500101089478, 226.815),
        (0.012720712345, 0.0127207),
        (-3267.301371740844, -3267.3),
        (1_763_470_000.25, 1_763_470_000.2),
        (0.0, 0.0),
        (12_345_678, 12_345_678),
    ],
)
def test_a_figure_has_the_digits_that_somebody_reads(value: float, shown: float) -> None:
    assert figures(capacity_rps=value)["capacity_rps"].value == shown


def test_what_cannot_be_plotted_is_left_out() -> None:
    assert figures(a=None, b=math.inf, c=math.nan, d=True, e="7") == {}
