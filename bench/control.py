"""Random episodes of control: what it must never do, whatever it sees.

A job is a queue stepped by the tick; the optimiser is a rule that costs nothing. In an *episode* of four
hours the load varies, and failures, missing, late and stale metrics, jumps of the clock, edits by others,
pauses, pins, blackouts and changes that do not take effect happen at random. In a *steady* one nothing but
noise happens for ten hours. What counts as wrong:

    an exception; an order for the size that is there already; fewer executors although the load, the lag or
    the size was not read; a hold that does not say what ends it and when it is looked at again; a hold that
    nobody ordered and no decision explains, for more than SILENT_S without an alarm; a size that is wanted
    throughout the last hours, when nothing happens, and neither reached nor alarmed; in a steady episode
    more than one change of direction
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from statistics import NormalDist

import numpy as np

from models.control import Blackout, Directives, Models, Pause, Pin, Settings, Situation, start, step
from models.control.step import NEXT
from models.observation import Observation
from models.promise import Promise
from models.quantities import Alarm, Hold, Interval, Scale, Unknown

from . import Figure

EPISODES, STEADY = 2_000, 200
TICK_S = 60.0
TICKS, QUIET_TICKS, STEADY_TICKS = 240, 120, 600
EACH_RPS = 1_000.0
SILENT_S = 7_200.0
UNREAD = Unknown("not read in this episode")
EXPLAINED = ("paused", "foreign edit", "pinned", "blackout", "mode ", "no scale-in: ", "scale-in window: ")
"""What people have ordered, and what the load of now explains."""
SIZES = ((), (2, 4, 8, 12), (1, 3, 6, 12), (4, 12), (5,))


@dataclass(frozen=True)
class Linear:
    def predict(self, scale_out: int) -> Interval:
        return Interval(0.9 * EACH_RPS * scale_out, EACH_RPS * scale_out, 1.1 * EACH_RPS * scale_out, 0.9)


@dataclass(frozen=True)
class Verdict:
    scale_out: int
    probability: float
    load_probability: float = 1.0


@dataclass(frozen=True)
class Answer:
    scale_out: int
    feasible: bool
    reason: str
    alarm: str | None
    verdicts: tuple[Verdict, ...] = ()


STEEPNESS = 3.0  # measured (bench.real promises): a third less load turns 0.90 into 0.985


def two_thirds(situation: Situation) -> Answer:
    """The smallest size that is at most two thirds busy; the lag counts as load over the target.

    At two thirds the probability is what is promised, and it rises with the logarithm of what is left.
    """
    o = situation.observation
    assert not isinstance(o.arrival_rps, Unknown)
    assert not isinstance(o.lag_records, Unknown)
    load = o.arrival_rps + o.lag_records / situation.settings.promise.target_s
    least = NormalDist().inv_cdf(situation.settings.promise.confidence)
    verdicts = tuple(
        Verdict(s, NormalDist().cdf(least + STEEPNESS * math.log(EACH_RPS * s / max(1.0, 1.5 * load))))
        for s in situation.candidates
    )
    fits = [s for s in situation.candidates if EACH_RPS * s >= 1.5 * load]
    if fits:
        return Answer(min(fits), True, f"{load:.0f} records/s fit {min(fits)}", None, verdicts)
    return Answer(max(situation.candidates), False, "nothing fits", "the promise cannot be kept", verdicts)


@dataclass
class Queue:
    """A job that is stepped by the tick."""

    declared: int = 4
    alive: int = 4
    obeys: bool = True
    lag: float = 5_000.0
    commit_s: float = 0.0
    down_until_s: float = -math.inf
    run: int = 0

    def pass_time(self, now_s: float, rate_rps: float, trigger_s: float) -> float:
        """One tick; how much was done in it, records/s."""
        up_s = TICK_S if now_s >= self.down_until_s else 0.0
        self.lag += rate_rps * TICK_S
        done = min(max(0.0, self.lag - trigger_s / 2.0 * rate_rps), EACH_RPS * self.alive * up_s)
        self.lag -= done
        if done > 0.0:
            self.commit_s = now_s - 3.0
        if self.obeys:
            self.alive = self.declared
        return done / TICK_S


@dataclass
class Checked:
    """What went wrong in one episode, and what is needed to notice it."""

    problems: list[str] = field(default_factory=list)
    ends: str = ""
    since_s: float = 0.0
    alarmed_s: float = -math.inf
    directions: list[int] = field(default_factory=list)

    def tick(self, now_s: float, moment_s: float, seen: Observation, found: list[object]) -> None:
        """`moment_s`: what control takes for now."""
        first = found[0]
        if any(isinstance(each, Alarm) for each in found):
            self.alarmed_s = now_s
        if isinstance(first, Scale):
            self.ends = ""
            self._scale(moment_s, seen, first)
        elif isinstance(first, Hold):
            if not first.ends or not first.again_at_s > moment_s:
                self.problems.append(f"{now_s:.0f}: a hold without an end: {first.reason}")
            if first.ends != self.ends:
                self.ends, self.since_s = first.ends, now_s
            held_s = now_s - max(self.since_s, self.alarmed_s)
            decided = first.ends == NEXT
            if held_s > SILENT_S and not decided and not first.reason.startswith(EXPLAINED):
                self.problems.append(f"{now_s:.0f}: held silently for {held_s:.0f} s: {first.reason}")
        else:
            self.problems.append(f"{now_s:.0f}: neither a change nor a hold first")

    def _scale(self, now_s: float, seen: Observation, first: Scale) -> None:
        if first.to == seen.scale_out:
            self.problems.append(f"{now_s:.0f}: {first.origin} to the size that is there: {first.reason}")
        if isinstance(seen.scale_out, Unknown):
            self.problems.append(f"{now_s:.0f}: a change of an unknown size")
            return
        if first.to < seen.scale_out and first.origin == "decision":
            if isinstance(seen.arrival_rps, Unknown) or isinstance(seen.lag_records, Unknown):
                self.problems.append(f"{now_s:.0f}: fewer executors on missing metrics: {first.reason}")
            if now_s - seen.at_s > 2.0 * TICK_S:
                self.problems.append(f"{now_s:.0f}: fewer executors on stale metrics: {first.reason}")
        self.directions.append(1 if first.to > seen.scale_out else -1)


def settings(rng: np.random.Generator) -> Settings:
    sizes = SIZES[rng.integers(len(SIZES))]
    step_by = [None, None, 1, 2, 3]
    return Settings(
        promise=Promise(float(rng.choice([60.0, 180.0, 300.0]))),
        max_scale_out=12,
        candidates=sizes,
        mode="apply",
        path="live" if rng.random() < 0.8 else "restart",
        models=Models(capacity=Linear()),
        decide=two_thirds,
        max_step_out=step_by[rng.integers(5)],
        max_step_in=step_by[rng.integers(5)],
        scale_in_window_s=float(rng.choice([300.0, 900.0, 1_800.0])),
        trigger_s=float(rng.choice([2.0, 10.0, 30.0])),
    )


def directives(rng: np.random.Generator, now_s: float, since_s: float) -> Directives:
    """What people say from now on."""
    kind = rng.integers(7)
    if kind == 0:
        return Directives(pause=Pause("ana", "a release", until_s=now_s + 1_800.0), resumed_at_s=since_s)
    if kind == 1:
        return Directives(pin=Pin(int(rng.integers(1, 14)), "ben", "a test", until_s=now_s + 3_600.0))
    if kind == 2:
        return Directives(blackout=Blackout("closing", scale_out_allowed=bool(rng.random() < 0.5)))
    if kind == 3:
        return Directives(resumed_at_s=now_s)
    return Directives(resumed_at_s=since_s, foreign_edit=kind == 4 if kind < 6 else UNREAD)


def episode(seed: int) -> list[str]:
    """What went wrong in this one."""
    rng = np.random.default_rng(seed)
    agreed, job, checked = settings(rng), Queue(), Checked()
    state, now_s, ahead_s, orders = start(agreed), 0.0, 0.0, Directives()
    low, high = np.sort(rng.uniform(200.0, 9_000.0, 2))
    wild_until = TICKS - QUIET_TICKS
    rate_rps, unread, blind_until, refuses_until, wanted = low, (), 0, 0, set()
    for tick in range(TICKS):
        wild = tick < wild_until
        if not wild and (orders.pause or orders.pin or orders.blackout or tick <= wild_until + 1):
            orders, job.obeys, unread, blind_until = (
                Directives(resumed_at_s=now_s + ahead_s + TICK_S),
                True,
                (),
                0,
            )
        if wild and rng.random() < 0.03:
            rate_rps = rng.uniform(low, high) * (rng.random() > 0.05)
        now_s += TICK_S
        done_rps = job.pass_time(now_s, rate_rps, agreed.trigger_s)
        happens = rng.integers(60) if wild else 99
        if happens == 0:
            job.run, job.down_until_s = job.run + 1, now_s + rng.uniform(20.0, 400.0)
        elif happens == 1:
            job.alive = max(0, job.alive - int(rng.integers(1, 3)))
        elif happens == 2:
            job.declared = job.alive = int(rng.integers(1, 13))
        elif happens == 3:
            ahead_s = float(rng.choice([-9_000.0, -100.0, 100.0, 9_000.0, 0.0]))
        elif happens in (4, 5):
            orders = directives(rng, now_s + ahead_s, orders.resumed_at_s)
        elif happens == 6:
            orders = Directives(resumed_at_s=orders.resumed_at_s)
        elif happens in (7, 8):
            names = ["scale_out", "arrival_rps", "lag_records", "throughput_rps", "run_id", "executors_alive"]
            unread = tuple(rng.choice(names, rng.integers(1, 7), replace=False))
            blind_until = tick + int(rng.integers(1, 12))
        elif happens == 9:
            refuses_until = tick + int(rng.integers(3, 40))
        job.obeys = tick >= refuses_until or not wild
        if happens == 10:
            continue  # a tick that is lost
        moment_s = now_s + ahead_s
        seen = Observation(
            at_s=moment_s - (float(rng.choice([30.0, 90.0, 500.0])) if happens == 11 else 0.0),
            scale_out=job.declared,
            arrival_rps=rate_rps * float(rng.normal(1.0, 0.03)) if rate_rps else 0.0,
            throughput_rps=done_rps,
            lag_records=job.lag,
            run_id=f"run-{job.run}",
            executors_alive=job.alive if now_s >= job.down_until_s else 0,
            last_commit_at_s=job.commit_s + ahead_s,
        )
        if tick < blind_until:
            seen = replace(seen, **dict.fromkeys(unread, UNREAD))
        state, found = step(state.with_directives(orders), seen, moment_s)
        checked.tick(now_s, moment_s, seen, list(found))
        if isinstance(found[0], Scale):
            job.declared = found[0].to
        if tick >= TICKS - QUIET_TICKS // 2:
            fits = [s for s in agreed.sizes if EACH_RPS * s >= 1.5 * rate_rps]
            wanted.add(min(fits, default=agreed.sizes[-1]))
    if len(wanted) == 1 and job.declared < min(wanted) and now_s - checked.alarmed_s > 3_600.0:
        checked.problems.append(
            f"{job.declared} executors at the end, and no alarm, where {wanted} are wanted"
        )
    return checked.problems


def steady(seed: int) -> list[str]:
    """Ten hours at a constant load with noise."""
    rng = np.random.default_rng(seed)
    agreed = replace(settings(rng), candidates=(), max_step_out=None, max_step_in=None)
    load_rps, noise, drift = rng.uniform(500.0, 7_000.0), rng.uniform(0.02, 0.1), 0.0
    size = math.ceil(1.5 * load_rps / EACH_RPS)
    job, checked, state = Queue(size, size, lag=load_rps), Checked(), start(agreed)
    for tick in range(1, STEADY_TICKS + 1):
        now_s = tick * TICK_S
        drift = 0.8 * drift + rng.normal(0.0, 0.6 * noise)
        rate_rps = load_rps * max(0.1, 1.0 + drift)
        done_rps = job.pass_time(now_s, rate_rps, agreed.trigger_s)
        seen = Observation(
            at_s=now_s,
            scale_out=job.declared,
            arrival_rps=rate_rps,
            throughput_rps=done_rps,
            lag_records=job.lag,
            run_id="run",
            executors_alive=job.alive,
            last_commit_at_s=job.commit_s,
        )
        state, found = step(state, seen, now_s)
        checked.tick(now_s, now_s, seen, list(found))
        if isinstance(found[0], Scale):
            job.declared = found[0].to
    turns = sum(a != b for a, b in zip(checked.directions, checked.directions[1:], strict=False))
    return [*checked.problems, *([f"{turns} changes of direction"] if turns > 1 else [])]


def measure() -> Iterable[Figure]:
    for name, run, count in (("episodes", episode, EPISODES), ("steady loads", steady, STEADY)):
        begun, wrong = time.perf_counter(), 0
        for seed in range(count):
            problems = run(seed)
            wrong += bool(problems)
            if problems:
                print(f"  {name} {seed}: {problems[0]}", flush=True)
        yield Figure(f"control: {count} {name}, those with a problem", wrong, "episodes", at_most=0)
        yield Figure(f"control: {name}, each", 1e3 * (time.perf_counter() - begun) / count, "ms")
