"""Dagster's jobs, launched by a sensor, a schedule, or by hand.

    record        record the live input
    profile       search the capacity of a job: adds points and measures them, within the job's budget
    drill         cause failures, and see how long the job takes to come back
    model         fit, check and put in charge all models of a job
    optimization  evaluate a job now, and carry out the change if something must change

All are partitioned by job. Runs are small and each starts a process: within a run everything is one process.
"""

from collections.abc import Sequence
from typing import Any

import dagster as dg

from assets.decide import MODELS
from assets.orders import ordered
from assets.partitions import Search
from assets.profile import POOL
from models.ports import Store
from profiling_jobs.orders import Server

OPTIMIZATION = "optimization"
PROFILE = "profile"
DRILL = "drill"
MODEL = "model"
FIRST = {"dagster/priority": "10"}  # a change of the size waits for no model


class Profile(dg.Config):
    """What a search may cost, where it is not what headroom.toml says."""

    scale_outs: list[int] | None = None
    budget_executor_s: float | None = None


@dg.op(pool=POOL)
def search(
    context: dg.OpExecutionContext,
    config: Profile,
    server: dg.ResourceParam[Server],
    store: dg.ResourceParam[Store],
) -> None:
    """Search the capacity of the job at several sizes, on copies of it; it goes on where it was interrupted.

    Every point that is asked for becomes a partition of `profiling_points`, measured ones are materialised.
    """
    job = context.partition_key
    points = Search(context.instance, store, job)
    found = ordered(
        context, server, "profile", job, seen=points.seen,
        scale_outs=config.scale_outs, budget_executor_s=config.budget_executor_s,
    )  # fmt: skip
    context.log.info(f"{points.end()} points of {job} are measured; {found['why_done']}")


def all_jobs(jobs: Sequence[str]) -> dict[str, Any]:
    """Everything that can be launched for these jobs of headroom.toml."""
    fixed = dg.StaticPartitionsDefinition(list(jobs))

    @dg.job(
        name=PROFILE,
        partitions_def=fixed,
        description="Search the capacity of a job, within its budget of executor-seconds.",
    )
    def profile() -> None:
        search()

    def of(name: str, description: str, *assets: str, **more: Any) -> Any:
        return dg.define_asset_job(
            name, selection=dg.AssetSelection.assets(*assets), description=description, **more
        )

    found = [
        profile,
        of("record", "Record the live input of a job.", "recording", "workload_history"),
        of(DRILL, "Cause failures on a copy of a job, and measure its recovery.", "failure_drills"),
        of(MODEL, "Fit, check and put in charge the models of a job.", *MODELS),
        of(
            OPTIMIZATION,
            "Evaluate a job now, and carry out the change if something must change.",
            "decision",
            "scale_out",
            tags=FIRST,
        ),
    ]
    return {job.name: job for job in found}
