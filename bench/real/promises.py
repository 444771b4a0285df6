"""Promises that a live job keeps under a load that changes, with failures at random moments.

`enrichment` runs live. A day of 20 minutes has a ramp, a spike that doubles the load within a second, and a
quiet stretch; in it eight failures come at moments drawn beforehand: an executor killed, an executor frozen,
the driver killed. Before each failure what the decision of that moment predicts is written down, then the
recovery is measured by the same definition as a drill's: the lag of before is that of the last WINDOW_S, but
never that of a start or of the recovery before, within which a failure would pass unseen. The arms:

    headroom             mode `apply`: every size is Headroom's. Three days, 24 failures.
    static-max           pinned to the largest size, the first day and its failures once more.
    dynamic-allocation   sized by Spark's own dynamic allocation with its defaults (`dynamic_allocation`), the
                         first day and its failures once more. Headroom samples the job and evaluates nothing:
                         to an evaluation an executor that Spark has given up is one that was lost, and it
                         would learn from that.

The moments, the kinds and the load of a day depend on its number alone, so that the arms can be compared. A
failure waits until the one before is over and lag is below `max_lag_s`. No failure is left out: a recovery
that did not come within LONGEST_S counts as a broken promise, and so does a failure that could not be caused
because the job was behind until its day was over. Before the first day the job is profiled and drilled once,
as a user would.

Executor-seconds are the size, once a second until the day is over: the declared one, and where Spark sets it
the number of registered executors. Both go on counting while the driver is being replaced.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from typing import Any

import numpy as np

from bench import Figure
from models.errors import HeadroomError, NotReady
from models.ports import Directive, Registry, Source
from models.quantities import Interval, Unknown
from pipelines.integrations.mlflow_registry import MlflowRegistry
from pipelines.orchestration.resources import Modelling
from pipelines.server.in_process import InProcessServer
from pipelines.settings import job_plans
from profiling_jobs.experiments import drill
from profiling_jobs.experiments.drill import Undisturbed
from profiling_jobs.orders import run_order
from profiling_jobs.telemetry.timeline import Timeline
from profiling_jobs.training.promoting import refit

from . import drills, dynamic_allocation
from .journal import Journal
from .lab import LIVE, PATIENCE_S, SETTLED_LAG_S, SETTLED_S, Lab, Lengths
from .report import Report

NAME = "promises"
ASKS = "Promises kept by a live job under a changing load, with failures at random moments"
DYNAMIC = "dynamic-allocation"
SIZED_BY_SPARK = "nothing is predicted where Spark sets the size"
DAYS = {"headroom": 3, "static-max": 1, DYNAMIC: 1}
KINDS = ("executor_kill", "executor_freeze", "driver_kill")
# (second, share of the capacity of the largest size): a ramp, a spike that doubles the load, a quiet stretch.
DAY = ((0, 0.2), (120, 0.2), (420, 0.45), (540, 0.45), (660, 0.25), (720, 0.25), (721, 0.5), (840, 0.5))
DAY += ((841, 0.25), (900, 0.1), (1140, 0.1), (1200, 0.2))
SLOT_S = 150.0
"""Of a failure: it comes within the first MOMENTS_S of its slot, and has the rest to be recovered from."""
MOMENTS_S = (20.0, 80.0)
WINDOW_S = 60.0  # before a failure, as of a drill
NORMAL_BATCHES = 3.0  # judgement: records wait for the batch under way and for their own
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
    if not dynamic_allocation.possible(lab):
        lab.say("there is no dynamic allocation in this environment: that arm is left out")
        wanted = [(arm, day) for arm, day in wanted if arm != DYNAMIC]
    if not wanted:
        return
    lab.clear()
    here = lab.environment
    with InProcessServer(here, lab.settings, lab.folder) as server, here.taking_part():
        for arm, day in wanted:
            lab.say(f"{_piece(arm, day)}: {lab.lengths.day_s / 60.0:.0f} minutes")
            with _launched(lab, server, arm) as source:
                if arm != DYNAMIC:  # nothing is evaluated there
                    _onboard(lab, server, source)
                found = _Day(lab, server, source, arm=arm, day=day).run()
            lab.journal.add(NAME, _piece(arm, day), found)


def _piece(arm: str, day: int) -> str:
    return f"{arm}, day {day + 1}"


@contextmanager
def _launched(lab: Lab, server: InProcessServer, arm: str) -> Iterator[Source]:
    """The live job under its load; everything of it ends again."""
    here, job = lab.environment, lab.job(LIVE)
    with suppress(HeadroomError):  # of a run that was killed, perhaps in another arm
        here.deployments.stop(LIVE)
    with dynamic_allocation.driven() if arm == DYNAMIC else nullcontext():
        try:
            if arm == DYNAMIC:
                dynamic_allocation.launch(lab, LIVE)
            else:
                run_order(server, "launch", LIVE, say=lab.say, sleep=here.clock.sleep)
            source = here.open_source(LIVE, job, f"{LIVE}-input", dict(job.inputs))
            try:
                yield source
            finally:
                drill.clear_left_over(here.failures)
                source.stop()
        finally:
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
        self._executor_s, self._counted = 0.0, 0
        self._undisturbed_since_s = -math.inf
        """Neither a start nor a recovery since."""
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
            # Longer only for the last recovery, which another arm may not need.
            within_s = min(now_s, began_s + day_s) - before_s
            self._executor_s += self._size() * max(0.0, within_s)
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
                    self._undisturbed_since_s = min(row["failed_at_s"] + row["recovery_s"], now_s)
            elif self._due and now_s >= max(calm_s, began_s + self._due[0][0]):
                caused = self._caused(now_s)
        self._rows += [not_caused(kind, self._size()) for _, kind in self._due]
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
        """Under the first load of the day: the first batches are slow, and their lag has to fall."""
        clock = self._here.clock
        normal_since_s = clock.now_s()
        until_s = normal_since_s + PATIENCE_S
        while clock.now_s() < until_s:
            self._move_load(0.0)
            clock.sleep(1.0)
            now_s = clock.now_s()
            self._evaluate(now_s)
            if not self._is_normal(now_s):
                normal_since_s = now_s
            elif now_s - normal_since_s >= SETTLED_S:
                self._undisturbed_since_s = normal_since_s
                return
        raise NotReady(f"{LIVE} did not settle within {PATIENCE_S:.0f} s")

    def _is_normal(self, now_s: float) -> bool:
        """All executors are there, and no more waits than the batches need."""
        wanted = self._job.scale_out_max if self._arm == "static-max" else self._size()
        with self._server.context.sampler.reading(LIVE) as timeline:
            before, batch_s = self._before(timeline, now_s), timeline.batch_s(now_s - WINDOW_S, now_s)
            newest = timeline.lag_records(now_s - WINDOW_S, now_s)[-1:]
        if before is None or not self._size() == self._alive() == wanted:
            return False
        return bool(newest[0] <= before.rate_rps * max(SETTLED_LAG_S, NORMAL_BATCHES * batch_s))

    def _move_load(self, second: float) -> None:
        share = load_share(second, day_s=self._lab.lengths.day_s)
        self._source.set_rate(max(1.0, share * self._most_rps))

    def _evaluate(self, now_s: float) -> None:
        interval = math.floor(now_s / self._job.evaluation_interval_s)
        if interval == self._interval or self._arm == DYNAMIC:
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
        """Write down what is predicted, and cause the failure.

        None where the job is behind just now, or has just lost what should fail: a second later again.
        """
        with self._server.context.sampler.reading(LIVE) as timeline:
            before = self._before(timeline, now_s)
        if before is None:
            return None
        _, kind = self._due[0]
        size = self._size()
        row = {
            "kind": kind,
            "scale_out": size,
            "rate_rps": before.rate_rps,
            "lag_records": before.lag_records,
            "band_s": before.band_s,
            "hold_s": before.hold_s,
            "predicted_s": self._predicted(kind, size),
        }
        try:
            injection = self._here.failures.inject(LIVE, kind)
        except NotReady:
            drill.clear_left_over(self._here.failures)
            return None
        del self._due[0]
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
        start_s, longest_s = max(now_s - WINDOW_S, self._undisturbed_since_s), job_plans.max_lag_s(self._job)
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
        if self._arm == DYNAMIC:
            return {"unknown": SIZED_BY_SPARK}
        if self._evaluation.get("scale_out") != size:
            return {"unknown": "the size has changed since the newest evaluation"}
        if "mid" not in found:
            return {"unknown": found.get("unknown", "nothing was predicted")}
        return {name: math.inf if value is None else value for name, value in found.items()}

    def _size(self) -> int:
        """The declared size; where Spark sets it, as many executors as it has."""
        status = self._here.deployments.status(LIVE)
        if self._arm == DYNAMIC:
            self._counted = dynamic_allocation.counted(status, before=self._counted)
            return self._counted
        declared = status.declared_scale_out
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


def not_caused(kind: str, size: int) -> dict[str, Any]:
    """Broken like any other promise: the job was not caught up for as long as the day still was."""
    unknown = {"unknown": "the job was behind until the day was over"}
    return {"kind": kind, "scale_out": size, "predicted_s": unknown, "recovery_s": math.inf, "kept": False}


def _line(row: Mapping[str, Any]) -> str:
    said = row["predicted_s"]
    told = f"{said['mid']:.0f} s ({said['low']:.0f}–{said['high']:.0f})" if "mid" in said else said["unknown"]
    return f"{row['kind']}: recovered after {row['recovery_s']:.1f} s, predicted {told}"


# ------------------------------------------------------------------------------------------- the report


def report(journal: Journal) -> Report | None:
    pieces = journal.of(NAME)
    if not pieces:
        return None
    of_arm = {arm: {name: one for name, one in pieces.items() if name.startswith(f"{arm}, ")} for arm in DAYS}
    rows = {arm: [row for one in days.values() for row in one["failures"]] for arm, days in of_arm.items()}
    ours = [row for row in rows["headroom"] if _caused(row)]
    figures = [Figure("failures of the live job", len(ours), "", at_least=24)]
    figures += _of_promises(ours)
    for day, one in of_arm["headroom"].items():
        if known := [row for row in one["failures"] if "mid" in row["predicted_s"]]:
            figures.append(Figure(f"mean error, {day.partition(', ')[2]}", _mean_error(known), "%"))
    figures += [
        Figure(f"{arm}: promises kept", 100.0 * statistics.mean(row["kept"] for row in found), "%")
        for arm, found in rows.items()
        if found
    ]
    figures += _of_first_day(
        {arm: days[_piece(arm, 0)] for arm, days in of_arm.items() if _piece(arm, 0) in days}
    )
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
    table = [
        (
            arm,
            row["kind"],
            row["scale_out"],
            f"{row['rate_rps']:,.0f}" if _caused(row) else "–",
            _stated(row),
            _told(row["predicted_s"]),
            _measured(row),
            "yes" if row["kept"] else "NO",
        )
        for arm, found in rows.items()
        for row in found
    ]
    return Report(ASKS, figures, columns, table)


def _caused(row: Mapping[str, Any]) -> bool:
    return "failed_at_s" in row


def _of_promises(ours: Sequence[Mapping[str, Any]]) -> list[Figure]:
    """What was stated before each failure, beside what came."""
    known = [row for row in ours if "mid" in row["predicted_s"]]
    figures = []
    if known:
        stated = [row["predicted_s"]["probability"] for row in known]
        # Each failure is one draw with its own probability.
        error = math.sqrt(math.fsum(one * (1.0 - one) for one in stated)) / len(known)
        figures.append(
            Figure(
                "promises kept where one was stated",
                100.0 * statistics.mean(row["kept"] for row in known),
                "%",
                at_least=100.0 * (statistics.mean(stated) - 2.0 * error),
            )
        )
    figures.append(Figure("failures without a prediction", len(ours) - len(known), "", at_most=0))
    if known:
        inside = [
            row["predicted_s"]["low"] <= row["recovery_s"] <= row["predicted_s"]["high"] for row in known
        ]
        figures += [
            Figure(
                "recoveries inside the predicted 90 %", 100.0 * sum(inside) / len(ours), "%", at_least=80.0
            ),
            Figure("mean error of the predicted median", _mean_error(known), "%", at_most=15.0),
        ]
    return figures


def _mean_error(known: Sequence[Mapping[str, Any]]) -> float:
    """In percent, of failures that were predicted."""
    errors = [drills.error(row["recovery_s"], _interval(row["predicted_s"])) for row in known]
    return 100.0 * statistics.mean(errors)


def _interval(said: Mapping[str, Any]) -> Interval:
    return Interval(said["low"], said["mid"], said["high"], said.get("confidence", 0.9))


def _of_first_day(days: Mapping[str, Mapping[str, Any]]) -> list[Figure]:
    """The first day, which every arm has: its cost, its broken promises, and Headroom beside the others."""
    cost = {arm: float(one["executor_seconds"]) for arm, one in days.items()}
    broken = {arm: sum(not row["kept"] for row in one["failures"]) for arm, one in days.items()}
    figures = []
    for arm in days:
        figures += [
            Figure(f"{arm}: executor-seconds of the first day", cost[arm], "executor-seconds"),
            Figure(f"{arm}: broken promises of the first day", broken[arm], ""),
        ]
    if "headroom" not in days:
        return figures
    ratio = {arm: cost["headroom"] / cost[arm] for arm in days if arm != "headroom" and cost[arm]}
    if "static-max" in ratio:
        figures += [
            Figure("executor-seconds beside static-max", ratio["static-max"], "×"),
            Figure("saved beside the largest size", 100.0 * (1.0 - ratio["static-max"]), "%", at_least=25.0),
        ]
    if DYNAMIC in ratio:
        more = broken["headroom"] - broken[DYNAMIC]
        figures += [
            Figure(f"executor-seconds beside {DYNAMIC}", ratio[DYNAMIC], "×", at_most=1.0),
            # Fewer; where it has broken none there are no fewer.
            Figure(f"more broken promises than {DYNAMIC}", more, "", at_most=-1 if broken[DYNAMIC] else 0),
        ]
    return figures


def _stated(row: Mapping[str, Any]) -> str:
    probability = row["predicted_s"].get("probability")
    return "–" if probability is None else f"{probability:.3f}"


def _told(said: Mapping[str, Any]) -> str:
    if "mid" not in said:
        return str(said["unknown"])
    return f"{said['mid']:.1f} ({said['low']:.1f}–{said['high']:.1f})"


def _measured(row: Mapping[str, Any]) -> str:
    if not _caused(row):
        return "not caused"
    return "never" if math.isinf(row["recovery_s"]) else f"{row['recovery_s']:.1f}"
