"""The number of equal tasks per batch of a job, because of which throughput grows in steps.

    source    one task per partition of its input topics (Spark's default)
    state     one task per state partition, where the settings say how many there are
    n         the larger of the two, if the smaller divides it: the waves of both change at the same sizes

Spark runs the tasks of a stage in ⌈tasks / executors⌉ waves, and ⌈n / k s⌉ = ⌈⌈n / s⌉ / k⌉. Otherwise each
stage has steps of its own: the number is Unknown, and every size is a candidate.

The server reads it from the topics and keeps it in the store's document "partitions", so that decisions,
searches and models use the same number. Topics may be given more partitions while a job
runs, so `Counting` looks again every few minutes. Simulated executors have no waves.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from models.errors import HeadroomError
from models.ports import Store
from models.quantities import Unknown

from ..settings.schema import JobSettings

if TYPE_CHECKING:
    from .base import Environment

DOCUMENT = "partitions"
STATE = "spark.sql.shuffle.partitions"
NOT_READ = Unknown("the partitions were not read yet")
AGAIN_S = 300.0  # judgement: Spark itself finds new partitions at its next batch; a broker is asked rarely


class Counting:
    """The tasks per batch of every job; `say` gets a line when the number changes."""

    def __init__(
        self, environment: Environment, jobs: Mapping[str, JobSettings], *, say: Callable[[str], None]
    ) -> None:
        self._environment, self._jobs, self._say = environment, jobs, say
        self._read: dict[str, tuple[float, int | Unknown]] = {}
        """Job -> when it was read, and what."""

    def of(self, name: str, *, now_s: float) -> int | Unknown:
        """The tasks of a job; while the broker does not answer, the number that was known before."""
        read_s, tasks = self._read.get(name, (-math.inf, NOT_READ))
        if 0.0 <= now_s - read_s < AGAIN_S:
            return tasks
        before = known(self._environment.store, name)
        there = live_partitions(self._environment, self._jobs[name])
        if not isinstance(there, Unknown):
            tasks = learnt(self._environment, name, self._jobs[name], there)
            if tasks != before and before != not_counted(name):
                self._say(f"{name}: {_in_words(tasks)} now, {_in_words(before)} before")
        elif name not in self._read:  # it may answer any moment
            return before
        self._read[name] = (now_s, tasks)
        return tasks


def counted(job: JobSettings, partitions: Mapping[str, int]) -> int | Unknown:
    """The tasks of a batch, from the partitions of each of its inputs."""
    source = sum(partitions[own] for own in job.inputs)
    declared = job.state_partitions or job.conf.get(STATE, "")
    state = int(declared) if str(declared).isdecimal() and int(declared) else source
    if max(source, state) % min(source, state) == 0:
        return max(source, state)
    return Unknown(f"{source} partitions are read and {state} keep state: their waves do not go together")


def live_partitions(environment: Environment, job: JobSettings) -> dict[str, int] | Unknown:
    """The partitions of the live input topics, by the job's names."""
    try:
        there = environment.broker.topics()
    except HeadroomError as error:
        return Unknown(str(error))
    if missing := sorted({topic for topic in job.inputs.values() if topic not in there}):
        return Unknown(f"there is no topic {', '.join(missing)} yet")
    return {own: there[topic] for own, topic in job.inputs.items()}


def learnt(
    environment: Environment, name: str, job: JobSettings, partitions: Mapping[str, int]
) -> int | Unknown:
    """`counted`, and kept in the store."""
    smooth = Unknown("simulated executors have no waves")
    tasks = smooth if environment.kind == "simulated" else counted(job, partitions)
    said = {"unknown": tasks.reason} if isinstance(tasks, Unknown) else {"tasks": tasks}
    document = {"schema": 1, **said}
    if environment.store.document(name, DOCUMENT) != document:
        environment.store.save_document(name, DOCUMENT, document)
    return tasks


def known(store: Store, name: str) -> int | Unknown:
    """The number that was kept last."""
    kept = store.document(name, DOCUMENT) or {}
    if "tasks" in kept:
        return int(kept["tasks"])
    return Unknown(str(kept["unknown"])) if "unknown" in kept else not_counted(name)


def not_counted(name: str) -> Unknown:
    """The number before the first count."""
    return Unknown(f"the partitions of {name} were not counted yet")


def if_known(tasks: int | Unknown) -> int | None:
    """The number for the models; None: every size is a candidate."""
    return None if isinstance(tasks, Unknown) else tasks


def _in_words(tasks: int | Unknown) -> str:
    return tasks.reason if isinstance(tasks, Unknown) else f"{tasks} tasks a batch"
