"""How far behind is a job, how fast do records arrive, and how fast are they processed?

From offsets alone, per partition p, with h the broker's end, s the first offset that retention has left, and
c the committed one (from the checkpoint, or the consumer group where that is newer):

    lag        = Σ_p max(0, h − max(c, s))             a partition without a c is read from s
    arrived    = Σ_p h − h′                            between two moments; h where the partition is new
    processed  = Σ_p max(0, c − max(c′, s′))           a batch that is rolled back takes nothing away

Offsets are counted, so a compacted or transactional topic shows somewhat more than its records. Offsets only
grow: an end below the one before, or below what is committed, is a topic that was deleted and made again.
Read what is committed first and the ends afterwards, or a quick job appears to be ahead of its input.
"""

from __future__ import annotations

from typing import Literal

from models.quantities import Unknown

from ..ports import Offsets

Source = Literal["checkpoint", "group", "neither"]


def newer(checkpoint: Offsets | Unknown, group: Offsets | Unknown) -> tuple[Offsets | Unknown, Source]:
    """Which of the two is further, and what does it say?

    The group counts as newer when it is ahead somewhere and behind nowhere. Otherwise it is the checkpoint:
    a job that restarts goes on from there.
    """
    if isinstance(checkpoint, Unknown):
        if isinstance(group, Unknown) or not group:
            why = group.reason if isinstance(group, Unknown) else "the consumer group has committed nothing"
            return Unknown(f"{checkpoint.reason}; and {why}"), "neither"
        return group, "group"
    if isinstance(group, Unknown) or not group:
        return checkpoint, "checkpoint"
    shared = checkpoint.keys() & group.keys()
    behind = any(group[p] < checkpoint[p] for p in shared) or checkpoint.keys() - group.keys()
    ahead = any(group[p] > checkpoint[p] for p in shared) or group.keys() - checkpoint.keys()
    return (group, "group") if ahead and not behind else (checkpoint, "checkpoint")


def lag(head: Offsets, committed: Offsets | Unknown, log_start: Offsets) -> int | Unknown:
    """How many records wait? Valid while the driver is dead."""
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
    """Is something committed that is not there? Then no count means anything, and this says so."""
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
    """How many records came in between two moments? In a new or recreated partition all it ever had."""
    return sum(end - (start if (start := before.get(p, 0)) <= end else 0) for p, end in after.items())


def processed(before: Offsets, after: Offsets, *, log_start: Offsets) -> int:
    """How many records were finished between two moments? `log_start` is that of the first moment.

    Work that is done again after a rollback of the checkpoint counts again: it is work.
    """
    return sum(
        max(0, end - max(before.get(partition, 0), log_start.get(partition, 0)))
        for partition, end in after.items()
    )
