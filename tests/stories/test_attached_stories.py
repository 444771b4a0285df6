"""What does Headroom tell the owner of a job that it does not run, and what does it leave alone?

The job is the queueing twin, launched by its owner on the cluster, behind our back. We stand behind the
adapters for attached jobs and get to see offsets and commits only.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from memory_store import MemoryStore

from models.control import Models, Settings
from models.downtime import DowntimeModel
from models.errors import Unsafe
from models.optimise.engine import BatchEngine
from models.ports import Function, Plan
from models.quantities import Interval, Unknown
from models.simulation.batches import Behaviour, Platform
from models.simulation.cluster import Cluster, SimulatedClock, SimulatedFailures
from models.simulation.sampling import SimulatedMetrics
from models.workload import Forecaster
from models.workload.forecaster import naive_forecaster
from pipelines.environments.attached import (
    Attached,
    AttachedDeployments,
    AttachedFailures,
    AttachedMetrics,
    theirs,
)
from pipelines.settings import loading
from pipelines.settings.job_plans import control_settings
from profiling_jobs.control_loop.applying import apply
from profiling_jobs.control_loop.context import InCharge, Loop
from profiling_jobs.control_loop.evaluation import Evaluation, evaluate
from profiling_jobs.explain.explanation import explained
from profiling_jobs.telemetry.sampler import Sampler

TICK_S = 60.0
START_S = 28_333_334 * TICK_S
PER_EXECUTOR_RPS = 1_000.0
OVERHEAD_S = 0.3
TOML = """
[job.orders]
attach = true
checkpoint = "/theirs/orders"
inputs = {events = "orders-in"}
trigger_s = 5
scale_out_max = 8
profile_scale_outs = [4, 6, 8]
"""
Load = Callable[[float], float]


class Linear:
    def predict(self, scale_out: int) -> Interval:
        mid = PER_EXECUTOR_RPS * scale_out
        return Interval(0.97 * mid, mid, 1.03 * mid, 0.9)


def in_charge() -> InCharge:
    models = Models(
        capacity=Linear(),
        downtime=DowntimeModel(),
        engine=BatchEngine(overhead_s=OVERHEAD_S, trigger_s=5.0),
        version="capacity 1, recovery 1, workload 1",
    )
    steps = np.random.default_rng(3).normal(0.0, 20.0, 720).cumsum()  # a load that wanders
    history = 1_500.0 + steps - steps[-1]
    forecaster = naive_forecaster(history, step_s=TICK_S, steps=6, seed=1)
    assert isinstance(forecaster, Forecaster)
    versions = {"workload": 1, "capacity": 1, "recovery": 1}
    return InCharge(models, forecaster, START_S, versions, seed=7)


class Story:
    """Their cluster and our loop."""

    def __init__(self, *, executors: int = 4, said: int | None = 4, more: str = "", load: Load) -> None:
        truth = Behaviour(capacity_rps=lambda n: PER_EXECUTOR_RPS * n, overhead_s=OVERHEAD_S)
        self.cluster = Cluster({"orders": truth}, Platform(slots=12), now_s=START_S)
        self.load = load
        self.charge: InCharge | Unknown = in_charge()
        self.store = MemoryStore()
        self.clock = SimulatedClock(self.cluster)
        self.cluster.topics.create("orders-in", partitions=8, at_s=START_S)
        self.cluster.launch(
            Plan(
                name="orders",
                job="orders",
                role="live",
                program=Function("theirs:main"),
                scale_out=executors,
                inputs={"events": "orders-in"},
                outputs={},
                checkpoint="/theirs/orders",
                trigger_s=5.0,
            )
        )
        self.ticks: list[Evaluation] = []
        self.serve(said, more)

    def serve(self, said: int | None, more: str = "") -> None:
        """Started anew, on the settings of now."""
        text = TOML + (f"executors = {said}\n" if said else "") + more
        self.job = loading.parse(text, environment={}).jobs["orders"]
        attached = Attached(theirs({"orders": self.job}), now_s=self.clock.now_s)
        self.deployments = AttachedDeployments(self.cluster, attached)
        metrics = AttachedMetrics(SimulatedMetrics(self.cluster), attached)
        self.sampler = Sampler(metrics, lambda: ["orders"], clock=self.clock.now_s)
        self.loop = Loop(
            store=self.store,
            deployments=self.deployments,
            readings=self.sampler,
            champions=lambda job: self.charge,
            clock=self.clock,
            failures=AttachedFailures(SimulatedFailures(self.cluster), attached),
        )

    @property
    def settings(self) -> Settings:
        return control_settings("orders", self.job)

    def run(self, minutes: int) -> list[Evaluation]:
        """So many ticks of a minute; those of this run."""
        first = len(self.ticks)
        for _ in range(minutes):
            for _ in range(12):
                at_s = self.cluster.now_s - START_S
                self.cluster.topics.flow("orders-in", self.load(at_s), at_s=self.cluster.now_s)
                self.cluster.advance(5.0)
                self.sampler.round()
            found = evaluate("orders", settings=self.settings, loop=self.loop, now_s=self.clock.now_s())
            self.ticks.append(found)
        return self.ticks[first:]

    @property
    def size(self) -> int:
        """What really runs."""
        return self.cluster.job("orders").declared

    def alarms(self) -> list[str]:
        return [alarm for e in self.ticks for alarm in e.alarms]


def steady(at_s: float) -> float:
    return 1_500.0


def rising(at_s: float) -> float:
    return 1_500.0 if at_s < 300.0 else 3_400.0


def would(found: list[Evaluation]) -> list[int]:
    return [e.instruction["would"] for e in found if e.instruction["would"] is not None]


def test_a_load_that_rises_gets_a_recommendation_and_nothing_is_touched() -> None:
    story = Story(load=rising)
    calm = story.run(5)
    assert would(calm) == []
    assert {v["status"] for v in calm[-1].decision["verdicts"]} >= {"feasible"}
    found = story.run(10)
    assert would(found)
    assert max(would(found)) > 4
    assert "would scale to" in found[-1].reason
    assert all(e.apply is None and e.instruction["do"] == "hold" for e in story.ticks)
    assert story.size == 4
    assert len({v["scale_out"] for v in found[-1].decision["verdicts"]}) > 1
    assert found[-1].observation["hottest_share"].reason.startswith("another system runs it")
    said = explained(Evaluation.from_json(found[-1].to_json()), shown=str)
    assert "would go from 4 to" in said.done
    assert "It runs outside Headroom: give it 7 executors there" in said.would_change[0]
    assert not any("Mode apply" in one for one in said.would_change)
    assert ("executors", "4 declared, how many are alive is unknown") in said.seen


def test_a_size_that_its_owner_has_changed_is_the_new_size() -> None:
    story = Story(load=rising)
    story.run(12)
    story.deployments._ours.scale("orders", 8, epoch=1)  # by its owner
    story.serve(8)
    found = story.run(8)
    assert [e.scale_out for e in found] == [8] * 8
    assert all(e.foreign is None and e.recovering is None for e in found[1:])
    assert [e.learnt for e in story.ticks if e.learnt] == [], "nothing is learnt of a change nobody saw"
    assert story.alarms() == [], story.alarms()


def test_commits_that_stop_are_said_at_once_and_nothing_is_done() -> None:
    story = Story(load=steady)
    story.run(6)
    story.cluster.stop("orders")
    down = story.run(6)
    assert any("orders stands still, and is not ours to start: no commit for" in a for a in story.alarms())
    assert story.deployments.status("orders").state == "stalled"
    assert would(down[1:]) == []
    assert [e.scale_out for e in down] == [4] * 6
    assert down[-1].recovering is not None
    assert down[-1].recovering["kind"] == "standstill"
    assert "nothing is committed yet, more executors would not help" in down[-1].reason
    assert story.size == 4
    assert all(e.apply is None for e in story.ticks)
    story.cluster.job("orders").start(story.clock.now_s())  # by its owner
    back = story.run(15)
    assert back[-1].recovering is None
    assert story.deployments.status("orders").state == "running"
    assert [e.learnt for e in story.ticks if e.learnt] == [], "which failure it was nobody knows"


@pytest.mark.parametrize("mode", ["observe", "recommend"])
def test_without_its_size_every_evaluation_holds_and_names_the_key(mode: str) -> None:
    story = Story(said=None, load=rising, more=f'mode = "{mode}"\n')
    found = story.run(8)
    assert would(found) == []
    assert all(isinstance(e.scale_out, Unknown) for e in found)
    assert found[-1].observation["arrival_rps"] == pytest.approx(3_400.0, rel=0.05)
    (alarm,) = story.alarms()
    assert alarm.startswith(
        "orders cannot be observed for 300 s: its size is held (job.orders.executors is not"
    )
    if mode == "recommend":
        assert "job.orders.executors is not set" in found[-1].reason


def test_in_observe_it_is_only_watched() -> None:
    story = Story(load=rising, more='mode = "observe"\n')
    found = story.run(10)
    assert would(found) == []
    assert {e.reason for e in found} == {"mode observe: measuring and learning, deciding nothing"}
    assert found[-1].observation["arrival_rps"] == pytest.approx(3_400.0, rel=0.05)


def test_without_models_it_holds_and_says_what_is_missing() -> None:
    story = Story(load=rising)
    story.charge = InCharge(Models())
    found = story.run(8)
    assert would(found) == []
    assert "no decision" in found[-1].reason
    assert story.size == 4


def test_an_order_of_an_earlier_life_is_not_carried_out() -> None:
    story = Story(load=rising)
    story.run(8)
    done = apply("orders", epoch=10**9, settings=story.settings, loop=story.loop, holder="us")
    assert done.did == "nothing"
    with pytest.raises(Unsafe, match=r"job\.orders\.attach"):
        story.deployments.scale("orders", 8, epoch=1)
    assert story.size == 4
