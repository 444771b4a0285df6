"""One is one, also in words."""

import pytest

from models.quantities import counted, executors

pytestmark = pytest.mark.fast


@pytest.mark.parametrize(
    ("number", "said"),
    [(0, "0 executors are"), (1, "1 executor is"), (2, "2 executors are"), (11, "11 executors are")],
)
def test_so_many_and_what_they_do(number, said):
    assert executors(number, "are") == said
    assert executors(number) == counted(number, "executor") == said.rpartition(" ")[0]


@pytest.mark.parametrize(
    ("do", "one", "two"),
    [
        ("sustain", "1 executor sustains", "2 executors sustain"),
        ("were", "1 executor was", "2 executors were"),
    ],
)
def test_what_one_does(do, one, two):
    assert (executors(1, do), executors(2, do)) == (one, two)
