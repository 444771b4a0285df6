"""The checks of each kind of model; one that fails keeps the old champion in charge (verdicts).

workload    enough_points  held_out_error  interval_coverage  not_worse_than_naive
capacity    enough_points  held_out_error  interval_coverage  monotone  agrees_with_live
            agrees_with_drills
latency     enough_points  abnormal_found  interval_coverage  monotone
recovery    enough_points  held_out_error  interval_coverage  comes_back  agrees_with_drills

What is said of a model before it may take charge, and what holds for every kind of model?

The outcome of a check:

    passed            it was checked against enough data, and holds
    warned            the same, and a person should know what was found
    too little data   it could not be checked; the model may be used, but is provisional: `needs` says what to
                      measure to make it firm
    failed            the model is refused

Counts are compared with what chance allows a calibrated model: k of n inside a 90 % interval fails when a
binomial with 0.9 has so few with a probability below CHANCE, so that one bad day does not condemn a model.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, Literal

from models.capacity import CapacityModel
from models.downtime import DowntimeModel
from models.latency import LatencyModel
from models.quantities import Interval, Misuse, Unknown, counted, executors
from models.series import Grid
from models.workload import Forecaster

from ..experiments import drill_prediction
from ..telemetry.batch_costs import EngineInputs
from . import fitting
from .model_documents import Document, rebuilt
from .training_data import Event, drills, foretelling, lessons

TOO_LITTLE: Final = "too little data"
Outcome = Literal["passed", "warned", "too little data", "failed"]

CHANCE = 0.02  # judgement: one sound model in fifty is refused, and fitted again at the next chance
LEVEL = 0.9  # of the intervals
DRILL_ERROR = 0.15  # what is promised on real Spark
DRILL_LIMIT = 0.5  # judgement: so far off, an interval that holds them all says nothing any more
ENOUGH_DRILLS = 4  # judgement: downtimes of one kind scatter by a third; fewer prove nothing by their mean
MOST_ERROR = 2.0  # of one drill, so that the mean stays one
LAST_DRILLS = 8  # judgement: the job as it is now
NO_CAPACITY = Unknown("there is no capacity model yet")
NO_FORECASTER = Unknown("there is no workload model yet")


@dataclass(frozen=True)
class Verdict:
    """The result of one check of one model. `value` and `bound`: what was compared, where it was a number."""

    name: str
    outcome: Outcome
    said: str
    value: float | None = None
    bound: float | None = None
    needs: str = ""
    """With too little data: what to measure, for example `2 more drills of executor_kill`."""

    def to_json(self) -> dict[str, Any]:
        """Plain JSON."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Verdict:
        """What `to_json` wrote."""
        return cls(**data)


@dataclass(frozen=True)
class Evidence:
    """What a model is held against, beside its own figures."""

    candidates: Sequence[int] = ()
    horizon_s: float = 0.0
    failure_kinds: Sequence[str] = ()
    events: Sequence[Event] = ()
    capacity: CapacityModel | Unknown = NO_CAPACITY
    engine: EngineInputs | Unknown = NO_CAPACITY
    """Of the champion; a capacity model is judged with its own."""
    forecaster: Forecaster | Unknown = NO_FORECASTER
    """The champion: the load that pictures are drawn at."""
    arrivals: Grid | Unknown = NO_FORECASTER

    def own(self, document: Document) -> tuple[CapacityModel | Unknown, EngineInputs | Unknown]:
        """What recoveries are foretold with: a capacity document's own, or the champion's."""
        if document["kind"] != "capacity":
            return self.capacity, self.engine
        model = rebuilt(document, kind="capacity")
        if not isinstance(model, CapacityModel):
            return NO_CAPACITY, NO_CAPACITY
        if "engine" not in document:
            return model, Unknown("what a batch costs is not known: profile the job")
        return model, EngineInputs.from_json(document["engine"])


@dataclass(frozen=True)
class Drilled:
    """A drill that was lived through, and what a model that has not seen it says of it."""

    kind: str
    scale_out: int
    at_s: float
    measured_s: float
    predicted: Interval

    @property
    def error(self) -> float:
        """Relative to what was measured; what never recovered, or was never to, is as wrong as can be."""
        if math.isinf(self.measured_s) and math.isinf(self.predicted.mid):
            return 0.0
        if math.isinf(self.measured_s) or math.isinf(self.predicted.mid):
            return MOST_ERROR
        return min(abs(self.predicted.mid - self.measured_s) / self.measured_s, MOST_ERROR)


def failed(verdicts: Sequence[Verdict]) -> tuple[Verdict, ...]:
    """Those that keep a model from taking charge."""
    return tuple(v for v in verdicts if v.outcome == "failed")


def rare(inside: int, count: int) -> bool:
    """Would a calibrated 90 % interval hold so few of so many only by a rare chance?"""
    return (
        sum(math.comb(count, k) * LEVEL**k * (1 - LEVEL) ** (count - k) for k in range(inside + 1)) < CHANCE
    )


def against_drills(
    events: Sequence[Event], *, capacity: CapacityModel, engine: EngineInputs, since_s: float = -math.inf
) -> tuple[Drilled, ...]:
    """The last drills, each foretold with downtimes that were learnt from all the others.

    `since_s`: what was lived through before, was lived through by another job.
    """
    found = []
    events = [(event, details) for event, details in events if event.failed_at_s >= since_s]
    taught = lessons(events, capacity=capacity, engine=engine)
    for event, details in drills(events)[-LAST_DRILLS:]:
        others = [told for told, (other, _) in zip(taught, events, strict=True) if other is not event]
        models = foretelling(capacity, engine, DowntimeModel.fit(others))
        said = drill_prediction.of_drill(models, event.kind, scale_out=event.scale_out, details=details)
        if not isinstance(said, Unknown) and event.recovery_s > 0.0:
            found.append(Drilled(event.kind, event.scale_out, event.failed_at_s, event.recovery_s, said))
    return tuple(found)


Figures = Mapping[str, Any]
Check = Callable[[Any, Document, Figures, Evidence], Verdict]
Needs = Callable[[Any, Evidence], str]
"""Model and evidence -> what to measure so that values can be left out."""


def held_out_error(bound: float, what: str, needs: Needs) -> Check:
    """Were the values that were left out foretold within this mean relative error?"""

    def check(model: Any, document: Document, figures: Figures, evidence: Evidence) -> Verdict:
        error = figures.get("held_out_error")
        if error is None:
            return _nothing_left_out("held_out_error", what, needs(model, evidence))
        said = f"{what}s that were left out were foretold with a mean error of {error:.1%}"
        outcome: Outcome = "passed" if error <= bound else "failed"
        return Verdict("held_out_error", outcome, f"{said}; at most {bound:.0%} is accepted", error, bound)

    return check


def interval_coverage(what: str, needs: Needs) -> Check:
    """Do the intervals hold what was left out, as often as chance demands?"""

    def check(model: Any, document: Document, figures: Figures, evidence: Evidence) -> Verdict:
        count = int(figures.get("held_out_count", 0))
        if not count:
            return _nothing_left_out("interval_coverage", what, needs(model, evidence))
        inside = int(figures["held_out_inside"])
        said = f"{inside} of {count} {what}s that were left out lie in their 90 % interval"
        outcome: Outcome = "failed" if rare(inside, count) else "passed"
        if outcome == "failed":
            said += f"; chance alone makes it so few in less than {CHANCE:.0%} of all cases"
        return Verdict("interval_coverage", outcome, said, inside / count, LEVEL)

    return check


def _nothing_left_out(name: str, what: str, needs: str) -> Verdict:
    return Verdict(name, TOO_LITTLE, f"there is too little to leave any {what} out", needs=needs)


def agrees_with_drills(model: Any, document: Document, figures: Figures, evidence: Evidence) -> Verdict:
    """Did the last drills recover as this model predicts?"""
    name = "agrees_with_drills"
    capacity, engine = evidence.own(document)
    for needed in (capacity, engine):
        if isinstance(needed, Unknown):
            said = f"recoveries cannot be predicted: {needed.reason}"
            return Verdict(name, TOO_LITTLE, said, needs="a profile of the job")
    assert isinstance(capacity, CapacityModel)
    assert isinstance(engine, EngineInputs)
    since_s = figures.get("slower_since_s", -math.inf)
    found = against_drills(evidence.events, capacity=capacity, engine=engine, since_s=since_s)
    if not found:
        return Verdict(
            name, TOO_LITTLE, "there is no drill to compare with", needs=_more_drills(found, evidence)
        )
    error = sum(one.error for one in found) / len(found)
    inside = sum(one.predicted.low <= one.measured_s <= one.predicted.high for one in found)
    said = (
        f"mean error of the predicted recovery {error:.1%} over the last {counted(len(found), 'drill')}, "
        f"{inside} inside the 90 % interval; each was predicted by a model without it"
    )
    far = error > DRILL_LIMIT and len(found) >= ENOUGH_DRILLS
    if error > DRILL_ERROR:
        said += f"; {DRILL_ERROR:.0%} is usual"
    if error > DRILL_ERROR and (far or rare(inside, len(found))):
        said += f", up to {DRILL_LIMIT:.0%} inside the intervals is accepted"
        return Verdict(name, "failed", said, error, DRILL_ERROR)
    if len(found) < ENOUGH_DRILLS:
        return Verdict(name, TOO_LITTLE, said, error, DRILL_ERROR, needs=_more_drills(found, evidence))
    return Verdict(name, "warned" if error > DRILL_ERROR else "passed", said, error, DRILL_ERROR)


def _more_drills(found: Sequence[Drilled], evidence: Evidence) -> str:
    """So many of the promised kind that was drilled least."""
    counts = {kind: sum(one.kind == kind for one in found) for kind in evidence.failure_kinds}
    kind = f" of {min(counts, key=lambda one: counts[one])}" if counts else ""
    more = ENOUGH_DRILLS - len(found)
    return f"{counted(more, 'more drill')}{kind}"


CAPACITY_ERROR = 0.15  # as recoveries are promised to be foretold on real Spark
FORECAST_ERROR = 1.0  # of everything that arrived: more is a broken scale, and not a bursty load
FORECAST_WARNING = 0.3  # judgement: the band is then so wide that executors are spent on it
NAIVE_SHARE = 1.25  # judgement: what four horizons can tell apart
NAIVE_SLACK = 0.01  # of the mean rate; judgement: smaller errors decide nothing
COVERAGE_ERRORS = 2.0  # standard errors of as many values as there were horizons: steps hang together
DOWNTIME_ERROR = 1.0  # judgement: a factor of two; downtimes of one kind differ by that (downtime_priors)
FEWEST_SIZES = 2  # one does not show how capacity rises
GOOD_SIZES = 4  # from there on a form can be named (models.capacity.choice)
GOOD_LATENCIES = 8  # judgement: four of each kind
ENOUGH_ABNORMAL = 4
MISS_WARNING = 0.25  # judgement: of the abnormal points, or false alarms among the normal ones
ROUNDING = 1e-6
GRID = 9  # utilisations between 0.1 and 0.95 at which latency must rise


def judged(document: Document, evidence: Evidence) -> tuple[Verdict, ...]:
    """Every check of this document's kind."""
    kind = str(document["kind"])
    model = rebuilt(document, kind=kind)
    if isinstance(model, Unknown):
        raise Misuse("document", model.reason)
    figures: Mapping[str, Any] = document["figures"]
    return tuple(check(model, document, figures, evidence) for check in CHECKS[kind].values())


def _enough_arrivals(model: Forecaster, document: Document, figures: Figures, evidence: Evidence) -> Verdict:
    seen, reach_s = int(figures["rates_seen"]), model.steps * model.step_s
    name, said = "enough_points", f"{seen} steps of {model.step_s:g} s were seen"
    if reach_s < evidence.horizon_s * (1 - 1e-9):
        said = f"it reaches {reach_s:.0f} s and decisions need {evidence.horizon_s:.0f} s: fit it again"
        return Verdict(name, "failed", said, reach_s, evidence.horizon_s)
    if seen < 4 * model.steps:
        said += f", less than four horizons of {reach_s:.0f} s: the band is widened by a prior"
        return Verdict(name, TOO_LITTLE, said, seen, 4 * model.steps, needs=_longer_history(model, evidence))
    return Verdict(name, "passed", said, seen, 4 * model.steps)


def _forecast_error(model: Forecaster, document: Document, figures: Figures, evidence: Evidence) -> Verdict:
    error = figures.get("held_out_error")
    if error is None:
        return _short_history("held_out_error", model, evidence)
    said = (
        f"the newest {figures['held_out_horizons']:.0f} horizons were predicted with an error of {error:.1%}"
    )
    outcome: Outcome = (
        "failed" if error > FORECAST_ERROR else "warned" if error > FORECAST_WARNING else "passed"
    )
    said += f" of everything that arrived; up to {FORECAST_WARNING:.0%} is usual"
    return Verdict("held_out_error", outcome, said, error, FORECAST_ERROR)


def _forecast_coverage(
    model: Forecaster, document: Document, figures: Figures, evidence: Evidence
) -> Verdict:
    covered, horizons = figures.get("interval_coverage"), figures.get("held_out_horizons", 0)
    if covered is None:
        return _short_history("interval_coverage", model, evidence)
    least = max(0.0, LEVEL - COVERAGE_ERRORS * math.sqrt(LEVEL * (1 - LEVEL) / horizons))
    said = f"{covered:.0%} of the newest {horizons:.0f} horizons lie in the 90 % band; {least:.0%} must"
    return Verdict("interval_coverage", "passed" if covered >= least else "failed", said, covered, least)


def _naive(model: Forecaster, document: Document, figures: Figures, evidence: Evidence) -> Verdict:
    name, naive = "not_worse_than_naive", figures.get("naive_mae_rps")
    if naive is None:
        return _short_history(name, model, evidence)
    mae = figures["held_out_mae_rps"]
    bound = NAIVE_SHARE * naive + NAIVE_SLACK * figures["held_out_mean_rps"]
    said = f"off by {mae:,.0f} records/s where the better naive forecast was off by {naive:,.0f}"
    return Verdict(name, "passed" if mae <= bound else "failed", said, mae, bound)


def _short_history(name: str, model: Forecaster, evidence: Evidence) -> Verdict:
    said = "the history is too short to leave its newest part out"
    return Verdict(name, TOO_LITTLE, said, needs=_longer_history(model, evidence))


def _longer_history(model: Forecaster, evidence: Evidence) -> str:
    """Leaving the newest horizon out takes four before it (held_out.workload)."""
    return f"a history of {4 * model.steps * model.step_s / 60.0:.0f} minutes"


def _enough_sizes(model: CapacityModel, document: Document, figures: Figures, evidence: Evidence) -> Verdict:
    sizes = model.saturated_at
    name, where = "enough_points", ", ".join(map(str, sizes)) or "none"
    said = f"saturated at {len(sizes)} scale-outs ({where}) in {figures['measurements']} measurements"
    asked = [s for s in evidence.candidates if isinstance(model.predict(s), Unknown)]
    count = float(len(sizes))
    if evidence.candidates and len(asked) == len(evidence.candidates):
        said += "; nothing can be said of any candidate: profile more scale-outs"
        return Verdict(name, "failed", said, count, FEWEST_SIZES)
    if not sizes or (len(sizes) < FEWEST_SIZES and len(evidence.candidates) > 1):
        return Verdict(name, "failed", f"{said}; {FEWEST_SIZES} are needed", count, FEWEST_SIZES)
    if "engine" not in document:
        said += "; the overhead of a batch is unknown, so decisions hold"
        return Verdict(name, TOO_LITTLE, said, count, needs="a new profile of the job")
    good = min(GOOD_SIZES, len(evidence.candidates) or GOOD_SIZES)
    if asked:
        said += f"; unknown at {', '.join(map(str, asked))}"
    if len(sizes) >= good and not asked:
        return Verdict(name, "passed", said, count, good)
    return Verdict(name, TOO_LITTLE, said, count, good, needs=_more_sizes(model, evidence))


def _more_sizes(model: CapacityModel, evidence: Evidence) -> str:
    """`profile a third size`, or the sizes of which nothing is known."""
    count = len(model.saturated_at)
    good = min(GOOD_SIZES, len(evidence.candidates) or GOOD_SIZES)
    if count < good:
        return f"a profile of {good} sizes instead of {count}"
    unknown = [s for s in evidence.candidates if isinstance(model.predict(s), Unknown)]
    if unknown:
        return f"a profile of {executors(unknown[-1])}"
    return "more probes of each size (profile_most_probes)"


def _capacity_rises(
    model: CapacityModel, document: Document, figures: Figures, evidence: Evidence
) -> Verdict:
    sizes = sorted({*evidence.candidates, *model.saturated_at})
    known = [(s, found) for s in sizes if isinstance(found := model.predict(s), Interval)]
    for (small, one), (large, other) in itertools.pairwise(known):
        if other.mid < one.mid * (1 - ROUNDING):
            said = f"{executors(large, 'sustain')} {other.mid:,.0f} records/s, {small} sustain {one.mid:,.0f}"
            return Verdict("monotone", "failed", said)
    return Verdict("monotone", "passed", "more executors never sustain less")


def _agrees_with_live(
    model: CapacityModel, document: Document, figures: Figures, evidence: Evidence
) -> Verdict:
    name, share = "agrees_with_live", figures.get("profile_taken_at")
    if share is None:
        return Verdict(name, "passed", "the newest live measurements are not below the profile")
    said = (
        f"the newest live measurements at {executors(int(figures['slower_at']))} reach {share:.0%} of the "
        f"profiled capacity, so every profiled size is scaled to {share:.0%}: profile the job again"
    )
    return Verdict(name, "warned", said, share, 1.0)


def _enough_latencies(
    model: LatencyModel, document: Document, figures: Figures, evidence: Evidence
) -> Verdict:
    count = len(model.measurements)
    said = f"{count} measurements have a latency and a known capacity"
    if not math.isfinite(model.clusters.normal_up_to_ms):
        said += "; they form one cluster, so only load above the capacity counts as abnormal"
        needs = "a probe above the capacity and one well below it"
        return Verdict("enough_points", TOO_LITTLE, said, count, GOOD_LATENCIES, needs=needs)
    if count < GOOD_LATENCIES:
        needs = _more_latencies(model, evidence)
        return Verdict("enough_points", TOO_LITTLE, said, count, GOOD_LATENCIES, needs=needs)
    return Verdict("enough_points", "passed", said, count, GOOD_LATENCIES)


def _more_latencies(model: LatencyModel, evidence: Evidence) -> str:
    more = max(1, GOOD_LATENCIES - len(model.measurements))
    return counted(more, "more probe") + " with a latency"


def _abnormal_found(model: LatencyModel, document: Document, figures: Figures, evidence: Evidence) -> Verdict:
    name = "abnormal_found"
    hits, missed = int(figures["abnormal_tp"]), int(figures["abnormal_fn"])
    alarms, normal = int(figures["abnormal_fp"]), int(figures["abnormal_fp"] + figures["abnormal_tn"])
    abnormal = hits + missed
    said = f"{alarms} of {normal} normal points were called abnormal"
    if abnormal:
        said = f"{missed} of {counted(abnormal, 'abnormal point')} were missed when left out, {said}"
    share = missed / abnormal if abnormal else None
    if rare(hits, abnormal) or rare(normal - alarms, normal):
        return Verdict(name, "failed", f"{said}; 90 % of either must be right", share, 1 - LEVEL)
    if abnormal < ENOUGH_ABNORMAL:
        needs = counted(ENOUGH_ABNORMAL - abnormal, "more probe") + " above the capacity"
        return Verdict(name, TOO_LITTLE, said, share, MISS_WARNING, needs=needs)
    many = missed > MISS_WARNING * abnormal or alarms > MISS_WARNING * normal
    return Verdict(name, "warned" if many else "passed", said, share, MISS_WARNING)


def _latency_rises(model: LatencyModel, document: Document, figures: Figures, evidence: Evidence) -> Verdict:
    sizes = sorted({m.scale_out for m in model.measurements})
    for size in sizes:
        capacity = model.capacity.predict(size)
        if isinstance(capacity, Unknown):
            continue
        before = 0.0
        for step in range(GRID):
            found = model.predict(size, capacity.mid * (0.1 + 0.85 * step / (GRID - 1)))
            if isinstance(found, Unknown):
                break
            if found.mid < before * (1 - ROUNDING):
                said = f"at {executors(size)} latency falls from {before:,.0f} to {found.mid:,.0f} ms"
                return Verdict("monotone", "failed", f"{said} as the rate grows")
            before = found.mid
    return Verdict("monotone", "passed", "latency never falls as the rate grows")


def _enough_events(model: DowntimeModel, document: Document, figures: Figures, evidence: Evidence) -> Verdict:
    counts = {kind: model.events(kind) for kind in evidence.failure_kinds}
    none = [kind for kind, count in counts.items() if not count]
    said = ", ".join(f"{kind} {count}" for kind, count in counts.items()) or "no failure kind is promised"
    if none:
        prior = "; ".join(model.describe(kind) for kind in none)
        needs = "a drill of " + " and of ".join(none)
        return Verdict(
            "enough_points", TOO_LITTLE, f"events: {said}. {prior}", min(counts.values()), 1, needs=needs
        )
    return Verdict("enough_points", "passed", f"events: {said}", min(counts.values(), default=0), 1)


def _more_events(model: DowntimeModel, evidence: Evidence) -> str:
    counts = {kind: model.events(kind) for kind in evidence.failure_kinds}
    if not counts:
        return f"{fitting.FEWEST_OF_A_KIND} drills of a kind"
    kind = max(counts, key=lambda one: counts[one])
    return f"{counted(max(1, fitting.FEWEST_OF_A_KIND - counts[kind]), 'more drill')} of {kind}"


def _comes_back(model: DowntimeModel, document: Document, figures: Figures, evidence: Evidence) -> Verdict:
    for kind in evidence.failure_kinds:
        lost = model.lost_share(kind)
        if lost >= 0.5:
            said = f"the job came back from less than half of its {kind}: no scale-out can promise that away"
            return Verdict("comes_back", "warned", said, lost, 0.5)
    return Verdict("comes_back", "passed", "the job comes back from every failure that is promised")


CHECKS: Mapping[str, Mapping[str, Check]] = {
    "workload": {
        "enough_points": _enough_arrivals,
        "held_out_error": _forecast_error,
        "interval_coverage": _forecast_coverage,
        "not_worse_than_naive": _naive,
    },
    "capacity": {
        "enough_points": _enough_sizes,
        "held_out_error": held_out_error(CAPACITY_ERROR, "saturated probe", _more_sizes),
        "interval_coverage": interval_coverage("saturated probe", _more_sizes),
        "monotone": _capacity_rises,
        "agrees_with_live": _agrees_with_live,
        "agrees_with_drills": agrees_with_drills,
    },
    "latency": {
        "enough_points": _enough_latencies,
        "abnormal_found": _abnormal_found,
        "interval_coverage": interval_coverage("latency", _more_latencies),
        "monotone": _latency_rises,
    },
    "recovery": {
        "enough_points": _enough_events,
        "held_out_error": held_out_error(DOWNTIME_ERROR, "downtime", _more_events),
        "interval_coverage": interval_coverage("downtime", _more_events),
        "comes_back": _comes_back,
        "agrees_with_drills": agrees_with_drills,
    },
}
