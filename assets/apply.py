"""Stage 5, apply: the size that runs, and the change that was ordered."""

import dagster as dg

from models.quantities import executors
from profiling_jobs.orders import Server

from .metadata import figures, of_query, sentence
from .orders import dagster_failures, ordered
from .partitions import JOBS

GROUP = "apply"

running_query = dg.AssetSpec(
    "running_query",
    group_name=GROUP,
    partitions_def=JOBS,
    deps=["scale_out"],
    kinds={"spark"},
    description="The streaming job itself. Not made here: each evaluation observes lag, rate and latency.",
)


@dg.asset(group_name=GROUP, partitions_def=JOBS, deps=["decision"])
def scale_out(context: dg.AssetExecutionContext, server: dg.ResourceParam[Server]) -> dg.MaterializeResult:
    """The size that runs. A change that the evaluation has ordered is carried out here, once.

    Only in mode `apply`. The next evaluations verify the change, and roll it back if the job is not healthy.
    """
    job = context.partition_key
    with dagster_failures():
        evaluation = server.evaluate(job)
    change = evaluation.get("apply")
    if change is None:
        said = {"did": "nothing", "reason": sentence(evaluation)}
    else:
        context.log.info(f"{change['before']} to {executors(change['to'])}: {change['reason']}")
        said = dict(ordered(context, server, "apply", job, epoch=change["epoch"], to=change["to"]))
        if said.get("did") == "refused":
            raise dg.Failure(description=str(said["reason"]), allow_retries=False)
    now = said["to"] if said.get("did") == "scaled" else evaluation.get("scale_out")
    return dg.MaterializeResult(
        metadata={
            **{name: value for name, value in said.items() if value is not None},
            **of_query(evaluation),
            **figures(scale_out=now, epoch=evaluation.get("epoch")),
        }
    )
