"""Stage 1, record: copies of the live input, and its arrival rate."""

from typing import Any

import dagster as dg
import numpy as np
from pydantic import Field

from models.ports import Store
from models.quantities import Unknown
from profiling_jobs.orders import Server
from profiling_jobs.training import training_data

from .metadata import figures
from .orders import ordered
from .partitions import JOBS

GROUP = "record"
HOURLY: dg.AutomationCondition[Any] = dg.AutomationCondition.cron_tick_passed("7 * * * *")
HOURLY = HOURLY.since_last_handled() & ~dg.AutomationCondition.in_progress()
"""When the history is read again; not on the hour, when many other jobs start."""

input_topics = dg.AssetSpec(
    "input_topics",
    group_name=GROUP,
    partitions_def=JOBS,
    kinds={"kafka"},
    description="The topics that the job reads. Not made here: each evaluation observes how fast they grow.",
)


class Recording(dg.Config):
    """Length and size of a recording."""

    seconds: float | None = Field(
        default=None,
        gt=0.0,
        description="How long the live input is copied: two minutes, or the job's longest window if longer.",
    )
    max_bytes: int | None = Field(
        default=None, gt=0, description="Where the recording of a topic ends before its time, on the disk."
    )


@dg.asset(group_name=GROUP, partitions_def=JOBS, deps=[input_topics], kinds={"spark", "parquet"})
def recording(
    context: dg.AssetExecutionContext, config: Recording, server: dg.ResourceParam[Server]
) -> dg.MaterializeResult:
    """Events of the live input as Parquet, for profiling copies to read; no consumer group is touched."""
    found = ordered(
        context, server, "record", context.partition_key, seconds=config.seconds, max_bytes=config.max_bytes
    )
    each = found["recordings"].values()
    return dg.MaterializeResult(
        metadata={
            **figures(
                records=sum(one["records"] for one in each),
                megabytes=sum(one["bytes"] for one in each) / 1e6,
                missing_records=sum(one["missing"] for one in each),
                mean_arrival_rps=sum(one["mean_rps"] for one in each),
                seconds=found["seconds"],
            ),
            **{name: dg.MetadataValue.path(one["folder"]) for name, one in found["recordings"].items()},
        }
    )


@dg.asset(
    group_name=GROUP,
    partitions_def=JOBS,
    deps=[input_topics, recording],
    automation_condition=HOURLY,
)
def workload_history(
    context: dg.AssetExecutionContext, store: dg.ResourceParam[Store]
) -> dg.MaterializeResult:
    """Arrival rates on a regular grid, from recordings and from the live input since."""
    grid = training_data.arrivals(store, context.partition_key)
    if isinstance(grid, Unknown):
        raise dg.Failure(description=grid.reason, allow_retries=False)
    known = ~np.isnan(grid.values)
    return dg.MaterializeResult(
        metadata=figures(
            hours=grid.values.size * grid.step_s / 3600.0,
            missing_share=1.0 - float(known.mean()),
            step_s=grid.step_s,
            mean_arrival_rps=float(grid.values[known].mean()),
            highest_arrival_rps=float(grid.values[known].max()),
        )
    )
