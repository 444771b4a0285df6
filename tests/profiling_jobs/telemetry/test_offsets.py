"""Offsets at the broker: finished ones reach their group, and what a topic has is asked again later."""

from __future__ import annotations

import threading
from typing import Any

import kafka
import pytest

from models.errors import HeadroomError, Misconfigured, NotReady
from profiling_jobs.brokers import Brokers
from profiling_jobs.telemetry import offsets as group_commits
from profiling_jobs.telemetry.offsets import GroupCommits, LogOffsets


@pytest.mark.parametrize(
    "trouble",
    [
        kafka.errors.KafkaTimeoutError(),
        OSError("reset"),
        RuntimeError("Transport closed for writes"),
        AssertionError("of the client's own"),
    ],
)
@pytest.mark.parametrize("when", ["made", "committing"])
def test_a_commit_that_fails_is_made_again_with_a_new_client(
    monkeypatch: pytest.MonkeyPatch, trouble: Exception, when: str
) -> None:
    troubles = [(when, trouble)]
    committed: list[dict[tuple[str, int], int]] = []
    closed: list[object] = []

    class Consumer:
        def __init__(self, **settings: object) -> None:
            self._fail("made")

        def assign(self, parts: object) -> None:
            pass

        def commit(self, offsets: dict[object, object]) -> None:
            self._fail("committing")
            committed.append({(part.topic, part.partition): at.offset for part, at in offsets.items()})  # type: ignore[attr-defined]

        def close(self, **settings: object) -> None:
            closed.append(self)
            raise RuntimeError("Transport closed for writes")

        def _fail(self, now: str) -> None:
            if troubles and troubles[0][0] == now:
                raise troubles.pop()[1]

    monkeypatch.setattr(kafka, "KafkaConsumer", Consumer)
    monkeypatch.setattr(group_commits, "PAUSE_S", 0.01)
    died: list[object] = []
    monkeypatch.setattr(threading, "excepthook", died.append)
    said: list[str] = []
    group = GroupCommits(Brokers("h:1"), group="headroom.orders", say=said.append)
    group.start()
    group.give({("in", 0): 7})
    assert group.close(timeout_s=5.0)
    assert (committed, died, troubles) == ([{("in", 0): 7}], [], [])
    assert len(closed) == (when == "committing")
    assert [str(trouble) in line for line in said] == [True]


def test_what_is_given_while_others_are_committed_is_committed_before_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """At whatever moment of the commit before it is given."""
    committed: list[int] = []
    made = threading.Event()

    class Consumer:
        def __init__(self, **settings: object) -> None:
            pass

        def assign(self, parts: object) -> None:
            pass

        def commit(self, offsets: dict[object, Any]) -> None:
            committed.extend(at.offset for at in offsets.values())
            made.set()

    monkeypatch.setattr(kafka, "KafkaConsumer", Consumer)
    for delay in range(200):
        made.clear()
        group = GroupCommits(Brokers("h:1"), group="headroom.orders")
        group.start()
        group.give({("in", 0): 7})
        made.wait()
        for _ in range(delay):
            pass
        group.give({("in", 0): 9})
        assert group.close(timeout_s=5.0)
        assert committed[-1] == 9


@pytest.mark.fast
@pytest.mark.parametrize(
    ("code", "error", "says"),
    [
        (3, Misconfigured, "topic orders: is not there"),
        (5, NotReady, "LeaderNotAvailable"),
        (29, NotReady, "TopicAuthorizationFailed"),
    ],
)
def test_only_a_topic_that_is_not_there_is_said_to_be_missing(
    monkeypatch: pytest.MonkeyPatch, code: int, error: type[HeadroomError], says: str
) -> None:
    """While a broker restarts its topics have no leader: a recording waits for that."""

    class Admin:
        def __init__(self, **settings: object) -> None:
            pass

        def describe_topics(self, topics: list[str]) -> list[dict[str, object]]:
            return [{"error_code": code, "partitions": []}]

        def close(self) -> None:
            pass

    monkeypatch.setattr(kafka, "KafkaAdminClient", Admin)
    with pytest.raises(error, match=says):
        LogOffsets(Brokers("h:1"), topic="orders").ends()
