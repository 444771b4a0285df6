"""What is wrong with settings that are right one by one? Checks across the keys of a section.

Each yields the path of a key, and the problem in a sentence.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator

from profiling_jobs.plans import COPY, FILES, folder_of

from . import timetable
from .settings import BrokerSettings, JobSettings, SparkSettings

TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
"""What Kafka takes for the name of a topic."""

Problems = Iterator[tuple[str, str]]


def of_names(names: Collection[str]) -> Problems:
    """Of the names of all jobs together."""
    for name in names:
        if (copy := COPY.fullmatch(name)) and copy["job"] in names:
            yield f"job.{name}", f"is what a copy of job.{copy['job']} is called: choose another name"


def of_job(job: JobSettings, path: str) -> Problems:
    """Of one [job.NAME]."""
    yield from _brought(job, path)
    yield from _topics(job, path)
    yield from _size(job, path)
    if not job.failure_kinds:
        yield f"{path}.failure_kinds", "names none: a promise covers at least one kind of failure"
    for key, problem in timetable.mistakes(job).items():
        yield f"{path}.{key}", problem


def _brought(job: JobSettings, path: str) -> Problems:
    """How the job is brought."""
    if job.script is not None and job.build is not None:
        yield path, "has both script and build: they are two programs, give one of them"
    if not (job.copyable or job.attach):
        yield path, "needs script, build or attach = true; it has none of them"
    if not job.attach:
        if job.executors is not None:
            yield f"{path}.executors", "goes with attach = true; of a job that is run here it is scale_out"
        if job.consumer_group is not None:
            yield f"{path}.consumer_group", "goes with attach = true; what runs here commits to ours"
        return
    if job.checkpoint is None:
        yield f"{path}.checkpoint", "an attached job needs the path of its checkpoint"
    if job.mode == "apply":
        yield f"{path}.mode", "an attached job is not ours to rescale: use observe or recommend"
    if job.allow_live_drills:
        yield f"{path}.allow_live_drills", "an attached job is not ours to hurt: drill a copy"
    for cron in ("profile_cron", "drill_cron"):
        if getattr(job, cron) is not None and not job.copyable:
            yield f"{path}.{cron}", "copies of an attached job need its program: give script or build, too"


def _size(job: JobSettings, path: str) -> Problems:
    """The size it has, or begins with."""
    name = "executors" if job.attach else "scale_out"
    size = getattr(job, name)
    if size is not None and not job.scale_out_min <= size <= job.scale_out_max:
        bounds = f"got {job.scale_out_min}, {size}, {job.scale_out_max}"
        yield f"{path}.{name}", f"needs scale_out_min <= {name} <= scale_out_max, {bounds}"


def _topics(job: JobSettings, path: str) -> Problems:
    if not job.inputs:
        yield f"{path}.inputs", 'names no topic; for example {events = "orders"}'
    topics = {own: output for own, output in job.outputs.items() if folder_of(output) is None}
    for key, named in (("inputs", job.inputs), ("outputs", topics)):
        for own, topic in named.items():
            if not TOPIC.fullmatch(topic):
                told = f"{own} = {topic!r} is no name for a topic: up to 249 of letters, digits, . _ -"
                yield f"{path}.{key}", told
    for topic in sorted(set(job.inputs.values()) & set(job.outputs.values())):
        yield f"{path}.outputs", f"the topic {topic!r} is also an input"
    for own, output in job.outputs.items():
        if output.startswith(FILES) and not output.startswith(f"{FILES}/"):
            yield f"{path}.outputs", f"{own} = {output!r} needs an absolute path behind {FILES}"


def of_services(brokers: BrokerSettings, spark: SparkSettings) -> Problems:
    """Of [brokers] and [spark]."""
    for address in (brokers.bootstrap or "").split(",") if brokers.bootstrap else ():
        if not re.fullmatch(r"\s*\S+:\d+\s*", address):
            told = f"{address!r} is not of the form host:port; for example localhost:9092"
            yield "brokers.bootstrap", told
    if spark.heartbeat_s >= spark.network_timeout_s:
        yield (
            "spark.heartbeat_s",
            f"must be well below network_timeout_s ({spark.network_timeout_s}), or Spark gives up every "
            f"executor; got {spark.heartbeat_s}",
        )
