"""Error of predicted recoveries, each by models that have not seen the drill.

Twelve failures on one copy: an executor killed, an executor frozen, the driver killed, each at three rates
and one of them twice. A drill is predicted in the batch form by models that have not seen it: capacity from
the profile, overhead from the batches of the minute before, downtime from what the other drills have taught
(`standstill`). Its error is |predicted − measured| / max(measured, 20 s); a drill that never recovered counts
as 100 %, and so does one that could not be predicted. None is left out: what showed nothing (the job was
disturbed before the failure) is repeated, and counted.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

from bench import Figure
from models.downtime import DowntimeModel, downtime_priors
from models.errors import HeadroomError
from models.quantities import Interval, RecoveryEvent, Unknown
from pipelines.settings import job_plans
from profiling_jobs.experiments import drill, drill_prediction, drilling
from profiling_jobs.experiments.drill import Outcome
from profiling_jobs.experiments.drill_prediction import Models, lesson
from profiling_jobs.telemetry.batch_costs import EngineInputs

from . import capacity
from .journal import Journal
from .lab import ENRICHMENT, Lab, Lengths
from .report import Report

NAME = "drills"
ASKS = "Recovery, predicted by models that have not seen the drill"
KINDS = ("executor_kill", "executor_freeze", "driver_kill")
TYPICAL_S = {"executor_kill": 5.0, "executor_freeze": 24.0, "driver_kill": 37.0}
LEAST_S = (
    20.0  # as agreed: a batch takes a second or two, so that shorter recoveries cannot be compared to 15 %
)
TRIES = 3
INVALID = f"{NAME}: invalid"


def cells(lengths: Lengths) -> list[tuple[str, float, int]]:
    """Kind, share of the capacity, repeat; kind by kind a different rate comes twice."""
    shares = sorted(lengths.drill_shares)
    first = [(kind, share, 1) for share in shares for kind in KINDS]
    again = [(kind, shares[number % len(shares)], 2) for number, kind in enumerate(KINDS)]
    return sorted(first + again, key=lambda cell: (cell[1], cell[2], KINDS.index(cell[0])))


def seconds(lengths: Lengths) -> float:
    each = [
        drill.WINDOW_S + 10.0 + TYPICAL_S[kind] / (1.0 - share) + 15.0 for kind, share, _ in cells(lengths)
    ]
    return 130.0 + sum(each)


def run(lab: Lab) -> None:
    for cell in cells(lab.lengths):
        if lab.journal.has(NAME, _piece(cell)):
            continue
        for _ in range(TRIES):
            outcome = _one(lab, cell)
            if outcome.valid:
                break
        if isinstance(outcome.event, Unknown):
            lab.say(f"{_piece(cell)}: given up, {outcome.event.reason}")
            continue
        kind, share, repeat = cell
        data = {
            "kind": kind,
            "share": share,
            "repeat": repeat,
            "event": asdict(outcome.event),
            "details": dict(outcome.details),
            "heartbeat_s": lab.settings.spark.network_timeout_s,
            "limit": lab.job(ENRICHMENT).limit_records,
        }
        lab.journal.add(NAME, _piece(cell), data)


def _piece(cell: tuple[str, float, int]) -> str:
    kind, share, repeat = cell
    return f"{kind} at {share:.0%}, number {repeat}"


def _one(lab: Lab, cell: tuple[str, float, int]) -> Outcome:
    kind, share, _ = cell
    size, job = lab.lengths.drill_size, lab.job(ENRICHMENT)
    rate = share * capacity.capacity_rps(lab.journal, size)
    copy = lab.copy(ENRICHMENT, size)
    lab.say(f"{_piece(cell)}: {rate:,.0f} records/s")
    spoilt = True
    try:
        lab.ready(copy, rate)
        found = job_plans.drill_settings(job, lab.settings.spark)
        name = copy.plan.name
        outcome = drill.DrillRun(
            copy.watch,
            kind,
            on="copy",
            source=copy.source,
            batch_began_s=lambda batch: lab.environment.batch_began_s(name, batch),
            failures=lab.environment.failures,
            clock=lab.environment.clock,
            settings=found,
        ).run()
        spoilt = bool(outcome.details)
    except HeadroomError as error:
        outcome = Outcome(kind, size, rate, Unknown(str(error)), {})
    lab.say(drilling.described(outcome))
    drilling.keep(lab.environment.around(ENRICHMENT, job), ENRICHMENT, outcome)
    if isinstance(outcome.event, Unknown):
        number = len(lab.journal.of(INVALID)) + 1
        lab.journal.add(INVALID, f"{number}: {_piece(cell)}", {"reason": outcome.event.reason})
        # Where nothing was caused yet the copy is as good as before.
        if spoilt:
            lab.drop(copy)
    elif math.isinf(outcome.event.recovery_s):
        lab.drop(copy)
    return outcome


# ------------------------------------------------------------------------------------------ predicting


def predicted(journal: Journal, piece: str, *, lessons: bool = True) -> Interval | Unknown:
    """By the profile, and all drills but this one: by what they teach, or by their first commits alone."""
    pieces = journal.of(NAME)
    one = pieces[piece]
    priors = downtime_priors(heartbeat_timeout_s=one["heartbeat_s"])
    models = Models(
        capacity=capacity.model(journal),
        downtime=DowntimeModel.fit(priors=priors),
        engine=EngineInputs(capacity.overheads(journal), one["limit"]),
    )
    events = []
    for other in (other for name, other in pieces.items() if name != piece):
        if not lessons:
            events.append(_event(other))
            continue
        taught = lesson(_event(other), other["details"], models)
        if isinstance(taught, Unknown):
            return taught
        events.append(taught)
    models = replace(models, downtime=models.downtime.with_events(events))
    details = one["details"]
    return drill_prediction.recovery_s(
        models,
        one["kind"],
        scale_out=one["event"]["scale_out"],
        rate_rps=details["rate_rps"],
        lag_records=details["lag_before_records"],
        longest_s=details["longest_s"],
    )


def error(measured_s: float, said: Interval | Unknown) -> float:
    """Share of max(measured, 20 s); what never recovered, or was not predicted, counts as a whole one."""
    if isinstance(said, Unknown) or math.isinf(measured_s) or math.isinf(said.mid):
        return 1.0
    return abs(said.mid - measured_s) / max(measured_s, LEAST_S)


def _event(piece: Mapping[str, Any]) -> RecoveryEvent:
    return RecoveryEvent(**piece["event"])


def report(journal: Journal) -> Report | None:
    pieces = journal.of(NAME)
    if not pieces:
        return None
    rows, errors, plain, lasting, of_kind = [], [], [], 0, dict.fromkeys(KINDS, 0)
    for name, one in sorted(pieces.items(), key=lambda item: (item[1]["kind"], item[1]["share"])):
        event, said = _event(one), predicted(journal, name)
        wrong = error(event.recovery_s, said)
        errors.append(wrong)
        plain.append(error(event.recovery_s, predicted(journal, name, lessons=False)))
        lasting += event.recovery_s >= LEAST_S
        of_kind[event.kind] += 1
        rate = one["details"]["rate_rps"]
        sustained = capacity.model(journal).predict(event.scale_out)
        rows.append(
            (
                event.kind,
                f"{rate:,.0f}",
                f"{rate / sustained.mid:.2f}" if isinstance(sustained, Interval) else "?",
                _seconds(event.recovery_s),
                said.reason
                if isinstance(said, Unknown)
                else f"{said.mid:.1f} ({said.low:.1f}–{said.high:.1f})",
                f"{wrong:.0%}",
                _seconds(event.downtime_s),
                _pieces(one["details"]["downtime"]),
            )
        )
    cells_seen = {(one["kind"], one["share"]) for one in pieces.values()}
    figures = [
        Figure("mean error of the predicted recovery", 100.0 * statistics.mean(errors), "%", at_most=15.0),
        Figure(
            "the same with downtimes up to the first commit",
            100.0 * statistics.mean(plain),
            "%",
        ),
        Figure("drills", len(errors), "", at_least=12),
        Figure("cells of kind and rate", len(cells_seen), "", at_least=9),
        Figure("fewest drills of a kind", min(of_kind.values()), "", at_least=4),
        Figure("drills that took 20 s or more", lasting, "", at_least=len(errors) // 2 + 1),
    ]
    columns = (
        "failure",
        "records/s",
        "utilisation",
        "measured, s",
        "predicted, s (90 %)",
        "error",
        "down, s",
        "detection + restart + state load + first batch, s",
    )
    reasons = [one["reason"] for one in journal.of(INVALID).values()]
    notes = (
        [f"Repeated because they showed nothing: {len(reasons)} ({'; '.join(reasons)})."] if reasons else []
    )
    return Report(ASKS, figures, columns, rows, notes)


def _seconds(value: float) -> str:
    return "never" if math.isinf(value) else f"{value:.1f}"


def _pieces(downtime: Mapping[str, Any]) -> str:
    return " + ".join("?" if isinstance(one, str) else f"{one:.1f}" for one in downtime.values())
