"""How is a situation put to `models.optimise`? As one Question per tick, with a capacity for every size.

The promise is asked for until the next decision can have taken effect: moments = interval + effect, so the
forecast has to reach `settings.horizon_s` = interval + effect + target.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..quantities import Unknown
from .deciding import Decision, Situation

if TYPE_CHECKING:
    from ..workload import Forecast


def by_optimise(situation: Situation) -> Decision:
    """The smallest size that keeps the promise, by `models.optimise.decide`."""
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
