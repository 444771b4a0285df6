"""Checks before Spark starts: the topics exist, and checkpoint and batches belong to this job.

Spark itself would wait, retry, and report it in a page of stack trace; or begin in the middle of another
job's offsets without a word.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from models.errors import Misconfigured, NotReady
from models.ports import Plan

from ..brokers import Brokers
from ..plans import FILES
from ..telemetry.checkpoint import newest_topics, on_disk, query_id
from .batch_files import check_owner, owner_of


def check_topics(plan: Plan, brokers: Brokers) -> None:
    """Every topic of the plan is there."""
    from kafka import KafkaAdminClient
    from kafka.errors import KafkaError

    try:
        admin = KafkaAdminClient(**brokers.client())
        try:
            known = set(admin.list_topics())
        finally:
            admin.close()
    except (KafkaError, OSError, RuntimeError) as error:
        raise NotReady(f"brokers.bootstrap: {brokers.bootstrap} does not answer ({error})") from error
    for setting, topics in (("inputs", plan.inputs), ("outputs", plan.outputs)):
        for name, topic in topics.items():
            if "/" not in topic and topic not in known:
                raise Misconfigured(
                    f"job.{plan.job}.{setting}.{name}",
                    f"there is no topic '{topic}' on {brokers.bootstrap}: create it, or correct the name",
                )


def check_checkpoint(plan: Plan) -> None:
    """What the checkpoint has read so far is what this plan reads. Only local ones can be looked into."""
    folder = on_disk(plan.checkpoint)
    if folder is None:
        return  # not on this machine's disk; the sink itself asks again
    foreign = sorted(topics_of(folder) - set(plan.inputs.values()))
    if foreign:
        raise Misconfigured(
            f"job.{plan.job}.checkpoint",
            f"{plan.checkpoint} belongs to another query: it reads {', '.join(foreign)}, this job reads "
            f"{', '.join(sorted(plan.inputs.values()))}; name a new folder",
        )
    queries = queries_of(folder)
    for name, output in plan.outputs.items():
        if output.startswith(FILES):
            setting, batches = f"job.{plan.job}.outputs.{name}", Path(output.removeprefix(FILES))
            owner = owner_of(batches)
            query = owner if owner in queries else next(iter(queries), None)
            check_owner(batches, query, setting=setting)


def queries_of(checkpoint: Path) -> tuple[str, ...]:
    """The queries that a checkpoint belongs to; none for a new one."""
    found = []
    for folder in _kept(checkpoint):
        with suppress(OSError, ValueError, KeyError, TypeError):
            found.append(query_id(folder))
    return tuple(found)


def topics_of(checkpoint: Path) -> set[str]:
    """The topics in the newest offsets of a checkpoint; empty when there are none, or no Kafka ones."""
    return set().union(*map(newest_topics, _kept(checkpoint)))


def _kept(checkpoint: Path) -> list[Path]:
    """Where queries may keep theirs: the folder itself, or one in it for each query of a script."""
    return [checkpoint, *sorted(entry.parent for entry in checkpoint.glob("*/offsets"))]
