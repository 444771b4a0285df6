"""What is wrong with settings that are right one by one? Checks across the keys of a section.

Each yields the path of a key, and the problem in a sentence.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from profiling_jobs.plans import FILES, folder_of

from . import timetable
from .settings import BrokerSettings, JobSettings, SparkSettings

TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
"""What Kafka takes for the name of a topic."""

Problems = Iterator[tuple[str, str]]


def of_job(job: JobSettings, path: str) -> Problems:
    """Of one [job.NAME]."""
    yield from _brought(job, path)
    yield from _topics(job, path)
    if not job.scale_out_min <= job.scale_out <= job.scale_out_max:
        yield (
            f"{path}.scale_out",
            f"needs scale_out_min <= scale_out <= scale_out_max, got "
            f"{job.scale_out_min}, {job.scale_out}, {job.scale_out_max}",
        )
    if not job.failure_kinds:
        yield f"{path}.failure_kinds", "names none: a promise covers at least one kind of failure"
    for key, problem in timetable.mistakes(job).items():
        yield f"{path}.{key}", problem


def _brought(job: JobSettings, path: str) -> Problems:
    """How the job is brought."""
    ways = {"script": job.script, "build": job.build, "attach": job.attach}
    brought = [way for way, given in ways.items() if given]
    if len(brought) != 1:
        said = f"has {' and '.join(brought)}" if brought else "has none"
        yield path, f"needs exactly one of script, build, attach = true; it {said}"
    if job.attach and job.checkpoint is None:
        yield f"{path}.checkpoint", "an attached job needs the path of its checkpoint"
    if job.attach and job.mode == "apply":
        yield f"{path}.mode", "an attached job is not ours to rescale: use observe or recommend"


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
