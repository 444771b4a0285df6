"""Stage 2, profile: the rates that the job sustains at each size, and its recovery from failures."""

from collections.abc import Mapping, Sequence
from typing import Any

import dagster as dg
from pydantic import Field

from models.quantities import FAILURE_KINDS, Misuse
from profiling_jobs.orders import Json, Server

from .metadata import Shown, figures, table
from .orders import ordered
from .partitions import JOBS, KEY, POINTS, ByJob, Point, of_fact

GROUP = "profile"
POOL = "profiling-cluster"


@dg.asset(
    key=KEY,
    group_name=GROUP,
    partitions_def=POINTS,
    deps=[dg.AssetDep("recording", partition_mapping=ByJob())],
    pool=POOL,
    kinds={"spark"},
)
def profiling_points(
    context: dg.AssetExecutionContext, server: dg.ResourceParam[Server]
) -> dg.MaterializeResult:
    """Whether a copy of the job sustains one rate at one size. A run of a single point probes it again.

    The job `profile` runs the whole search: it adds a partition for every point it asks for, and materialises
    it once it is measured.
    """
    try:
        point = Point.of(context.partition_key)
    except Misuse as wrong:
        raise dg.Failure(description=str(wrong), allow_retries=False) from wrong
    found = ordered(context, server, "probe", point.job, scale_out=point.scale_out, rate_rps=point.rate_rps)
    return dg.MaterializeResult(metadata=of_fact(found))


class Drills(dg.Config):
    """The failures to cause; what is left out follows from the job's settings and models."""

    kinds: list[str] | None = Field(default=None, description=f"Some of {', '.join(FAILURE_KINDS)}.")
    scale_outs: list[int] | None = Field(default=None, description="Executors of the copy.")
    rates_rps: list[float] | None = Field(default=None, description="Load during the drill, records/s.")
    repeats: int = Field(default=1, ge=1, description="Of every combination.")
    budget_executor_s: float | None = Field(
        default=None, description="Executor-seconds that drills on a copy may cost."
    )
    live: bool = Field(
        default=False, description="On the live job itself; refused unless its allow_live_drills is true."
    )
    by_itself: bool = Field(
        default=False, description="Ordered by a schedule: refused in a blackout, also on a copy."
    )


@dg.asset(group_name=GROUP, partitions_def=JOBS, deps=["recording"], pool=POOL, kinds={"spark"})
def failure_drills(
    context: dg.AssetExecutionContext, config: Drills, server: dg.ResourceParam[Server]
) -> dg.MaterializeResult:
    """Failures caused on purpose, on a copy of the job: downtime and recovery, beside what was predicted."""
    found = ordered(
        context, server, "drill", context.partition_key, kinds=config.kinds, scale_outs=config.scale_outs,
        rates_rps=config.rates_rps, repeats=config.repeats, budget_executor_s=config.budget_executor_s,
        live=config.live or None, by_itself=config.by_itself or None,
    )  # fmt: skip
    return dg.MaterializeResult(metadata=of_drills(found["drills"], kept=found["kept"]))


def of_drills(drills: Sequence[Json], *, kept: bool) -> Shown:
    """What the drills of a run have shown; the longest recovery counts."""
    valid = [one for one in drills if "invalid" not in one]
    ended = [one for one in valid if one["recovery_s"] is not None]
    errors = [
        abs(predicted - one["recovery_s"]) / one["recovery_s"]
        for one in ended
        if (predicted := _predicted(one).get("mid")) is not None and one["recovery_s"] > 0.0
    ]
    longest: Json = max(ended, key=lambda one: one["recovery_s"], default={})
    return {
        **figures(
            drills=len(drills),
            valid_drills=len(valid),
            downtime_s=longest.get("downtime_s"),
            recovery_s=longest.get("recovery_s"),
            predicted_recovery_s=_predicted(longest).get("mid"),
            mean_prediction_error=sum(errors) / len(errors) if errors else None,
        ),
        "kept": dg.MetadataValue.bool(kept),
        "each": dg.MetadataValue.md(drills_table(drills)),
    }


def drills_table(drills: Sequence[Json]) -> str:
    """Each drill, as Markdown."""
    rows = []
    for one in drills:
        if "invalid" in one:
            measured = ("–", "–", f"invalid: {one['invalid']}")
        else:
            predicted = _predicted(one)
            low, mid, high = (_said(predicted.get(name)) for name in ("low", "mid", "high"))
            said = f"{mid} ({low}–{high})" if "mid" in predicted else str(predicted.get("reason", "–"))
            recovery = "never" if one["recovery_s"] is None else _said(one["recovery_s"])
            measured = (_said(one["downtime_s"]), recovery, said)
        rows.append((one["kind"], str(one["scale_out"]), _said(one.get("rate_rps")), *measured))
    return table("failure | executors: | records/s: | down, s: | recovered after, s: | predicted, s", rows)


def _predicted(drill: Json) -> Json:
    found = drill.get("details", {}).get("predicted_recovery_s")
    return found if isinstance(found, Mapping) else {}


def _said(value: Any) -> str:
    return f"{value:,.0f}" if isinstance(value, int | float) else "–"
