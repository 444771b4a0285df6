"""Can the promise be kept at all? Time-outs and intervals that alone are longer than the recovery target.

A frozen executor is noticed by nobody before Spark's `spark.network.timeout` is over: as long as that is not
well below the target, no number of executors keeps the promise.
"""

from __future__ import annotations

from collections.abc import Mapping

from pipelines.resources import spark_timeouts
from pipelines.resources.sqlite_store import SqliteStore
from pipelines.settings import JobSettings, SparkSettings
from pipelines.world import STORE
from profiling_jobs.telling.in_words import brief_s, kind, lasting

from . import Finding, Patient
from .attached import attached

SPARKS_OWN_S = 120.0  # spark.network.timeout where nobody sets it
FROZEN = ("executor_freeze", "node_loss", "network_partition")
MOST = 0.5  # judgement: what a time-out may take of the target, so that there is room to catch up


def promises(patient: Patient) -> list[Finding]:
    """One finding or more per job."""
    if not patient.settings.jobs:
        return [Finding("jobs", "warning", f"{patient.file} names no job", "add a table [job.NAME]")]
    found = []
    for name, job in sorted(patient.settings.jobs.items()):
        mine = [
            *attached(name, job, patient),
            *_network(name, job, patient.settings.spark),
            *_intervals(name, job),
            *_lived_through(name, job, patient),
        ]
        fine = f"{lasting(job.recovery_target_s)} are promised, and no time-out stands against it"
        found += mine or [Finding(f"job {name}", "ok", fine)]
    return found


def network_timeout_s(job: JobSettings, spark: SparkSettings) -> float:
    """After how long a silent executor is given up; NaN where the value is none that Spark would take."""
    chosen: Mapping[str, str] = {**spark.conf, **job.conf}
    if job.attach and "spark.network.timeout" not in chosen:
        return SPARKS_OWN_S
    return spark_timeouts.silence_s(spark, chosen)


def _network(name: str, job: JobSettings, spark: SparkSettings) -> list[Finding]:
    what, target_s, timeout_s = f"job {name}", job.recovery_target_s, network_timeout_s(job, spark)
    if timeout_s != timeout_s:
        return [Finding(what, "problem", "spark.network.timeout is no duration", "write for example 20s")]
    covered = [each for each in job.failure_kinds if each in FROZEN]
    whose, chosen = "spark.network.timeout", {**spark.conf, **job.conf}
    guessed = job.attach and whose not in chosen
    better_s = max(5, int(target_s * MOST / 2))
    fix = f"spark.network_timeout_s = {better_s}"
    if job.attach or whose in chosen:
        fix = f'"{whose}" = "{better_s}s" in the job\'s Spark configuration'
    after = kind(covered[0]) if covered else "a frozen executor"
    if timeout_s >= target_s:
        told = f"{whose} is {timeout_s:g} s: {after} alone takes longer than the {target_s:g} s promised"
        if guessed:  # somebody else runs the job
            told += "; that is Spark's own value, nobody has told us another"
        return [Finding(what, "warning" if guessed else "problem", told, fix)]
    if timeout_s > MOST * target_s and covered:
        told = f"{whose} is {timeout_s:g} s of the {target_s:g} s promised: little is left to catch up"
        return [Finding(what, "warning", told, fix)]
    return []


def _intervals(name: str, job: JobSettings) -> list[Finding]:
    what, target_s = f"job {name}", job.recovery_target_s
    found = []
    if 2 * job.trigger_s >= target_s:
        told = (
            f"trigger_s is {job.trigger_s:g} s: the batch that was lost and the next one take longer than "
            f"the {target_s:g} s promised"
        )
        found.append(Finding(what, "problem", told, f"trigger_s below {target_s / 4:g}, or a longer target"))
    if job.max_lag_s is not None and job.max_lag_s >= target_s:
        told = f"max_lag_s is {job.max_lag_s:g} s: a job that far behind has broken its promise already"
        found.append(Finding(what, "warning", told, f"max_lag_s below {target_s:g}"))
    if job.max_offsets_per_trigger is None:
        told = "max_offsets_per_trigger is not set: the first batch after a failure is one giant batch"
        found.append(
            Finding(what, "warning", told, f"job.{name}.max_offsets_per_trigger, a few batches' worth")
        )
    return found


def _lived_through(name: str, job: JobSettings, patient: Patient) -> list[Finding]:
    """Downtimes that were measured and are longer than the promise."""
    path = patient.folder / STORE
    if not path.exists():
        return []
    with SqliteStore(path, patience_s=1.0) as store:
        events = [event for event, _ in store.events(name)]
    found = []
    for each in job.failure_kinds:
        downtimes = sorted(event.downtime_s for event in events if event.kind == each)
        if downtimes and downtimes[len(downtimes) // 2] >= job.recovery_target_s:
            middle = brief_s(downtimes[len(downtimes) // 2])
            told = (
                f"{kind(each)} was lived through {len(downtimes)} times, half of them with a downtime of "
                f"{middle} s or more: longer than the {job.recovery_target_s:g} s promised, whatever the size"
            )
            fix = (
                f"a longer recovery_target_s, or shorten the restart (`headroom drill {name} --kind {each}`)"
            )
            found.append(Finding(f"job {name}", "problem", told, fix))
    return found
