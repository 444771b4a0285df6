"""From where and up to where does a batch read, and what of it outlives the driver?"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from .topics import Whole

KEPT_S = 1800.0  # judgement: nobody asks for commits that are older
TRIMMED = 256  # judgement: how many may be too old before they are dropped together


@dataclass(frozen=True)
class Commit:
    """One batch that is done: its number, when that was, from where and up to where it has read."""

    batch: int
    at_s: float
    before: Mapping[str, Whole]
    after: Mapping[str, Whole]
    planned_at_s: float


@dataclass(eq=False)
class Checkpoint:
    """The offsets of the batch that is planned and of those that are done."""

    job: str
    inputs: frozenset[str]
    committed: dict[str, Whole] = field(default_factory=dict)
    planned: Mapping[str, Whole] | None = None
    batch: int = -1
    committed_at_s: float = -math.inf
    commits: list[Commit] = field(default_factory=list)

    def begin(self, positions: Mapping[str, Whole]) -> None:
        """A query that is new stands where it begins, before it has finished a batch."""
        for topic, begin in positions.items():
            self.committed.setdefault(topic, begin)

    def commit(
        self,
        batch: int,
        at_s: float,
        *,
        before: Mapping[str, Whole],
        after: Mapping[str, Whole],
        planned_at_s: float,
    ) -> None:
        self.commits.append(Commit(batch, at_s, before, after, planned_at_s))
        if len(self.commits) > TRIMMED and self.commits[TRIMMED].at_s < at_s - KEPT_S:
            del self.commits[:TRIMMED]
        self.committed.update(after)
        self.planned, self.batch, self.committed_at_s = None, batch, at_s


def position(checkpoint: Checkpoint, topic: str, starts: Whole) -> Whole:
    """Where it reads on: after what is committed, but not at what retention has deleted.

    Partitions that are new are read from their start.
    """
    committed = checkpoint.committed.get(topic)
    if committed is None:
        return starts.copy()
    if committed.size < starts.size:
        committed = np.pad(committed, (0, starts.size - committed.size))
    return np.maximum(committed, starts)


def share_out(
    positions: Mapping[str, Whole], heads: Mapping[str, Whole], *, limit: int | None
) -> dict[str, Whole]:
    """Up to where does a batch read? Each partition gets its part of the limit, by what it has waiting."""
    waiting = {topic: np.maximum(0, heads[topic] - begin) for topic, begin in positions.items()}
    total = int(sum(counts.sum() for counts in waiting.values()))
    if limit is None or total <= limit:
        return {topic: begin + waiting[topic] for topic, begin in positions.items()}
    exact = np.concatenate(list(waiting.values())) * (limit / total)
    taken = np.floor(exact).astype(np.int64)
    most_cut = np.argsort(taken - exact, kind="stable")[: limit - int(taken.sum())]
    taken[most_cut] += 1
    edges = np.cumsum([counts.size for counts in waiting.values()])[:-1]
    return {t: positions[t] + part for t, part in zip(waiting, np.split(taken, edges), strict=True)}
