"""Values that control works with: settings, directives, and its memory of one job between two ticks.

The memory is plain values, written as JSON after every tick. Settings, models and directives are not part
of it: they are handed in at every tick, so that a promoted model or an edited limit counts from the next on.

Settings: `interval_s` is E, the time between two ticks. The defaults suit a live rescale that costs one slow
batch; for a job that is restarted at every change, use longer windows and cool-downs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol

from .. import arguments, codec
from ..observation import Observation
from ..promise import Promise
from ..quantities import FAILURE_KINDS, Interval, Misuse, Origin, Unknown, executors, lasting
from ..recovery import HOLD_BATCHES, HOLD_S

if TYPE_CHECKING:
    from ..optimise import Prediction, Question
    from ..optimise.question import Engine, KnowsDowntime, KnowsLatency
    from ..workload import Forecast


class PredictsCapacity(Protocol):
    """Anything that knows the capacity of a scale-out."""

    def predict(self, scale_out: int) -> Interval | Unknown: ...


NO_CAPACITY = Unknown("there is no capacity model yet: profile the job")
NO_DOWNTIME = Unknown("there is no downtime model yet: run a drill")
NO_LATENCY = Unknown("there is no latency model yet: profile the job")
NO_ENGINE = Unknown(
    "the engine is not described yet: profiling learns how long a batch takes beside its records"
)


@dataclass(frozen=True)
class Models:
    """The models in charge; each may be Unknown, and then what depends on it is held."""

    capacity: PredictsCapacity | Unknown = NO_CAPACITY
    downtime: KnowsDowntime | Unknown = NO_DOWNTIME
    latency: KnowsLatency | Unknown = NO_LATENCY
    engine: Engine | Unknown = NO_ENGINE
    """How the job reads its input: a `models.optimise` BatchEngine or ContinuousEngine."""
    version: str = "none"


@dataclass(frozen=True)
class Situation:
    """What the optimiser is asked about: one job, one moment, and the sizes that may be taken."""

    settings: Settings
    observation: Observation
    current: int
    candidates: tuple[int, ...]
    stay_s: float = 3600.0  # as models.optimise: a daily load moves by an executor in about an hour
    """Until the size is likely changed again."""
    likely: int | None = None
    """The smallest size that kept the promise at the last decision."""


class Decision(Protocol):
    """What control reads of the optimiser's answer; all of it is kept for `headroom explain`."""

    @property
    def scale_out(self) -> int | Unknown: ...
    @property
    def feasible(self) -> bool: ...
    @property
    def reason(self) -> str: ...
    @property
    def alarm(self) -> str | None: ...


@dataclass(frozen=True)
class Decided:
    """One answer of the optimiser as it is remembered: what `headroom explain` shows."""

    at_s: float
    current: int
    scale_out: int | Unknown
    smallest: int | Unknown
    """The smallest feasible size; `scale_out` may be larger where a move would not pay or is too early."""
    feasible: bool
    reason: str
    alarm: str
    models_version: str
    verdicts: tuple[Mapping[str, Any], ...]
    """Every candidate with its numbers and excuses, as plain JSON."""


def decided(decision: Decision, *, at_s: float, current: int, models_version: str) -> Decided:
    """The answer in plain values."""
    return Decided(
        at_s=at_s,
        current=current,
        scale_out=decision.scale_out,
        smallest=getattr(decision, "smallest_feasible", decision.scale_out),
        feasible=bool(decision.feasible),
        reason=decision.reason,
        alarm=decision.alarm or "",
        models_version=models_version,
        verdicts=tuple(codec.readable(v) for v in getattr(decision, "verdicts", ())),
    )


Decider = Callable[[Situation], Decision]


def by_optimise(situation: Situation) -> Decision:
    """The smallest size that keeps the promise, by `models.optimise.decide`.

    The promise has to hold until the next decision can have taken effect: failures are examined at moments up
    to interval + effect, and the forecast has to reach `settings.horizon_s` = interval + effect + target.
    """
    from ..optimise import decide

    return decide(_question(situation))


def predicted(settings: Settings, observation: Observation) -> dict[str, Prediction | Unknown]:
    """Per kind of failure of the job: the recovery if it happened now, whether or not anything is decided."""
    from ..optimise import predictions

    size = observation.scale_out
    if isinstance(size, Unknown):
        return dict.fromkeys(settings.failure_kinds, size)
    now = Situation(settings=settings, observation=observation, current=size, candidates=(size,))
    return predictions(_question(now))


def _question(situation: Situation) -> Question:
    from ..optimise import Question

    settings, observation = situation.settings, situation.observation
    models, current = settings.models, situation.current
    capacity = models.capacity
    asked = {*situation.candidates, current}
    return Question(
        candidates=situation.candidates,
        current=current,
        promise=settings.promise,
        forecast=_long_enough(observation.forecast, settings.horizon_s),
        observed_rps=observation.arrival_rps,
        lag_records=observation.lag_records,
        capacity={s: capacity if isinstance(capacity, Unknown) else capacity.predict(s) for s in asked},
        downtime=models.downtime,
        kinds=settings.failure_kinds,
        moments_s=settings.interval_s + settings.effect_s,
        engine=models.engine,
        rescale=settings.path,
        latency=models.latency,
        latency_bound_ms=settings.latency_bound_ms,
        stay_s=situation.stay_s,
        likely=situation.likely,
        seed=settings.seed,
    )


def _long_enough(forecast: Forecast | Unknown, horizon_s: float) -> Forecast | Unknown:
    if isinstance(forecast, Unknown):
        return forecast
    reach_s = forecast.paths.shape[-1] * forecast.step_s
    if reach_s < horizon_s * (1 - 1e-9):
        return Unknown(
            f"the forecast reaches {reach_s:.0f} s but {horizon_s:.0f} s are needed (interval + effect + "
            "target): fit it with that horizon"
        )
    return forecast


Mode = Literal["observe", "recommend", "apply"]
Path = Literal["live", "restart"]


NO_MODELS = Models()
STALE_AFTER_S = 120.0  # two intervals of observations: one may be lost (judgement)
MISSING_FOR_S = 300.0  # as long as HPA looks back before it shrinks; a broker restart is over by then
ALARM_EVERY_S = 1800.0  # Flink's scaling.event.interval


@dataclass(frozen=True, kw_only=True)
class Settings:
    """One job's promise, bounds, limits and models."""

    promise: Promise
    max_scale_out: int
    min_scale_out: int = 1
    candidates: tuple[int, ...] = ()
    """The aligned scale-outs; empty means every one within the bounds."""
    mode: Mode = "recommend"
    path: Path = "live"
    only_commits: bool = False
    """An attached job shows its commits only: neither the kind of a failure nor the time and way of a change
    of its size is known. Recoveries are followed, but nothing is learnt from them."""
    interval_s: float = 60.0  # Daedalus' loop
    models: Models = NO_MODELS
    decide: Decider = by_optimise
    failure_kinds: tuple[str, ...] = ("executor_kill", "driver_kill")
    latency_bound_ms: float | None = None
    seed: int = 0

    # How much, how often
    max_step_out: int | None = None
    max_step_in: int | None = None
    max_share_in: float = 0.6  # of the executors at once: Flink's scale-down.max-factor
    cooldown_out_s: float = 60.0  # one interval, so that every change is seen before the next (judgement)
    cooldown_in_s: float = 600.0  # Daedalus' "young rescale"
    scale_in_window_s: float = 1800.0
    # Half of Flink's scale-down.interval of 1 h (20 rescales a day came of 15 min there, FLINK-36018);
    # half, because a live rescale costs one slow batch and no restart (judgement).

    # Failures
    trigger_s: float = 10.0
    """The trigger interval of the job, or its median batch: the lag of a healthy job moves by this much."""
    max_lag_s: float | None = None
    """Lag, in seconds of input, that endangers the promise without any failure; default target/2."""

    # After a change
    effect_s: float = 30.0
    """Until a change usually works: executors came after 4–12 s, their first batch took 8–10 (measured)."""
    take_effect_s: float = (
        180.0  # Daedalus' grace; live executors register in 4-10 s, pods may wait for a node
    )
    learn_every_s: float = 1800.0  # at most 48 measurements of each sort a day (judgement)

    def __post_init__(self) -> None:
        if not isinstance(self.promise, Promise):
            raise Misuse("promise", f"must be a Promise(target_s, confidence), got {self.promise!r}")
        arguments.whole("min_scale_out", self.min_scale_out)
        arguments.whole("max_scale_out", self.max_scale_out, at_least=self.min_scale_out)
        for name, accepted in (("mode", ("observe", "recommend", "apply")), ("path", ("live", "restart"))):
            if getattr(self, name) not in accepted:
                raise Misuse(name, f"must be one of {', '.join(accepted)}, got {getattr(self, name)!r}")
        for candidate in self.candidates:
            arguments.whole("candidates", candidate)
        if not self.sizes:
            raise Misuse(
                "candidates",
                f"none of {list(self.candidates)} lies within {self.min_scale_out}…{self.max_scale_out}",
            )
        if not self.failure_kinds:
            raise Misuse("failure_kinds", "must name at least one kind of failure")
        for kind in self.failure_kinds:
            if kind not in FAILURE_KINDS:
                raise Misuse("failure_kinds", f"must be among {', '.join(FAILURE_KINDS)}, got {kind!r}")
        for name in ("interval_s", "trigger_s", "take_effect_s"):
            arguments.number(name, getattr(self, name), above=0.0)
        for name in (
            "cooldown_out_s",
            "cooldown_in_s",
            "scale_in_window_s",
            "max_lag_s",
            "effect_s",
            "learn_every_s",
            "latency_bound_ms",
        ):
            if getattr(self, name) is not None:
                arguments.number(name, getattr(self, name), at_least=0.0)
        for name in ("max_step_out", "max_step_in"):
            if getattr(self, name) is not None:
                arguments.whole(name, getattr(self, name))
        arguments.number("max_share_in", self.max_share_in, above=0.0, at_most=1.0)

    @property
    def sizes(self) -> tuple[int, ...]:
        inside = range(self.min_scale_out, self.max_scale_out + 1)
        return tuple(s for s in sorted(set(self.candidates or inside)) if s in inside)

    @property
    def horizon_s(self) -> float:
        """How far a forecast has to reach for a decision."""
        return self.interval_s + self.effect_s + self.promise.target_s

    @property
    def longest_commit_gap_s(self) -> float:
        """Longest healthy time between two commits (judgement)."""
        return max(60.0, 6.0 * self.trigger_s)

    @property
    def lag_bound_s(self) -> float:
        return self.promise.target_s / 2.0 if self.max_lag_s is None else self.max_lag_s

    @property
    def recovered_after_s(self) -> float:
        """How long lag stays in its band before a recovery is over."""
        return max(HOLD_BATCHES * self.trigger_s, HOLD_S)

    @property
    def settled_after_s(self) -> float:
        """Until batches after a change show what its size can do.

        The first batch after growing ran at a quarter of its speed for 10 s (measured).
        """
        return 10.0 + self.recovered_after_s

    @property
    def longest_recovery_s(self) -> float:
        """A longer recovery is recorded as inf (judgement)."""
        return max(3.0 * self.promise.target_s, 900.0)

    @property
    def longest_gap_s(self) -> float:
        """Ticks further apart than this do not belong to one stretch."""
        return max(3.0 * self.interval_s, STALE_AFTER_S)

    @property
    def missing_after_s(self) -> float:
        """Metrics that cannot be read for longer are worth an alarm."""
        return max(MISSING_FOR_S, self.interval_s)


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
        """Whether every interval of the window has a recommendation."""
        return now - self.since_s >= window_s

    def maximum(self, now: float, window_s: float) -> int | Unknown:
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
    started_at_s: float = -math.inf
    """The newest order to start the job: that its run ended before was no failure."""
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
NO_RUN = Unknown("the run of the query was never read")
NO_COMMIT = Unknown("nothing has been committed since")
NOT_APPLIED = Unknown("we have not set the size of this job yet")
NOT_VERIFIED = Unknown("no size of ours has been verified yet")
NOT_DECIDED = Unknown("nothing has been decided yet")


NOT_READ = Unknown("only the lag at the tick was read")


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
    largest_lag_s: float | Unknown = NOT_READ
    """Of the healthy readings since the tick before."""


NO_RATE = Unknown("the arrival rate was not read when it happened")


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
    """(time, lag in seconds of input) of the readings since the tick before it was noticed."""
    spoilt: str = ""
    """Why nothing can be learnt from it, if so."""
    run_id: str | Unknown = NO_RUN
    """The newest run of the query before it: a driver that fails ends one run, and another begins."""
    rate_rps: float | Unknown = NO_RATE
    """The load at which it happened."""
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
    lost: int = 0
    """Executors that have gone since it was ordered."""


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
class Move:
    """A change of the size that a decision has ordered."""

    at_s: float
    before: int
    to: int
    load_rps: float | Unknown
    """The highest load around a change to more executors: at this load fewer than `to` were too few."""
    high_at_s: float
    """When the load was last about as high."""


@dataclass(frozen=True)
class Held:
    """Since when the size is held for one reason."""

    ends: str
    since_s: float


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
    settings: Settings = field(metadata=codec.GIVEN)
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
    held: Held | None = None
    moves: tuple[Move, ...] = ()
    """The newest ones, oldest first."""
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
        return replace(self, directives=directives)

    def with_settings(self, settings: Settings) -> State:
        return replace(self, settings=settings)
