"""The events that are sent to a copy of a job: those that the settings name, else the newest recording.

One Spark job per input topic sends its share of the rate.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from models.errors import Misconfigured
from models.ports import Source
from profiling_jobs.brokers import Brokers
from profiling_jobs.jobs import JOBS
from profiling_jobs.recording.recorded import Recorded
from profiling_jobs.replay.together import Together

from ...processes.owner import Owner
from ...settings.schema import JobSettings, Settings, TimeUnit

if TYPE_CHECKING:
    from profiling_jobs.replay.sources import Source as Records

KAFKA_TIMESTAMP = "kafka-timestamp"
"""The `event_time` of a job whose windows are on the timestamp that Kafka has for each record."""
FOREVER_S = 20 * 86_400.0
EventTime = tuple[str | None, TimeUnit]
"""The field of an event that holds its time, if any does, and what it counts."""


def replay(
    owner: Owner,
    settings: Settings,
    brokers: Brokers,
    *,
    name: str,
    job: JobSettings,
    copy: str,
    inputs: Mapping[str, str],
) -> Source:
    """One source per input topic, with the share of the rate that its records have of what arrives."""
    if len(inputs) == 1:
        own, topic = next(iter(inputs.items()))
        events = events_for(owner.folder, name, job, own, several=False)
        event_time = event_time_of(job, events)
        return _replay_one(
            owner, settings, brokers, copy=copy, topic=topic, events=events, event_time=event_time
        )
    from profiling_jobs.replay.sources import open_source

    parts: list[Source] = []
    opened: list[Records] = []
    folder = owner.folder / "replays" / f"{copy}.shares"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        for number, (own, topic) in enumerate(inputs.items()):
            events = events_for(owner.folder, name, job, own, several=True)
            opened.append(open_source(events, folder=folder))
            part = _replay_one(
                owner,
                settings,
                brokers,
                copy=f"{copy}.{number}",
                topic=topic,
                events=events,
                event_time=event_time_of(job, events),
            )
            parts.append(part)
        return Together(list(zip(parts, _shares(opened), strict=True)))
    except BaseException:
        for part in parts:
            part.stop()
        raise
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _shares(opened: Sequence[Records]) -> list[float]:
    """Records per time: one recording may have ended at its size while the others went on."""
    if all(one.span_us > 0 for one in opened):
        return [one.records / one.span_us for one in opened]
    return [float(one.records) for one in opened]


def _replay_one(
    owner: Owner,
    settings: Settings,
    brokers: Brokers,
    *,
    copy: str,
    topic: str,
    events: str,
    event_time: EventTime,
) -> Source:
    from profiling_jobs.replay.replay_plan import Replay, Schedule

    from .replay import LocalReplay

    field, unit = event_time
    plan = Replay(
        topic=topic,
        source=events,
        schedule=Schedule.constant(1.0, duration_s=FOREVER_S),
        brokers=brokers,
        folder=owner.folder / "replays" / copy,
        tasks=1,
        event_time=field,
        event_time_unit=unit,
    )
    return LocalReplay(owner, name=copy, settings=settings.spark).start(plan)


def event_time_of(job: JobSettings, events: str) -> EventTime:
    """The field of these events that holds their time, and its unit: a replay moves it to now."""
    if job.event_time == KAFKA_TIMESTAMP:
        return None, "ms"  # it is the moment of sending, in a replay as well
    if job.event_time is not None:
        return job.event_time, job.event_time_unit
    if events.startswith("generator:"):
        generated = events.removeprefix("generator:").partition("?")[0].partition("/")[0]
        return (JOBS[generated].event_time if generated in JOBS else "event_time"), "ms"
    return None, "ms"


def events_for(folder: Path, name: str, job: JobSettings, own: str, *, several: bool) -> str:
    """The events of one input: what the settings name, else the newest recording of it."""
    if job.events is not None:
        events = events_of(job.events, own) if several else job.events
        # The replay runs in another folder; the path is relative to headroom.toml.
        return events if events.startswith("generator:") else str(folder.resolve().parent / events)
    recordings = folder / "recordings" / name
    found = {}
    for each in recordings.glob(f"*-{own}"):
        began_s = each.name.removesuffix(f"-{own}")
        if began_s.isdigit() and Recorded.is_one(each) and Recorded.read(each).ended:
            found[int(began_s)] = each
    if not found:
        raise Misconfigured(
            f"job.{name}.events",
            f"is not set, and nothing of {own} was recorded: launch `record` on Dagster's page first, or "
            "name a Parquet path or generator:NAME",
        )
    return str(found[max(found)])


def events_of(events: str, own: str) -> str:
    """generator:NAME?options -> generator:NAME/INPUT?options; a folder -> the folder in it."""
    if not events.startswith("generator:"):
        return str(Path(events) / own)
    name, mark, options = events.partition("?")
    return f"{name}/{own}{mark}{options}"
