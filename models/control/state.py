"""Control's memory of one job between two ticks: plain values, written as JSON after every tick.

Settings, models and directives are not part of it: they are handed in at every tick, so that a promoted model
or an edited limit counts from the next tick on.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal

from ..codec import GIVEN
from ..quantities import Origin, Unknown, executors, lasting
from .deciding import Decided
from .settings import Settings


@dataclass(frozen=True)
class Window:
    """Recommendations that can still be the maximum, oldest first, and since when there is one per tick."""

    entries: tuple[tuple[float, int], ...] = ()
    since_s: float = math.inf
    newest_s: float = -math.inf

    def add(self, at_s: float, value: int, *, window_s: float, gap_s: float) -> Window:
        """The window with one more recommendation; a gap longer than `gap_s` begins the coverage anew."""
        if at_s <= self.newest_s:
            return self
        since_s = at_s if at_s - self.newest_s > gap_s else self.since_s
        # An older entry that is not larger can never be the maximum again, so the memory stays small.
        kept = tuple((t, v) for t, v in self.entries if v > value and t >= at_s - window_s)
        return Window(entries=(*kept, (at_s, value)), since_s=since_s, newest_s=at_s)

    def covers(self, now: float, window_s: float) -> bool:
        """Has there been a recommendation in every interval of the window?"""
        return now - self.since_s >= window_s

    def maximum(self, now: float, window_s: float) -> int | Unknown:
        """The largest recommendation of age ≤ `window_s`."""
        values = [v for t, v in self.entries if now - window_s <= t <= now]
        return max(values) if values else Unknown(f"nothing was recommended in the last {window_s:.0f} s")

    def age_of(self, value: int, now: float) -> float:
        """How long ago at least `value` was last recommended, in seconds; inf if not inside the window."""
        return min((now - t for t, v in self.entries if v >= value), default=math.inf)


@dataclass(frozen=True)
class Pause:
    """Stop deciding, not the job; measuring goes on."""

    who: str
    why: str
    until_s: float = math.inf


@dataclass(frozen=True)
class Pin:
    """Keep exactly this many executors."""

    scale_out: int
    who: str
    why: str
    until_s: float = math.inf


@dataclass(frozen=True)
class Blackout:
    """A window in which nothing changes, or in which nothing shrinks."""

    why: str
    scale_out_allowed: bool = False


@dataclass(frozen=True)
class Injected:
    """A failure that we injected ourselves, so that what follows is learnt under its true name and time."""

    kind: str
    at_s: float


@dataclass(frozen=True)
class Drill:
    """A drill on the live job. It measures the recovery itself, and nothing is decided before it is over."""

    kind: str
    since_s: float
    until_s: float = math.inf


NO_MARK = Unknown("the deployment carries no mark of ours that could be read")


@dataclass(frozen=True)
class Directives:
    """What people, blackouts and drills say about one job at one moment."""

    pause: Pause | None = None
    pin: Pin | None = None
    blackout: Blackout | None = None
    foreign_edit: bool | Unknown = NO_MARK
    """True: the declared size is not ours. False: it still carries our mark, so that a job which came back
    with another size is put right. Unknown: any size that we did not set counts as set by others."""
    resumed_at_s: float = -math.inf
    """The newest `resume`; it ends a foreign-edit hold, a quarantine and a failed rollback older than it."""
    injected: Injected | None = None
    drill: Drill | None = None
    """The newest one, also when it is over: what it has caused is not learnt a second time."""

    def paused(self, now: float) -> Pause | None:
        return self.pause if self.pause is not None and now < self.pause.until_s else None

    def pinned(self, now: float) -> Pin | None:
        return self.pin if self.pin is not None and now < self.pin.until_s else None

    def drilled(self, since_s: float) -> Drill | None:
        """The drill that was going on at this moment or after it."""
        return self.drill if self.drill is not None and since_s <= self.drill.until_s else None


SCHEMA = 2
NO_DIRECTIVES = Directives()
NOTHING_RECOMMENDED = Window()
NO_COMMIT = Unknown("nothing has been committed since")
NOT_APPLIED = Unknown("we have not set the size of this job yet")
NOT_VERIFIED = Unknown("no size of ours has been verified yet")
NOT_DECIDED = Unknown("nothing has been decided yet")


@dataclass(frozen=True)
class Sample:
    """What one usable tick saw; the newest ones are kept."""

    at_s: float
    scale_out: int
    arrival_rps: float | Unknown
    throughput_rps: float | Unknown
    lag_records: float | Unknown
    lag_s: float | Unknown
    commit_at_s: float | Unknown
    run_id: str | Unknown
    executors_alive: int | Unknown
    healthy: bool
    """Lag in its band, and neither a failure nor a change under way."""


@dataclass(frozen=True)
class Incident:
    """A failure or a rescale under way: `kind` is spelled as in models.quantities."""

    kind: str
    scale_out: int
    failed_at_s: float
    noticed_at_s: float
    why: str
    band_s: float
    first_commit_at_s: float | Unknown = NO_COMMIT
    trace: tuple[tuple[float, float], ...] = ()
    """(time, lag in seconds of input) since it was noticed."""
    spoilt: str = ""
    """Why nothing can be learnt from it, if so."""
    given_up: bool = False
    """It was recorded as never over; control still waits for its end."""


@dataclass(frozen=True)
class Change:
    """A change of the size that was ordered and is not verified yet."""

    origin: Origin
    before: int
    to: int
    at_s: float
    reason: str
    run_id: str | Unknown
    lag_s: float | Unknown
    throughput_rps: float | Unknown
    """Just before the change, if the job was saturated."""
    expected_rps: float | Unknown
    """The capacity models' T(to) − T(before), after every limit."""
    took_effect_at_s: float = math.inf
    saturated_s: float = 0.0
    """Time spent behind since it has taken effect and settled."""
    saturated_records: float = 0.0
    """What was processed in that time."""
    epoch: int | None = None
    """Of the tick that ordered it, as the control loop counts them; the deployment refuses older ones."""
    refused: str = ""
    """Why it cannot be carried out at all; empty if it can."""
    problem: str = ""
    """Why it has failed, if so."""


@dataclass(frozen=True)
class Quarantine:
    """A size that did not work: neither it nor anything beyond it is taken again before `until_s`."""

    scale_out: int
    since_s: float
    until_s: float
    strikes: int
    why: str
    direction: Literal["out", "in"]

    def bars(self, scale_out: int, now: float) -> bool:
        beyond = scale_out >= self.scale_out if self.direction == "out" else scale_out <= self.scale_out
        return beyond and now < self.until_s

    def text(self, now: float) -> str:
        sizes = f"{executors(self.scale_out)} and {'more' if self.direction == 'out' else 'fewer'}"
        return f"{sizes} are in quarantine for another {lasting(self.until_s - now)}: {self.why}"


@dataclass(frozen=True)
class ForeignEdit:
    """A size that others have set: it is not touched until `resume`."""

    since_s: float
    found: int
    ours: int


@dataclass(frozen=True)
class Stretch:
    """A run of ticks of one sort at one scale-out, on its way to become a measurement."""

    sort: Literal["steady", "saturated"]
    scale_out: int
    since_s: float
    until_s: float
    ticks: int = 0
    arrivals_rps: float = 0.0
    """The sum over the ticks, as are all of these."""
    throughputs_rps: float = 0.0
    throughputs_squared: float = 0.0
    latencies_ms: float = 0.0
    latency_ticks: int = 0


@dataclass(frozen=True)
class State:
    """Control's memory of one job. `recovering` and `last_decision` are what `headroom explain` reads."""

    schema: ClassVar[int] = SCHEMA
    settings: Settings = field(metadata=GIVEN)
    directives: Directives = NO_DIRECTIVES
    stepped_at_s: float = -math.inf
    observed_at_s: float = -math.inf
    history: tuple[Sample, ...] = ()
    idle_until_s: float = -math.inf
    """The newest tick at which there was nothing to commit."""
    recovering: Incident | None = None
    change: Change | None = None
    applied: int | Unknown = NOT_APPLIED
    last_good: int | Unknown = NOT_VERIFIED
    foreign: ForeignEdit | None = None
    changed_at_s: float = -math.inf
    settled_at_s: float = -math.inf
    """The end of the newest failure or change."""
    recommended: Window = NOTHING_RECOMMENDED
    quarantined: tuple[Quarantine, ...] = ()
    missing_since_s: float = math.inf
    short_since_s: float = math.inf
    """Since when fewer executors are alive than declared."""
    stretch: Stretch | None = None
    learnt_at_s: Mapping[str, float] = field(default_factory=dict)
    alarmed_at_s: Mapping[str, float] = field(default_factory=dict)
    last_decision: Decided | Unknown = NOT_DECIDED

    @property
    def ordered(self) -> Change | None:
        """The change that has still to be carried out: ordered, not failed, and not seen in effect."""
        change = self.change
        if change is None or change.problem or math.isfinite(change.took_effect_at_s):
            return None
        return change

    @property
    def expected(self) -> tuple[int, ...]:
        """The declared sizes that our own changes explain; empty before the first."""
        if isinstance(self.applied, Unknown):
            return ()
        if self.change is None or math.isfinite(self.change.took_effect_at_s):
            return (self.applied,)
        return self.change.before, self.change.to

    def with_directives(self, directives: Directives) -> State:
        """The same memory under what people order now."""
        return replace(self, directives=directives)

    def with_settings(self, settings: Settings) -> State:
        """The same memory under settings and models read anew."""
        return replace(self, settings=settings)
