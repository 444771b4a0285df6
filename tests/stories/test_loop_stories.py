"""What does the loop do to a job over hours, through the store, the deployments and the metrics?

The job is the queueing twin; its clock is stepped. A `Daemon` is what survives in one process: its readings
and what it remembers. Everything else goes through the store, so that a new daemon on the same store is a
restart, and two of them are two daemons.
"""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from stand_ins import Answer, Linear, plan
from temporary_store import TemporaryStore

from models import codec
from models.control import Blackout, Models, Settings, Situation
from models.control.state import by_optimise
from models.downtime import DowntimeModel, downtime_priors
from models.errors import Misconfigured, NotReady
from models.optimise.question import BatchEngine
from models.ports import Directive, Rescaled
from models.promise import Promise
from models.quantities import Interval, Unknown
from models.simulation.batches import Behaviour, Platform
from models.simulation.cluster import Cluster, SimulatedClock, SimulatedFailures
from models.simulation.sampling import SimulatedMetrics
from models.workload import Forecaster
from models.workload.ensemble import Ensemble, SeasonalNaive
from models.workload.fitting import naive_forecaster
from pipelines.environments.attached import (
    Attached,
    AttachedDeployments,
    AttachedMetrics,
    Theirs,
)
from pipelines.integrations.stores.sqlite import SqliteStore
from profiling_jobs.control_loop.applying import Applied, apply
from profiling_jobs.control_loop.context import InCharge, Loop
from profiling_jobs.control_loop.evaluation import Evaluation, evaluate
from profiling_jobs.explain.explanation import explained, in_short
from profiling_jobs.telemetry.timeline import Sampler

PER_EXECUTOR_RPS = 1_000.0
OVERHEAD_S = 0.3
TICK_S = 60.0
SAMPLE_S = 15.0
TRIGGER_S = 5.0
START_S = 28_333_334 * TICK_S


@functools.cache
def history() -> tuple[float, ...]:
    """Half a day of a load that wanders by a percent from minute to minute, around 2 000 records/s."""
    rates = [2_000.0]
    for step in np.random.default_rng(3).normal(0.0, 20.0, 720).tolist():
        rates.append(2_000.0 + 0.97 * (rates[-1] - 2_000.0) + step)
    return tuple(rates[::-1])


@functools.cache
def forecaster() -> Forecaster:
    found = naive_forecaster(history(), step_s=TICK_S, steps=5, seed=1)
    assert isinstance(found, Forecaster)
    return found


def in_charge(**changes: Any) -> InCharge:
    models = Models(
        capacity=changes.pop("capacity", Linear()),
        downtime=DowntimeModel(downtime_priors(cold_start_s=25.0)),  # the simulated platform starts in 12 s
        engine=BatchEngine(overhead_s=OVERHEAD_S, trigger_s=TRIGGER_S),
        version=changes.pop("version", "capacity 1, recovery 1, workload 1"),
    )
    given: dict[str, Any] = {
        "models": models,
        "forecaster": forecaster(),
        "forecaster_until_s": START_S,
        "versions": {"workload": 1, "capacity": 1, "recovery": 1},
        "seed": 7,
        **changes,
    }
    return InCharge(**given)


def two_thirds(situation: Situation) -> Answer:
    """The smallest size of which the forecast's peak and the lag take at most two thirds.

    In place of the optimiser, which has its own tests and takes its time; `by_optimise` is the real one.
    """
    o, capacity = situation.observation, situation.settings.models.capacity
    for needed in (o.forecast, capacity, o.lag_records):
        if isinstance(needed, Unknown):
            return Answer(needed, needed.reason)
    if isinstance(o.arrival_rps, Unknown):
        return Answer(o.arrival_rps, o.arrival_rps.reason)
    load = max(o.forecast.peak.high, o.arrival_rps) + o.lag_records / situation.settings.promise.target_s
    fits = [s for s in situation.candidates if capacity.predict(s).mid >= 1.5 * load]
    if not fits:
        return Answer(max(situation.candidates), "nothing fits", False, "the promise cannot be kept")
    return Answer(min(fits), f"{load:.0f} records/s fit {min(fits)} executors")


def settings(**changes: Any) -> Settings:
    given: dict[str, Any] = {
        "promise": Promise(180.0),
        "max_scale_out": 12,
        "mode": "apply",
        "interval_s": TICK_S,
        "trigger_s": TRIGGER_S,
        "decide": two_thirds,
        "scale_in_window_s": 900.0,
        "cooldown_in_s": 300.0,
        **changes,
    }
    return Settings(**given)


@dataclass
class World:
    """The twin, what is agreed for each job, and what happens to its input."""

    store: Any = field(default_factory=TemporaryStore)
    slots: int = 24
    useful: int = 24
    """Executors; more of them do no more."""
    sample_s: float = SAMPLE_S

    def __post_init__(self) -> None:
        truth = Behaviour(
            capacity_rps=lambda n: PER_EXECUTOR_RPS * min(n, self.useful), overhead_s=OVERHEAD_S
        )
        names = ("orders", "clicks")
        self.cluster = Cluster(
            dict.fromkeys(names, truth), Platform(slots=self.slots, scale_timeout_s=20.0), now_s=START_S
        )
        self.deployments: Any = self.cluster
        self.metrics: Any = SimulatedMetrics(self.cluster)
        self.failures: Any = SimulatedFailures(self.cluster)
        self.clock = SimulatedClock(self.cluster)
        self.agreed: dict[str, Settings] = {}
        self.loads: dict[str, Callable[[float], float]] = {}
        self.charge: Callable[[str], InCharge | Unknown] = lambda job: in_charge()
        self.blackout: Callable[[str, float], Blackout | None] = lambda job, now_s: None
        self.daemon = self.restarted()

    def launch(
        self,
        job: str = "orders",
        *,
        executors: int = 4,
        load: float | Callable[[float], float] = 2_000.0,
        **agreed: Any,
    ) -> World:
        """`load` is the rate by the seconds since the story began."""
        self.agreed[job] = settings(**agreed)
        self.loads[job] = load if callable(load) else lambda at_s: load
        self.cluster.topics.create(f"{job}-in", partitions=2, at_s=self.cluster.now_s)
        self.deployments.launch(plan(job, scale_out=executors, outputs={}, trigger_s=TRIGGER_S))
        return self

    def attach(self, executors: int | Unknown = 4, **agreed: Any) -> World:
        """From now on `orders` is an attached job, of which its owner declares this size."""
        plan = self.cluster.job("orders").plan
        their = Theirs("orders", plan.inputs, {}, plan.checkpoint, executors, trigger_s=TRIGGER_S)
        attached = Attached({"orders": their}, now_s=self.clock.now_s)
        self.deployments = AttachedDeployments(self.cluster, attached)
        self.metrics = AttachedMetrics(SimulatedMetrics(self.cluster), attached)
        self.agreed["orders"] = settings(**{"mode": "recommend", "only_commits": True, **agreed})
        self.daemon = self.restarted()
        return self

    def restarted(self) -> Daemon:
        """A daemon that has just been started on this store."""
        return Daemon(self)

    @property
    def at_s(self) -> float:
        return self.cluster.now_s - START_S

    def pass_time(self, until_s: float, daemons: tuple[Daemon, ...] = ()) -> None:
        """Until so many seconds since the story began; the samplers sample."""
        while self.at_s < until_s - 1e-6:
            for job, load in self.loads.items():
                self.cluster.topics.flow(f"{job}-in", load(self.at_s), at_s=self.cluster.now_s)
            self.cluster.advance(min(self.sample_s, until_s - self.at_s))
            for daemon in daemons or (self.daemon,):
                daemon.sampler.round()

    def run(
        self,
        *,
        minutes: int,
        happens: dict[int, Callable[[], object]] | None = None,
        applies: bool = True,
        daemons: tuple[Daemon, ...] = (),
    ) -> Story:
        """So many ticks; what `happens` happens between the tick of that minute and the next."""
        story = Story(self)
        first = round(self.at_s / TICK_S)
        for minute in range(first + 1, first + minutes + 1):
            self.pass_time(minute * TICK_S, daemons)
            for daemon in daemons or (self.daemon,):
                for job in self.agreed:
                    story.add(job, daemon.tick(job))
            for daemon in daemons or (self.daemon,):
                for job in self.agreed:
                    if applies:
                        story.applied += daemon.carry_out(story.last(job))
            if happens and minute in happens:
                happens[minute]()
        return story

    def until_ordered(self) -> Story:
        """One tick: the first whose change is ordered, which is not carried out yet."""
        while (story := self.run(minutes=1, applies=False)).last().apply is None:
            pass
        return story


class Daemon:
    """What one process has in memory."""

    count = 0

    def __init__(self, world: World) -> None:
        Daemon.count += 1
        self.name = f"daemon-{Daemon.count}"
        self.world = world
        self.sampler = Sampler(world.metrics, lambda: tuple(world.agreed), clock=world.clock.now_s)
        self.runs: set[str] = set()
        self.loop = Loop(
            store=world.store,
            deployments=world.deployments,
            readings=self.sampler,
            champions=lambda job: world.charge(job),
            clock=world.clock,
            failures=world.failures,
            blackout=lambda job, now_s: world.blackout(job, now_s),
        )

    def tick(self, job: str = "orders") -> Evaluation:
        world = self.world
        return evaluate(job, settings=world.agreed[job], loop=self.loop, now_s=world.clock.now_s())

    def carry_out(self, evaluation: Evaluation) -> list[Applied]:
        """One run per key, as an orchestrator does."""
        order, job = evaluation.apply, evaluation.job
        if order is None or order["key"] in self.runs:
            return []
        self.runs.add(order["key"])
        holder = f"{self.name}/{order['key']}"
        return [
            apply(job, epoch=order["epoch"], settings=self.world.agreed[job], loop=self.loop, holder=holder)
        ]


@dataclass
class Story:
    world: World
    ticks: dict[str, list[Evaluation]] = field(default_factory=dict)
    applied: list[Applied] = field(default_factory=list)

    def add(self, job: str, evaluation: Evaluation) -> None:
        self.ticks.setdefault(job, []).append(evaluation)

    def last(self, job: str = "orders") -> Evaluation:
        return self.ticks[job][-1]

    def sizes(self, job: str = "orders") -> list[int]:
        return [e.scale_out for e in self.ticks[job] if not isinstance(e.scale_out, Unknown)]

    def reasons(self, job: str = "orders") -> list[str]:
        return [e.reason for e in self.ticks[job]]

    def scales(self, job: str = "orders") -> list[tuple[float, int]]:
        """Minute and size of every change that was ordered."""
        return [
            (round((e.at_s - START_S) / TICK_S), e.instruction["to"])
            for e in self.ticks[job]
            if e.instruction["do"] == "scale"
        ]

    def worst_lag_s(self, job: str = "orders") -> float:
        return max(e.lag_s for e in self.ticks[job][2:] if not isinstance(e.lag_s, Unknown))

    def alarms(self, job: str = "orders") -> list[str]:
        return [alarm for e in self.ticks[job] for alarm in e.alarms]

    @property
    def scaled(self) -> list[tuple[int | None, int | None]]:
        return [(a.before, a.to) for a in self.applied if a.did == "scaled"]


# ------------------------------------------------------------------------------------- what the load does


def climbing(at_s: float) -> float:
    """2 000 records/s, and from the tenth minute on 100 more each minute, up to 5 000."""
    return float(np.clip(2_000.0 + 100.0 * math.floor(at_s / 60.0 - 10.0), 2_000.0, 5_000.0))


def falling(at_s: float) -> float:
    """5 000 records/s for ten minutes, then 2 000."""
    return 5_000.0 if at_s < 600.0 else 2_000.0


def jump(at_minute: int, to: float) -> Callable[[float], float]:
    """2 000 records/s, from that minute on another rate."""
    return lambda at_s: to if at_s >= at_minute * TICK_S else 2_000.0


def test_load_rises_and_executors_come_before_the_promise_breaks() -> None:
    story = World().launch(load=climbing).run(minutes=50)
    assert story.sizes()[-1] >= 7
    assert len(story.scaled) >= 3
    assert story.worst_lag_s() < 20.0
    for e in story.ticks["orders"]:  # never less than what arrives
        assert not isinstance(e.scale_out, Unknown)
        assert e.scale_out * PER_EXECUTOR_RPS > e.observation["arrival_rps"]


def test_the_real_optimiser_decides_it_too() -> None:
    world = World().launch(load=jump(3, 3_000.0), decide=by_optimise, candidates=(4, 6, 8), max_scale_out=8)
    story = world.run(minutes=6)
    assert {to for _, to in story.scales()} <= {6, 8}
    assert story.sizes() == sorted(story.sizes())
    assert story.sizes()[-1] > 4
    decision = story.last().decision
    assert {v["scale_out"] for v in decision["verdicts"]} == {4, 6, 8}
    assert {"status", "excuses", "capacity", "probability", "worst_kind"} <= set(decision["verdicts"][0])
    assert "% of recoveries within" in story.last().reason or "verified" in story.last().reason


def test_recoveries_are_predicted_also_while_a_change_is_verified_or_nothing_is_decided() -> None:
    """None was there for two minutes after each change, and none during a pause."""
    world = World().launch(load=jump(3, 3_500.0))
    story = world.run(minutes=5)
    assert story.last().change
    world.store.direct(Directive("orders", "pause", "ann", "wait", since_s=world.cluster.now_s, until_s=None))
    paused = world.run(minutes=2)
    assert paused.last().orders["pause"]
    for e in [story.last(), *paused.ticks["orders"]]:
        assert set(e.recoveries) == {"executor_kill", "driver_kill"}
        for one in e.to_json()["recoveries"].values():
            assert 0.0 < one["low"] <= one["mid"]
            assert 0.0 <= one["probability"] <= 1.0


def test_a_job_that_is_rescaled_by_a_restart_is_never_rescaled_live() -> None:
    world = World().launch(load=jump(5, 3_200.0), path="restart")
    run_id = world.deployments.status("orders").run_id
    story = world.run(minutes=25)
    assert story.scaled
    assert {a.path for a in story.applied if a.did == "scaled"} == {"restart"}
    assert world.deployments.status("orders").run_id != run_id
    assert story.sizes()[-1] >= 5
    events = [fact for e in story.ticks["orders"] for fact in e.learnt if fact["fact"] == "event"]
    assert [event["kind"] for event in events] == ["restart_out"] * len(story.scaled)
    assert story.alarms() == []


def test_load_falls_and_executors_go_only_after_the_window() -> None:
    story = World().launch(load=falling, executors=8, scale_in_window_s=900.0).run(minutes=40)
    assert min(story.sizes()[: 10 + 15]) >= 8
    assert min(story.sizes()[: 10 + 15 + 8]) == 4  # what was forecast while it fell counts, too
    assert any("scale-in window" in reason for reason in story.reasons())


# --------------------------------------------------------------------------------------- people and modes


def test_mode_recommend_shows_what_it_would_do_and_touches_nothing() -> None:
    world = World().launch(load=jump(5, 4_000.0), mode="recommend")
    story = world.run(minutes=12)
    assert set(story.sizes()) == {4}
    assert story.last().instruction["do"] == "hold"
    assert story.last().instruction["would"] >= 6
    assert "would scale to" in story.last().reason
    assert all(e.apply is None for e in story.ticks["orders"])


def test_pause_and_resume() -> None:
    world = World().launch(load=jump(5, 4_000.0))
    store, start_s = world.store, START_S
    store.direct(Directive("orders", "pause", "ann", "a release", since_s=start_s, until_s=None))
    story = world.run(
        minutes=20,
        happens={12: lambda: store.resume("orders", who="ben", why="done", now_s=world.cluster.now_s)},
    )
    assert all(r == "paused by ann: a release" for r in story.reasons()[:12])
    assert story.ticks["orders"][0].orders["pause"]["who"] == "ann"
    assert story.scales()[0][0] == 13
    assert [(row["what"], row["who"]) for row in store.audit("orders")] == [
        ("pause", "ann"),
        ("resume", "ben"),
    ]


def test_a_pin_is_taken_whatever_the_load_says_and_ends_by_itself() -> None:
    world = World().launch(scale_in_window_s=300.0, cooldown_in_s=60.0)
    world.store.direct(
        Directive("orders", "pin", "ann", "a sale", since_s=START_S, until_s=START_S + 900.0, value=7)
    )
    story = world.run(minutes=40)
    assert story.scales()[0] == (1, 7)
    assert set(story.sizes()[1:14]) == {7}
    assert story.scales()[-1][1] <= 5
    assert "pinned to 7 executors by ann" in story.reasons()[5]


def came_back(world: World, executors: int) -> None:
    """Its driver is started anew, by whoever starts our jobs, with the size of the settings."""
    world.deployments.stop("orders")
    world.deployments.launch(replace(world.cluster.job("orders").plan, scale_out=executors))


def test_a_job_that_comes_back_with_another_size_is_brought_back_to_the_one_that_was_verified() -> None:
    world = World().launch(load=jump(3, 3_200.0))
    verified = world.run(minutes=12).sizes()[-1]
    came_back(world, 4)
    story = world.run(minutes=6)
    first = story.ticks["orders"][0]
    assert (first.apply["origin"], first.apply["to"]) == ("reassert", verified)
    assert first.reason == (
        f"the job came back with 4 executors: re-asserted are the {verified} that were verified"
    )
    assert first.reassert == {"found": 4, "ours": verified}
    assert story.scaled == [(4, verified)]
    assert story.sizes()[1:] == [verified] * 5
    assert story.last().reassert is None
    assert all(e.foreign is None for e in story.ticks["orders"])
    assert in_short(first).done == f"4 → {verified} again"
    said = "\n".join(explained(Evaluation.from_json(first.to_json()), shown=str).why)
    assert f"It came back with 4 executors where {verified} were verified" in said


def test_a_size_that_was_only_taken_over_from_somebody_is_not_brought_back() -> None:
    world = World().launch(load=jump(3, 3_200.0))
    verified = world.run(minutes=12).sizes()[-1]
    world.cluster.job("orders").scale(verified + 3, world.cluster.now_s)  # somebody else's hands
    assert world.run(minutes=3).last().foreign is not None
    world.store.resume("orders", who="ann", why="yours again", now_s=world.cluster.now_s)
    world.agreed["orders"] = settings(scale_in_window_s=7_200.0)  # nothing is decided meanwhile
    assert set(world.run(minutes=3).sizes()) == {verified + 3}
    world.cluster.job("orders").scale(verified, world.cluster.now_s)  # the same hands again
    story = world.run(minutes=4)
    assert set(story.sizes()) == {verified}
    assert all((e.reassert, e.apply) == (None, None) for e in story.ticks["orders"])


def test_a_reassertion_that_was_withdrawn_by_a_pause_is_still_needed_after_it() -> None:
    world = World().launch(load=jump(3, 3_200.0))
    verified = world.run(minutes=12).sizes()[-1]
    world.agreed["orders"] = settings(max_step_out=1)
    came_back(world, 2)
    ordered = world.run(minutes=1, applies=False).last()
    assert ordered.apply["origin"] == "reassert"
    now_s = world.cluster.now_s
    world.store.direct(Directive("orders", "pause", "ann", "wait", since_s=now_s, until_s=now_s + 150.0))
    assert [a.did for a in world.daemon.carry_out(ordered)] == ["nothing"]
    story = world.run(minutes=6)
    paused = [e for e in story.ticks["orders"] if "pause" in e.orders]
    assert len(paused) == 2
    assert all((e.apply, e.reassert) == (None, {"found": 2, "ours": verified}) for e in paused)
    kept = Evaluation.from_json(paused[0].to_json())
    assert "It came back with 2 executors" in "\n".join(explained(kept, shown=str).why)
    assert story.scaled[0] == (2, verified)  # at once, not by steps of one


def test_a_size_beyond_bounds_that_were_tightened_since_is_not_brought_back() -> None:
    world = World().launch(load=jump(3, 3_200.0))
    verified = world.run(minutes=12).sizes()[-1]
    world.agreed["orders"] = settings(max_scale_out=verified - 1)
    world.daemon = world.restarted()
    came_back(world, 2)
    story = world.run(minutes=8)
    assert max(story.sizes()) == story.sizes()[-1] == verified - 1
    assert all(e.reassert is None for e in story.ticks["orders"])
    assert "came back" not in " ".join(story.reasons())


def test_what_an_earlier_apply_has_verified_is_not_brought_back_after_a_while_of_recommend() -> None:
    world = World().launch(load=jump(3, 4_000.0))
    verified = world.run(minutes=12).sizes()[-1]
    agreed = world.agreed["orders"]
    world.agreed["orders"] = settings(mode="recommend")
    came_back(world, 5)
    recommended = world.run(minutes=3)
    assert (recommended.sizes(), recommended.last().reassert) == ([5] * 3, None)
    world.agreed["orders"] = agreed
    story = world.run(minutes=10)
    assert verified > 5
    assert all(e.reassert is None for e in story.ticks["orders"])
    assert "came back" not in " ".join(story.reasons())
    (change,) = [e.apply for e in story.ticks["orders"] if e.apply]
    assert (change["origin"], change["before"]) == ("decision", 5)
    came_back(world, 4)  # what this apply has verified is
    (again,) = [e.apply for e in world.run(minutes=3).ticks["orders"] if e.apply]
    assert (again["origin"], again["to"]) == ("reassert", change["to"])


def test_nothing_changes_in_a_blackout() -> None:
    world = World().launch(load=jump(5, 4_000.0))
    world.blackout = lambda job, now_s: Blackout("payday") if now_s < START_S + 900.0 else None
    story = world.run(minutes=20)
    assert story.scales()[0][0] == 15
    assert set(story.reasons()[:14]) == {"blackout, nothing changes: payday"}
    assert story.ticks["orders"][3].orders["blackout"]["why"] == "payday"


def test_a_pause_between_the_order_and_its_execution_is_obeyed_and_holds_nothing_against_the_size() -> None:
    world = World().launch(load=jump(5, 4_000.0))
    story = world.until_ordered()
    now_s = world.cluster.now_s
    world.store.direct(Directive("orders", "pause", "ann", "wait", since_s=now_s, until_s=now_s + 300.0))
    assert [a.did for a in world.daemon.carry_out(story.last())] == ["nothing"]
    assert world.cluster.job("orders").declared == 4
    after = world.run(minutes=8)
    assert after.ticks["orders"][1].change is None
    assert after.alarms() == []
    assert after.last().quarantined == []
    assert len(after.scaled) == 1


def test_a_foreign_edit_is_held_until_resume_even_if_the_control_state_is_lost() -> None:
    world = World().launch(load=jump(3, 4_000.0), scale_in_window_s=300.0)
    story = world.run(minutes=12)
    ours = story.sizes()[-1]
    world.cluster.job("orders").scale(5, world.cluster.now_s)  # somebody else's hands
    story = world.run(minutes=4)
    assert all("foreign edit: the size was set to 5 executors" in r for r in story.reasons())
    (hold,) = world.store.directives("orders", now_s=world.cluster.now_s)
    assert (hold.kind, hold.who) == ("hold", "headroom")

    control = world.store.control("orders")
    world.store.save_control(replace(control, state={"schema": 1}), expected_epoch=control.epoch)
    world.daemon = world.restarted()
    story = world.run(minutes=2)
    assert all(
        r == f"paused by headroom: the size was set to 5 executors where we had set {ours}"
        for r in story.reasons()
    )
    assert "could not be read" in story.alarms()[0]

    world.store.resume("orders", who="ann", why="mine", now_s=world.cluster.now_s)
    story = world.run(minutes=4)
    assert story.scales()[0][1] >= 7


# ------------------------------------------------------------------------------- what cannot be seen or known


class Broken:
    def predict(self, scale_out: int) -> Interval:
        raise KeyError("coefficients")


def raising(job: str) -> InCharge:
    raise Misconfigured("mlflow", "is away")


@pytest.mark.parametrize(
    ("charge", "reason"),
    [
        (lambda job: Unknown("no champion yet: profile the job"), "no champion yet: profile the job"),
        (raising, "the champions could not be read (mlflow: is away)"),
        (lambda job: in_charge(capacity=Unknown("its digest differs")), "its digest differs"),
        (
            lambda job: in_charge(forecaster=Unknown("there is no workload model")),
            "there is no workload model",
        ),
        (lambda job: in_charge(capacity=Broken()), "the models could not be evaluated"),
    ],
)
def test_without_its_models_a_job_is_held_safely(
    charge: Callable[[str], InCharge | Unknown], reason: str
) -> None:
    world = World().launch(load=jump(2, 3_000.0))
    world.charge = charge
    story = world.run(minutes=6)
    assert story.scales() == []
    assert reason in story.last().reason
    assert isinstance(story.last().observation["arrival_rps"], float)
    predicted = story.last().to_json()["recoveries"]["driver_kill"]
    assert ("mid" in predicted) == ("workload model" in reason), "without a forecast the load stays as it is"


def test_a_forecast_is_fitted_once_there_is_something_to_fit_it_to() -> None:
    """Dagster would show a failed run for each fit that is asked for too early."""
    world = World().launch()
    world.charge = lambda job: in_charge(forecaster=Unknown("there is no workload model"))
    ticks = world.run(minutes=12).ticks["orders"]
    asked = [minute for minute, tick in enumerate(ticks, start=1) if tick.requests]
    assert asked[0] == 1 + 12 * 30 // 60 + 1  # the first read, and more than twelve steps of 30 s
    assert [request["model"] for request in ticks[-1].requests] == ["workload"]


def test_stale_metrics_hold_the_size() -> None:
    world = World().launch(load=jump(4, 4_000.0))
    world.run(minutes=3)
    sampler = world.daemon.sampler
    world.daemon.sampler = Sampler(world.metrics, lambda: ())  # its rounds read nothing any more
    story = world.run(minutes=6)
    assert story.scales() == []
    assert "nothing new was observed" in story.reasons()[0]
    assert "old (bound 120 s)" in story.last().reason
    assert isinstance(story.last().lag_s, Unknown)  # not that of the last one that was observed
    world.daemon.sampler = sampler
    assert world.run(minutes=3).scales()


def test_a_deployment_that_does_not_answer_holds_the_size() -> None:
    world = World().launch(load=jump(4, 4_000.0))
    world.run(minutes=3)
    answer = world.deployments.status

    def silent(name: str) -> Any:
        raise NotReady("the API server does not answer")

    world.deployments.status = silent  # type: ignore[method-assign]
    story = world.run(minutes=3)
    assert story.scales() == []
    assert "the API server does not answer" in story.last().reason
    assert story.alarms() == []  # one that is away for a moment
    story = world.run(minutes=8)
    (alarm,) = story.alarms()  # told once, not every minute
    assert alarm.startswith("the job cannot be observed for 300 s")
    world.deployments.status = answer  # type: ignore[method-assign]
    assert world.run(minutes=3).scales()


def test_a_failed_job_is_no_reason_to_scale_it() -> None:
    world = World().launch(load=jump(4, 4_000.0))
    world.run(minutes=3)
    world.deployments.stop("orders")
    story = world.run(minutes=3)
    assert story.scales() == []
    assert "the job does not run, it is stopped" in story.last().reason
    assert story.alarms()[0].startswith("orders does not run, it is stopped")


def test_one_that_another_system_starts_is_not_said_to_be_ours_to_start() -> None:
    world = World().launch()
    world.run(minutes=2)
    world.deployments.stop("orders")
    answer = world.deployments.status
    world.deployments.status = lambda name: replace(answer(name), elsewhere=True)  # type: ignore[method-assign]
    (alarm, *_) = world.run(minutes=2).alarms()
    assert alarm.endswith("what runs it has to start it")


def test_a_failure_while_it_is_evaluated_is_learnt_and_changes_nothing_at_once() -> None:
    world = World().launch()
    world.run(minutes=5)
    answer = world.deployments.status

    def struck(name: str) -> Any:
        world.deployments.status = answer  # type: ignore[method-assign]
        world.failures.inject("orders", "driver_kill")
        return answer(name)

    world.deployments.status = struck  # type: ignore[method-assign]
    story = world.run(minutes=8)
    assert story.scales() == []
    assert any(e.recovering and e.recovering["kind"] == "driver_kill" for e in story.ticks["orders"])
    ((event, details),) = world.store.events("orders")
    assert (event.kind, event.scale_out, details["origin"]) == ("driver_kill", 4, "live")
    assert 5.0 <= event.downtime_s <= 40.0
    assert event.downtime_s <= event.recovery_s <= 90.0
    load_rps = story.ticks["orders"][0].observation["arrival_rps"]
    assert details["rate_rps"] == pytest.approx(load_rps, rel=0.2), "its downtime is converted with this load"


# ---------------------------------------------------------------------------------- when a change goes wrong


def test_a_change_that_is_refused_is_rolled_back_with_an_alarm() -> None:
    world = World(slots=6).launch(load=jump(5, 4_000.0))
    story = world.run(minutes=14)
    assert [a.did for a in story.applied] == ["refused", "scaled"]
    (alarm,) = [a for a in story.alarms() if "scale-out failed" in a]
    assert "free of 6: raise spark.slots" in alarm
    assert "Back to 4 executors" in alarm
    assert not any("rolled back" in e.reason for e in story.ticks["orders"])
    assert story.last().quarantined[0]["scale_out"] == 7
    assert story.sizes()[-1] == 6  # what is left


def test_a_change_that_does_not_take_effect_is_rolled_back_with_an_alarm() -> None:
    world = World().launch(load=jump(5, 4_000.0))
    world.run(minutes=5)
    world.cluster.platform.__dict__["executor_start_s"] = 10_000.0
    story = world.run(minutes=12)
    (alarm,) = [a for a in story.alarms() if "has not taken effect" in a]
    assert "Back to 4 executors" in alarm
    assert {a.did for a in story.applied} >= {"later", "scaled"}
    assert story.sizes()[-1] == 4
    assert world.cluster.job("orders").declared == 4


def test_growing_that_does_not_help_is_taken_back_where_only_shrinking_is_forbidden() -> None:
    world = World(useful=4).launch(load=jump(5, 5_000.0))
    world.blackout = lambda job, now_s: Blackout("sale", scale_out_allowed=True)
    story = world.run(minutes=20)
    grown = max(story.sizes())
    assert (grown, 4) in story.scaled
    assert any("not scalable" in alarm for alarm in story.alarms())
    assert not any("Nothing more is tried" in alarm for alarm in story.alarms())
    assert story.last().quarantined
    assert story.sizes()[-1] == 4, "it is not tried again"


@pytest.mark.parametrize("forbidden", ["blackout", "pause"])
def test_a_rollback_that_is_forbidden_before_it_has_begun_is_done_afterwards(forbidden: str) -> None:
    world = World(useful=4).launch(load=jump(5, 5_000.0))
    story = world.run(minutes=1, applies=False)
    while (story.last().apply or {}).get("origin") != "rollback":
        world.daemon.carry_out(story.last())
        story = world.run(minutes=1, applies=False)
    now_s, until_s = world.cluster.now_s, world.cluster.now_s + 600.0
    if forbidden == "pause":
        world.store.direct(Directive("orders", "pause", "ann", "sale", since_s=now_s, until_s=until_s))
    else:
        world.blackout = lambda job, now_s: Blackout("sale") if now_s < until_s else None
    assert [a.did for a in world.daemon.carry_out(story.last())] == ["nothing"]
    held = world.run(minutes=9)
    assert all(forbidden in reason and "sale" in reason for reason in held.reasons())
    assert (held.scaled, set(held.sizes())) == ([], {max(held.sizes())})
    after = world.run(minutes=4)
    assert after.scaled == [(max(held.sizes()), 4)]
    assert after.sizes()[-1] == 4
    assert not any("Nothing more is tried" in alarm for alarm in (*held.alarms(), *after.alarms()))


def test_an_order_that_nobody_begins_is_withdrawn_and_told() -> None:
    world = World().launch(load=jump(3, 4_000.0))
    story = world.run(minutes=12, applies=False)
    assert len(story.scales()) >= 2
    assert any("nothing has begun it" in alarm for alarm in story.alarms())
    assert story.last().quarantined == []
    keys = [e.apply["key"] for e in story.ticks["orders"] if e.apply is not None]
    assert len(set(keys)) == len(keys) >= 4  # a run that was lost is replaced under another name


class Died(BaseException):
    """The process was killed here."""


@pytest.mark.parametrize("acts", ["before", "after"])
def test_a_daemon_that_dies_is_replaced_and_the_change_done_once(tmp_path: Path, acts: str) -> None:
    """It dies before it acts, or after."""
    with SqliteStore(tmp_path / "store.sqlite") as store:
        world = World(store).launch(load=jump(4, 4_000.0))
        changes: list[tuple[int, int]] = []
        scale, dying = world.deployments.scale, [True]

        def scale_and_die(name: str, scale_out: int, *, epoch: int, path: Any) -> Rescaled:
            if acts == "before" and dying:
                dying.clear()
                raise Died
            done = scale(name, scale_out, epoch=epoch, path=path)
            if done.before != done.after:
                changes.append((done.before, done.after))
            if dying:
                dying.clear()
                raise Died
            return done

        world.deployments.scale = scale_and_die  # type: ignore[method-assign]
        with pytest.raises(Died):
            world.run(minutes=10)
        ordered = store.control("orders").state["control"]["change"]
        assert store.document("orders", "applied")["state"] == "begun"
        world.daemon = world.restarted()
        story = world.run(minutes=8)
        assert changes == [(4, ordered["to"])]
        assert set(story.sizes()[1:]) == {ordered["to"]}
        assert story.alarms() == []
        assert story.last().change is None
        assert store.control("orders").state["control"]["change"] is None


def test_a_crash_after_the_state_was_saved_loses_neither_the_evaluation_nor_the_order() -> None:
    world = World().launch(load=jump(4, 4_000.0))
    world.run(minutes=4)
    world.pass_time(6 * TICK_S)
    record = world.store.record_evaluation

    def die(*args: Any, **kwargs: Any) -> bool:
        raise Died

    world.store.record_evaluation = die
    with pytest.raises(Died):
        world.daemon.tick()
    world.store.record_evaluation = record
    kept = len(world.store.evaluations("orders"))
    world.daemon = world.restarted()
    again = world.daemon.tick()
    assert again.instruction["do"] == "scale"
    assert again.apply is not None
    assert len(world.store.evaluations("orders")) == kept + 1
    assert [a.did for a in world.daemon.carry_out(again)] == ["scaled"]


# --------------------------------------------------------------------------------- once, and only once


def test_a_tick_that_is_previewed_or_retried_changes_nothing() -> None:
    world = World().launch(load=jump(4, 4_000.0))
    story = world.run(minutes=3)
    world.pass_time(6 * TICK_S)
    first = world.daemon.tick()
    before = world.store.control("orders")
    world.pass_time(6 * TICK_S + 20.0)
    again, other = world.daemon.tick(), world.restarted().tick()
    assert again.to_json() == other.to_json() == first.to_json()
    assert world.store.control("orders") == before
    assert len(world.store.evaluations("orders")) == len(story.ticks["orders"]) + 1


def test_two_daemons_evaluate_once_and_apply_once(tmp_path: Path) -> None:
    with SqliteStore(tmp_path / "store.sqlite") as store:
        world = World(store).launch(load=climbing)
        story = world.run(minutes=40, daemons=(world.daemon, world.restarted()))
        orders = {e.apply["epoch"]: e.apply["to"] for e in story.ticks["orders"] if e.apply is not None}
        assert len(story.scaled) == len(orders) >= 3
        assert [to for _, to in story.scaled] == list(orders.values())
        assert {a.did for a in story.applied} == {"scaled", "nothing"}
        recorded = [e["interval"] for _, e in store.evaluations("orders")]
        assert len(set(recorded)) == len(recorded) == 40


def test_a_pin_that_comes_while_a_change_is_carried_out_is_no_foreign_edit() -> None:
    world = World().launch(load=jump(3, 4_000.0))
    story = world.until_ordered()
    scale, pinned = world.deployments.scale, []

    def meanwhile(name: str, scale_out: int, *, epoch: int, path: Any) -> Rescaled:
        if not pinned:
            since_s = world.cluster.now_s
            world.store.direct(Directive("orders", "pin", "ann", "a sale", since_s=since_s, value=9))
            world.pass_time(world.at_s + TICK_S)
            pinned.append(world.daemon.tick())
        return scale(name, scale_out, epoch=epoch, path=path)

    world.deployments.scale = meanwhile  # type: ignore[method-assign]
    assert [a.did for a in world.daemon.carry_out(story.last())] == ["scaled"]
    (pin,) = pinned
    assert (pin.instruction["to"], pin.change["before"]) == (9, 4)
    story = world.run(minutes=5)
    assert story.last().foreign is None
    assert set(story.sizes()[1:]) == {9}
    assert story.alarms() == []


def test_a_restart_before_every_tick_decides_the_same() -> None:
    def told(restarts: bool) -> list[Any]:
        world = World().launch(load=climbing)
        found = []
        for _ in range(20):
            if restarts:
                world.daemon = world.restarted()
            story = world.run(minutes=1)
            data = story.last().to_json()
            found.append((data["instruction"], data["scale_out"], data["forecast"].get("misses_in_row")))
        return found

    once = told(restarts=False)
    assert any(instruction["do"] == "scale" for instruction, *_ in once)
    assert told(restarts=True) == once


def test_two_jobs_do_not_disturb_each_other() -> None:
    world = World()
    world.launch("orders", load=jump(5, 4_000.0)).launch("clicks", executors=3, load=1_000.0)
    world.charge = lambda job: in_charge() if job == "orders" else Unknown("no champion yet")
    world.store.direct(Directive("clicks", "pause", "ann", "wait", since_s=START_S, until_s=START_S + 400.0))
    story = world.run(minutes=12)
    assert story.sizes("orders")[-1] > 4
    assert set(story.sizes("clicks")) == {3}
    assert "paused by ann" in story.reasons("clicks")[0]
    assert "no champion yet" in story.reasons("clicks")[-1]
    assert "ann" not in json.dumps([e.to_json() for e in story.ticks["orders"]])


# -------------------------------------------------------------------------------------- what is learnt


def test_forecasts_that_miss_give_way_to_the_best_naive_one_and_a_refit_is_asked_for() -> None:
    yesterday = SeasonalNaive(period=600, ring=[2_000.0] * 600, last=2_000.0)
    stubborn = Forecaster.from_json(
        {**forecaster().to_json(), "model": codec.to_json(Ensemble([yesterday], steps=5))}
    )
    world = World().launch(load=lambda at_s: 2_000.0 + 900.0 * math.sin(at_s / 700.0))
    world.charge = lambda job: in_charge(forecaster=stubborn)
    story = world.run(minutes=40)
    by = [e.forecast["by"] for e in story.ticks["orders"]]
    assert by[0] == "champion"
    taken = by.index("naive")
    at = story.ticks["orders"][taken]
    assert at.forecast["misses_in_row"] == 4
    assert at.forecast["instead"] == "the champion missed 4 horizons in a row"
    assert set(by[taken:]) == {"naive"}
    (request,) = at.requests
    assert (request["do"], request["model"]) == ("refit", "workload")
    assert request["since_s"] == story.last().requests[0]["since_s"]

    world.charge = lambda job: in_charge(versions={"workload": 2})
    story = world.run(minutes=2)
    assert (story.last().forecast["by"], list(story.last().requests)) == ("champion", [])


def refitted_hourly(world: World, **changes: Any) -> Callable[[str], InCharge]:
    """Champions of which the workload model is fitted anew every hour, as the schedule does."""

    def charge(job: str) -> InCharge:
        workload = 1 + int(world.at_s // 3_600.0)
        versions = {"capacity": 1, "recovery": 1, "workload": workload}
        version = ", ".join(f"{kind} {number}" for kind, number in versions.items())
        return in_charge(version=version, versions=versions, **changes)

    return charge


def test_a_profile_that_no_longer_holds_is_asked_for_anew_at_that_size() -> None:
    world = World().launch(load=lambda at_s: 1_500.0 + 500.0 * math.sin(at_s / 300.0), mode="recommend")
    world.charge = refitted_hourly(world, capacity=Linear(1_600.0))
    story = world.run(minutes=90)
    asked = [(e.at_s, r) for e in story.ticks["orders"] for r in e.requests if r["do"] == "profile"]
    first_s, request = asked[0]
    assert (request["model"], request["scale_outs"]) == ("capacity", [4])
    assert "where the profile says 6,208–6,592" in request["why"]
    assert {r["since_s"] for _, r in asked} == {first_s}  # asked for once, however often it is said
    assert first_s - START_S >= 1_800.0


def test_the_live_job_teaches_and_what_it_taught_survives() -> None:
    def wave(at_s: float) -> float:
        return 2_000.0 + 450.0 * math.sin(at_s / 300.0)

    world = World().launch(load=wave, learn_every_s=600.0, mode="recommend")
    world.run(minutes=25)
    measurements = world.store.measurements("orders")
    assert measurements
    key, _, measured = measurements[0]
    assert key.startswith("live/e4/steady/")
    assert (measured.origin, measured.scale_out, measured.sustained) == ("live", 4, True)
    world.daemon = world.restarted()
    story = world.run(minutes=1)
    online = story.last().to_json()["capacity"]["online"]
    assert online["mid"] == pytest.approx(4_000.0, rel=0.1)
