"""Promises that a live job keeps under a load that changes, with failures at random moments.

`enrichment` runs live. A day of 20 minutes has a ramp, a spike that doubles the load within a second, and a
quiet stretch; in it eight failures come at moments drawn beforehand: an executor killed, an executor frozen,
the driver killed. Before each failure what the decision of that moment predicts is written down, then the
recovery is measured by the same definition as a drill's. The arms:

    headroom      mode `apply`: every size is Headroom's. Three days, 24 failures.
    static-max    pinned to the largest size, the first day and its failures once more.

Spark's own dynamic allocation is not an arm yet: a job's configuration may not switch it on here.

The moments, the kinds and the load of a day depend on its number alone, so that the arms can be compared. A
failure waits until the one before is over and lag is below `max_lag_s`. No failure is left out: a recovery
that did not come within LONGEST_S counts as a broken promise. Before the first day the job is profiled and
drilled once, as a user would.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np

from bench import Figure
from models.errors import HeadroomError, NotReady
from models.ports import Directive, Registry, Source
from models.quantities import Unknown
from pipelines.integrations.mlflow_registry import MlflowRegistry
from pipelines.orchestration.resources import Modelling
from pipelines.server.in_process import InProcessServer
from pipelines.settings import job_plans
from profiling_jobs.experiments import drill
from profiling_jobs.experiments.drill import Undisturbed
from profiling_jobs.orders import run_order
from profiling_jobs.telemetry.timeline import Timeline
from profiling_jobs.training.promoting import refit

from .journal import Journal
from .lab import LIVE, PATIENCE_S, Lab, Lengths
from .report import Report

NAME = "promises"
ASKS = "Promises kept by a live job under a changing load, with failures at random moments"
DAYS = {"headroom": 3, "static-max": 1}
KINDS = ("executor_kill", "executor_freeze", "driver_kill")
# (second, share of the capacity of the largest size): a ramp, a spike that doubles the load, a quiet stretch.
DAY = ((0, 0.2), (120, 0.2), (420, 0.45), (540, 0.45), (660, 0.25), (720, 0.25), (721, 0.5), (840, 0.5))
DAY += ((841, 0.25), (900, 0.1), (1140, 0.1), (1200, 0.2))
SLOT_S = 150.0
"""Of a failure: it comes within the first MOMENTS_S of its slot, and has the rest to be recovered from."""
MOMENTS_S = (20.0, 80.0)
WINDOW_S = 60.0  # before a failure, as of a drill
LONGEST_S = 600.0  # as of a drill
CALM_S = 10.0  # judgement: between two failures, so that the second one has a moment before
ONBOARD_S = 600.0  # measured on two processors: record, profile and drill
SEED = 20261119
RANGE = (0.05, 0.95)


def seconds(lengths: Lengths) -> float:
    return ONBOARD_S + sum(DAYS.values()) * lengths.day_s


def load_share(second: float, *, day_s: float) -> float:
    """Share of the capacity of the largest size that arrives at this second of a day."""
    times, shares = zip(*DAY, strict=True)
    return float(np.interp(second * times[-1] / day_s, times, shares))


def failures(day: int, *, count: int) -> list[tuple[float, str]]:
    """Second of the day and kind of each; every kind equally often over three days of eight."""
    order = list(np.random.default_rng(SEED).permutation(KINDS * 8))
    kinds = [order[(day * count + number) % len(order)] for number in range(count)]
    moments = np.random.default_rng((SEED, day)).uniform(*MOMENTS_S, size=count)
    return [
        (number * SLOT_S + float(moment), str(kind))
        for number, (moment, kind) in enumerate(zip(moments, kinds, strict=True))
    ]


def run(lab: Lab) -> None:
    days = [(arm, day) for arm, count in DAYS.items() for day in range(count)]
    wanted = [(arm, day) for arm, day in days if not lab.journal.has(NAME, _piece(arm, day))]
    if not wanted:
        return
    lab.clear()
    here = lab.environment
    with InProcessServer(here, lab.settings, lab.folder) as server, here.taking_part():
        for arm, day in wanted:
            lab.say(f"{_piece(arm, day)}: {lab.lengths.day_s / 60.0:.0f} minutes")
            with _launched(lab, server) as source:
                _onboard(lab, server, source)
                found = _Day(lab, server, source, arm=arm, day=day).run()
            lab.journal.add(NAME, _piece(arm, day), found)


def _piece(arm: str, day: int) -> str:
    return f"{arm}, day {day + 1}"


@contextmanager
def _launched(lab: Lab, server: InProcessServer) -> Iterator[Source]:
    """The live job under its load; everything of it ends again."""
    here, job = lab.environment, lab.job(LIVE)
    run_order(server, "launch", LIVE, say=lab.say, sleep=here.clock.sleep)
    source = here.open_source(LIVE, job, f"{LIVE}-input", dict(job.inputs))
    try:
        yield source
    finally:
        drill.clear_left_over(here.failures)
        source.stop()
        with suppress(HeadroomError):
            run_order(server, "stop", LIVE, say=lab.say, sleep=here.clock.sleep)


def _onboard(lab: Lab, server: InProcessServer, source: Source) -> None:
    """Record, profile and drill once; fit what is new before every day, as the schedules would."""
    first = "recovery" not in server.context.champions.champions(LIVE).versions
    if first:
        source.set_rate(lab.lengths.live_rps)
        for what in ("record", "profile", "drill"):
            run_order(server, what, LIVE, say=lab.say, sleep=lab.environment.clock.sleep)
    modelling = Modelling(lab.settings, lab.folder, registry(lab))
    store = lab.environment.store
    for kind in ("capacity", "recovery", "workload") if first else ("recovery", "workload"):
        made = refit(kind, modelling.purpose(LIVE, store), modelling.context(store))
        lab.say(made.said)
        if first and not made.promoted:
            raise NotReady(f"the {kind} model of {LIVE} is not in charge: {made.said}")


def registry(lab: Lab) -> Registry:
    """Where the models of the job are kept."""
    return MlflowRegistry.of(lab.settings.mlflow, lab.folder)


class _Day:
    """One day of one arm, a second at a time."""

    def __init__(self, lab: Lab, server: InProcessServer, source: Source, *, arm: str, day: int) -> None:
        self._lab, self._server, self._source, self._arm = lab, server, source, arm
        self._here, self._job = lab.environment, lab.job(LIVE)
        count = int(lab.lengths.day_s // SLOT_S)
        self._due = failures(day, count=count)
        self._interval: int | None = None
        self._evaluation: Mapping[str, Any] = {}
        self._executor_s = 0.0
        self._rows: list[dict[str, Any]] = []
        self._most_rps = _capacity_rps(server, self._job.scale_out_max)

    def run(self) -> dict[str, Any]:
        clock, day_s = self._here.clock, self._lab.lengths.day_s
        self._direct()
        self._settle()
        began_s = before_s = clock.now_s()
        caused: tuple[dict[str, Any], Undisturbed, str] | None = None
        calm_s = began_s
        while caused is not None or clock.now_s() - began_s < day_s:
            clock.sleep(1.0)
            now_s = clock.now_s()
            self._executor_s += self._declared() * (now_s - before_s)
            before_s = now_s
            self._move_load(now_s - began_s)
            self._evaluate(now_s)
            if caused is not None:
                row, before, failure = caused
                if self._over(row, before, now_s):
                    self._here.failures.clear(failure)
                    self._lab.say(_line(row))
                    self._rows.append(row)
                    caused, calm_s = None, now_s + CALM_S
            elif self._due and now_s >= max(calm_s, began_s + self._due[0][0]):
                caused = self._caused(now_s)
        return {"executor_seconds": self._executor_s, "failures": self._rows}

    def _direct(self) -> None:
        """A pin holds the largest size; without it Headroom decides."""
        store, now_s = self._here.store, self._here.clock.now_s()
        store.resume(LIVE, who=NAME, why=self._arm, now_s=now_s)
        if self._arm == "static-max":
            store.direct(
                Directive(LIVE, "pin", who=NAME, why=self._arm, since_s=now_s, value=self._job.scale_out_max)
            )

    def _settle(self) -> None:
        """Under the first load of the day, before it begins."""
        clock = self._here.clock
        until_s = clock.now_s() + PATIENCE_S
        while clock.now_s() < until_s:
            self._move_load(0.0)
            clock.sleep(1.0)
            self._evaluate(clock.now_s())
            with self._server.context.sampler.reading(LIVE) as timeline:
                before = self._before(timeline, clock.now_s())
            wanted = self._job.scale_out_max if self._arm == "static-max" else self._declared()
            if before is not None and self._declared() == self._alive() == wanted:
                return
        raise NotReady(f"{LIVE} did not settle within {PATIENCE_S:.0f} s")

    def _move_load(self, second: float) -> None:
        share = load_share(second, day_s=self._lab.lengths.day_s)
        self._source.set_rate(max(1.0, share * self._most_rps))

    def _evaluate(self, now_s: float) -> None:
        interval = math.floor(now_s / self._job.evaluation_interval_s)
        if interval == self._interval:
            return
        self._interval = interval
        try:
            self._evaluation = self._server.evaluate(LIVE)
        except NotReady:
            return
        if change := self._evaluation.get("apply"):
            with suppress(HeadroomError):  # the next tick asks again
                self._server.begin("apply", LIVE, epoch=change["epoch"], to=change["to"])

    def _caused(self, now_s: float) -> tuple[dict[str, Any], Undisturbed, str] | None:
        """Write down what is predicted, and cause the failure; None where the job is behind just now."""
        with self._server.context.sampler.reading(LIVE) as timeline:
            before = self._before(timeline, now_s)
        if before is None:
            return None
        _, kind = self._due.pop(0)
        size = self._declared()
        row = {
            "kind": kind,
            "scale_out": size,
            "rate_rps": before.rate_rps,
            "lag_records": before.lag_records,
            "predicted_s": self._predicted(kind, size),
        }
        injection = self._here.failures.inject(LIVE, kind)
        self._lab.say(f"{kind} with {size} executors at {before.rate_rps:,.0f} records/s")
        return {**row, "failed_at_s": injection.at_s}, before, injection.id

    def _over(self, row: dict[str, Any], before: Undisturbed, now_s: float) -> bool:
        failed_s = row["failed_at_s"]
        with self._server.context.sampler.reading(LIVE) as timeline:
            down_s = drill.downtime_s(timeline, failed_at_s=failed_s)
            back_s = drill.recovery_s(timeline, before, failed_at_s=failed_s, until_s=now_s)
        row |= {"downtime_s": down_s, "recovery_s": back_s, "kept": back_s <= self._job.recovery_target_s}
        # A killed executor may cost no more than the batch that goes on without it.
        seen = math.isfinite(down_s) and math.isfinite(back_s) and now_s - failed_s >= WINDOW_S / 2.0
        return seen or now_s - failed_s >= LONGEST_S

    def _before(self, timeline: Timeline, now_s: float) -> Undisturbed | None:
        """The band of a drill, also while the load changes; None while the job is behind."""
        start_s, longest_s = now_s - WINDOW_S, job_plans.max_lag_s(self._job)
        rate = timeline.arrival_rps(start_s, now_s, clip=True)
        if isinstance(rate, Unknown) or rate <= 0.0:
            return None
        lag = timeline.lag_s(start_s, now_s, arrival_rps=rate)
        if not lag.size or np.isnan(lag).any() or lag[-1] > longest_s:
            return None
        return drill.normal(
            lag,
            rate_rps=rate,
            batch_s=timeline.batch_s(start_s, now_s),
            trigger_s=self._job.trigger_s,
            max_lag_s=longest_s,
            sample_s=1.0,
        )

    def _predicted(self, kind: str, size: int) -> dict[str, Any]:
        """Interval and probability of the newest evaluation, if that was of this size."""
        found = (self._evaluation.get("recoveries") or {}).get(kind) or {}
        if self._evaluation.get("scale_out") != size:
            return {"unknown": "the size has changed since the newest evaluation"}
        if "mid" not in found:
            return {"unknown": found.get("unknown", "nothing was predicted")}
        return {name: math.inf if value is None else value for name, value in found.items()}

    def _declared(self) -> int:
        declared = self._here.deployments.status(LIVE).declared_scale_out
        return declared if isinstance(declared, int) else 0

    def _alive(self) -> int:
        alive = self._here.deployments.status(LIVE).executors_alive
        return alive if isinstance(alive, int) else 0


def _capacity_rps(server: InProcessServer, size: int) -> float:
    capacity = server.context.champions.champions(LIVE).capacity
    found = capacity if isinstance(capacity, Unknown) else capacity.predict(size)
    if isinstance(found, Unknown):
        raise NotReady(f"the capacity of {size} executors is unknown: {found.reason}")
    return found.mid


def _line(row: Mapping[str, Any]) -> str:
    said = row["predicted_s"]
    told = f"{said['mid']:.0f} s ({said['low']:.0f}–{said['high']:.0f})" if "mid" in said else said["unknown"]
    return f"{row['kind']}: recovered after {row['recovery_s']:.1f} s, predicted {told}"


# ------------------------------------------------------------------------------------------- the report


def report(journal: Journal) -> Report | None:
    pieces = journal.of(NAME)
    if not pieces:
        return None
    of_arm = {arm: [one for name, one in pieces.items() if name.startswith(f"{arm}, ")] for arm in DAYS}
    ours = [row for one in of_arm["headroom"] for row in one["failures"]]
    figures = [Figure("failures of the live job", len(ours), "", at_least=24)]
    figures += _of_promises(ours)
    figures += _of_costs(of_arm)
    columns = (
        "arm",
        "failure",
        "executors",
        "records/s",
        "stated",
        "predicted, s (90 %)",
        "measured, s",
        "kept",
    )
    rows = [
        (
            arm,
            row["kind"],
            row["scale_out"],
            f"{row['rate_rps']:,.0f}",
            _stated(row),
            _told(row["predicted_s"]),
            "never" if math.isinf(row["recovery_s"]) else f"{row['recovery_s']:.1f}",
            "yes" if row["kept"] else "NO",
        )
        for arm, days in of_arm.items()
        for one in days
        for row in one["failures"]
    ]
    return Report(ASKS, figures, columns, rows)


def _of_promises(ours: Sequence[Mapping[str, Any]]) -> list[Figure]:
    known = [row for row in ours if "mid" in row["predicted_s"]]
    figures = []
    if known:
        asked = statistics.mean(row["predicted_s"]["probability"] for row in known)
        kept = statistics.mean(row["kept"] for row in known)
        spread = math.sqrt(max(asked * (1.0 - asked), 1e-9) / len(known))
        figures.append(
            Figure(
                "promises kept where one was stated",
                100.0 * kept,
                "%",
                at_least=100.0 * (asked - 2.0 * spread),
            )
        )
    figures.append(Figure("failures without a prediction", len(ours) - len(known), ""))
    if known:
        inside = [
            row["predicted_s"]["low"] <= row["recovery_s"] <= row["predicted_s"]["high"] for row in known
        ]
        errors = [
            min(1.0, abs(row["predicted_s"]["mid"] - row["recovery_s"]) / max(row["recovery_s"], 20.0))
            for row in known
        ]
        figures += [
            Figure(
                "recoveries inside the predicted 90 %", 100.0 * statistics.mean(inside), "%", at_least=80.0
            ),
            Figure("mean error of the predicted median", 100.0 * statistics.mean(errors), "%", at_most=15.0),
        ]
    return figures


def _of_costs(of_arm: Mapping[str, Sequence[Mapping[str, Any]]]) -> list[Figure]:
    """Executor-seconds of the first day, which every arm has, and its broken promises."""
    figures, cost = [], {}
    for arm, days in of_arm.items():
        if not days:
            continue
        first = days[0]
        cost[arm] = float(first["executor_seconds"])
        broken = sum(not row["kept"] for row in first["failures"])
        figures += [
            Figure(f"{arm}: executor-seconds of the first day", cost[arm], "executor-seconds"),
            Figure(f"{arm}: broken promises of the first day", broken, ""),
        ]
    if set(cost) == set(DAYS) and cost["static-max"]:
        saved = 100.0 * (1.0 - cost["headroom"] / cost["static-max"])
        figures.append(Figure("saved beside the largest size", saved, "%", at_least=25.0))
    return figures


def _stated(row: Mapping[str, Any]) -> str:
    probability = row["predicted_s"].get("probability")
    return "–" if probability is None else f"{probability:.3f}"


def _told(said: Mapping[str, Any]) -> str:
    if "mid" not in said:
        return str(said["unknown"])
    return f"{said['mid']:.1f} ({said['low']:.1f}–{said['high']:.1f})"
