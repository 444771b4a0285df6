"""Settings that headroom.toml accepts, but that will fail later or endanger the promise.

`headroom check` and `headroom doctor` show it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from models.errors import Misconfigured
from profiling_jobs import plans, triggers
from profiling_jobs.explain.wording import kind
from profiling_jobs.plans import PLACEHOLDER

from . import spark_timeouts
from .job_plans import live_plan
from .schema import BrokerSettings, JobSettings, Settings, SparkSettings

STATE_PARTITIONS = "spark.sql.shuffle.partitions"
SPARKS_NETWORK_TIMEOUT_S = 120.0  # Spark's default of spark.network.timeout
FROZEN = ("executor_freeze", "node_loss", "network_partition")
TIMEOUT_SHARE = 0.5  # judgement: what a time-out may take of the target, so that there is room to catch up


@dataclass(frozen=True)
class Concern:
    """One thing that will fail, or that endangers the promise."""

    path: str
    problem: str
    """A predicate: the key is its subject."""
    fix: str
    serious: bool = True
    """False: a warning."""


def concerns(name: str, settings: Settings, *, folder: Path) -> Iterator[Concern]:
    """What is known of a job before anything runs. `folder`: the one that headroom.toml lies in."""
    job, path = settings.jobs[name], f"job.{name}"
    program = ""
    if job.script is not None and not (folder / job.script).is_file():
        yield Concern(
            f"{path}.script", f"is {job.script}, which is not there", f"write its path from {folder}"
        )
    elif job.script is not None:
        program = (folder / job.script).read_text(encoding="utf-8", errors="replace")
        yield from _script(job, path, program, settings.brokers)
    if job.copyable:
        try:
            plans.check(live_plan(name, job, folder=folder))
        except Misconfigured as wrong:
            problem, _, fix = wrong.problem.rpartition(": ")
            yield Concern(wrong.setting, problem, fix)
    yield from _network_timeout(job, path, settings.spark)
    yield from _batches(job, path, limited=bool(triggers.limits_in(program)))
    if settings.deployment.kind != "simulated" and not job.elsewhere:
        yield from default_state_partitions(job, path, settings.spark)


def _script(job: JobSettings, path: str, program: str, brokers: BrokerSettings) -> Iterator[Concern]:
    """The script is called with what belongs to each copy, and has the declared batches."""
    given = PLACEHOLDER.findall(" ".join(job.args))
    wanted = {"input": "{input_topic}"}
    if job.outputs:
        wanted["output"] = "{output_topic}"
    wanted["checkpoint"] = "{checkpoint}"
    if brokers.bootstrap is None:
        wanted["brokers"] = "{brokers}"
    missing = [text for what, text in wanted.items() if not any(one.startswith(what) for one in given)]
    if missing:
        yield Concern(
            f"{path}.args",
            f"lacks {', '.join(missing)}: a profiling copy runs the same script on other topics and with "
            "another checkpoint, which are passed as arguments",
            f"let the script read them from its arguments, and add {json.dumps(missing)[1:-1]}",
        )
    wrong = [triggers.mismatch(job.trigger_s, interval_s) for interval_s in triggers.spelt_in(program)]
    if wrong and all(wrong):
        problem, _, fix = wrong[0].rpartition(": ")
        yield Concern(f"{path}.trigger_s", problem, fix)
    limits = triggers.limits_in(program)
    if None not in limits:
        wrong = [triggers.other_limit(job.max_offsets_per_trigger, limit) for limit in limits or (None,)]
        if all(wrong):
            problem, _, fix = wrong[0].rpartition(": ")
            # Without any it may be set in a module of the program: only a copy that runs knows.
            yield Concern(f"{path}.max_offsets_per_trigger", problem, fix, serious=bool(limits))
    if triggers.has_watermark(program) and job.event_time is None:
        yield Concern(
            f"{path}.event_time",
            "is not set, but the script has a watermark: a copy would drop recorded events as late, and "
            "seem faster than the job is",
            'name the field that holds the time of the events, or write "kafka-timestamp", and set '
            "longest_window_s",
            serious=False,
        )


def network_timeout_s(job: JobSettings, spark: SparkSettings) -> float:
    """The time after which a silent executor is given up; NaN where Spark would not take the value."""
    chosen = {**spark.conf, **job.conf}
    if job.elsewhere and spark_timeouts.SILENCE not in chosen:
        return SPARKS_NETWORK_TIMEOUT_S
    return spark_timeouts.silence_s(spark, chosen)


def _network_timeout(job: JobSettings, path: str, spark: SparkSettings) -> Iterator[Concern]:
    """A frozen executor is noticed only when spark.network.timeout is over."""
    key, target_s, timeout_s = spark_timeouts.SILENCE, job.recovery_target_s, network_timeout_s(job, spark)
    set_in_conf = key in {**spark.conf, **job.conf}
    where = f"{path}.conf" if set_in_conf or job.elsewhere else "spark.network_timeout_s"
    if math.isnan(timeout_s):
        yield Concern(where, f"sets {key} to something that is not a duration", "write for example 20s")
        return
    says = f"sets {key} to" if set_in_conf else "is"
    if job.elsewhere and not set_in_conf:
        says = f"does not set {key}, and Spark's default is"
    covered = [each for each in job.failure_kinds if each in FROZEN]
    better_s = max(5, int(target_s * TIMEOUT_SHARE / 2))
    fix = f"spark.network_timeout_s = {better_s}"
    if job.elsewhere or set_in_conf:
        fix = f'"{key}" = "{better_s}s" in the job\'s Spark configuration'
    if timeout_s >= target_s:
        after = kind(covered[0]) if covered else "a frozen executor"
        told = f"{says} {timeout_s:g} s: {after} alone takes longer than the {target_s:g} s promised"
        yield Concern(where, told, fix, serious=set_in_conf or not job.elsewhere)
    elif timeout_s > TIMEOUT_SHARE * target_s and covered:
        told = f"{says} {timeout_s:g} s of the {target_s:g} s promised: little is left to catch up"
        yield Concern(where, told, fix, serious=False)


def _batches(job: JobSettings, path: str, *, limited: bool) -> Iterator[Concern]:
    target_s = job.recovery_target_s
    if 2 * job.trigger_s >= target_s:
        yield Concern(
            f"{path}.trigger_s",
            f"is {job.trigger_s:g} s: the batch that was lost and the next one take longer than "
            f"the {target_s:g} s promised",
            f"trigger_s below {target_s / 4:g}, or a longer recovery_target_s",
        )
    if job.max_lag_s is not None and job.max_lag_s >= target_s:
        told = f"is {job.max_lag_s:g} s: a job that far behind has broken its promise already"
        yield Concern(f"{path}.max_lag_s", told, f"max_lag_s below {target_s:g}", serious=False)
    if job.max_offsets_per_trigger is None and not limited:
        yield Concern(
            f"{path}.max_offsets_per_trigger",
            "is not set: the first batch after a failure takes all the lag at once",
            "max_offsets_per_trigger = a few batches' worth of records",
            serious=False,
        )


def default_state_partitions(
    job: JobSettings, path: str, spark: SparkSettings, *, topic_partitions: int = 0
) -> Iterator[Concern]:
    """The warning about Spark's 200 state partitions. `topic_partitions`: of the largest input, if known."""
    if job.state_partitions or STATE_PARTITIONS in {**spark.conf, **job.conf}:
        return
    source = topic_partitions or job.topic_partitions
    enough = source * math.ceil(job.scale_out_max / source)
    yield Concern(
        f"{path}.state_partitions",
        "is not set: a job with aggregations or joins runs Spark's 200 state tasks in every "
        f"batch, on at most {job.scale_out_max} executors (300 records/s were measured on three), and its "
        "first checkpoint fixes that number",
        f"state_partitions = {enough} before the first start",
        serious=False,
    )
