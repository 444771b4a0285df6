"""How far is this job now, who says so, and what has it committed since the last time?

The checkpoint is read in every round, the consumer group `headroom.JOB` every few seconds, or in every round
where the checkpoint cannot be read. The newer of the two counts (`backlog.newer`), with two exceptions. When
the checkpoint begins anew or goes back, the group still says what was true before: it is asked at once where
it stands, and is not believed until it moves from there. And a group that is ahead of a readable checkpoint
may be left from an earlier life of the job: it has to move once while we look.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass

from models.quantities import Unknown

from .. import plans
from ..errors import HeadroomError
from ..ports import Broker, Commit, Offsets, Query
from . import backlog
from .checkpoint import Checkpoint, Position

GROUP_EVERY_S = 5.0  # judgement: behind a readable checkpoint the group is only a second opinion
NOT_READ = Unknown("nothing was read the time before")
NOT_NAMED = Unknown("the consumer group names no batch")
STALE = Unknown(
    "the consumer group has not moved since the checkpoint went back, was made anew or was first read"
)


@dataclass(frozen=True)
class Stand:
    """How far a job is."""

    position: Position | Unknown
    """By its checkpoint."""
    ends: Offsets | Unknown
    """By whichever of checkpoint and group is believed."""
    source: backlog.Source
    last_commit_at_s: float | Unknown


class Standing:
    """What is remembered of one job between two looks at it."""

    def __init__(self, plan: Query) -> None:
        self.plan = plan
        self.topics = frozenset(plan.inputs.values())
        self._checkpoint = Checkpoint(plan.checkpoint, self.topics, job=plan.job)
        self._before: Stand | None = None
        self._known: Position | Unknown = NOT_READ
        """The newest that could be read: a checkpoint is replaced while nobody can read it."""
        self._group: Offsets | Unknown = NOT_READ
        self._group_read_s: float | None = None
        self._group_moved_s: float | Unknown = Unknown("the consumer group has not moved since we look")
        self._distrusted: Offsets | Unknown = NOT_READ
        self._to_distrust = False
        """The next offsets of the group that can be read are those of before."""

    def look(self, broker: Broker, *, now_s: float) -> tuple[Stand, tuple[Commit, ...]]:
        """How far it is, and every batch committed since the look before; none at the first look."""
        position = self._checkpoint.position()
        if not isinstance(position, Unknown):
            if isinstance(position.committed_at_s, Unknown) or _went_back(self._known, position):
                self._to_distrust = True
            self._known = position
        group = self._ask_group(broker, now_s, needed=isinstance(position, Unknown) or self._to_distrust)
        if self._to_distrust and not isinstance(group, Unknown):
            self._distrusted, self._to_distrust = group, False
        elif isinstance(self._group_moved_s, Unknown) and _is_ahead(group, position):
            self._distrusted = group
        if group == self._distrusted:
            group = STALE
        if isinstance(position, Unknown):
            stand = Stand(position, *backlog.newer(position, group), self._group_moved_s)
        else:
            stand = Stand(position, *backlog.newer(position.ends, group), position.committed_at_s)
        commits = self._commits(stand, now_s)
        self._before = stand
        return stand, commits

    def _ask_group(self, broker: Broker, now_s: float, *, needed: bool) -> Offsets | Unknown:
        if self._group_read_s is None:
            # Ten jobs must not ask in the same round: each has its own place within the interval.
            self._group_read_s = now_s - zlib.crc32(self.plan.name.encode()) % 1000 / 1000 * GROUP_EVERY_S
        if needed or now_s - self._group_read_s >= GROUP_EVERY_S:
            before, self._group_read_s = self._group, now_s
            try:
                self._group = broker.committed(plans.group(self.plan), sorted(self.topics))
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
            return (
                (Commit(NOT_NAMED, now_s, stand.ends),)
                if moved and not isinstance(stand.ends, Unknown)
                else ()
            )
        if isinstance(was, Unknown) or isinstance(now.committed_at_s, Unknown):
            return ()
        if isinstance(now.batch, Unknown):  # several queries: they have moved on together, or not
            return (Commit(now.batch, now.committed_at_s, now.ends),) if now.ends != was.ends else ()
        if isinstance(was.batch, Unknown) or now.batch > was.batch:
            return self._checkpoint.commits(after=was.batch, until=now.batch)
        # The same batch with another time was rolled back and run again in between.
        again = now.batch == was.batch and now.committed_at_s != was.committed_at_s
        return self._checkpoint.commits(after=now.batch - 1, until=now.batch) if again else ()


def _is_ahead(group: Offsets | Unknown, position: Position | Unknown) -> bool:
    """Does the group say more than a checkpoint that can be read?"""
    return not isinstance(position, Unknown) and backlog.newer(position.ends, group)[1] == "group"


def _went_back(before: Position | Unknown, now: Position) -> bool:
    """Is this another query than before, or an earlier batch of the same one?"""
    if isinstance(before, Unknown):
        return False
    if before.query != now.query:
        return True
    if isinstance(before.batch, Unknown) or isinstance(now.batch, Unknown):
        return any(now.ends.get(partition, 0) < end for partition, end in before.ends.items())
    return now.batch < before.batch
