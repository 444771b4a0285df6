"""What is said of a model before it may take charge, and what holds for every kind of model?

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

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, Literal

from models.capacity import CapacityModel
from models.downtime import DowntimeModel
from models.quantities import Interval, Unknown
from models.series import Grid
from models.wording import counted
from models.workload import Forecaster

from ..drills import drill_prediction
from .engine_inputs import EngineInputs
from .model_documents import Document, rebuilt
from .training import Event, drills, foretelling, lessons

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
