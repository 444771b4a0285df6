"""How far a script has come that starts several queries, as its driver tells the consumer group."""

from __future__ import annotations

import pytest

from profiling_jobs.driver.progress import Ends, QueryEnds

pytestmark = pytest.mark.fast
TOPIC = ("orders", 0)


class Group(list[int | dict[tuple[str, int], int]]):
    """What the consumer group is given; of one partition its end alone."""

    def give(self, ends: Ends) -> None:
        self.append(ends[TOPIC] if set(ends) == {TOPIC} else dict(ends))


@pytest.fixture
def group() -> Group:
    return Group()


@pytest.fixture
def ends(group: Group) -> QueryEnds:
    return QueryEnds(group.give)


def test_one_query_tells_of_every_batch(ends: QueryEnds, group: Group) -> None:
    ends.started("q")
    for end in (10, 20, 20, 30):
        ends.reported("q", {TOPIC: end})
        ends.reported("q", {})
    assert group == [10, 20, 30]


def test_of_two_queries_the_slower_one_counts(ends: QueryEnds, group: Group) -> None:
    for query in ("archive", "counts"):
        ends.started(query)
    for second in range(10, 15):
        ends.reported("archive", {TOPIC: 1000 * second})
        ends.reported("counts", {TOPIC: 1000 * second - 3000})
    assert group == [7000, 8000, 9000, 10000, 11000]


def test_each_partition_counts_for_those_who_read_it(ends: QueryEnds, group: Group) -> None:
    ends.reported("a", {TOPIC: 5, ("clicks", 0): 9})
    ends.reported("b", {TOPIC: 3, ("users", 0): 1})
    assert group[-1] == {TOPIC: 3, ("clicks", 0): 9, ("users", 0): 1}


def test_nothing_is_told_before_all_have_said_where_they_are(ends: QueryEnds, group: Group) -> None:
    ends.started("archive")
    ends.started("counts")
    ends.reported("archive", {TOPIC: 10})
    assert group == []
    ends.reported("counts", {TOPIC: 4})
    assert group == [4]


def test_a_query_with_nothing_to_do_does_not_keep_the_others_from_telling(
    ends: QueryEnds, group: Group
) -> None:
    ends.started("orders")
    ends.started("clicks")
    ends.reported("orders", {TOPIC: 10})
    ends.reported("clicks", {})
    assert group == [10]


def test_one_that_came_to_its_end_holds_nobody_up(ends: QueryEnds, group: Group) -> None:
    ends.reported("backfill", {TOPIC: 4})
    ends.reported("counts", {TOPIC: 10})
    ends.ended("backfill", failed=False)
    assert group == [4, 10]


def test_one_that_failed_stands_where_it_was_until_it_is_started_again(ends: QueryEnds, group: Group) -> None:
    ends.reported("archive", {TOPIC: 4})
    ends.reported("counts", {TOPIC: 10})
    ends.ended("archive", failed=True)
    ends.reported("counts", {TOPIC: 20})
    ends.started("archive")
    ends.reported("counts", {TOPIC: 30})
    assert group == [4]
    ends.reported("archive", {TOPIC: 15})
    assert group == [4, 15]


def test_queries_that_are_stopped_one_by_one_have_not_come_further(ends: QueryEnds, group: Group) -> None:
    ends.reported("archive", {TOPIC: 4})
    ends.reported("counts", {TOPIC: 10})
    ends.stopping()
    ends.ended("archive", failed=False)
    ends.reported("counts", {TOPIC: 12})
    ends.ended("counts", failed=False)
    assert group == [4]
