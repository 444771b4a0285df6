"""Lag, arrivals and throughput from offsets alone: a table of what happens to topics and checkpoints."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.ports import Offsets
from models.quantities import Unknown
from profiling_jobs.telemetry import lag as backlog

pytestmark = pytest.mark.fast


def offsets(*ends: int, topic: str = "orders") -> Offsets:
    return {(topic, partition): end for partition, end in enumerate(ends)}


CASES = [
    # what                                         head          committed       log start   lag
    ("level", (100, 50), (100, 50), (0, 0), 0),
    ("behind in one partition", (100, 50), (80, 50), (0, 0), 20),
    ("an idle partition", (100, 0), (90, 0), (0, 0), 10),
    ("the topic gained a partition", (100, 50, 30), (100, 50), (0, 0, 0), 30),
    ("retention has overtaken the job", (100, 50), (10, 50), (60, 0), 40),
    ("retention has deleted everything", (100, 50), (10, 50), (100, 50), 0),
    ("retention behind the job", (100, 50), (90, 50), (60, 50), 10),
    ("a partition was never read and is half gone", (100, 50), (100,), (0, 20), 30),
    ("nothing is in the topic", (0, 0), (0, 0), (0, 0), 0),
]


@pytest.mark.parametrize(
    ("head", "committed", "start", "lag"), [c[1:] for c in CASES], ids=[c[0] for c in CASES]
)
def test_how_many_records_wait(head: Any, committed: Any, start: Any, lag: int) -> None:
    assert backlog.lag(offsets(*head), offsets(*committed), offsets(*start)) == lag


def test_a_lag_without_commits_is_unknown_and_keeps_the_reason() -> None:
    assert backlog.lag(offsets(5), Unknown("no checkpoint"), offsets(0)) == Unknown("no checkpoint")


@pytest.mark.parametrize(
    ("head", "committed"),
    [((5, 5), (100, 5)), ((5,), (5, 100)), ((0, 0), (0, 1))],
    ids=["shorter than before", "fewer partitions", "empty again"],
)
def test_a_topic_that_was_made_again_is_no_lag_of_zero(head: Any, committed: Any) -> None:
    lag = backlog.lag(offsets(*head), offsets(*committed), offsets(*[0] * len(head)))
    assert isinstance(lag, Unknown)
    assert "made again; the job needs a new checkpoint" in lag.reason


@pytest.mark.parametrize(
    ("before", "after", "arrived"),
    [
        ((10, 20), (15, 20), 5),
        ((10, 20), (10, 20), 0),
        ((10, 20), (10, 20, 7), 7),
        ((10, 20), (4, 21), 5),
    ],
    ids=["one grew", "silence", "a new partition", "one was made again"],
)
def test_how_many_records_came(before: Any, after: Any, arrived: int) -> None:
    assert backlog.arrived(offsets(*before), offsets(*after)) == arrived


@pytest.mark.parametrize(
    ("before", "after", "start", "processed"),
    [
        ((10, 20), (15, 22), (0, 0), 7),
        ((10, 20), (10, 20), (0, 0), 0),
        ((10, 20), (5, 30), (0, 0), 10),
        ((10, 20), (90, 20), (80, 0), 10),
        ((10,), (10, 7), (0, 3), 4),
    ],
    ids=[
        "a batch",
        "none",
        "rolled back in one",
        "leapt over what retention took",
        "first read of a partition",
    ],
)
def test_how_many_records_were_processed(before: Any, after: Any, start: Any, processed: int) -> None:
    assert backlog.processed(offsets(*before), offsets(*after), log_start=offsets(*start)) == processed


GONE = Unknown("cannot be read")


@pytest.mark.parametrize(
    ("checkpoint", "group", "expected"),
    [
        (offsets(10, 10), offsets(9, 10), "checkpoint"),
        (offsets(10, 10), offsets(10, 10), "checkpoint"),
        (offsets(10, 10), offsets(10, 12), "group"),
        (offsets(10, 10), offsets(9, 12), "checkpoint"),
        (offsets(10, 10), offsets(12), "checkpoint"),
        (offsets(10, 10), offsets(10, 10, 3), "group"),
        (offsets(10, 10), {}, "checkpoint"),
        (offsets(10, 10), GONE, "checkpoint"),
        (GONE, offsets(3), "group"),
        (GONE, {}, "neither"),
        (GONE, GONE, "neither"),
    ],
)
def test_the_newer_of_checkpoint_and_group(checkpoint: Any, group: Any, expected: str) -> None:
    value, source = backlog.newer(checkpoint, group)
    assert source == expected
    if expected == "neither":
        assert isinstance(value, Unknown)
        assert "cannot be read" in value.reason
    else:
        assert value == (checkpoint if expected == "checkpoint" else group)


# ---------------------------------------------------------------------- what always holds

counts = st.lists(st.integers(0, 10**6), min_size=1, max_size=6)


@given(counts, st.data())
def test_lag_is_never_negative_and_never_more_than_the_topic_holds(ends: list[int], data: Any) -> None:
    committed = [data.draw(st.integers(0, end)) for end in ends]
    start = [data.draw(st.integers(0, end)) for end in ends]
    lag = backlog.lag(offsets(*ends), offsets(*committed), offsets(*start))
    assert not isinstance(lag, Unknown)
    assert 0 <= lag <= sum(ends) - sum(start)


@given(counts, st.data())
def test_lag_grows_by_what_arrives_and_shrinks_by_what_is_processed(ends: list[int], data: Any) -> None:
    """As long as nothing expires: Δlag = arrived − processed, whatever happens to the partitions."""
    committed = [data.draw(st.integers(0, end)) for end in ends]
    later = [end + data.draw(st.integers(0, 1000)) for end in ends] + data.draw(counts)
    done = [c + data.draw(st.integers(0, later[i] - c)) for i, c in enumerate(committed)]
    none = offsets(*[0] * len(later))
    before = backlog.lag(offsets(*ends), offsets(*committed), none)
    after = backlog.lag(offsets(*later), offsets(*done), none)
    came = backlog.arrived(offsets(*ends), offsets(*later))
    worked = backlog.processed(offsets(*committed), offsets(*done), log_start=none)
    assert not isinstance(before, Unknown)
    assert not isinstance(after, Unknown)
    assert after - before == came - worked
