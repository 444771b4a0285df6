"""In how many equal tasks does a batch of this job come, so that its throughput moves in waves?

    source    one task per partition of its input topics (Spark's default)
    state     one task per state partition, where the settings say how many there are
    n         the larger of the two, if the smaller divides it: the waves of both change at the same sizes

Spark runs the tasks of a stage in ⌈tasks / executors⌉ waves, and ⌈n / k s⌉ = ⌈⌈n / s⌉ / k⌉. Otherwise each
stage has steps of its own and no single number tells them: Unknown, and every size counts for itself.

The owner learns it where it reads topics and keeps it in the store's document "partitions", so that
decisions, searches and models count with the same number. Simulated executors have no waves.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from models.quantities import Unknown
from profiling_jobs.errors import HeadroomError
from profiling_jobs.ports import Store

from .settings import JobSettings

if TYPE_CHECKING:
    from .world import World

DOCUMENT = "partitions"
STATE = "spark.sql.shuffle.partitions"


def counted(job: JobSettings, partitions: Mapping[str, int]) -> int | Unknown:
    """The tasks of a batch, from the partitions of each of its inputs."""
    source = sum(partitions[own] for own in job.inputs)
    declared = job.state_partitions or job.conf.get(STATE, "")
    state = int(declared) if str(declared).isdecimal() and int(declared) else source
    if max(source, state) % min(source, state) == 0:
        return max(source, state)
    return Unknown(f"{source} partitions are read and {state} keep state: their waves do not go together")


def live_partitions(world: World, job: JobSettings) -> dict[str, int] | Unknown:
    """Of the live topics that it reads, by the job's names."""
    try:
        there = world.broker.topics()
    except HeadroomError as error:
        return Unknown(str(error))
    if missing := sorted({topic for topic in job.inputs.values() if topic not in there}):
        return Unknown(f"there is no topic {', '.join(missing)} yet")
    return {own: there[topic] for own, topic in job.inputs.items()}


def learnt(world: World, name: str, job: JobSettings, partitions: Mapping[str, int]) -> int | Unknown:
    """The same as `counted`, written down."""
    smooth = Unknown("simulated executors have no waves")
    tasks = smooth if world.kind == "simulated" else counted(job, partitions)
    said = {"unknown": tasks.reason} if isinstance(tasks, Unknown) else {"tasks": tasks}
    document = {"schema": 1, **said}
    if world.store.document(name, DOCUMENT) != document:
        world.store.save_document(name, DOCUMENT, document)
    return tasks


def known(store: Store, name: str) -> int | Unknown:
    """What was written down last."""
    kept = store.document(name, DOCUMENT) or {}
    if "tasks" in kept:
        return int(kept["tasks"])
    return Unknown(str(kept.get("unknown", f"nobody has looked at the partitions of {name} yet")))


def if_known(tasks: int | Unknown) -> int | None:
    """As the models take it: without a number every size counts for itself."""
    return None if isinstance(tasks, Unknown) else tasks
