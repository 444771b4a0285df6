"""What has the live job just shown about its capacity?

A *steady* stretch — lag in its band throughout, nothing changing — shows that this load is sustained: a lower
bound. In a *saturated* stretch there was more to do than could be done from the first tick to the last, so
throughput is the capacity, with the standard error of its ticks. A job below `busy_share` of its hottest
worker is not saturated but rate-limited or waiting. Nothing is measured during a failure, a recovery or a
change, nor before the job has settled from one; a day yields at most 86 400 / learn_every_s of each sort.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Literal

from models.quantities import Instruction, Learn, Measurement, Unknown

from .seeing import Seen
from .state import Sample, State, Stretch

Sort = Literal["steady", "saturated"]
MIN_TICKS = 3  # fewer give no standard error worth its name (judgement)


def learn(state: State, seen: Seen) -> tuple[State, tuple[Instruction, ...]]:
    """The state with its stretch grown by one tick, and the measurement if it is complete."""
    sort = _sort(state, seen)
    previous = seen.previous
    if sort is None or isinstance(previous, Unknown):
        return replace(state, stretch=None), ()
    stretch = state.stretch
    if stretch is None or stretch.sort != sort or stretch.scale_out != seen.scale_out:
        stretch = Stretch(sort=sort, scale_out=seen.scale_out, since_s=previous.at_s, until_s=previous.at_s)
    stretch = _grown(stretch, seen)
    needed_s = state.settings.steady_s if sort == "steady" else state.settings.saturated_s
    if stretch.until_s - stretch.since_s < needed_s or stretch.ticks < MIN_TICKS:
        return replace(state, stretch=stretch), ()
    if seen.now - state.learnt_at_s.get(sort, -math.inf) < state.settings.learn_every_s:
        return replace(state, stretch=None), ()
    learnt = {**state.learnt_at_s, sort: seen.now}
    return replace(state, stretch=None, learnt_at_s=learnt), (Learn(_measurement(stretch)),)


def _sort(state: State, seen: Seen) -> Sort | None:
    """Which sort of tick this was, from its beginning to its end; None if nothing can be learnt from it."""
    o, previous, settings = seen.observation, seen.previous, state.settings
    if not seen.sized or isinstance(previous, Unknown) or isinstance(o.throughput_rps, Unknown):
        return None
    if isinstance(o.arrival_rps, Unknown) or isinstance(seen.lag_s, Unknown):
        return None
    if state.recovering is not None or state.change is not None:
        return None
    if o.at_s - state.settled_at_s < settings.settle_s or o.at_s - previous.at_s > settings.longest_gap_s:
        return None
    if o.executors_alive != seen.scale_out or previous.scale_out != seen.scale_out:
        return None
    if seen.caught_up and _was_caught_up(previous, seen.band_s):
        return "steady" if o.throughput_rps > 0.0 else None
    if seen.behind and not _was_caught_up(previous, seen.band_s) and _busy(state, seen):
        return "saturated"
    return None


def _was_caught_up(previous: Sample, band_s: float) -> bool:
    return not isinstance(previous.lag_s, Unknown) and previous.lag_s <= band_s


def _busy(state: State, seen: Seen) -> bool:
    cpu = seen.observation.cpu
    return isinstance(cpu, Unknown) or not cpu or max(cpu.values()) >= state.settings.busy_share


def _grown(stretch: Stretch, seen: Seen) -> Stretch:
    o = seen.observation
    assert not isinstance(o.arrival_rps, Unknown)
    assert not isinstance(o.throughput_rps, Unknown)
    stretch = replace(
        stretch,
        until_s=float(o.at_s),
        ticks=stretch.ticks + 1,
        arrivals_rps=stretch.arrivals_rps + float(o.arrival_rps),
        throughputs_rps=stretch.throughputs_rps + float(o.throughput_rps),
        throughputs_squared=stretch.throughputs_squared + float(o.throughput_rps) ** 2,
    )
    if isinstance(o.latency_ms, Unknown):
        return stretch
    latencies_ms = stretch.latencies_ms + float(o.latency_ms)
    return replace(stretch, latencies_ms=latencies_ms, latency_ticks=stretch.latency_ticks + 1)


def _measurement(stretch: Stretch) -> Measurement:
    duration_s, n = stretch.until_s - stretch.since_s, stretch.ticks
    mean = stretch.throughputs_rps / n
    variance = max(0.0, stretch.throughputs_squared / n - mean**2) * n / (n - 1)
    return Measurement(
        scale_out=stretch.scale_out,
        offered_rps=stretch.arrivals_rps / n,
        throughput_rps=mean,
        sustained=stretch.sort == "steady",
        latency_ms=stretch.latencies_ms / stretch.latency_ticks if stretch.latency_ticks else None,
        duration_s=duration_s,
        executor_seconds=stretch.scale_out * duration_s,
        origin="live",
        standard_error_rps=math.sqrt(variance / n),
    )
