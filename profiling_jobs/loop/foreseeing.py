"""What does a tick expect to arrive, and may that be believed?

The champion's forecaster is updated with every rate seen since it was trained, forecasts, and is held against
what came (`scoring`); where it has missed too often, the best naive forecast stands in.

Rates are known in whole steps, and a step is as long as a minute: what is decided with begins at the tick,
what is scored where the rates end.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from models.control import Settings
from models.quantities import Unknown
from models.workload import Forecast, Forecaster

from .ground import InCharge, Loop
from .live_rates import FEWEST_RATES, Rates, forecast_step_s
from .scoring import ASK_AGAIN_S, Scored, Scoring, stand_in

PATHS = 200  # agreed: what the optimiser is measured with


@dataclass(frozen=True)
class Foreseen:
    """The forecast of one tick, and what is to be written down of it."""

    forecast: Forecast | Unknown
    scoring: Scoring
    told: Mapping[str, Any]
    requests: tuple[Mapping[str, Any], ...] = ()


def foresee(
    job: str,
    *,
    loop: Loop,
    charge: InCharge | Unknown,
    scoring: Scoring,
    rates: Rates,
    settings: Settings,
    now_s: float,
) -> Foreseen:
    """The forecast from now on."""
    champion = charge if isinstance(charge, Unknown) else charge.forecaster
    if isinstance(charge, Unknown) or isinstance(champion, Unknown):
        assert isinstance(champion, Unknown)
        asked_s = now_s // ASK_AGAIN_S * ASK_AGAIN_S
        # A fit that is asked for earlier fails, and shows a failed run to whoever starts for the first time.
        fits = rates.known_s > FEWEST_RATES * forecast_step_s(settings.horizon_s)
        requests = (_refit(champion.reason, since_s=asked_s),) if fits else ()
        return Foreseen(champion, scoring, {"unknown": champion.reason}, requests)
    scoring, scored = scoring.under(charge.forecaster_version).settled(rates)
    scoring = scoring.judged(now_s)
    forecaster, by = _updated(job, loop, charge, champion, rates), "champion"
    if scoring.instead:
        naive = stand_in(champion, rates)
        if not isinstance(naive, Unknown):
            forecaster, by = naive, "naive"
    scoring = scoring.made(forecaster.predict(paths=PATHS), by=by, from_s=rates.end_s)
    # Beyond a whole horizon nothing that was observed is left, and control has stopped believing it.
    later_steps = min(max(0.0, now_s - rates.end_s) / rates.step_s, float(forecaster.steps))
    forecast = forecaster.predict(paths=PATHS, later_steps=later_steps)
    requests = (_refit(scoring.instead, since_s=scoring.since_s),) if scoring.instead else ()
    from_s = rates.end_s + later_steps * rates.step_s
    return Foreseen(forecast, scoring, _told(forecast, by, scoring, scored, from_s), requests)


def _refit(why: str, *, since_s: float) -> dict[str, Any]:
    return {"do": "refit", "model": "workload", "why": why, "since_s": since_s}


def _updated(job: str, loop: Loop, charge: InCharge, champion: Forecaster, rates: Rates) -> Forecaster:
    """The champion with everything seen since it was trained; a copy, kept for the next tick."""
    key = f"forecaster of {job}"
    which = (charge.forecaster_version, champion.step_s, charge.forecaster_until_s)
    known, forecaster, seen = loop.remembered.get(key, (None, None, 0))
    if known != which or seen > rates.end:  # or it has seen what a clock gone ahead had added
        forecaster = Forecaster.from_json(champion.to_json())
        until_s = charge.forecaster_until_s
        seen = rates.first if isinstance(until_s, Unknown) else round(until_s / rates.step_s)
    new = rates.since(seen)
    if new.size:
        forecaster.update(new)
    loop.remembered[key] = (which, forecaster, max(seen, rates.end))
    return forecaster


def _told(
    forecast: Forecast, by: str, scoring: Scoring, scored: tuple[Scored, ...], from_s: float
) -> dict[str, Any]:
    return {
        "by": by,
        "model": forecast.model,
        "from_s": from_s,
        "step_s": forecast.step_s,
        "horizon_s": forecast.horizon_s,
        "mean_rps": float(forecast.mid.mean()),
        "peak": vars(forecast.peak),
        "misses_in_row": scoring.misses,
        "instead": scoring.instead or None,
        "scored": [each.to_json() for each in scored],
    }
