"""Capacity at 6 executors, predicted by a model of 1, 2 and 4.

`enrichment` is profiled at 1, 2 and 4 executors by the product's own search, and the model is fitted. Then 6
executors are probed by a search of their own, which knows nothing of the model but at which rate to begin.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from bench import Figure
from models import codec
from models.capacity import CapacityModel
from models.probing import Estimate, estimates
from models.probing import Settings as Search
from models.quantities import Interval, Measurement, Unknown
from pipelines.settings import job_plans
from profiling_jobs.experiments.profiling import Profiling
from profiling_jobs.experiments.profiling_record import measured, overheads_s

from .journal import Journal
from .lab import ENRICHMENT, SIX, Lab, Lengths
from .report import Report

NAME = "capacity"
ASKS = "Capacity of `enrichment`: found by probes, predicted for a size that was not probed"
PROFILE, UNSEEN = "profile", "unseen"
COPY_S = 110.0  # start, warm-up, settling and lead-in of the first probe of a size
AGAIN_S = 55.0  # the same of a further one on the same copy
OVERSHOOT = 1.3  # as the search itself begins where it has an idea


def seconds(lengths: Lengths) -> float:
    """What it will take."""
    probes = lengths.most_probes
    each = COPY_S + lengths.probe_s + (probes - 1) * (AGAIN_S + lengths.probe_s)
    return (len(lengths.sizes) + 1) * each


def run(lab: Lab) -> None:
    if not lab.journal.has(NAME, PROFILE):
        lab.clear()
        lab.journal.add(NAME, PROFILE, search(lab, ENRICHMENT, lab.lengths.sizes))
    if not lab.journal.has(NAME, UNSEEN):
        lab.clear()
        size = lab.lengths.unseen
        predicted = model(lab.journal).predict(size)
        rate = None if isinstance(predicted, Unknown) else OVERSHOOT * predicted.mid
        found = search(lab, SIX, (size,), first_rate_rps=rate, scout=False)
        said = {"unknown": predicted.reason} if isinstance(predicted, Unknown) else vars(predicted)
        lab.journal.add(NAME, UNSEEN, found | {"size": size, "predicted": dict(said)})


def search(
    lab: Lab, name: str, sizes: tuple[int, ...], *, first_rate_rps: float | None = None, scout: bool = True
) -> dict[str, Any]:
    job, lengths = lab.job(name), lab.lengths
    around = lab.environment.around(name, job)
    wanted = Search(
        scale_outs=sizes,
        warm_up_s=job.warm_up_s + job_plans.LAUNCH_S,
        probe_s=lengths.probe_s,
        first_rate_rps=first_rate_rps,
        budget_executor_seconds=(lengths.most_probes + 2) * sum(sizes) * (COPY_S + lengths.probe_s),
        bracket=lengths.bracket,
        most_probes=lengths.most_probes,
        executors_at_once=lab.settings.spark.slots,
    )
    state = Profiling(
        lab.plan(name),
        wanted,
        around if scout else replace(around, stages=None),
        partitions=lab.partitions(name),
        rules=lab.rules(name),
        progress=lambda state, text: lab.say(text),
    ).run()
    kept, overheads = measured(lab.environment.store, name), overheads_s(lab.environment.store, name)
    return {
        # One probe after the other, each charged for its copy; so it counts over interruptions, too.
        "seconds": sum(one.cost / one.probe.scale_out for one in state.results),
        "executor_seconds": state.spent,
        "done": state.done,
        "estimates": {str(size): _told(one) for size, one in estimates(state).items()},
        "measurements": [] if isinstance(kept, Unknown) else [dict(vars(one)) for one in kept],
        "overheads_s": {} if isinstance(overheads, Unknown) else {str(k): v for k, v in overheads.items()},
        "probes": codec.to_json(state.results),
    }


def _told(one: Estimate) -> dict[str, Any]:
    known = one.capacity
    return {
        "capacity": {"unknown": known.reason} if isinstance(known, Unknown) else dict(vars(known)),
        "bracket": [one.bracket.sustained_rps, one.bracket.not_sustained_rps],
        "probes": one.probes,
        "invalid": one.invalid,
        "flagged": one.flagged,
    }


# -------------------------------------------------------------------------------- what other parts ask


def model(journal: Journal) -> CapacityModel:
    """Fitted on what the search has measured."""
    return CapacityModel.fit([Measurement(**one) for one in journal.get(NAME, PROFILE)["measurements"]])


def capacity_rps(journal: Journal, size: int) -> float:
    """T_max of a size that was profiled, as the search found it; of another by the model."""
    found = journal.get(NAME, PROFILE)["estimates"].get(str(size), {}).get("capacity", {})
    if "mid" in found:
        return float(found["mid"])
    predicted = model(journal).predict(size)
    if isinstance(predicted, Unknown):
        raise SystemExit(f"the capacity of {size} executors is unknown: {predicted.reason}")
    return predicted.mid


def overheads(journal: Journal) -> dict[int, float]:
    """What a batch costs beside its records, by size."""
    return {int(size): s for size, s in journal.get(NAME, PROFILE)["overheads_s"].items()}


def report(journal: Journal) -> Report | None:
    pieces = journal.of(NAME)
    if PROFILE not in pieces:
        return None
    found, fitted = pieces[PROFILE], model(journal)
    figures = [
        Figure("time of the search at 1, 2 and 4 executors", found["seconds"] / 60.0, "min", at_most=12.0),
        Figure("its cost", found["executor_seconds"], "executor-seconds"),
    ]
    rows = [_row(int(size), one, fitted) for size, one in found["estimates"].items()]
    if UNSEEN in pieces:
        unseen = pieces[UNSEEN]
        size, predicted = unseen["size"], unseen["predicted"]
        truth = unseen["estimates"][str(size)]["capacity"]
        rows.append(_row(size, unseen["estimates"][str(size)], fitted))
        if "mid" in truth and "mid" in predicted:
            error = abs(predicted["mid"] - truth["mid"]) / truth["mid"]
            inside = predicted["low"] <= truth["mid"] <= predicted["high"]
            figures += [
                Figure(f"predicted for {size} executors", predicted["mid"], "records/s"),
                Figure(f"probed at {size} executors", truth["mid"], "records/s"),
                Figure("error of the predicted one", 100.0 * error, "%", at_most=10.0),
                Figure("probed lies in the predicted interval (1 = yes)", float(inside), "", at_least=1.0),
            ]
    columns = ("executors", "probed, records/s", "90 %", "bracket", "model", "90 %", "probes", "invalid")
    return Report(ASKS, figures, columns, rows, [f"The form of the curve: {fitted.form}; {found['done']}."])


def _row(size: int, one: dict[str, Any], fitted: CapacityModel) -> tuple[str | float | int, ...]:
    seen, said = one["capacity"], fitted.predict(size)
    low, high = one["bracket"]
    return (
        size,
        f"{seen['mid']:,.0f}" if "mid" in seen else "unknown",
        f"{seen['low']:,.0f}–{seen['high']:,.0f}" if "mid" in seen else seen["unknown"],
        f"{low:,.0f}–{high:,.0f}",
        f"{said.mid:,.0f}" if isinstance(said, Interval) else "unknown",
        f"{said.low:,.0f}–{said.high:,.0f}" if isinstance(said, Interval) else said.reason,
        one["probes"],
        one["invalid"],
    )
