"""What does a tick expect to arrive, and may that be believed?

The champion's forecaster is updated with every rate seen since it was trained, forecasts, and is held against
what came (`scoring`); where it has missed too often, the best naive forecast stands in.

Rates are known in whole steps, and a step is as long as a minute: what is decided with begins at the tick,
what is scored where the rates end.

What does a tick see of a job? One observation since the tick before, the rates, and what went wrong.

Nothing here raises because a job, its driver or its metrics do not answer: what could not be read is Unknown
with its reason, and control holds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from models.control import Settings
from models.errors import HeadroomError
from models.observation import Observation
from models.ports import Status
from models.quantities import Unknown
from models.workload import Forecast, Forecaster

from ..telemetry.observing import observation
from ..telemetry.timeline import Timeline
from .context import InCharge, Loop
from .forecasting import ASK_AGAIN_S, FEWEST_RATES, Rates, Scored, Scoring, forecast_step_s, stand_in
from .live_state import NO_READING, Anchor, Memory

SAME_S = 0.01  # a commit's time is read twice, from a file and from a report


@dataclass(frozen=True)
class Look:
    """What was seen at one tick."""

    observation: Observation
    """Without a forecast."""
    status: Status | Unknown
    rates: Rates
    anchor: Anchor | None
    trouble: tuple[str, ...]
    """What could not be read."""
    down: str
    """Why the job does not run or get on, if it does not and nobody starts it again."""


def look(
    job: str, *, loop: Loop, memory: Memory, settings: Settings, step_s: float | None, now_s: float
) -> Look:
    """Everything that can be read now. `step_s`: of the forecast's grid; None keeps the one of before."""
    trouble: list[str] = []
    status = _status(job, loop, trouble)
    with loop.readings.reading(job) as timeline:
        timeline = _bridged(timeline, memory, settings)
        seen = _observation(timeline, status=status, memory=memory, settings=settings, now_s=now_s)
        rates = _rates(memory, step_s or settings.interval_s, seen.at_s, keep=step_s is None)
        if not isinstance(timeline.last, Unknown):
            rates = rates.grown(timeline, until_s=timeline.last.at_s)
        if timeline.gaps and (isinstance(timeline.last, Unknown) or _is_newer(timeline)):
            trouble.append(f"the metrics could not be read: {timeline.gaps[-1].reason}")
        anchor = memory.anchor if isinstance(timeline.last, Unknown) else Anchor.of(timeline.last.sample)
    return Look(seen, status, rates, anchor, tuple(trouble), _down(job, status) or _still(job, status))


def _status(job: str, loop: Loop, trouble: list[str]) -> Status | Unknown:
    try:
        status = loop.deployments.status(job)
    except HeadroomError as error:
        trouble.append(f"the deployment could not be read: {error}")
        return Unknown(str(error))
    if status.state == "unknown":
        trouble.append(f"whether it runs is not known: {status.reason}")
    return status


def _down(job: str, status: Status | Unknown) -> str:
    if isinstance(status, Unknown) or status.state not in ("stopped", "failed"):
        return ""
    why = f" ({status.reason})" if status.reason else ""
    return f"{job} does not run, it is {status.state}{why}: `headroom start {job}` starts it"


def _still(job: str, status: Status | Unknown) -> str:
    """Its owner has to look; what it was given is still known."""
    if isinstance(status, Unknown) or status.state != "stalled":
        return ""
    return f"{job} stands still, and is not ours to start: {status.reason}"


def _observation(
    timeline: Timeline, *, status: Status | Unknown, memory: Memory, settings: Settings, now_s: float
) -> Observation:
    before_s, last = memory.control.observed_at_s, timeline.last
    if isinstance(last, Unknown):
        seen = nothing(now_s, last)
    else:
        since_s = max(before_s, last.at_s - settings.longest_gap_s)
        if math.isinf(before_s):
            since_s = last.at_s - settings.interval_s
        found = observation(timeline, since_s=since_s, status=status)
        seen = nothing(last.at_s, found) if isinstance(found, Unknown) else _whole(found, timeline, since_s)
    if isinstance(status, Unknown):
        return replace(seen, scale_out=status)
    if down := _down("the job", status):
        return replace(seen, scale_out=Unknown(down))
    return replace(seen, scale_out=status.declared_scale_out, executors_alive=status.executors_alive)


def _whole(seen: Observation, timeline: Timeline, since_s: float) -> Observation:
    """The same, without a list of commits that lacks some: it would say that nothing was done meanwhile.

    What was committed before a process began to sample is not told to it, nor what another reader was told.
    """
    commits, newest = seen.commits_at_s, seen.last_commit_at_s
    if isinstance(commits, Unknown) or isinstance(newest, Unknown) or newest <= since_s:
        return seen
    if newest <= max(commits, default=since_s) + SAME_S and _sampled_by(timeline, since_s):
        return seen
    return replace(seen, commits_at_s=Unknown("not every commit since the tick before was seen"))


def _sampled_by(timeline: Timeline, since_s: float) -> bool:
    """Was the job sampled at this time already, by this process?"""
    before = timeline.points(-math.inf, since_s)
    return any(point.sample.last_batch != NO_READING for point in before)


def nothing(at_s: float, why: Unknown) -> Observation:
    """An observation of which nothing is known but its time."""
    return Observation(at_s, **{f.name: why for f in fields(Observation) if f.name != "at_s"})


def _bridged(timeline: Timeline, memory: Memory, settings: Settings) -> Timeline:
    """After a restart: the timeline from the newest sample before it on, if that is not too long ago."""
    anchor = memory.anchor
    if anchor is None or not len(timeline) or timeline.points(-math.inf, anchor.at_s):
        return timeline
    points = timeline.points(-math.inf, math.inf)
    if points[0].at_s - anchor.at_s > settings.longest_gap_s:
        return timeline
    longer = Timeline()
    longer.add(anchor.sample)
    for point in points:
        longer.add(point.sample)
    return longer


def _rates(memory: Memory, step_s: float, at_s: float, *, keep: bool) -> Rates:
    known = memory.rates
    if known is not None and (keep or known.step_s == step_s):
        return known
    return Rates.begin(step_s=step_s, at_s=at_s)


def _is_newer(timeline: Timeline) -> bool:
    """Is the newest gap newer than the newest sample?"""
    last = timeline.last
    return not isinstance(last, Unknown) and timeline.gaps[-1].at_s > last.at_s


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
