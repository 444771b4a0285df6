"""Do the topics exist, and is the checkpoint this job's, with the batches that were written from it?

This is asked before Spark is: it would wait, retry, and then say so in a page of stack trace; or begin in
the middle of another job's offsets without a word.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from ..brokers import Brokers
from ..errors import Misconfigured, NotReady
from ..plans import FILES
from ..ports import Plan
from .batch_files import check_owner


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
    folder = Path(plan.checkpoint.removeprefix("file://"))
    read = topics_of(folder)
    foreign = sorted(read - set(plan.inputs.values()))
    if foreign:
        raise Misconfigured(
            f"job.{plan.job}.checkpoint",
            f"{plan.checkpoint} belongs to another query: it reads {', '.join(foreign)}, this job reads "
            f"{', '.join(sorted(plan.inputs.values()))}; name a new folder",
        )
    if "://" in plan.checkpoint.removeprefix("file://"):
        return  # not on this machine's disk; the sink itself asks again
    query = query_of(folder)
    for name, output in plan.outputs.items():
        if output.startswith(FILES):
            setting = f"job.{plan.job}.outputs.{name}"
            check_owner(Path(output.removeprefix(FILES)), query, setting=setting)


def query_of(checkpoint: Path) -> str | None:
    """The query that a checkpoint belongs to; None for a new one."""
    try:
        return str(json.loads((checkpoint / "metadata").read_bytes())["id"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def topics_of(checkpoint: Path) -> set[str]:
    """The topics in the newest offsets of a checkpoint; empty when there are none, or no Kafka ones."""
    newest = max((int(file.name) for file in _numbered(checkpoint / "offsets")), default=None)
    if newest is None:
        return set()
    found: set[str] = set()
    # One line of version, one of metadata, one per source.
    for line in (checkpoint / "offsets" / str(newest)).read_text().splitlines()[2:]:
        try:
            offsets = json.loads(line)
        except ValueError:
            continue
        if isinstance(offsets, dict) and all(isinstance(parts, dict) for parts in offsets.values()):
            found.update(offsets)
    return found


def _numbered(folder: Path) -> Iterable[Path]:
    return [file for file in folder.glob("*") if file.name.isdigit()] if folder.is_dir() else []
