"""Collect: everything that one tick can read about a job now.

One observation since the tick before, the arrival rates, the deployment's status, and what people, time
windows and experiments say about the job. Nothing here raises because a job, its driver or its metrics do not
answer: what could not be read is Unknown with its reason, and control holds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace

from models.control import Directives, Injected, Pause, Pin, Settings
from models.errors import HeadroomError
from models.observation import Observation
from models.ports import Directive, Status
from models.quantities import Unknown

from ..telemetry.observing import observation
from ..telemetry.timeline import Timeline
from .context import Loop
from .forecasting import Rates
from .memory import NO_READING, Anchor, Memory

SAME_S = 0.01  # a commit's time is read twice, from a file and from a report


@dataclass(frozen=True)
class Tick:
    """One evaluation of one job: what it is about and what it may use."""

    job: str
    settings: Settings
    loop: Loop
    memory: Memory
    """As the tick before has left it."""
    now_s: float

    @property
    def interval(self) -> int:
        """⌊now / E⌋: an interval is evaluated once."""
        return math.floor(self.now_s / self.settings.interval_s)


@dataclass(frozen=True)
class Observed:
    """What was collected at one tick."""

    observation: Observation
    """Without a forecast."""
    status: Status | Unknown
    directives: Directives
    rates: Rates
    anchor: Anchor | None
    down: str
    """Why the job does not run or get on; empty if it does."""
    trouble: tuple[str, ...]
    """What could not be read."""


def observe(tick: Tick, *, step_s: float | None) -> Observed:
    """Everything that can be read now. `step_s`: of the forecast's grid; None keeps the one of before."""
    trouble: list[str] = []
    status = _status(tick, trouble)
    with tick.loop.readings.reading(tick.job) as timeline:
        timeline = _bridged(timeline, tick)
        seen = _observation(timeline, status, tick)
        rates = _rates(tick, step_s, seen.at_s)
        if isinstance(timeline.last, Unknown):
            anchor = tick.memory.anchor
            newest_gap = bool(timeline.gaps)
        else:
            rates = rates.grown(timeline, until_s=timeline.last.at_s)
            anchor = Anchor.of(timeline.last.sample)
            newest_gap = bool(timeline.gaps) and timeline.gaps[-1].at_s > timeline.last.at_s
        if newest_gap:
            trouble.append(f"the metrics could not be read: {timeline.gaps[-1].reason}")
    return Observed(
        observation=seen,
        status=status,
        directives=directives(tick),
        rates=rates,
        anchor=anchor,
        down=_down(tick.job, status) or _stalled(tick.job, status),
        trouble=tuple(trouble),
    )


def directives(tick: Tick) -> Directives:
    """What people, blackouts and drills say about the job now."""
    loop, job = tick.loop, tick.job
    found = {each.kind: each for each in loop.store.directives(job, now_s=tick.now_s)}
    pause, pin, hold = found.get("pause"), found.get("pin"), found.get("hold")
    if pause is None and hold is not None and tick.memory.control.foreign is None:
        pause = hold  # the foreign edit was forgotten with the control state, the hold was not
    resumed = [float(row["at_s"]) for row in loop.store.audit(job) if row["what"] == "resume"]
    return Directives(
        pause=None if pause is None else Pause(pause.who, pause.why, _until_s(pause)),
        pin=None if pin is None else Pin(int(pin.value or 0), pin.who, pin.why, _until_s(pin)),
        blackout=loop.blackout(job, tick.now_s),
        resumed_at_s=max((at_s for at_s in resumed if at_s <= tick.now_s), default=-math.inf),
        injected=_injected(tick),
        drill=loop.drill(job),
    )


def nothing(at_s: float, why: Unknown) -> Observation:
    """An observation of which nothing is known but its time."""
    return Observation(at_s, **{f.name: why for f in fields(Observation) if f.name != "at_s"})


def _status(tick: Tick, trouble: list[str]) -> Status | Unknown:
    try:
        status = tick.loop.deployments.status(tick.job)
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


def _stalled(job: str, status: Status | Unknown) -> str:
    """An attached job that stands still; its declared size is still known."""
    if isinstance(status, Unknown) or status.state != "stalled":
        return ""
    return f"{job} stands still, and is not ours to start: {status.reason}"


def _observation(timeline: Timeline, status: Status | Unknown, tick: Tick) -> Observation:
    before_s, last = tick.memory.control.observed_at_s, timeline.last
    if isinstance(last, Unknown):
        seen = nothing(tick.now_s, last)
    else:
        since_s = max(before_s, last.at_s - tick.settings.longest_gap_s)
        if math.isinf(before_s):
            since_s = last.at_s - tick.settings.interval_s
        found = observation(timeline, since_s=since_s, status=status)
        seen = nothing(last.at_s, found) if isinstance(found, Unknown) else _whole(found, timeline, since_s)
    if isinstance(status, Unknown):
        return replace(seen, scale_out=status)
    if down := _down("the job", status):
        return replace(seen, scale_out=Unknown(down))
    return replace(seen, scale_out=status.declared_scale_out, executors_alive=status.executors_alive)


def _whole(seen: Observation, timeline: Timeline, since_s: float) -> Observation:
    """The observation without its list of commits where some are missing: the gaps would look like downtime.

    Commits from before this process began to sample are missing, and so are those that another reader got.
    """
    commits, newest = seen.commits_at_s, seen.last_commit_at_s
    if isinstance(commits, Unknown) or isinstance(newest, Unknown) or newest <= since_s:
        return seen
    sampled = any(p.sample.last_batch != NO_READING for p in timeline.points(-math.inf, since_s))
    if newest <= max(commits, default=since_s) + SAME_S and sampled:
        return seen
    return replace(seen, commits_at_s=Unknown("not every commit since the tick before was seen"))


def _bridged(timeline: Timeline, tick: Tick) -> Timeline:
    """After a restart: the timeline from the newest sample before it on, if that is not too long ago."""
    anchor = tick.memory.anchor
    if anchor is None or not len(timeline) or timeline.points(-math.inf, anchor.at_s):
        return timeline
    points = timeline.points(-math.inf, math.inf)
    if points[0].at_s - anchor.at_s > tick.settings.longest_gap_s:
        return timeline
    longer = Timeline()
    longer.add(anchor.sample)
    for point in points:
        longer.add(point.sample)
    return longer


def _rates(tick: Tick, step_s: float | None, at_s: float) -> Rates:
    known = tick.memory.rates
    if known is not None and (step_s is None or known.step_s == step_s):
        return known
    return Rates.begin(step_s=step_s or tick.settings.interval_s, at_s=at_s)


def _until_s(directive: Directive) -> float:
    return math.inf if directive.until_s is None else directive.until_s


def _injected(tick: Tick) -> Injected | None:
    if tick.loop.failures is None:
        return None
    try:
        ours = [each for each in tick.loop.failures.active() if each.deployment == tick.job]
    except HeadroomError:
        return None  # then it is learnt under the name that its symptoms have
    newest = max(ours, key=lambda each: each.at_s, default=None)
    return None if newest is None else Injected(newest.kind, newest.at_s)
