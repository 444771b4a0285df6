"""Capacity estimated from a running job at low load, against what probes have found.

A copy runs at varying rates below 0.6 of its capacity. `OnlineCapacity` is fed with one observation per rate,
as the control loop takes them: of each executor the busy share or the processor share, whichever is larger,
and its rate. That says how fast executors work that are never idle, T; between two batches they are, for o
seconds that the same live batches show. Full batches of N records sustain

    1/T' = 1/T + o/N

which is compared with what probes have found. Judged is the plain least-squares form, as the loop uses it;
what a prior through the origin would say stands beside it, and what the processor share alone would.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from itertools import pairwise
from typing import Any

import numpy as np

from bench import Figure
from models.capacity import OnlineCapacity
from models.optimise.question import BatchEngine, sustained
from models.quantities import Interval, Unknown
from profiling_jobs.control_loop.observe import limited_by, observation
from profiling_jobs.experiments.copies import Copy
from profiling_jobs.telemetry import batch_costs

from . import capacity
from .journal import Journal
from .lab import ENRICHMENT, WORD_COUNT, Lab, Lengths
from .report import Report

NAME = "online"
ASKS = "Capacity from the live signals of a job that runs below 0.6 of it"
PROBED = "word-count probed"
EXPECTED = {ENRICHMENT: "waiting", WORD_COUNT: "cpu"}
SETTLE_SHARE = 0.25  # of each step: executors are read every four seconds, and the batch in flight is old


def seconds(lengths: Lengths) -> float:
    each = 60.0 + len(lengths.online_shares) * lengths.online_step_s
    return 2.0 * each + capacity.seconds(lengths) / (len(lengths.sizes) + 1)


def run(lab: Lab) -> None:
    if not lab.journal.has(NAME, ENRICHMENT):
        copy = lab.copy(ENRICHMENT, lab.lengths.drill_size)
        _watch(lab, ENRICHMENT, copy, capacity.capacity_rps(lab.journal, copy.plan.scale_out))
    if not lab.journal.has(NAME, PROBED):
        lab.clear()
        lab.journal.add(
            NAME, PROBED, capacity.search(lab, WORD_COUNT, (1,), first_rate_rps=lab.lengths.word_count_rps)
        )
    if not lab.journal.has(NAME, WORD_COUNT):
        found = lab.journal.get(NAME, PROBED)["estimates"]["1"]["capacity"]
        if "mid" not in found:
            lab.say(f"word-count has no capacity: {found['unknown']}")
            return
        _watch(lab, WORD_COUNT, lab.copy(WORD_COUNT, 1), float(found["mid"]))


def _watch(lab: Lab, name: str, copy: Copy, truth_rps: float) -> None:
    steps = []
    lab.ready(copy, lab.lengths.online_shares[0] * truth_rps)
    for share in lab.lengths.online_shares:
        began_s = copy.source.set_rate(share * truth_rps)
        lab.say(f"{name} at {share:.0%} of what was probed, {share * truth_rps:,.0f} records/s")
        lab.watch(copy, lab.lengths.online_step_s)
        since_s = began_s + SETTLE_SHARE * lab.lengths.online_step_s
        seen = observation(copy.watch.timeline, since_s=since_s, status=copy.watch.status)
        if isinstance(seen, Unknown) or isinstance(seen.cpu, Unknown) or isinstance(seen.worker_rps, Unknown):
            lab.say("nothing was observed in this step")
            continue
        load = copy.watch.timeline.load(since_s, lab.now_s)
        commits = copy.watch.timeline.commits(since_s, lab.now_s)
        steps.append(
            {
                "share": share,
                "rps": dict(seen.worker_rps),
                "limit": _limit(copy, since_s, lab.now_s),
                "commits": [(done.at_s, done.records) for done in commits],
                "load": {
                    what: {worker: column.tolist() for worker, column in getattr(load, what).items()}
                    for what in ("cpu", "busy", "records_rps")
                },
            }
        )
    data = {
        "size": copy.plan.scale_out,
        "probed_rps": truth_rps,
        "largest_batch": lab.job(name).max_offsets_per_trigger,
        "steps": steps,
    }
    lab.journal.add(NAME, name, data | {"limit": _limit(copy, 0.0, lab.now_s)})


def _limit(copy: Copy, start_s: float, end_s: float) -> str:
    found = limited_by(copy.watch.timeline, start_s, end_s)
    return f"unknown: {found.reason}" if isinstance(found, Unknown) else found


def predicted(
    piece: dict[str, Any], *, shares: Sequence[str] = ("cpu", "busy"), prior_weight: float = 0.0
) -> Interval | Unknown:
    """What the model says after all steps, of the largest of these shares."""
    online = OnlineCapacity(prior_weight=prior_weight)
    for step in piece["steps"]:
        known = {worker: _largest(step["load"], shares, worker) for worker in step["rps"]}
        workers = sorted(worker for worker, share in known.items() if np.isfinite(share))
        online.update(
            {worker: known[worker] for worker in workers},
            {worker: step["rps"][worker] for worker in workers},
        )
    return online.total()


def _largest(load: dict[str, Any], shares: Sequence[str], worker: str) -> float:
    columns = [np.asarray(load[share].get(worker, ()), dtype=float) for share in shares]
    return max((float(c[np.isfinite(c)].mean()) for c in columns if np.isfinite(c).any()), default=np.nan)


def in_full_batches(piece: dict[str, Any], bare: Interval | Unknown) -> Interval | Unknown:
    """The same in full batches, with the overhead of those that were seen."""
    if isinstance(bare, Unknown):
        return bare
    batches = []
    for step in piece["steps"]:
        done = step["commits"]  # when, and how many records in all by then
        batches += [(n - before, at - since) for (since, before), (at, n) in pairwise(done)]
    cost = batch_costs.fit(batches)
    if isinstance(cost, Unknown):
        return cost
    engine = BatchEngine(overhead_s=cost.overhead_s, limit_records=piece["largest_batch"])
    return sustained(bare, engine, scale_out=piece["size"])


def report(journal: Journal) -> Report | None:
    figures, rows = [], []
    for name, expected in EXPECTED.items():
        if not journal.has(NAME, name):
            continue
        piece = journal.get(NAME, name)
        bare = predicted(piece)
        said = in_full_batches(piece, bare)
        probed = piece["probed_rps"]
        error = 100.0 if isinstance(said, Unknown) else 100.0 * abs(said.mid - probed) / probed
        figures.append(Figure(f"{name}: error of the capacity it says", error, "%", at_most=10.0))
        right = float(piece["limit"] == expected)
        figures.append(Figure(f"{name}: limit detected is {expected} (1 = yes)", right, "", at_least=1.0))
        run_at = [step["share"] for step in piece["steps"]]
        rows.append(
            (
                name,
                piece["size"],
                piece["limit"],
                f"{min(run_at):.0%}–{max(run_at):.0%}",
                f"{probed:,.0f}",
                _shown(bare),
                _shown(said),
                _shown(in_full_batches(piece, predicted(piece, prior_weight=1.0))),
                _shown(in_full_batches(piece, predicted(piece, shares=("cpu",)))),
            )
        )
    if not rows:
        return None
    columns = (
        "job",
        "executors",
        "limit",
        "run at",
        "probed, records/s",
        "never idle",
        "says",
        "with a prior through the origin",
        "by processor share alone",
    )
    return Report(ASKS, figures, columns, rows)


def _shown(said: Interval | Unknown) -> str:
    if isinstance(said, Unknown):
        return said.reason
    values = asdict(said)
    return f"{values['mid']:,.0f} ({values['low']:,.0f}–{values['high']:,.0f})"
