"""What happens to a job over an hour, tick by tick? The clock is stepped, the job is a small queue.

Every tick is stepped twice: once with the state kept in memory, once with the state written to JSON and read
again, as after a restart of the daemon. Both must do the same.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import pytest
from stand_ins import Answer, Linear

from models import codec
from models.control import (
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
from models.control.state import by_optimise
from models.downtime import DowntimeModel
from models.observation import Observation
from models.optimise.question import BatchEngine
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


@pytest.mark.parametrize("replaced", [True, False])
def test_an_executor_that_dies_is_one_failure_and_sparks_to_replace(replaced: bool) -> None:
    def die(job: Job) -> None:
        job.alive = 3
        job.down_until_s = job.now + 20.0

    happens = {1_215.0: die}
    if replaced:
        happens[1_300.0] = lambda job: setattr(job, "alive", 4)
    log = run(Job(steady(2_000.0)), minutes=60, happens=happens)
    assert log.scales == []
    (event,) = log.events
    assert event.kind == "executor_kill"
    assert event.downtime_s <= 60.0


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


def test_a_job_that_does_not_come_back_is_an_alarm_and_an_infinite_recovery() -> None:
    log = run(Job(steady(2_000.0)), minutes=60, happens={1_203.0: lambda j: j.kill_driver(1e9)})
    assert [e.kind for e in log.events] == ["driver_kill"]
    assert math.isinf(log.events[0].recovery_s)
    assert log.scales == []
    assert any("not recovered" in alarm for alarm in log.alarms)


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


def test_a_pin_outside_the_bounds_is_refused() -> None:
    pin = Directives(pin=Pin(scale_out=99, who="ana", why="typo"))
    log = run(Job(steady(2_500.0)), minutes=5, ordered=lambda now: pin)
    assert log.scales == []
    assert "bounds are 1…24" in log.reason(60.0)


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
    assert {to for _, to in log.scales} == {5}
    assert any("still 4 executors, 5 executors failed: the job went back" in each for each in log.reasons())
    assert len(log.scales) <= 2  # tried again only after its quarantine, which doubles


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


@pytest.mark.parametrize(
    ("mode", "orders", "said"),
    [
        ("observe", Directives(), "mode observe"),
        ("apply", Directives(pause=Pause(who="ana", why="release")), "paused by ana"),
    ],
)
def test_where_nothing_is_decided_it_still_measures(mode: str, orders: Directives, said: str) -> None:
    log = run(Job(steady(2_500.0)), minutes=30, agreed=settings(mode=mode), ordered=lambda now: orders)
    assert all(said in reason for reason in log.reasons())
    assert log.measurements


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


def test_a_flapping_load_costs_a_bounded_number_of_changes() -> None:
    job = Job(lambda t: 2_500.0 if int(t) // 300 % 2 else 3_200.0)
    log = run(job, minutes=8 * 60)
    assert len(log.scales) <= 3, log.scales


@dataclass(frozen=True)
class Judged(Answer):
    """An answer with a verdict on four executors."""

    verdicts: tuple[dict[str, float], ...] = ()


@pytest.mark.parametrize(("probability", "goes"), [(0.99, True), (0.98, False)])
def test_executors_that_were_added_for_a_doubt_go_with_it_where_fewer_are_clearly_enough(
    probability: float, goes: bool
) -> None:
    four = {"scale_out": 4, "probability": probability, "load_probability": 1.0}

    def decide(situation: Situation) -> Judged:
        return Judged(6 if situation.observation.at_s < 900.0 else 4, verdicts=(four,))

    log = run(Job(steady(2_500.0)), minutes=55, agreed=settings(decide=decide))
    assert [to for _, to in log.scales] == ([6, 4] if goes else [6])
    assert ("fewer than 6 were too few" in log.reasons()[-1]) is not goes


@pytest.mark.parametrize("cpu", [0.9, 0.2], ids=["busy", "limited by its rate"])
def test_a_saturated_job_shows_its_capacity(cpu: float) -> None:
    job = Job(piecewise((0.0, 2_500.0), (1_200.0, 4_500.0)))
    agreed = settings(decide=lambda s: Answer(4, "as it is"), max_scale_out=4)
    log = run(job, minutes=60, agreed=agreed, seen_as=lambda o: replace(o, cpu={"1": cpu}))
    saturated = [m for m in log.measurements if not m.sustained]
    assert bool(saturated) == (cpu == 0.9)
    for measurement in saturated:
        assert measurement.throughput_rps == pytest.approx(4_000.0, rel=0.03)
        assert measurement.standard_error_rps is not None


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


def test_the_real_optimiser_without_models_or_forecast_holds() -> None:
    for models, said in (
        (Models(), "engine is not described"),
        (
            Models(capacity=Linear(), downtime=DowntimeModel(), engine=BatchEngine(trigger_s=10.0)),
            "not observed",
        ),
    ):
        agreed = settings(models=models, decide=by_optimise)
        log = run(Job(steady(2_000.0)), minutes=3, agreed=agreed)
        assert all(said in reason for reason in log.reasons())
        assert log.scales == []
