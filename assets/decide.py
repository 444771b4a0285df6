"""Stage 4, decide: the smallest size that keeps the promise, with a reason against every other."""

from collections.abc import Mapping, Sequence
from typing import Any

import dagster as dg

from models.ports import Store
from profiling_jobs.orders import Json, Server

from . import plots
from .metadata import Shown, number, of_evaluation, of_input, of_query, picture, table
from .orders import dagster_failures
from .partitions import JOBS

GROUP = "decide"
SHOWN = 360  # evaluations in the timeline: six hours of minutes
DRAWN = 96  # in the drawing on every point; judgement: an hour and a half
INTERVAL_TAG = "headroom/interval"
SEEN_S = 300.0
"""How often the input and the query are observed beside `decision`, which has the same figures: an event
takes 6 kB in Dagster's store, and a day of ticks may take 50 MB of everything (bench timelines)."""
MODELS = ("workload_model", "capacity_model", "latency_model", "recovery_model")


@dg.asset(group_name=GROUP, partitions_def=JOBS, deps=MODELS)
def decision(
    context: dg.AssetExecutionContext, server: dg.ResourceParam[Server], store: dg.ResourceParam[Store]
) -> dg.MaterializeResult:
    """The size that keeps the promise for the load to come. One evaluation per interval, however often asked.

    The sensor `optimization_sensor` evaluates at every interval and reports an observation, also when nothing
    has to change: that is the timeline of this asset.
    """
    job = context.partition_key
    with dagster_failures():
        evaluation = server.evaluate(job)
    metadata = of_evaluation(evaluation)
    metadata["sizes"] = dg.MetadataValue.md(sizes(evaluation))
    known = [each for _, each in store.evaluations(job, limit=SHOWN)]
    metadata |= drawn(known)
    metadata["timeline"] = picture(plots.timeline(known, job=job), f"the decisions of {job}")
    return dg.MaterializeResult(metadata=metadata)


def recent(store: Store, job: str) -> list[Json]:
    """The evaluations that are drawn on every point of the timeline."""
    return [each for _, each in store.evaluations(job, limit=DRAWN)]


def drawn(evaluations: Sequence[Json]) -> Shown:
    """Load, capacity and size of the last evaluations, shown in the table of metadata."""
    found = plots.sparkline(evaluations[-DRAWN:], job=str(evaluations[-1]["job"])) if evaluations else ""
    return {"last_evaluations": dg.MetadataValue.md(found)} if found else {}


def observations(evaluation: Json, *, before: Sequence[Json] = ()) -> list[dg.AssetObservation]:
    """One evaluation as a point on the timelines of `decision` and, now and then, of input and query.

    `before`: the evaluations that are drawn with it, as `recent` returns them.
    """
    job = str(evaluation["job"])
    found = [("decision", of_evaluation(evaluation) | drawn(before))]
    every = max(1, round(SEEN_S / evaluation["interval_s"]))
    if evaluation["interval"] % every == 0:
        found += [("input_topics", of_input(evaluation)), ("running_query", of_query(evaluation))]
    return [
        dg.AssetObservation(
            asset_key=key,
            partition=job,
            metadata=metadata,
            tags={INTERVAL_TAG: str(evaluation["interval"])},
        )
        for key, metadata in found
        if metadata
    ]


def sizes(evaluation: Json) -> str:
    """Every size with its verdict, as Markdown."""
    decision = evaluation.get("decision")
    if not isinstance(decision, Mapping) or "verdicts" not in decision:
        why = decision.get("unknown", "") if isinstance(decision, Mapping) else ""
        return f"No size was judged: {why}"
    sure = f"{100 * evaluation['promise']['confidence']:g} %"
    rows = []
    for one in decision["verdicts"]:
        mark = " **←**" if one["scale_out"] == decision.get("scale_out") else ""
        taken, share = one.get("recovery_s"), number(one.get("probability"))
        promised = number(taken.get("promised")) if isinstance(taken, Mapping) else None
        rows.append(
            (
                f"{one['scale_out']}{mark}",
                one["status"],
                _span(one.get("capacity")),
                "–" if promised is None else f"{promised:,.1f}",
                "–" if share is None else f"{share:.1%}",
                "; ".join(str(each["sentence"]) for each in one.get("excuses") or ()),
            )
        )
    header = f"executors: | verdict | capacity, records/s | {sure} recover within, s: | in time: | why not"
    return table(header, rows)


def _span(interval: Any) -> str:
    if not isinstance(interval, Mapping) or interval.get("mid") is None:
        return "–"
    low, mid, high = (interval.get(name) for name in ("low", "mid", "high"))
    ends = "" if low is None or high is None else f" ({low:,.0f}–{high:,.0f})"
    return f"{mid:,.0f}{ends}"
