"""Nothing hangs on one timestamp: neither where a recording ends nor when its records arrived."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from profiling_jobs.recording import stamps

pytestmark = pytest.mark.fast
AT = 1_700_000_000


@given(st.lists(st.integers(-100, 100)).map(sorted), st.integers(-100, 100))
def test_what_is_in_order_turns_at_the_moment_itself(times: list[int], at: int) -> None:
    assert stamps.turn(np.array(times, np.int64), at) == sum(time < at for time in times)


@given(st.integers(3, 50), st.integers(3, 50), st.integers(0, 99), st.sampled_from([0, -1, 10**18]))
def test_one_that_is_stamped_wrongly_does_not_move_the_turn(
    before: int, after: int, where: int, stray: int
) -> None:
    times = np.array([AT - 1] * before + [AT + 1] * after, np.int64)
    where %= times.size
    times[where] = stray
    moved = abs(stamps.turn(times, AT) - before)
    assert moved <= (2 if abs(where + 0.5 - before) < 2 else 0), "only beside it nobody can tell"


@given(
    st.lists(st.dictionaries(st.integers(AT - 50, AT + 50), st.integers(1, 1000), max_size=9), max_size=5),
    st.integers(-60, 60),
    st.integers(1, 60),
)
def test_all_records_are_placed_in_the_time_of_the_recording(
    pieces: list[dict[int, int]], first: int, seconds: int
) -> None:
    begin, end = AT + first, AT + first + seconds
    placed = stamps.placed(pieces, first=begin, end=end)
    assert sum(placed.values()) == sum(sum(one.values()) for one in pieces)
    assert all(begin <= second < end for second in placed)


@given(st.lists(st.integers(0, 10), min_size=200, max_size=900), st.sampled_from([-(10**9), 10**9]))
def test_what_one_stray_says_is_not_believed_and_the_others_are(spread: list[int], off: int) -> None:
    arrivals = {AT + second: 1 + count for second, count in enumerate(spread)}
    first, end = stamps.believable({**arrivals, AT + off: 1})
    assert all(first <= second < end for second in arrivals)
    assert not first <= AT + off < end


def test_a_stray_counts_amid_the_rest_of_its_slice() -> None:
    pieces = [{AT: 5, AT + 1: 5}, {0: 3, AT + 2: 1, AT + 3: 4, AT + 4: 1}, {AT + 10**6: 2}]
    placed = stamps.placed(pieces, first=AT, end=AT + 10)
    assert placed == {AT: 5, AT + 1: 5, AT + 2: 1, AT + 3: 9, AT + 4: 1}
    assert [stamps.far(one, first=AT, end=AT + 10) for one in pieces] == [0, 3, 2]
    assert stamps.far({AT - 60: 1, AT + 69: 1}, first=AT, end=AT + 10) == 0
