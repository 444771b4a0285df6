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


def milliseconds(*seconds: float) -> stamps.Whole:
    return np.array([round(1000 * (AT + second)) for second in seconds], np.int64)


STEADY = [0.1 * number for number in range(300)]


@pytest.mark.parametrize("stray", [-AT, -AT - 0.001, 0.001 * AT - AT, -36_000.0, 10.0**9])
@pytest.mark.parametrize("where", [0, 1, 150, 299])
def test_a_stray_record_was_there_when_its_neighbours_were(where: int, stray: float) -> None:
    right = milliseconds(*STEADY)
    stamped = right.copy()
    stamped[where] = 1000 * AT + round(1000 * stray)
    there = stamps.as_neighbours(stamped, believed_s=(AT - 86_400.0, AT + 86_400.0))
    assert np.abs(there - right).max() <= 100
    assert (np.delete(there, where) == np.delete(right, where)).all()


def test_what_follows_a_silence_is_no_stray() -> None:
    stamped = milliseconds(*STEADY, 7200.0)
    assert (stamps.as_neighbours(stamped, believed_s=(AT - 9000.0, AT + 9000.0)) == stamped).all()


def test_of_records_that_are_all_stamped_wrongly_nobody_knows_when_it_was() -> None:
    there = stamps.as_neighbours(np.array([0, -1, 5], np.int64), believed_s=(AT, AT + 60.0))
    assert there.tolist() == [-1, -1, -1]


@pytest.mark.parametrize("off", [-AT, -3600, 10**9])
@pytest.mark.parametrize("wrong", [1, 40])
def test_as_long_as_most_are_right_the_time_of_a_recording_is_known(off: int, wrong: int) -> None:
    low, high = stamps.near({**dict.fromkeys(range(AT, AT + 100), 1), AT + off: wrong}, span_s=100.0)
    assert low <= AT
    assert high >= AT + 100
    assert not low <= AT + off < high
