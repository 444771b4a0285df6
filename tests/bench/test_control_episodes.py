"""A hundred of the random episodes of `python -m bench control`."""

from __future__ import annotations

import pytest

from bench.control import episode, steady


@pytest.mark.parametrize("tenth", range(9))
def test_whatever_happens_no_size_is_held_silently_or_lowered_blindly(tenth: int) -> None:
    found = {seed: problems for seed in range(10 * tenth, 10 * tenth + 10) if (problems := episode(seed))}
    assert found == {}


def test_a_constant_load_changes_the_direction_once_at_most() -> None:
    found = {seed: problems for seed in range(10) if (problems := steady(seed))}
    assert found == {}
