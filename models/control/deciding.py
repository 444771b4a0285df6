"""The question to the optimiser and its answer: one `Question` per tick, with a capacity for every size."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from .. import codec
from ..observation import Observation
from ..quantities import Interval, Unknown

if TYPE_CHECKING:
    from ..optimise.engine import Engine
    from ..optimise.question import KnowsDowntime, KnowsLatency
    from ..workload import Forecast
    from .settings import Settings


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
    """How the job reads its input: a `models.optimise.engine` BatchEngine or ContinuousEngine."""
    version: str = "none"


@dataclass(frozen=True)
class Situation:
    """What the optimiser is asked about: one job, one moment, and the sizes that may be taken."""

    settings: Settings
    observation: Observation
    current: int
    candidates: tuple[int, ...]


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
    from ..optimise import Question, decide

    settings, observation = situation.settings, situation.observation
    models, current = settings.models, situation.current
    capacity = models.capacity
    asked = {*situation.candidates, current}
    return decide(
        Question(
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
            seed=settings.seed,
        )
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
