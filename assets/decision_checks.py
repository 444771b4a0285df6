"""Checks of `decision`: is the promise of every job kept, and is every job evaluated?

    promise_kept   the size that runs, or is being changed to, keeps the promise by the newest evaluation, and
                   no recovery of the live job has taken longer than promised within a day
    freshness      the newest evaluation is not older than three intervals

Each holds for all jobs together, because Dagster shows one outcome of a check for all partitions. It is red
where one of them is wrong for any job, and yellow where it is not known. Both are read from the store: the
evaluations come without runs, and the sensor `decision_checks` reports them, also when no more come.
"""

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal, NamedTuple

import dagster as dg

from models.ports import LATE_TICKS, Store
from models.quantities import executors, lasting, percent
from profiling_jobs.control_loop.memory import happened_live
from profiling_jobs.explain import wording

from .metadata import Json, number, sentence, table

ASSET = "decision"
PROMISE_KEPT, FRESHNESS = "promise_kept", "freshness"
ABOUT = {
    PROMISE_KEPT: "Every job runs with a size that keeps its promise, and none has broken it within a day.",
    FRESHNESS: "Every job was evaluated within its last three intervals.",
}
BROKEN_SHOWN_S = 86_400.0  # judgement: what has happened at night is still red in the morning

Outcome = Literal["ok", "not known", "wrong"]


class Finding(NamedTuple):
    """What a check says of one job."""

    job: str
    outcome: Outcome
    said: str


@dataclass(frozen=True)
class Checked:
    """The outcome of one check over all jobs."""

    name: str
    findings: Sequence[Finding]

    @property
    def outcomes(self) -> dict[str, Outcome]:
        """By job, without what was said, whose figures change from tick to tick."""
        return {one.job: one.outcome for one in self.findings}

    def result(self) -> dg.AssetCheckResult:
        """As an op yields it."""
        return dg.AssetCheckResult(asset_key=ASSET, check_name=self.name, **self._shown())

    def event(self) -> dg.AssetCheckEvaluation:
        """As a sensor reports it."""
        return dg.AssetCheckEvaluation(asset_key=dg.AssetKey(ASSET), check_name=self.name, **self._shown())

    def _shown(self) -> dict[str, Any]:
        wrong = [one for one in self.findings if one.outcome == "wrong"]
        unknown = [one for one in self.findings if one.outcome == "not known"]
        rows = [(one.job, one.outcome, one.said) for one in self.findings]
        return {
            "passed": not wrong and not unknown,
            "severity": dg.AssetCheckSeverity.ERROR if wrong else dg.AssetCheckSeverity.WARN,
            "description": "; ".join(f"{one.job}: {one.said}" for one in (*wrong, *unknown)) or "ok",
            "metadata": {"jobs": dg.MetadataValue.md(table("job | outcome | why", rows))},
        }


def looked(store: Store, jobs: Sequence[str], *, now_s: float, problem: str = "") -> tuple[Checked, Checked]:
    """Both checks. `problem`: what is wrong with headroom.toml, so that nothing is evaluated."""
    kept, fresh = [], []
    if problem:
        kept, fresh = [Finding("all", "not known", problem)], [Finding("all", "wrong", problem)]
    for job in () if problem else jobs:
        newest = next((each for _, each in store.evaluations(job, limit=1)), None)
        broken = [] if newest is None else [*slow_recoveries(store, newest, now_s=now_s)]
        kept.append(promise(job, newest, broken, now_s=now_s))
        fresh.append(freshness(job, newest, now_s=now_s))
    return Checked(PROMISE_KEPT, kept), Checked(FRESHNESS, fresh)


def freshness(job: str, newest: Json | None, *, now_s: float) -> Finding:
    """Whether this job was evaluated lately. A simulated clock may run ahead of ours."""
    if newest is None:
        return Finding(job, "not known", "it was never evaluated")
    age_s = max(0.0, now_s - newest["at_s"])
    if age_s > LATE_TICKS * newest["interval_s"]:
        every = lasting(newest["interval_s"])
        return Finding(job, "wrong", f"not evaluated for {lasting(age_s)}, where it should be every {every}")
    return Finding(job, "ok", f"evaluated {lasting(age_s)} ago")


def promise(job: str, newest: Json | None, broken: Sequence[str], *, now_s: float) -> Finding:
    """Whether the promise of this job is kept. `broken`: the recoveries that took too long."""
    if newest is None:
        return Finding(job, "not known", "it was never evaluated")
    target_s, recovering = newest["promise"]["target_s"], newest.get("recovering")
    if recovering and recovering["kind"] in _covered(newest):
        since_s = max(now_s, newest["at_s"]) - recovering["failed_at_s"]
        if since_s > target_s:
            what = f"{lasting(since_s)} after {wording.kind(recovering['kind'])} it has not caught up"
            broken = [f"{what}, {target_s:g} s were promised", *broken]
    if broken:
        return Finding(job, "wrong", "; ".join(broken))
    if freshness(job, newest, now_s=now_s).outcome != "ok":
        return Finding(job, "not known", "it is not evaluated any more")
    return Finding(job, *_size(newest))


def slow_recoveries(store: Store, newest: Json, *, now_s: float) -> Iterator[str]:
    """The recoveries of the live job within a day that took longer than is promised now."""
    target_s, now_s = newest["promise"]["target_s"], max(now_s, newest["at_s"])
    for event, details in store.events(str(newest["job"])):
        late = event.recovery_s > target_s and event.failed_at_s > now_s - BROKEN_SHOWN_S
        if happened_live(details) and late and event.kind in _covered(newest):
            took = "never caught up" if math.isinf(event.recovery_s) else f"took {event.recovery_s:.0f} s"
            what = (
                f"{wording.kind(event.kind)} at {datetime.fromtimestamp(event.failed_at_s, UTC):%F %H:%M} UTC"
            )
            yield f"{what} {took}, {target_s:g} s were promised"


def _covered(newest: Json) -> Mapping[str, Json]:
    """Kind of failure that the promise covers -> predicted recovery; empty in what older versions wrote."""
    return newest.get("recoveries") or {}


def _size(newest: Json) -> tuple[Outcome, str]:
    """Whether the size that runs, or is being changed to, keeps the promise."""
    order, change, decision = newest["instruction"], newest.get("change"), newest["decision"]
    size = order.get("to") or (change and change["to"]) or newest["scale_out"]
    verdicts = decision.get("verdicts") or () if isinstance(decision, Mapping) else ()
    verdict = next((one for one in verdicts if one["scale_out"] == size), None)
    if verdict is None:
        return _as_predicted(newest)
    if verdict["status"] == "feasible":
        return "ok", sentence(newest)
    against = "; ".join(str(one["sentence"]) for one in verdict.get("excuses") or ())
    would = f" ({executors(order['would'])} recommended)" if order.get("would") else ""
    outcome: Outcome = "wrong" if verdict["status"] == "infeasible" else "not known"
    return outcome, f"{executors(size)}{would}: {against or verdict['status']}"


def _as_predicted(newest: Json) -> tuple[Outcome, str]:
    """Where nothing was decided: by the recovery from a failure of now, which every evaluation predicts."""
    confidence = newest["promise"]["confidence"]
    shares = {kind: number(one.get("probability")) for kind, one in _covered(newest).items()}
    known = {kind: share for kind, share in shares.items() if share is not None}
    low = {kind: share for kind, share in known.items() if share < confidence}
    if low:
        worst = min(low, key=lambda kind: low[kind])
        said = f"after {wording.kind(worst)} it catches up in time in {percent(low[worst])} of the cases"
        return "wrong", f"{said}, {percent(confidence)} were promised"
    if len(known) < len(shares) or not shares:
        return "not known", sentence(newest)
    return "ok", sentence(newest)


def checks(jobs: Sequence[str]) -> dg.AssetChecksDefinition:
    """Both checks, to be run by hand; `decision_checks` reports them by itself."""
    specs = [dg.AssetCheckSpec(name, asset=ASSET, description=about) for name, about in ABOUT.items()]

    @dg.multi_asset_check(name="decision_checks", specs=specs)
    def check(
        context: dg.AssetCheckExecutionContext, store: dg.ResourceParam[Store]
    ) -> Iterator[dg.AssetCheckResult]:
        for one in looked(store, jobs, now_s=time.time()):
            yield one.result()

    return check
