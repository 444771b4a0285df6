"""Judge what one tick observed, and learn capacity from stretches of ticks.

    lag_s = lag_records / arrival      seconds of input; with no input, seconds of work at T(s)
    band  = 1.25 · the largest healthy lag_s of the last ten minutes, at least two triggers, at most max_lag_s

Of a healthy tick, one in its band, all readings since the tick before count; where one of them lay beyond
1.25 bands, as in a start, only the newest does.

The arrival rate is its mean over the last five minutes, so that a burst does not make the lag look short.

A *steady* stretch (lag in its band throughout, nothing changing) shows that this load is sustained: a lower
bound of the capacity. In a *saturated* stretch there was more work than could be done from the first tick to
the last, so throughput is the capacity, with the standard error of its ticks. A job whose hottest worker is
below BUSY_SHARE is not saturated but rate-limited or waiting. Nothing is measured during a failure, a
recovery or a change, nor before the job has settled; a day yields at most 86 400 / learn_every_s of each.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from typing import Literal

from .. import arguments
from ..observation import Observation
from ..optimise.question import sustained
from ..quantities import Instruction, Interval, Learn, Measurement, Misuse, Unknown
from ..recovery import BAND_SHARE, recovery_band_s
from .state import STALE_AFTER_S, Sample, Settings, State, Stretch

CLOCK_SKEW_S = 5.0  # two machines kept by NTP differ by far less (judgement)
ARRIVAL_WINDOW_S = 300.0  # judgement
BAND_WINDOW_S = 600.0  # ten ticks at the default interval (judgement)
RISE_S = 60.0  # six batches of 10 s (judgement)
KEPT_SAMPLES = 4  # at least; older ones only while the band or the arrival rate looks at them
NEEDED = ("scale_out", "arrival_rps", "lag_records")


@dataclass(frozen=True)
class Seen:
    """One observation, judged."""

    now: float
    observation: Observation
    unusable: str
    """Why nothing may be concluded from this observation; empty if something may."""
    missing: tuple[str, ...]
    """What a decision needs and could not be read, each with its reason."""
    lag_s: float | Unknown
    lags_s: tuple[tuple[float, float], ...]
    """Time and lag_s of every reading since the tick before, oldest first, as far as they are known."""
    band_s: float
    previous: Sample | Unknown

    @property
    def scale_out(self) -> int:
        """The declared size; only asked for where it is known."""
        assert not isinstance(self.observation.scale_out, Unknown)
        return self.observation.scale_out

    @property
    def sized(self) -> bool:
        return not self.unusable and not isinstance(self.observation.scale_out, Unknown)

    @property
    def behind(self) -> bool:
        return not isinstance(self.lag_s, Unknown) and self.lag_s > self.band_s

    @property
    def caught_up(self) -> bool:
        """Whether lag is known to be in its band; unknown lag is neither behind nor caught up."""
        return not isinstance(self.lag_s, Unknown) and self.lag_s <= self.band_s

    @property
    def idle(self) -> bool:
        """Nothing to do: Spark commits nothing then; a few offsets that are no records may remain as lag."""
        o = self.observation
        if isinstance(o.lag_records, Unknown):
            return False
        return o.lag_records == 0 or (o.arrival_rps == 0.0 and self.caught_up)

    @property
    def committing(self) -> bool | Unknown:
        """Whether anything was processed since the last tick."""
        commit, throughput = self.observation.last_commit_at_s, self.observation.throughput_rps
        if not isinstance(commit, Unknown) and not isinstance(self.previous, Unknown):
            before = self.previous.commit_at_s
            return commit > (self.previous.at_s if isinstance(before, Unknown) else before)
        if not isinstance(throughput, Unknown):
            return throughput > 0.0
        return Unknown("neither commits nor throughput could be read")


def collect(state: State, observation: Observation, now: float) -> Seen:
    """One observation judged: whether it is new and fresh, what is missing, and how far behind the job is."""
    _check(observation)
    previous = state.history[-1] if state.history else Unknown("this is the first tick")
    missing = tuple(
        f"{name} ({value.reason})"
        for name in NEEDED
        if isinstance(value := getattr(observation, name), Unknown)
    )
    return Seen(
        now=now,
        observation=observation,
        unusable=_unusable(state, observation, now),
        missing=missing,
        lag_s=_lag_s(state, observation),
        lags_s=_lags_s(state, observation),
        band_s=_band_s(state, observation.at_s),
        previous=previous,
    )


def remember(state: State, seen: Seen) -> State:
    """The state with this tick in its history."""
    o = seen.observation
    state = replace(state, stepped_at_s=seen.now)
    if seen.unusable:
        return state
    if seen.idle:
        state = replace(state, idle_until_s=o.at_s)
    state = replace(state, observed_at_s=o.at_s)
    if not seen.sized:
        return state
    largest_s = max((lag_s for _, lag_s in seen.lags_s), default=math.inf)
    sample = Sample(
        at_s=float(o.at_s),
        scale_out=seen.scale_out,
        arrival_rps=o.arrival_rps,
        throughput_rps=o.throughput_rps,
        lag_records=o.lag_records,
        lag_s=seen.lag_s,
        commit_at_s=o.last_commit_at_s,
        run_id=o.run_id,
        executors_alive=o.executors_alive,
        healthy=seen.caught_up and state.recovering is None and state.change is None,
        largest_lag_s=seen.lag_s if largest_s > BAND_SHARE * seen.band_s else largest_s,
    )
    older = tuple(s for s in state.history if s.at_s >= o.at_s - BAND_WINDOW_S)
    if len(older) < KEPT_SAMPLES:
        older = state.history[-KEPT_SAMPLES:]
    return replace(state, history=(*older, sample))


def capacity_mid(settings: Settings, scale_out: int) -> float | Unknown:
    """The rate that a scale-out most likely keeps up, with the overhead of batches where there is one."""
    model, engine = settings.models.capacity, settings.models.engine
    if isinstance(model, Unknown):
        return model
    predicted: Interval | Unknown = model.predict(scale_out)
    if isinstance(predicted, Unknown):
        return predicted
    return (
        predicted.mid
        if isinstance(engine, Unknown)
        else sustained(predicted, engine, scale_out=scale_out).mid
    )


def lag_rises(state: State, seen: Seen) -> bool:
    """Whether lag is the largest of two intervals (at least a minute) and grew by more than a trigger."""
    if isinstance(seen.lag_s, Unknown):
        return False
    since_s = seen.observation.at_s - max(2.0 * state.settings.interval_s, RISE_S) - CLOCK_SKEW_S
    lags = [s.lag_s for s in state.history if s.at_s >= since_s]
    known = [lag for lag in lags if not isinstance(lag, Unknown)]
    if len(known) < 2:
        return False
    return seen.lag_s > max(known) and seen.lag_s - known[0] > state.settings.trigger_s


def _unusable(state: State, observation: Observation, now: float) -> str:
    age = now - observation.at_s
    if age > STALE_AFTER_S:
        return (
            f"the newest observation is {age:.0f} s old (bound {STALE_AFTER_S:.0f} s): "
            "check what reads the metrics"
        )
    if age < -CLOCK_SKEW_S:
        return f"the observation is {-age:.0f} s ahead of our clock: synchronise the clocks"
    if observation.at_s <= state.observed_at_s:
        return "nothing new was observed since the last tick: check what reads the metrics"
    return ""


def _lag_s(state: State, observation: Observation) -> float | Unknown:
    lag = observation.lag_records
    if isinstance(lag, Unknown):
        return lag
    if lag == 0:
        return 0.0
    record_s = _record_s(state, observation)
    if isinstance(record_s, Unknown):
        return Unknown(f"{lag:,.0f} records wait, but {record_s.reason}")
    return lag * record_s


def _lags_s(state: State, observation: Observation) -> tuple[tuple[float, float], ...]:
    readings = observation.lag_readings
    if isinstance(readings, Unknown):
        newest = _lag_s(state, observation)
        return () if isinstance(newest, Unknown) else ((observation.at_s, newest),)
    record_s = _record_s(state, observation)
    if isinstance(record_s, Unknown):
        return tuple((at_s, 0.0) for at_s, lag in readings if lag == 0)
    return tuple((at_s, lag * record_s) for at_s, lag in readings)


def _record_s(state: State, observation: Observation) -> float | Unknown:
    """Seconds of input, or else of work, in a record that waits."""
    rates = [s.arrival_rps for s in state.history if s.at_s >= observation.at_s - ARRIVAL_WINDOW_S]
    known = [r for r in (*rates, observation.arrival_rps) if not isinstance(r, Unknown)]
    if known and sum(known) > 0.0:
        return len(known) / sum(known)
    size = observation.scale_out
    capacity = size if isinstance(size, Unknown) else capacity_mid(state.settings, size)
    if isinstance(capacity, Unknown) or capacity <= 0.0:
        return Unknown("there is neither an arrival rate nor a capacity")
    return 1.0 / capacity


def _band_s(state: State, at_s: float) -> float:
    healthy = [s for s in state.history if s.healthy and s.at_s >= at_s - BAND_WINDOW_S]
    lags = [lag_s for s in healthy for lag_s in (s.lag_s, s.largest_lag_s)]
    widest = max((lag_s for lag_s in lags if not isinstance(lag_s, Unknown)), default=0.0)
    settings = state.settings
    return float(recovery_band_s(widest, trigger_s=settings.trigger_s, longest_s=settings.lag_bound_s))


def _check(observation: Observation) -> None:
    """A number that is no number is a broken reader, not a missing value."""
    arguments.number("observation.at_s", observation.at_s)
    for field in fields(observation):
        value = getattr(observation, field.name)
        if isinstance(value, Unknown):
            continue
        if field.name == "scale_out":
            arguments.whole("observation.scale_out", value)
        elif field.name == "executors_alive":
            arguments.whole("observation.executors_alive", value, at_least=0)
        elif field.name in ("arrival_rps", "throughput_rps", "lag_records", "latency_ms"):
            arguments.number(f"observation.{field.name}", value, at_least=0.0)
        elif field.name == "last_commit_at_s":
            arguments.number("observation.last_commit_at_s", value)
        elif field.name == "commits_at_s":
            arguments.numbers("observation.commits_at_s", value)
        elif field.name == "lag_readings":
            readings = arguments.numbers("observation.lag_readings", value, at_least=0.0)
            if readings.size and readings.shape[1:] != (2,):
                raise Misuse("observation.lag_readings", "must be pairs of a time and a lag")
        elif field.name in ("cpu", "worker_rps"):
            arguments.numbers(f"observation.{field.name}", list(value.values()), at_least=0.0)


Sort = Literal["steady", "saturated"]
BUSY_SHARE = 0.5  # a hottest worker below this is waiting for something else (judgement)
STEADY_S = 600.0  # ten batches of 60 s at least (judgement)
SATURATED_S = 180.0  # three intervals: the fewest that give a standard error
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
    needed_s = STEADY_S if sort == "steady" else SATURATED_S
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
    if (
        o.at_s - state.settled_at_s < settings.settled_after_s
        or o.at_s - previous.at_s > settings.longest_gap_s
    ):
        return None
    if o.executors_alive != seen.scale_out or previous.scale_out != seen.scale_out:
        return None
    if seen.caught_up and _was_caught_up(previous, seen.band_s):
        return "steady" if o.throughput_rps > 0.0 else None
    if seen.behind and not _was_caught_up(previous, seen.band_s) and _busy(seen):
        return "saturated"
    return None


def _was_caught_up(previous: Sample, band_s: float) -> bool:
    return not isinstance(previous.lag_s, Unknown) and previous.lag_s <= band_s


def _busy(seen: Seen) -> bool:
    cpu = seen.observation.cpu
    return isinstance(cpu, Unknown) or not cpu or max(cpu.values()) >= BUSY_SHARE


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
