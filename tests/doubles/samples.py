"""Samples of a job of which little was read: everything that a test does not give is unknown."""

from __future__ import annotations

from typing import Any

from models.ports import Offsets, Sample
from models.quantities import Unknown

UNREAD = Unknown("not read here")


def offsets(*ends: int, topic: str = "orders") -> Offsets:
    return {(topic, partition): end for partition, end in enumerate(ends)}


def sample(at_s: float, head: Offsets, **read: Any) -> Sample:
    given: dict[str, Any] = {
        "committed": UNREAD,
        "committed_source": "checkpoint" if "committed" in read else "neither",
        "log_start": dict.fromkeys(head, 0),
        **dict.fromkeys(("lag_records", "last_batch", "last_commit_at_s", "run_id", "executors"), UNREAD),
        "latency_p95_ms": UNREAD,
        **read,
    }
    return Sample(at_s=at_s, head=head, **given)
