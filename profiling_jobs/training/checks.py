"""The checks that a model has to pass before it is in charge.

    workload    enough_points  held_out_error  interval_coverage  not_worse_than_naive
    capacity    enough_points  held_out_error  interval_coverage  monotone  agrees_with_live
                agrees_with_drills
    latency     enough_points  abnormal_found  interval_coverage  monotone
    recovery    enough_points  held_out_error  interval_coverage  comes_back  agrees_with_drills

The outcome of a check:

    passed            there was enough data, and the model agrees with it
    warned            the same, but with a finding that a person should know
    too little data   the model may be used, but is provisional; `needs` says what to measure to make it firm
    failed            the model is refused, and the old champion stays in charge

Counts are compared with what chance allows a calibrated model: k of n inside a 90 % interval fails when a
binomial with 0.9 has so few with a probability below CHANCE, so that one bad day does not condemn a model.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

from models.capacity import CapacityModel
from models.codec import from_json
from models.downtime import DowntimeModel
from models.quantities import Interval, Misuse, Unknown, counted, executors
from models.series import Grid
from models.workload import Forecaster

from ..experiments import drill_prediction
from ..experiments.profiling_record import FEWEST_SIZES
from ..telemetry.batch_costs import EngineInputs
from .champions import Document, rebuilt
from .fitting import FEWEST_OF_A_KIND
from .training_data import Event, Purpose, downtimes, predictable

TOO_LITTLE: Final = "too little data"
Outcome = Literal["passed", "warned", "too little data", "failed"]

CHANCE = 0.02  # judgement: one sound model in fifty is refused, and fitted again at the next chance
LEVEL = 0.9  # of the intervals
DRILL_ERROR = 0.15  # what is promised on real Spark
DRILL_LIMIT = 0.5  # judgement: so far off, an interval that holds them all says nothing any more
ENOUGH_DRILLS = 4  # judgement: downtimes of one kind scatter by a third; fewer prove nothing by their mean
MOST_ERROR = 2.0  # of one drill, so that the mean stays one
LAST_DRILLS = 8  # judgement: the job as it is now
CAPACITY_ERROR = 0.15  # as the promised error of predicted recoveries on real Spark
FORECAST_ERROR = 1.0  # of everything that arrived: more is a broken scale, and not a bursty load
FORECAST_WARNING = 0.3  # judgement: the band is then so wide that executors are spent on it
NAIVE_SHARE = 1.25  # judgement: four horizons distinguish no less
NAIVE_SLACK = 0.01  # of the mean rate; judgement: smaller errors decide nothing
COVERAGE_ERRORS = 2.0  # standard errors of as many values as there were horizons: steps hang together
DOWNTIME_ERROR = 1.0  # judgement: a factor of two; downtimes of one kind differ by that (models.downtime)
GOOD_SIZES = 4  # from there on a form can be named (models.capacity.profiled)
GOOD_LATENCIES = 8  # judgement: four of each kind
ENOUGH_ABNORMAL = 4
MISS_WARNING = 0.25  # judgement: of the abnormal points, or false alarms among the normal ones
ROUNDING = 1e-6
GRID = 9  # utilisations between 0.1 and 0.95 at which latency must rise
NO_CAPACITY = Unknown("there is no capacity model yet")
NO_FORECASTER = Unknown("there is no workload model yet")
NO_PURPOSE = Purpose("", 0.0, ())


@dataclass(frozen=True)
class CheckResult:
    """The result of one check of one model. `value` and `bound`: what was compared, where it was a number."""

    outcome: Outcome
    said: str
    value: float | None = None
    bound: float | None = None
    needs: str = ""
    """With too little data: what to measure, for example `2 more drills of executor_kill`."""
    name: str = ""


@dataclass(frozen=True)
class Evidence:
    """What a model is compared with, beside its own figures."""

    purpose: Purpose = NO_PURPOSE
    events: Sequence[Event] = ()
    capacity: CapacityModel | Unknown = NO_CAPACITY
    """Of the champion, as the next two; a capacity model is checked with its own engine."""
    engine: EngineInputs | Unknown = NO_CAPACITY
    forecaster: Forecaster | Unknown = NO_FORECASTER
    arrivals: Grid | Unknown = NO_FORECASTER

    def of_document(self, document: Document) -> tuple[CapacityModel | Unknown, EngineInputs | Unknown]:
        """Capacity and engine to predict recoveries with: a capacity document's own, or the champion's."""
        if document["kind"] != "capacity":
            return self.capacity, self.engine
        model = rebuilt(document, kind="capacity")
        if not isinstance(model, CapacityModel):
            return NO_CAPACITY, NO_CAPACITY
        if "engine" not in document:
            return model, Unknown("what a batch costs is not known: profile the job")
        return model, from_json(EngineInputs, document["engine"])


@dataclass(frozen=True)
class Drilled:
    """A drill, and what a model without it predicts of it."""

    kind: str
    scale_out: int
    at_s: float
    measured_s: float
    predicted: Interval

    @property
    def error(self) -> float:
        """Relative to what was measured; MOST_ERROR where only one of the two is infinite."""
        if math.isinf(self.measured_s) or math.isinf(self.predicted.mid):
            return 0.0 if self.measured_s == self.predicted.mid else MOST_ERROR
        return min(abs(self.predicted.mid - self.measured_s) / self.measured_s, MOST_ERROR)


@dataclass(frozen=True)
class Candidate:
    """A fitted model with what it is compared with."""

    model: Any
    document: Document
    evidence: Evidence

    @property
    def figures(self) -> Mapping[str, Any]:
        figures: Mapping[str, Any] = self.document["figures"]
        return figures

    @property
    def sizes(self) -> Sequence[int]:
        return self.evidence.purpose.candidates

    @property
    def failure_kinds(self) -> Sequence[str]:
        return self.evidence.purpose.failure_kinds


Check = Callable[[Candidate], CheckResult]
Needs = Callable[[Candidate], str]
"""What to measure so that values can be left out."""


def run_checks(document: Document, evidence: Evidence) -> tuple[CheckResult, ...]:
    """Every check of this document's kind."""
    kind = str(document["kind"])
    model = rebuilt(document, kind=kind)
    if isinstance(model, Unknown):
        raise Misuse("document", model.reason)
    candidate = Candidate(model, document, evidence)
    return tuple(replace(check(candidate), name=name) for name, check in CHECKS[kind].items())


def failed(results: Sequence[CheckResult]) -> tuple[CheckResult, ...]:
    """Those that keep a model from being in charge."""
    return tuple(one for one in results if one.outcome == "failed")


def rare(inside: int, count: int) -> bool:
    """Whether a calibrated 90 % interval holds so few of so many only by a rare chance."""
    return (
        sum(math.comb(count, k) * LEVEL**k * (1 - LEVEL) ** (count - k) for k in range(inside + 1)) < CHANCE
    )


# ------------------------------------------------------------------------------------- several kinds of model


def _held_out_error(bound: float, what: str, needs: Needs) -> Check:
    """Mean relative error of the values that were left out."""

    def check(c: Candidate) -> CheckResult:
        error = c.figures.get("held_out_error")
        if error is None:
            return CheckResult(TOO_LITTLE, f"there is too little to leave any {what} out", needs=needs(c))
        said = f"{what}s that were left out were predicted with a mean error of {error:.1%}"
        said += f"; at most {bound:.0%} is accepted"
        return CheckResult("passed" if error <= bound else "failed", said, error, bound)

    return check


def _interval_coverage(what: str, needs: Needs) -> Check:
    """Share of the values that were left out inside their intervals."""

    def check(c: Candidate) -> CheckResult:
        count = int(c.figures.get("held_out_count", 0))
        if not count:
            return CheckResult(TOO_LITTLE, f"there is too little to leave any {what} out", needs=needs(c))
        inside = int(c.figures["held_out_inside"])
        said = f"{inside} of {count} values of {what} that were left out lie in their 90 % interval"
        if not rare(inside, count):
            return CheckResult("passed", said, inside / count, LEVEL)
        said += f"; chance alone makes it so few in less than {CHANCE:.0%} of all cases"
        return CheckResult("failed", said, inside / count, LEVEL)

    return check


def against_drills(
    events: Sequence[Event], *, capacity: CapacityModel, engine: EngineInputs, since_s: float = -math.inf
) -> tuple[Drilled, ...]:
    """The last drills, each predicted with downtimes that were learnt from all the others.

    `since_s`: when the job became slower; drills before that are left out.
    """
    found = []
    events = [(event, details) for event, details in events if event.failed_at_s >= since_s]
    learnt = downtimes(events, capacity=capacity, engine=engine)
    for event, details in predictable(events)[-LAST_DRILLS:]:
        others = [one for one, (other, _) in zip(learnt, events, strict=True) if other is not event]
        models = drill_prediction.Models(capacity, DowntimeModel.fit(others), engine)
        said = drill_prediction.of_drill(models, event.kind, scale_out=event.scale_out, details=details)
        if not isinstance(said, Unknown) and event.recovery_s > 0.0:
            found.append(Drilled(event.kind, event.scale_out, event.failed_at_s, event.recovery_s, said))
    return tuple(found)


def drilled(document: Document, evidence: Evidence) -> tuple[Drilled, ...] | Unknown:
    """The last drills beside what this document predicts of them; Unknown where it cannot."""
    capacity, engine = evidence.of_document(document)
    if isinstance(capacity, Unknown):
        return capacity
    if isinstance(engine, Unknown):
        return engine
    since_s = document["figures"].get("slower_since_s", -math.inf)
    return against_drills(evidence.events, capacity=capacity, engine=engine, since_s=since_s)


def _agrees_with_drills(c: Candidate) -> CheckResult:
    found = drilled(c.document, c.evidence)
    if isinstance(found, Unknown):
        said = f"recoveries cannot be predicted: {found.reason}"
        return CheckResult(TOO_LITTLE, said, needs="a profile of the job")
    counts = {kind: sum(one.kind == kind for one in found) for kind in c.failure_kinds}
    least = f" of {min(counts, key=lambda one: counts[one])}" if counts else ""
    needs = f"{counted(max(0, ENOUGH_DRILLS - len(found)), 'more drill')}{least}"
    if not found:
        return CheckResult(TOO_LITTLE, "there is no drill to compare with", needs=needs)
    error = sum(one.error for one in found) / len(found)
    inside = sum(one.predicted.low <= one.measured_s <= one.predicted.high for one in found)
    said = (
        f"mean error of the predicted recovery {error:.1%} over the last {counted(len(found), 'drill')}, "
        f"{inside} inside the 90 % interval; each was predicted by a model without it"
    )
    few = len(found) < ENOUGH_DRILLS
    if error > DRILL_ERROR:
        said += f"; {DRILL_ERROR:.0%} is usual"
        if rare(inside, len(found)) or (error > DRILL_LIMIT and not few):
            said += f", up to {DRILL_LIMIT:.0%} inside the intervals is accepted"
            return CheckResult("failed", said, error, DRILL_ERROR)
    if few:
        return CheckResult(TOO_LITTLE, said, error, DRILL_ERROR, needs)
    return CheckResult("warned" if error > DRILL_ERROR else "passed", said, error, DRILL_ERROR)


# -------------------------------------------------------------------------------------------------- workload


def _enough_arrivals(c: Candidate) -> CheckResult:
    seen, horizon_s = int(c.figures["rates_seen"]), c.evidence.purpose.horizon_s
    reach_s, enough = c.model.steps * c.model.step_s, 4 * c.model.steps
    if reach_s < horizon_s * (1 - 1e-9):
        said = f"it reaches {reach_s:.0f} s and decisions need {horizon_s:.0f} s: fit it again"
        return CheckResult("failed", said, reach_s, horizon_s)
    said = f"{seen} steps of {c.model.step_s:g} s were seen"
    if seen >= enough:
        return CheckResult("passed", said, seen, enough)
    said += f", less than four horizons of {reach_s:.0f} s: the band is widened by a prior"
    return CheckResult(TOO_LITTLE, said, seen, enough, _longer_history(c))


def _forecast_error(c: Candidate) -> CheckResult:
    error = c.figures.get("held_out_error")
    if error is None:
        return _short_history(c)
    said = (
        f"the newest {c.figures['held_out_horizons']:.0f} horizons were predicted with an error of "
        f"{error:.1%} of everything that arrived; up to {FORECAST_WARNING:.0%} is usual"
    )
    outcome: Outcome = "failed" if error > FORECAST_ERROR else "passed"
    if FORECAST_WARNING < error <= FORECAST_ERROR:
        outcome = "warned"
    return CheckResult(outcome, said, error, FORECAST_ERROR)


def _forecast_coverage(c: Candidate) -> CheckResult:
    covered, horizons = c.figures.get("interval_coverage"), c.figures.get("held_out_horizons", 0)
    if covered is None:
        return _short_history(c)
    least = max(0.0, LEVEL - COVERAGE_ERRORS * math.sqrt(LEVEL * (1 - LEVEL) / horizons))
    said = f"{covered:.0%} of the newest {horizons:.0f} horizons lie in the 90 % band; {least:.0%} must"
    return CheckResult("passed" if covered >= least else "failed", said, covered, least)


def _naive(c: Candidate) -> CheckResult:
    naive = c.figures.get("naive_mae_rps")
    if naive is None:
        return _short_history(c)
    mae = c.figures["held_out_mae_rps"]
    bound = NAIVE_SHARE * naive + NAIVE_SLACK * c.figures["held_out_mean_rps"]
    said = f"off by {mae:,.0f} records/s where the better naive forecast was off by {naive:,.0f}"
    return CheckResult("passed" if mae <= bound else "failed", said, mae, bound)


def _short_history(c: Candidate) -> CheckResult:
    said = "the history is too short to leave its newest part out"
    return CheckResult(TOO_LITTLE, said, needs=_longer_history(c))


def _longer_history(c: Candidate) -> str:
    """The newest horizon is left out once there are four (fitting.held_out_workload)."""
    return f"a history of {4 * c.model.steps * c.model.step_s / 60.0:.0f} minutes"


# -------------------------------------------------------------------------------------------------- capacity


def _enough_sizes(c: Candidate) -> CheckResult:
    sizes, count = c.model.saturated_at, float(len(c.model.saturated_at))
    said = f"saturated at {len(sizes)} scale-outs ({', '.join(map(str, sizes)) or 'none'})"
    said += f" in {c.figures['measurements']} measurements"
    unknown = [size for size in c.sizes if isinstance(c.model.predict(size), Unknown)]
    if c.sizes and len(unknown) == len(c.sizes):
        said += "; the capacity of every candidate is unknown: profile more scale-outs"
        return CheckResult("failed", said, count, FEWEST_SIZES)
    few = not sizes or (len(sizes) < FEWEST_SIZES and len(c.sizes) > 1)
    plenty = few and c.model.cautious and not unknown
    if few and not plenty:
        return CheckResult("failed", f"{said}; {FEWEST_SIZES} are needed", count, FEWEST_SIZES)
    if "engine" not in c.document:
        said += "; the overhead of a batch is unknown, so decisions hold"
        return CheckResult(TOO_LITTLE, said, count, needs="a new profile of the job")
    if plenty:
        said += "; where it was not, it kept up with many times its load, and that counts as its capacity"
        return CheckResult("passed", said, count)
    good = _good_sizes(c)
    if unknown:
        said += f"; unknown at {', '.join(map(str, unknown))}"
    if len(sizes) >= good and not unknown:
        return CheckResult("passed", said, count, good)
    return CheckResult(TOO_LITTLE, said, count, good, _more_sizes(c))


def _good_sizes(c: Candidate) -> int:
    return min(GOOD_SIZES, len(c.sizes) or GOOD_SIZES)


def _more_sizes(c: Candidate) -> str:
    count, good = len(c.model.saturated_at), _good_sizes(c)
    if c.model.cautious and not count:
        return "a load near what it has sustained, and a profile then"
    if count < good:
        return f"a profile of {good} sizes instead of {count}"
    unknown = [size for size in c.sizes if isinstance(c.model.predict(size), Unknown)]
    return f"a profile of {executors(unknown[-1])}" if unknown else "more probes of each size"


def _capacity_rises(c: Candidate) -> CheckResult:
    sizes = sorted({*c.sizes, *c.model.saturated_at})
    known = [(s, found) for s in sizes if isinstance(found := c.model.predict(s), Interval)]
    for (small, one), (large, other) in itertools.pairwise(known):
        if other.mid < one.mid * (1 - ROUNDING):
            said = f"{executors(large, 'sustain')} {other.mid:,.0f} records/s, {small} sustain {one.mid:,.0f}"
            return CheckResult("failed", said)
    return CheckResult("passed", "more executors never sustain less")


def _agrees_with_live(c: Candidate) -> CheckResult:
    share = c.figures.get("profile_taken_at")
    if share is None:
        return CheckResult("passed", "the newest live measurements are not below the profile")
    said = (
        f"the newest live measurements at {executors(int(c.figures['slower_at']))} reach {share:.0%} of the "
        f"profiled capacity, so every profiled size is scaled to {share:.0%}: profile the job again"
    )
    return CheckResult("warned", said, share, 1.0)


# --------------------------------------------------------------------------------------------------- latency


def _enough_latencies(c: Candidate) -> CheckResult:
    count = len(c.model.measurements)
    said, needs = f"{count} measurements have a latency and a known capacity", _more_latencies(c)
    if not c.model.clusters.both:
        said += "; they form one cluster, so only load above the capacity counts as abnormal"
        needs = "more probes well below the capacity and above it"
    elif count >= GOOD_LATENCIES:
        return CheckResult("passed", said, count, GOOD_LATENCIES)
    return CheckResult(TOO_LITTLE, said, count, GOOD_LATENCIES, needs)


def _more_latencies(c: Candidate) -> str:
    more = max(1, GOOD_LATENCIES - len(c.model.measurements))
    return f"{counted(more, 'more probe')} with a latency"


def _abnormal_found(c: Candidate) -> CheckResult:
    hits, missed = int(c.figures["abnormal_tp"]), int(c.figures["abnormal_fn"])
    alarms, rightly = int(c.figures["abnormal_fp"]), int(c.figures["abnormal_tn"])
    abnormal, normal = hits + missed, alarms + rightly
    said = f"{alarms} of {normal} normal points were called abnormal"
    if abnormal:
        said = f"{missed} of {counted(abnormal, 'abnormal point')} were missed when left out, {said}"
    share = missed / abnormal if abnormal else None
    if not c.model.clusters.both:  # one cluster: no point counts as abnormal
        needs = "more probes well below the capacity and above it"
        return CheckResult(
            TOO_LITTLE,
            "the latencies form one cluster: normal and abnormal ones were not both seen",
            needs=needs,
        )
    if rare(hits + rightly, abnormal + normal):
        return CheckResult("failed", f"{said}; 90 % of all must be right", share, 1 - LEVEL)
    if abnormal < ENOUGH_ABNORMAL:
        needs = f"{counted(ENOUGH_ABNORMAL - abnormal, 'more probe')} above the capacity"
        return CheckResult(TOO_LITTLE, said, share, MISS_WARNING, needs)
    many = missed > MISS_WARNING * abnormal or alarms > MISS_WARNING * normal
    return CheckResult("warned" if many else "passed", said, share, MISS_WARNING)


def _latency_rises(c: Candidate) -> CheckResult:
    for size in sorted({m.scale_out for m in c.model.measurements}):
        capacity, before = c.model.capacity.predict(size), 0.0
        if isinstance(capacity, Unknown):
            continue
        for step in range(GRID):
            found = c.model.predict(size, capacity.mid * (0.1 + 0.85 * step / (GRID - 1)))
            if isinstance(found, Unknown):
                break
            if found.mid < before * (1 - ROUNDING):
                said = f"at {executors(size)} latency falls from {before:,.0f} to {found.mid:,.0f} ms"
                return CheckResult("failed", f"{said} as the rate grows")
            before = found.mid
    return CheckResult("passed", "latency never falls as the rate grows")


# -------------------------------------------------------------------------------------------------- recovery


def _enough_events(c: Candidate) -> CheckResult:
    counts = {kind: c.model.events(kind) for kind in c.failure_kinds}
    none = [kind for kind, count in counts.items() if not count]
    each = ", ".join(f"{kind} {count}" for kind, count in counts.items()) or "no failure kind is promised"
    said, fewest = f"events: {each}", min(counts.values(), default=0)
    if not none:
        return CheckResult("passed", said, fewest, 1)
    said += f". {'; '.join(c.model.describe(kind) for kind in none)}"
    return CheckResult(TOO_LITTLE, said, fewest, 1, f"a drill of {' and of '.join(none)}")


def _more_events(c: Candidate) -> str:
    counts = {kind: c.model.events(kind) for kind in c.failure_kinds}
    if not counts:
        return f"{FEWEST_OF_A_KIND} drills of a kind"
    kind = max(counts, key=lambda one: counts[one])
    return f"{counted(max(1, FEWEST_OF_A_KIND - counts[kind]), 'more drill')} of {kind}"


def _comes_back(c: Candidate) -> CheckResult:
    for kind in c.failure_kinds:
        lost = c.model.lost_share(kind)
        if lost >= 0.5:
            said = f"the job did not come back from half or more of its {kind}: no scale-out can prevent that"
            return CheckResult("warned", said, lost, 0.5)
    return CheckResult("passed", "the job comes back from every failure that is promised")


CHECKS: Mapping[str, Mapping[str, Check]] = {
    "workload": {
        "enough_points": _enough_arrivals,
        "held_out_error": _forecast_error,
        "interval_coverage": _forecast_coverage,
        "not_worse_than_naive": _naive,
    },
    "capacity": {
        "enough_points": _enough_sizes,
        "held_out_error": _held_out_error(CAPACITY_ERROR, "saturated probe", _more_sizes),
        "interval_coverage": _interval_coverage("saturated throughput", _more_sizes),
        "monotone": _capacity_rises,
        "agrees_with_live": _agrees_with_live,
        "agrees_with_drills": _agrees_with_drills,
    },
    "latency": {
        "enough_points": _enough_latencies,
        "abnormal_found": _abnormal_found,
        "interval_coverage": _interval_coverage("latency", _more_latencies),
        "monotone": _latency_rises,
    },
    "recovery": {
        "enough_points": _enough_events,
        "held_out_error": _held_out_error(DOWNTIME_ERROR, "downtime", _more_events),
        "interval_coverage": _interval_coverage("downtime", _more_events),
        "comes_back": _comes_back,
        "agrees_with_drills": _agrees_with_drills,
    },
}
