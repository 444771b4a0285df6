"""Lag, arrivals and progress of a job, from broker offsets, its checkpoint and its consumer group.

Per partition p, with h the broker's end, s the first offset that retention has left, and c the committed one:

    lag        = Σ_p max(0, h − max(c, s))             a partition without a c is read from s
    arrived    = Σ_p h − h′                            between two moments; h where the partition is new
    processed  = Σ_p max(0, c − max(c′, s′))           a batch that is rolled back takes nothing away

Offsets are counted, so a compacted or transactional topic shows somewhat more than its records. An end below
the one before, or below what is committed, is a topic that was deleted and made again. What is committed is
read first and the ends afterwards, or a quick job appears to be ahead of its input.

The checkpoint is read in every round, the consumer group `headroom.JOB` every few seconds, or in every round
where the checkpoint cannot be read. Only there the offsets of the group count, as all who may write to the
brokers may move them, and with two exceptions. When the checkpoint has begun anew or gone back, the group
still has the offsets of before: it is read at once, and ignored until it moves. And a group that was ahead of
a readable checkpoint may be left from an earlier life of the job: it has to move once first.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from models.errors import HeadroomError
from models.ports import Commit, Offsets, Query
from models.quantities import Unknown

from .checkpoint import Checkpoint, Position

Source = Literal["checkpoint", "group", "neither"]


def believed(checkpoint: Offsets | Unknown, group: Offsets | Unknown) -> tuple[Offsets | Unknown, Source]:
    """The offsets of the checkpoint, of the group where it cannot be read, and which they are."""
    if not isinstance(checkpoint, Unknown):
        return checkpoint, "checkpoint"
    if isinstance(group, Unknown) or not group:
        why = group.reason if isinstance(group, Unknown) else "the consumer group has committed nothing"
        return Unknown(f"{checkpoint.reason}; and {why}"), "neither"
    return group, "group"


def _ahead(group: Offsets | Unknown, checkpoint: Offsets) -> bool:
    """Whether the group is further somewhere, and behind nowhere."""
    if isinstance(group, Unknown) or not group:
        return False
    shared = checkpoint.keys() & group.keys()
    if any(group[p] < checkpoint[p] for p in shared) or checkpoint.keys() - group.keys():
        return False
    return any(group[p] > checkpoint[p] for p in shared) or bool(group.keys() - checkpoint.keys())


def lag(head: Offsets, committed: Offsets | Unknown, log_start: Offsets) -> int | Unknown:
    """Records that have arrived and are not committed. Valid while the driver is dead."""
    if isinstance(committed, Unknown):
        return committed
    recreated = beyond(head, committed)
    if recreated is not None:
        return recreated
    return sum(
        max(0, end - max(committed.get(partition, 0), log_start.get(partition, 0)))
        for partition, end in head.items()
    )


def beyond(head: Offsets, committed: Offsets) -> Unknown | None:
    """Why no count means anything, where offsets are committed that are not there; else empty."""
    for (topic, partition), offset in committed.items():
        end = head.get((topic, partition))
        if end is None:
            return Unknown(
                f"offset {offset} of {topic}-{partition} is committed, but there is no such partition: the "
                "topic was deleted and made again; the job needs a new checkpoint"
            )
        if offset > end:
            return Unknown(
                f"offset {offset} of {topic}-{partition} is committed, but the topic ends at {end}: it was "
                "deleted and made again; the job needs a new checkpoint"
            )
    return None


def arrived(before: Offsets, after: Offsets) -> int:
    """Records that came in between two moments; in a new or recreated partition all it ever had."""
    return sum(end - (start if (start := before.get(p, 0)) <= end else 0) for p, end in after.items())


def processed(before: Offsets, after: Offsets, *, log_start: Offsets) -> int:
    """Records that were finished between two moments. `log_start` is that of the first moment.

    Work that is done again after a rollback of the checkpoint counts again: it is work.
    """
    return sum(
        max(0, end - max(before.get(partition, 0), log_start.get(partition, 0)))
        for partition, end in after.items()
    )


GROUP_EVERY_S = 5.0  # judgement: behind a readable checkpoint the group is only a second opinion
NOT_READ = Unknown("nothing was read the time before")
NOT_NAMED = Unknown("the consumer group names no batch")
STALE = Unknown(
    "the consumer group has not moved since the checkpoint went back, was made anew or was first read"
)


@dataclass(frozen=True)
class Stand:
    """Position of a job."""

    position: Position | Unknown
    """By its checkpoint."""
    ends: Offsets | Unknown
    """By the checkpoint; by the group where it cannot be read."""
    source: Source
    last_commit_at_s: float | Unknown


class Groups(Protocol):
    """What consumer groups have committed: a part of the port `Broker`."""

    def committed(self, group: str, topics: Sequence[str]) -> Offsets: ...


class Standing:
    """Position of one job, followed from reading to reading."""

    def __init__(self, plan: Query) -> None:
        self.plan = plan
        self.topics = frozenset(plan.inputs.values())
        self._checkpoint = Checkpoint(plan.checkpoint, self.topics, job=plan.job)
        self._before: Stand | None = None
        self._known: Position | Unknown = NOT_READ
        """The newest that could be read: a checkpoint cannot be read while it is replaced."""
        self._group: Offsets | Unknown = NOT_READ
        self._group_read_s: float | None = None
        self._group_moved_s: float | Unknown = Unknown("the consumer group has not moved since we look")
        self._distrusted: Offsets | Unknown = NOT_READ
        self._to_distrust = False
        """The next offsets of the group that can be read are those of before."""

    def look(self, broker: Groups, *, now_s: float) -> tuple[Stand, tuple[Commit, ...]]:
        """Position, and every batch committed since the reading before; none at the first one."""
        position = self._checkpoint.position()
        if not isinstance(position, Unknown):
            if isinstance(position.committed_at_s, Unknown) or _went_back(self._known, position):
                self._to_distrust = True
            self._known = position
        group = self._ask_group(broker, now_s, needed=isinstance(position, Unknown) or self._to_distrust)
        if self._to_distrust and not isinstance(group, Unknown):
            self._distrusted, self._to_distrust = group, False
        elif (
            isinstance(self._group_moved_s, Unknown)
            and not isinstance(position, Unknown)
            and _ahead(group, position.ends)
        ):
            self._distrusted = group
        if group == self._distrusted:
            group = STALE
        if isinstance(position, Unknown):
            stand = Stand(position, *believed(position, group), self._group_moved_s)
        else:
            stand = Stand(position, *believed(position.ends, group), position.committed_at_s)
        commits = self._commits(stand, now_s)
        self._before = stand
        return stand, commits

    def _ask_group(self, broker: Groups, now_s: float, *, needed: bool) -> Offsets | Unknown:
        if self._group_read_s is None:
            # Ten jobs must not ask in the same round: each has its own place within the interval.
            self._group_read_s = now_s - zlib.crc32(self.plan.name.encode()) % 1000 / 1000 * GROUP_EVERY_S
        if needed or now_s - self._group_read_s >= GROUP_EVERY_S:
            before, self._group_read_s = self._group, now_s
            try:
                self._group = broker.committed(self.plan.group, sorted(self.topics))
            except HeadroomError as error:
                self._group = Unknown(str(error))
            if (
                not isinstance(before, Unknown)
                and not isinstance(self._group, Unknown)
                and before != self._group
            ):
                self._group_moved_s = now_s
        return self._group

    def _commits(self, stand: Stand, now_s: float) -> tuple[Commit, ...]:
        if self._before is None:
            return ()
        was, now = self._before.position, stand.position
        if isinstance(now, Unknown):
            moved = not isinstance(self._before.ends, Unknown) and self._before.ends != stand.ends
            if not moved or isinstance(stand.ends, Unknown):
                return ()
            return (Commit(NOT_NAMED, now_s, stand.ends),)
        if isinstance(was, Unknown) or isinstance(now.committed_at_s, Unknown):
            return ()
        if isinstance(now.batch, Unknown):  # several queries: they have moved on together, or not
            return (Commit(now.batch, now.committed_at_s, now.ends),) if now.ends != was.ends else ()
        if isinstance(was.batch, Unknown) or now.batch > was.batch:
            return self._checkpoint.commits(after=was.batch, until=now.batch)
        # The same batch with another time was rolled back and run again in between.
        again = now.batch == was.batch and now.committed_at_s != was.committed_at_s
        return self._checkpoint.commits(after=now.batch - 1, until=now.batch) if again else ()


def _went_back(before: Position | Unknown, now: Position) -> bool:
    """Whether this is another query than before, or an earlier batch of the same one."""
    if isinstance(before, Unknown):
        return False
    if before.query != now.query:
        return True
    if isinstance(before.batch, Unknown) or isinstance(now.batch, Unknown):
        return any(now.ends.get(partition, 0) < end for partition, end in before.ends.items())
    return now.batch < before.batch
