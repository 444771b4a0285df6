"""What happens to a job over an hour, tick by tick? The clock is stepped, the job is a small queue.

Every tick is stepped twice: once with the state kept in memory, once with the state written to JSON and read
again, as after a restart of the daemon. Both must do the same.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pytest

from models import codec
from models.control import (
    Blackout,
    Decision,
    Directives,
    Models,
    Pause,
    Pin,
    Settings,
    Situation,
    State,
    start,
    step,
)
from models.control.deciding import by_optimise
from models.observation import Observation
from models.optimise.engine import BatchEngine
from models.promise import Promise
from models.quantities import (
    Alarm,
    Hold,
    Instruction,
    Interval,
    Learn,
    Measurement,
    RecoveryEvent,
    Scale,
    Unknown,
)
from models.workload import Forecast

PER_EXECUTOR_RPS = 1_000.0
TICK_S = 60.0


@dataclass
class Job:
    """A queue stepped by the second, committed every ten; lag counts from the last commit."""

    rate_rps: Callable[[float], float]
    declared: int = 4
    alive: int = 4
    run: int = 0
    capacity_rps: Callable[[int], float] = lambda executors: PER_EXECUTOR_RPS * executors
    rescale_s: float = 5.0
    obeys: bool = True
    now: float = 0.0
    waiting: float = 0.0
    uncommitted: float = 0.0
    commit_at_s: float = 0.0
    down_until_s: float = 0.0
    arrived: float = 0.0
    committed: float = 0.0
    rescales: list[tuple[float, int]] = field(default_factory=list)
    commits: list[float] = field(default_factory=list)

    def second(self) -> None:
        for due in [r for r in self.rescales if r[0] <= self.now]:
            self.alive = self.declared = due[1]
            self.rescales.remove(due)
        rate = self.rate_rps(self.now)
        self.waiting += rate
        self.arrived += rate
        if self.now >= self.down_until_s:
            done = min(self.waiting, self.capacity_rps(self.alive))
            self.waiting -= done
            self.uncommitted += done
        self.now += 1.0
        if self.now % 10 == 7 and self.now > self.down_until_s and self.uncommitted > 0:
            self.commit_at_s = self.now
            self.commits.append(self.now)
            self.committed += self.uncommitted
            self.uncommitted = 0.0

    def rescale(self, to: int) -> None:
        if self.obeys:
            self.declared = to
            self.rescales.append((self.now + self.rescale_s, to))

    def kill_driver(self, downtime_s: float) -> None:
        self.run += 1
        self.down_until_s = self.now + downtime_s
        self.waiting += self.uncommitted
        self.uncommitted = 0.0


@dataclass
class Log:
    ticks: list[tuple[float, list[Instruction]]] = field(default_factory=list)
    state: State | None = None
    lag_s: list[float] = field(default_factory=list)

    def _all(self, kind: type) -> list[tuple[float, Instruction]]:
        return [(t, i) for t, instructions in self.ticks for i in instructions if isinstance(i, kind)]

    @property
    def scales(self) -> list[tuple[float, int]]:
        return [(t, i.to) for t, i in self._all(Scale)]

    @property
    def alarms(self) -> list[str]:
        return [i.reason for _, i in self._all(Alarm)]

    @property
    def events(self) -> list[RecoveryEvent]:
        return [i.fact for _, i in self._all(Learn) if isinstance(i.fact, RecoveryEvent)]

    @property
    def measurements(self) -> list[Measurement]:
        return [i.fact for _, i in self._all(Learn) if isinstance(i.fact, Measurement)]

    def reason(self, at_s: float) -> str:
        return next(i[0].reason for t, i in self.ticks if t == at_s)

    def reasons(self, from_s: float = 0.0, until_s: float = math.inf) -> list[str]:
        return [i[0].reason for t, i in self.ticks if from_s <= t <= until_s]


@dataclass(frozen=True)
class Linear:
    def predict(self, scale_out: int) -> Interval:
        mid = PER_EXECUTOR_RPS * scale_out
        return Interval(0.95 * mid, mid, 1.05 * mid, 0.9)


@dataclass(frozen=True)
class Answer:
    scale_out: int | Unknown
    reason: str
    feasible: bool = True
    alarm: str | None = None


def two_thirds(situation: Situation) -> Answer:
    """The smallest size that is at most two thirds busy, lag counted as load over the target."""
    o, settings = situation.observation, situation.settings
    if isinstance(settings.models.capacity, Unknown):
        return Answer(settings.models.capacity, "cannot tell")
    load = o.arrival_rps + o.lag_records / settings.promise.target_s
    fits = [s for s in situation.candidates if settings.models.capacity.predict(s).mid >= 1.5 * load]
    if not fits:
        return Answer(max(situation.candidates), "nothing fits", False, "the promise cannot be kept")
    return Answer(min(fits), f"{load:.0f} records/s fit {min(fits)} executors")


def settings(**changes: object) -> Settings:
    given: dict[str, object] = {
        "promise": Promise(180.0),
        "max_scale_out": 24,
        "mode": "apply",
        "models": Models(capacity=Linear(), version="7"),
        "decide": two_thirds,
        **changes,
    }
    return Settings(**given)


def observe(job: Job, before: tuple[float, float]) -> Observation:
    arrived, committed = before
    return Observation(
        at_s=job.now,
        scale_out=job.declared,
        arrival_rps=(job.arrived - arrived) / TICK_S,
        throughput_rps=(job.committed - committed) / TICK_S,
        lag_records=job.arrived - job.committed,
        latency_ms=800.0,
        cpu={"1": 0.9},
        run_id=f"run-{job.run}",
        executors_alive=job.alive,
        last_commit_at_s=job.commit_at_s,
    )


def run(
    job: Job,
    *,
    minutes: int,
    agreed: Settings | None = None,
    happens: dict[float, Callable[[Job], object]] | None = None,
    ordered: Callable[[float], Directives] = lambda now: Directives(),
    seen_as: Callable[[Observation], Observation] = lambda o: o,
    commits: bool = False,
    away: tuple[float, float] = (math.inf, math.inf),
) -> Log:
    """One story. `happens` maps a second to what befalls the job then; nobody ticks while we are `away`."""
    agreed = agreed or settings()
    state, reborn, log = start(agreed), start(agreed), Log()
    before = (0.0, 0.0)
    for second in range(int(minutes * 60)):
        if happens and (event := happens.get(float(second))):
            event(job)
        job.second()
        if job.now % TICK_S or away[0] <= job.now < away[1]:
            continue
        observation = observe(job, before)
        if commits:
            observation = replace(observation, commits_at_s=tuple(job.commits))
        observation = seen_as(observation)
        job.commits.clear()
        before = (job.arrived, job.committed)
        state, instructions = step(state.with_directives(ordered(job.now)), observation, job.now)
        reborn = codec.from_json(
            State, codec.loads(codec.dumps("data", codec.to_json(reborn))), settings=agreed
        )
        reborn, again = step(reborn.with_directives(ordered(job.now)), observation, job.now)
        assert again == instructions
        assert reborn == state
        assert isinstance(instructions[0], Scale | Hold)
        assert instructions[0].reason
        assert sum(isinstance(i, Scale) for i in instructions) <= 1
        for instruction in instructions:
            if isinstance(instruction, Scale):
                job.rescale(instruction.to)
        log.ticks.append((job.now, instructions))
        log.lag_s.append((job.arrived - job.committed) / max(job.rate_rps(job.now), 1.0))
    log.state = state
    return log


def steady(rps: float) -> Callable[[float], float]:
    return lambda t: rps


def piecewise(*parts: tuple[float, float]) -> Callable[[float], float]:
    """(from second, rate) in order."""
    return lambda t: [rate for since, rate in parts if since <= t][-1]


def test_a_steady_job_is_left_alone_and_measured() -> None:
    log = run(Job(steady(2_500.0)), minutes=120)
    assert log.scales == []
    assert set(log.reasons()) == {"2542 records/s fit 4 executors"}
    assert log.alarms == []
    assert log.events == []
    assert 1 <= len(log.measurements) <= 4
    for measurement in log.measurements:
        assert measurement.sustained
        assert measurement.origin == "live"
        assert measurement.scale_out == 4
        assert measurement.throughput_rps == pytest.approx(2_500.0, rel=0.02)
        assert measurement.duration_s >= 600.0


def test_load_rises_and_the_job_grows_before_the_promise_breaks() -> None:
    job = Job(lambda t: 2_500.0 + max(0.0, min(t - 600.0, 1_800.0)) * 2.0)  # to 6 100 in half an hour
    log = run(job, minutes=60)
    assert [to for _, to in log.scales] == sorted(to for _, to in log.scales)
    assert job.alive * PER_EXECUTOR_RPS >= 1.4 * 6_100.0
    assert max(log.lag_s) < 90.0
    assert log.alarms == []
    assert {event.kind for event in log.events} == {"live_out"}


def test_load_falls_and_the_job_shrinks_only_after_the_window() -> None:
    job = Job(piecewise((0.0, 5_000.0), (3_600.0, 1_500.0)), declared=8, alive=8)
    log = run(job, minutes=150)
    inward = [(t, to) for t, to in log.scales if to < 8]
    assert inward, log.reasons()
    assert inward[0][0] >= 3_600.0 + 1_800.0
    assert inward[0][0] <= 3_600.0 + 1_800.0 + 180.0
    assert inward[0][1] == 4  # not below 0.4 of 8 at once, which is more than the 3 that would do
    assert job.alive == 3
    assert any("scale-in window" in reason for reason in log.reasons(3_660.0, 5_300.0))


def test_nothing_shrinks_before_the_window_has_been_watched_once() -> None:
    log = run(Job(steady(1_000.0), declared=8, alive=8), minutes=29)
    assert log.scales == []
    assert any("window not full" in reason for reason in log.reasons())


def test_a_killed_driver_is_noticed_measured_and_never_decided_upon() -> None:
    asked: list[float] = []

    def counting(situation: Situation) -> Answer:
        asked.append(situation.observation.at_s)
        return two_thirds(situation)

    job = Job(steady(2_000.0))
    log = run(
        job, minutes=60, agreed=settings(decide=counting), happens={1_830.0: lambda j: j.kill_driver(50.0)}
    )
    assert log.scales == []
    (event,) = log.events
    assert event.kind == "driver_kill"
    assert event.scale_out == 4
    assert event.failed_at_s == pytest.approx(1_830.0, abs=15.0)
    assert event.downtime_s == pytest.approx(50.0, abs=20.0)
    # D + D·ρ/(1 − ρ) = 100 s until the queue is empty, less what the band forgives
    assert 50.0 <= event.recovery_s <= 115.0
    recovering = [t for t, _ in log.ticks if log.reason(t).startswith("recovering from driver_kill")]
    assert recovering
    assert not set(recovering) & set(asked)
    assert not any(m for m in log.measurements if not m.sustained)


def test_an_executor_that_dies_is_sparks_to_replace() -> None:
    def die(job: Job) -> None:
        job.alive = 3
        job.down_until_s = job.now + 20.0

    def replaced(job: Job) -> None:
        job.alive = 4

    log = run(Job(steady(2_000.0)), minutes=40, happens={1_215.0: die, 1_300.0: replaced})
    assert log.scales == []
    assert [event.kind for event in log.events] == ["executor_kill"]
    assert log.events[0].downtime_s <= 60.0


def test_an_executor_that_is_never_replaced_is_one_failure_not_many() -> None:
    def die(job: Job) -> None:
        job.alive = 3

    log = run(Job(steady(2_000.0)), minutes=60, happens={1_215.0: die})
    assert [event.kind for event in log.events] == ["executor_kill"]
    assert log.scales == []


def test_a_frozen_job_is_noticed_by_its_commits() -> None:
    def freeze(job: Job) -> None:
        job.down_until_s = job.now + 150.0

    log = run(Job(steady(1_000.0)), minutes=60, happens={1_205.0: freeze})
    event, *rescales = log.events
    assert event.kind == "executor_freeze"
    assert {e.kind for e in rescales} <= {"live_in"}
    assert event.failed_at_s == pytest.approx(1_205.0, abs=15.0)
    assert event.downtime_s == pytest.approx(150.0, abs=20.0)


def test_a_quiet_night_is_no_failure() -> None:
    job = Job(piecewise((0.0, 1_000.0), (1_200.0, 0.0), (4_800.0, 1_000.0)))
    log = run(job, minutes=110, agreed=settings(min_scale_out=4))
    assert log.events == []
    assert log.alarms == []


def test_help_comes_during_a_recovery_that_would_miss_the_target() -> None:
    job = Job(steady(3_400.0))
    log = run(
        job,
        minutes=60,
        agreed=settings(decide=lambda s: Answer(4, "as it is")),
        happens={1_203.0: lambda j: j.kill_driver(60.0)},
    )
    at_s, to = log.scales[0]
    assert all(later > 1_400.0 + 1_800.0 for later, _ in log.scales[1:])  # the window, then back
    assert to > 4
    assert 1_260.0 <= at_s <= 1_400.0
    assert "emergency" in log.reason(at_s)
    assert log.alarms == []


def test_a_recovery_in_time_needs_no_help() -> None:
    log = run(Job(steady(2_000.0)), minutes=40, happens={1_203.0: lambda j: j.kill_driver(60.0)})
    assert log.scales == []


def test_a_job_that_does_not_come_back_is_an_alarm_and_an_infinite_recovery() -> None:
    log = run(Job(steady(2_000.0)), minutes=60, happens={1_203.0: lambda j: j.kill_driver(1e9)})
    assert [e.kind for e in log.events] == ["driver_kill"]
    assert math.isinf(log.events[0].recovery_s)
    assert log.scales == []
    assert any("not recovered" in alarm for alarm in log.alarms)


def test_without_models_the_size_is_held() -> None:
    log = run(Job(steady(3_900.0)), minutes=30, agreed=settings(models=Models()))
    assert log.scales == []
    assert all("no decision: there is no capacity model yet" in reason for reason in log.reasons())


@pytest.mark.parametrize("field", ["arrival_rps", "lag_records", "scale_out", "last_commit_at_s"])
def test_nothing_shrinks_on_what_cannot_be_read(field: str) -> None:
    def blind(o: Observation) -> Observation:
        return replace(o, **{field: Unknown("the broker does not answer")}) if o.at_s > 2_400 else o

    job = Job(piecewise((0.0, 5_000.0), (2_400.0, 500.0)), declared=8, alive=8)
    if field == "last_commit_at_s":
        log = run(job, minutes=150, seen_as=lambda o: replace(blind(o), throughput_rps=Unknown("no answer")))
    else:
        log = run(job, minutes=150, seen_as=blind)
        assert all("missing" in reason for reason in log.reasons(2_460.0))
    assert log.scales == []


def test_an_emergency_size_is_taken_after_minutes_of_blindness_if_one_is_set() -> None:
    def blind(o: Observation) -> Observation:
        return replace(o, lag_records=Unknown("the broker does not answer")) if o.at_s > 1_200 else o

    held = run(Job(steady(2_000.0)), minutes=60, seen_as=blind)
    helped = run(Job(steady(2_000.0)), minutes=60, seen_as=blind, agreed=settings(emergency_scale_out=10))
    assert held.scales == []
    assert [to for _, to in helped.scales] == [10]
    assert helped.scales[0][0] == pytest.approx(1_260.0 + 300.0, abs=60.0)


def test_stale_metrics_hold() -> None:
    def stuck(o: Observation) -> Observation:
        return replace(o, at_s=min(o.at_s, 1_200.0))

    log = run(Job(piecewise((0.0, 2_500.0), (1_200.0, 6_000.0))), minutes=40, seen_as=stuck)
    assert log.scales == []
    assert "nothing new was observed" in log.reason(1_260.0)
    assert "old" in log.reason(1_800.0)


def test_a_change_that_never_arrives_is_rolled_back_once_with_an_alarm() -> None:
    job = Job(piecewise((0.0, 2_500.0), (1_200.0, 3_200.0)), obeys=False)
    log = run(job, minutes=40)
    assert [to for _, to in log.scales] == [5, 4]
    assert len([alarm for alarm in log.alarms if "has not taken effect" in alarm]) == 1
    assert any("quarantine" in reason for reason in log.reasons(1_600.0))
    assert "5 executors and more are in quarantine" in log.alarms[0]
    assert log.scales[1][0] - log.scales[0][0] == pytest.approx(180.0, abs=60.0)


def test_executors_that_stay_pending_are_a_failed_change() -> None:
    class Full(Job):
        def rescale(self, to: int) -> None:
            self.declared = to
            self.alive = min(to, 4)

    log = run(Full(piecewise((0.0, 2_500.0), (1_200.0, 3_200.0))), minutes=40)
    assert [to for _, to in log.scales[:2]] == [5, 4]
    assert "4 alive" in log.alarms[0]
    assert not any(event.kind == "executor_kill" for event in log.events)


def test_growing_that_does_not_help_is_taken_back_and_not_repeated() -> None:
    job = Job(piecewise((0.0, 2_500.0), (1_200.0, 5_000.0)), capacity_rps=lambda s: min(s, 4) * 1_000.0)
    log = run(job, minutes=45)
    assert len(log.scales) == 2, log.scales
    assert log.scales[0][1] > 4
    assert log.scales[1][1] == 4
    assert any(alarm.startswith("not scalable") for alarm in log.alarms)
    assert any("quarantine" in reason for reason in log.reasons(2_000.0))


def test_a_shrink_that_breaks_the_job_is_taken_back() -> None:
    job = Job(
        piecewise((0.0, 5_000.0), (1_200.0, 2_500.0)),
        declared=8,
        alive=8,
        capacity_rps=lambda s: s * 1_000.0 if s > 4 else 2_000.0,
    )
    log = run(job, minutes=75)
    sizes = [to for _, to in log.scales]
    assert sizes[:2] == [4, 8] or (sizes[0] == 4 and sizes[1] > 4)
    assert job.alive > 4


def test_pause_holds_and_keeps_measuring() -> None:
    pause = Directives(pause=Pause(who="ana", why="release", until_s=3_600.0))
    log = run(Job(piecewise((0.0, 2_500.0), (1_200.0, 3_200.0))), minutes=70, ordered=lambda now: pause)
    assert all("paused by ana" in reason for reason in log.reasons(until_s=3_599.0))
    assert [to for _, to in log.scales] == [5]
    assert log.scales[0][0] >= 3_600.0
    assert log.measurements


def test_a_pin_is_obeyed_once_and_kept() -> None:
    pin = Directives(pin=Pin(scale_out=7, who="ana", why="load test"))
    log = run(Job(steady(2_500.0)), minutes=40, ordered=lambda now: pin if now >= 600 else Directives())
    assert log.scales == [(600.0, 7)]
    assert all("pinned to 7" in reason for reason in log.reasons(600.0))


def test_a_pin_outside_the_bounds_is_refused() -> None:
    pin = Directives(pin=Pin(scale_out=99, who="ana", why="typo"))
    log = run(Job(steady(2_500.0)), minutes=5, ordered=lambda now: pin)
    assert log.scales == []
    assert "bounds are 1…24" in log.reason(60.0)


def test_a_pause_outranks_a_pin() -> None:
    both = Directives(pause=Pause(who="ana", why="x"), pin=Pin(scale_out=7, who="ben", why="y"))
    log = run(Job(steady(2_500.0)), minutes=5, ordered=lambda now: both)
    assert all("paused by ana" in reason for reason in log.reasons())


def test_a_blackout_freezes_or_only_forbids_shrinking() -> None:
    rising = piecewise((0.0, 2_500.0), (1_200.0, 3_200.0))
    frozen = run(Job(rising), minutes=40, ordered=lambda now: Directives(blackout=Blackout("sale")))
    growing = run(
        Job(rising),
        minutes=40,
        ordered=lambda now: Directives(blackout=Blackout("sale", scale_out_allowed=True)),
    )
    assert frozen.scales == []
    assert all("blackout" in reason for reason in frozen.reasons())
    assert [to for _, to in growing.scales] == [5]


def test_a_foreign_edit_is_left_alone_until_resume() -> None:
    def edit(job: Job) -> None:
        job.declared = job.alive = 9

    def ordered(now: float) -> Directives:
        return Directives(resumed_at_s=4_200.0) if now >= 4_200.0 else Directives()

    job = Job(piecewise((0.0, 2_500.0), (600.0, 3_200.0)))
    log = run(job, minutes=130, happens={1_810.0: edit}, ordered=ordered)
    assert log.scales[0] == (660.0, 5)
    assert all("foreign edit" in reason for reason in log.reasons(1_860.0, 4_140.0))
    assert not [s for s in log.scales[1:] if s[0] < 4_200.0]
    assert [to for _, to in log.scales[1:]] == [5]


def test_a_restart_with_the_old_size_is_put_right_while_the_mark_is_ours() -> None:
    def come_back_small(job: Job) -> None:
        job.kill_driver(20.0)
        job.declared = job.alive = 4

    job = Job(piecewise((0.0, 2_500.0), (600.0, 3_200.0)))
    log = run(
        job,
        minutes=60,
        happens={1_830.0: come_back_small},
        ordered=lambda now: Directives(foreign_edit=False),
    )
    assert [to for _, to in log.scales] == [5, 5]
    assert "came back with 4 executors: re-asserted are the 5" in log.reason(log.scales[1][0])
    assert job.alive == 5


@dataclass
class Fragile(Job):
    """A minute and a half with more than four executors kills its driver, which comes back with four."""

    grown_at_s: float = math.inf

    def second(self) -> None:
        super().second()
        self.grown_at_s = min(self.grown_at_s, self.now) if self.alive > 4 else math.inf
        if self.now - self.grown_at_s > 90.0:
            self.kill_driver(10.0)
            self.declared = self.alive = 4


def test_a_size_that_the_job_does_not_survive_is_neither_verified_nor_brought_back() -> None:
    job = Fragile(piecewise((0.0, 2_500.0), (600.0, 3_000.0)))
    log = run(job, minutes=60, ordered=lambda now: Directives(foreign_edit=False))
    assert "came back" not in " ".join(log.reasons())
    assert [to for _, to in log.scales[:2]] == [5, 4]
    assert "rolled back, 5 executors failed: the job went back to 4 executors" in log.reason(log.scales[1][0])
    assert len(log.scales) <= 4  # tried again only after its quarantine, which doubles


def test_a_verified_size_that_is_lost_again_at_once_is_brought_back_again() -> None:
    def come_back_small(job: Job) -> None:
        job.kill_driver(20.0)
        job.declared = job.alive = 3

    job = Job(piecewise((0.0, 2_500.0), (600.0, 3_200.0)))
    log = run(
        job,
        minutes=60,
        happens={1_830.0: come_back_small, 1_930.0: come_back_small},
        ordered=lambda now: Directives(foreign_edit=False),
    )
    assert [to for _, to in log.scales] == [5, 5, 5]
    assert log.scales[2][0] - log.scales[1][0] <= 2 * TICK_S
    assert job.alive == 5
    assert not any("failed" in alarm for alarm in log.alarms)


def test_a_foreign_edit_back_to_the_size_before_is_noticed_while_a_change_is_verified() -> None:
    def edit(job: Job) -> None:
        job.declared = job.alive = 4

    job = Job(piecewise((0.0, 2_500.0), (600.0, 3_200.0)))
    log = run(job, minutes=30, happens={725.0: edit})
    assert [to for _, to in log.scales] == [5]
    assert "foreign edit: the size was set to 4 executors where we had set 5" in log.reason(780.0)


def test_recommend_shows_and_touches_nothing() -> None:
    job = Job(piecewise((0.0, 2_500.0), (600.0, 3_200.0)))
    log = run(job, minutes=30, agreed=settings(mode="recommend"))
    assert log.scales == []
    assert "would scale to 5 executors" in log.reason(900.0)


def test_observe_decides_nothing_but_learns() -> None:
    log = run(Job(steady(2_500.0)), minutes=30, agreed=settings(mode="observe"))
    assert all("observe" in reason for reason in log.reasons())
    assert log.measurements


def test_steps_are_limited() -> None:
    job = Job(piecewise((0.0, 2_500.0), (1_200.0, 7_000.0)))
    log = run(job, minutes=60, agreed=settings(max_step_out=2))
    sizes = [4] + [to for _, to in log.scales]
    assert all(after - before <= 2 for before, after in itertools.pairwise(sizes))
    assert job.alive >= 10


def test_bounds_that_were_moved_away_are_reached_by_limited_steps() -> None:
    quick = {"scale_in_window_s": 300.0, "cooldown_in_s": 60.0}
    above = run(
        Job(steady(1_000.0), declared=9, alive=9),
        minutes=60,
        agreed=settings(max_scale_out=4, max_step_in=2, **quick),
    )
    below = run(
        Job(steady(1_000.0), declared=2, alive=2),
        minutes=60,
        agreed=settings(min_scale_out=6, max_step_out=2, **quick),
    )
    assert [to for _, to in above.scales][:3] == [7, 5, 3]
    assert [to for _, to in below.scales] == [4, 6]


@pytest.mark.parametrize("until_s", [math.inf, 2_400.0], ids=["for good", "for a while"])
def test_a_failure_while_there_is_no_input_is_over_with_its_executors_and_teaches_nothing(until_s) -> None:
    job = Job(lambda t: 0.0 if 600.0 <= t < until_s else 2_500.0)
    log = run(
        job,
        minutes=60,
        happens={1_230.0: lambda job: job.kill_driver(40.0)},
        agreed=settings(max_scale_out=4),
    )
    assert log.events == []
    assert log.alarms == []
    assert all("recovering" not in reason for reason in log.reasons(from_s=1_320.0))


def test_without_input_a_lost_executor_and_a_scale_in_teach_nothing_either() -> None:
    job = Job(piecewise((0.0, 2_500.0), (600.0, 0.0)))
    lost = {1_210.0: lambda job: setattr(job, "alive", 3), 1_290.0: lambda job: setattr(job, "alive", 4)}
    log = run(job, minutes=120, happens=lost)
    assert log.scales, "four executors for nothing"
    assert log.events == []
    assert log.alarms == []


def test_a_failure_after_a_silence_did_no_harm_before_its_input_came() -> None:
    job = Job(lambda t: 0.0 if 600.0 <= t < 2_400.0 else 2_500.0)
    log = run(job, minutes=60, happens={2_405.0: lambda job: job.kill_driver(70.0)}, commits=True)
    (event,) = log.events
    assert event.failed_at_s >= 2_340.0, "it was idle then, and nothing waited"
    assert event.downtime_s < 180.0


def test_a_change_is_healthy_where_only_offsets_are_left_that_are_no_records() -> None:
    job = Job(piecewise((0.0, 1_000.0), (600.0, 3_400.0), (700.0, 0.0)), declared=2, alive=2)

    def with_markers(o: Observation) -> Observation:
        return replace(o, lag_records=max(3.0, o.lag_records))

    log = run(job, minutes=25, seen_as=with_markers, agreed=settings(scale_in_window_s=3_600.0))
    assert log.scales
    assert log.scales[-1][1] > 2
    assert log.alarms == []


def test_a_recovery_that_nobody_watched_teaches_nothing() -> None:
    job = Job(steady(2_500.0))
    log = run(
        job,
        minutes=120,
        happens={1_215.0: lambda job: job.kill_driver(300.0)},
        away=(1_290.0, 5_000.0),
        agreed=settings(max_scale_out=4),
    )
    assert log.events == []
    assert all("recovering" not in reason for reason in log.reasons(from_s=5_400.0))


@dataclass(frozen=True)
class Bare:
    """How fast the records inside a batch go; what a batch costs beside them is the engine's."""

    def predict(self, scale_out: int) -> Interval:
        mid = 10_000.0 * scale_out
        return Interval(0.95 * mid, mid, 1.05 * mid, 0.9)


def test_what_a_change_was_to_bring_is_counted_with_the_overhead_of_batches() -> None:
    engine = BatchEngine(overhead_s=3.0, limit_records=30_000, trigger_s=0.0)
    kept_up = {2: 30_000 / 4.5, 4: 30_000 / 3.75}
    job = Job(
        steady(7_800.0), declared=2, alive=2, waiting=1.5e6, arrived=1.5e6, capacity_rps=kept_up.__getitem__
    )
    agreed = settings(
        models=Models(capacity=Bare(), engine=engine), max_scale_out=4, decide=lambda s: Answer(4, "four do")
    )
    log = run(job, minutes=20, agreed=agreed)
    assert [to for _, to in log.scales] == [4]
    assert log.alarms == []


def test_a_clock_that_was_ahead_stops_nothing_and_is_told_once() -> None:
    job, agreed = Job(steady(2_500.0)), settings()
    state, before = start(agreed), (0.0, 0.0)
    said: list[tuple[float, list[Instruction]]] = []
    for minute in range(1, 41):
        for _ in range(60):
            job.second()
        ahead_s = 7_200.0 if minute == 20 else 0.0
        o = observe(job, before)
        o = replace(o, at_s=o.at_s + ahead_s, last_commit_at_s=o.last_commit_at_s + ahead_s)
        state, instructions = step(state, o, job.now + ahead_s)
        before = (job.arrived, job.committed)
        said.append((minute, instructions))
    assert "evaluated already" not in " ".join(i.reason for _, each in said for i in each[:1])
    (alarm,) = (i.reason for _, each in said for i in each if isinstance(i, Alarm))
    assert alarm.startswith("the clock was put back by 7140 s")
    assert state.applied == start(agreed).applied
    assert said[-1][1][0] == Hold("2542 records/s fit 4 executors")


def test_only_aligned_sizes_are_taken() -> None:
    job = Job(piecewise((0.0, 2_500.0), (1_200.0, 4_000.0)))
    log = run(job, minutes=40, agreed=settings(candidates=(1, 2, 3, 4, 6, 12)))
    assert {to for _, to in log.scales} <= {6, 12}
    assert log.scales


def test_a_flapping_load_costs_a_bounded_number_of_changes() -> None:
    job = Job(lambda t: 2_500.0 if int(t) // 300 % 2 else 3_200.0)
    log = run(job, minutes=8 * 60)
    assert len(log.scales) <= 3, log.scales


def test_a_saturated_job_shows_its_capacity() -> None:
    job = Job(piecewise((0.0, 2_500.0), (1_200.0, 4_500.0)))
    log = run(job, minutes=60, agreed=settings(decide=lambda s: Answer(4, "as it is"), max_scale_out=4))
    saturated = [m for m in log.measurements if not m.sustained]
    assert saturated
    for measurement in saturated:
        assert measurement.throughput_rps == pytest.approx(4_000.0, rel=0.03)
        assert measurement.standard_error_rps is not None


def test_a_rate_limited_job_shows_no_capacity() -> None:
    def idle_cpu(o: Observation) -> Observation:
        return replace(o, cpu={"1": 0.2})

    job = Job(piecewise((0.0, 2_500.0), (1_200.0, 4_500.0)))
    agreed = settings(decide=lambda s: Answer(4, "as it is"), max_scale_out=4)
    log = run(job, minutes=60, agreed=agreed, seen_as=idle_cpu)
    assert not [m for m in log.measurements if not m.sustained]


def test_a_day_teaches_a_bounded_number_of_facts() -> None:
    log = run(Job(steady(2_500.0)), minutes=24 * 60)
    assert 24 <= len(log.measurements) <= 48
    assert log.scales == []


def test_a_promise_that_cannot_be_kept_is_one_alarm_not_one_a_tick() -> None:
    job = Job(piecewise((0.0, 2_500.0), (1_200.0, 3_200.0)))
    log = run(job, minutes=50, agreed=settings(max_scale_out=4))
    assert 1 <= len(log.alarms) <= 2


def test_models_that_hope_too_much_do_not_drown_the_job() -> None:
    job = Job(piecewise((0.0, 2_500.0), (1_200.0, 3_200.0)), capacity_rps=lambda s: 600.0 * s)
    log = run(job, minutes=60, agreed=settings(decide=lambda s: Answer(4, "four fit")))
    assert log.scales
    assert "although the models say" in log.reason(log.scales[0][0])
    assert job.alive * 600.0 > 3_200.0
    assert log.lag_s[-1] < 20.0


def test_a_job_that_is_restarted_for_every_change() -> None:
    class Restarted(Job):
        def rescale(self, to: int) -> None:
            self.kill_driver(40.0)
            self.declared = to
            self.rescales.append((self.now + 20.0, to))

    job = Restarted(piecewise((0.0, 2_500.0), (1_215.0, 3_200.0)))
    log = run(job, minutes=60, agreed=settings(path="restart"))
    assert [to for _, to in log.scales] == [5]
    (event,) = log.events
    assert event.kind == "restart_out"
    assert event.downtime_s == pytest.approx(40.0, abs=15.0)
    # D/(1 − ρ) = 111 s until the queue is empty at 3 200 of 5 000 records/s
    assert event.recovery_s == pytest.approx(111.0, abs=30.0)


def test_a_driver_that_dies_during_our_change_spoils_the_measurement_only() -> None:
    job = Job(piecewise((0.0, 2_500.0), (1_200.0, 3_200.0)))
    log = run(job, minutes=60, happens={1_290.0: lambda j: j.kill_driver(30.0)})
    assert [to for _, to in log.scales] == [5]
    assert log.events == []
    assert job.alive == 5


@pytest.mark.parametrize("downtime_s", [20.0, 90.0])
@pytest.mark.parametrize("rps", [1_200.0, 3_200.0])
def test_recoveries_are_measured_within_a_part_of_an_interval(downtime_s: float, rps: float) -> None:
    """Failures at three moments of an interval; with and without the commits of the interval."""
    agreed = settings(decide=lambda s: Answer(4, "as it is"), max_scale_out=4)
    errors, exact = [], []
    for moment in range(1_203, 1_263, 20):
        dies = {float(moment): lambda j: j.kill_driver(downtime_s)}
        (event,) = run(Job(steady(rps)), minutes=32, agreed=agreed, happens=dies).events
        errors.append(event.downtime_s - downtime_s)
        (event,) = run(Job(steady(rps)), minutes=32, agreed=agreed, happens=dies, commits=True).events
        exact.append(event.downtime_s - downtime_s)
    assert abs(sum(errors)) / len(errors) <= 15.0, errors
    assert max(map(abs, errors)) <= TICK_S / 2, errors
    assert all(0.0 <= error <= 20.0 for error in exact), exact  # up to a batch before, and a batch after


@dataclass(frozen=True)
class Downtimes:
    def samples(self, kind: str, *, paths: int, seed: int) -> np.ndarray:
        median = {"live_out": 8.0, "live_in": 10.0, "executor_kill": 10.0, "driver_kill": 40.0}[kind]
        return median * np.exp(0.2 * np.random.default_rng(seed).standard_normal(paths))


def foreseen(rate_rps: Callable[[float], float]) -> Callable[[Observation], Observation]:
    """The forecast of somebody who knows the load up to 5 %."""

    def with_forecast(o: Observation) -> Observation:
        mid = np.array([rate_rps(o.at_s + 30.0 * step) for step in range(10)])
        paths = mid * np.exp(0.05 * np.random.default_rng(1).standard_normal((40, 1)))
        low, middle, high = np.quantile(paths.max(axis=1), [0.05, 0.5, 0.95]).tolist()
        forecast = Forecast(
            step_s=30.0,
            mid=mid,
            low=0.9 * mid,
            high=1.1 * mid,
            paths=paths,
            peak=Interval(low, middle, high, 0.9),
            confidence=0.9,
            model="foreseen",
            why="the story knows it",
            backtest={},
        )
        return replace(o, forecast=forecast)

    return with_forecast


def test_the_real_optimiser_through_a_hill_with_a_failure_on_top() -> None:
    def hill(t: float) -> float:
        return 1_500.0 + 1_800.0 * max(0.0, min((t - 300.0) / 600.0, 1.0, (2_100.0 - t) / 300.0))

    @functools.cache
    def decide_once(at_s: float) -> list[Decision]:
        return []

    def decide(situation: Situation) -> Decision:
        """The same question is asked twice at every tick; it takes a tenth of a second."""
        answers = decide_once(situation.observation.at_s)
        if not answers:
            answers.append(by_optimise(situation))
        return answers[0]

    models = Models(
        capacity=Linear(),
        downtime=Downtimes(),
        engine=BatchEngine(overhead_s=1.0, trigger_s=10.0),
        version="7",
    )
    agreed = replace(settings(models=models, max_scale_out=6, scale_in_window_s=600.0), decide=decide)
    job = Job(hill, declared=3, alive=3)
    log = run(
        job,
        minutes=60,
        agreed=agreed,
        seen_as=foreseen(hill),
        happens={1_395.0: lambda j: j.kill_driver(40.0)},
    )
    assert max(size for t, size in log.scales if t < 1_395.0) >= 4
    (failure,) = [event for event in log.events if event.kind == "driver_kill"]
    assert failure.recovery_s <= 180.0
    assert job.alive <= 3
    assert all(t > 2_100.0 - 300.0 + 600.0 for t, size in log.scales if size <= 3)
    assert len(log.scales) <= 6
    assert log.alarms == []
    decided = log.state.last_decision
    assert decided.models_version == "7"
    assert {verdict["scale_out"] for verdict in decided.verdicts} == set(range(1, 7))


def test_the_real_optimiser_without_models_or_forecast_holds() -> None:
    agreed = replace(settings(models=Models()), decide=by_optimise)
    log = run(Job(steady(2_000.0)), minutes=3, agreed=agreed, seen_as=foreseen(steady(2_000.0)))
    assert all("engine is not described" in reason for reason in log.reasons())
    known = Models(capacity=Linear(), downtime=Downtimes(), engine=BatchEngine(trigger_s=10.0))
    log = run(Job(steady(2_000.0)), minutes=3, agreed=replace(agreed, models=known))
    assert all("not observed" in reason for reason in log.reasons())
    assert log.scales == []


def sequence(job: Job, ticks: int) -> Sequence[Observation]:
    before, seen = (0.0, 0.0), []
    for _ in range(ticks):
        for _ in range(60):
            job.second()
        seen.append(observe(job, before))
        before = (job.arrived, job.committed)
    return seen


def test_the_same_moment_twice_or_an_older_one_does_nothing() -> None:
    observations = sequence(Job(steady(3_200.0)), 3)
    state = start(settings())
    for o in observations[:2]:
        state, instructions = step(state, o, o.at_s)
    assert any(isinstance(i, Scale) for i in instructions) or state.change is not None
    for now in (observations[1].at_s, observations[0].at_s, observations[0].at_s - 50.0):
        same, again = step(state, observations[1], now)
        assert same is state
        assert len(again) == 1
        assert isinstance(again[0], Hold)
