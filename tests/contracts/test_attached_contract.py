"""Whoever sees a job from outside, through brokers and checkpoint alone, sees what its owner sees."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from models.errors import HeadroomError, Unsafe
from models.ports import Metrics
from models.quantities import Unknown
from models.simulation.cluster import Cluster
from models.simulation.sampling import SimulatedMetrics
from pipelines.environments.attached import Attached, AttachedDeployments, AttachedMetrics, Theirs
from pipelines.environments.metrics import JobMetrics


class NoExecutors:
    """What is on other machines is not read here."""

    def read(self, name: str) -> tuple[Any, ...]:
        return ()

    def losses(self, name: str) -> dict[str, Any]:
        return {}

    def processors_per_slot(self) -> float:
        return 1.0


class Outside:
    """Somebody who did not start the job."""

    def __init__(self, world: Any, name: str, stack: ExitStack) -> None:
        plan = world.plan(name=name, scale_out=2)
        self.name = name
        their = Theirs(name, plan.inputs, plan.outputs, plan.checkpoint, executors=2)
        attached = Attached({name: their}, now_s=world.now_s)
        self.deployments = AttachedDeployments(world.deployments, attached)
        metrics: Metrics
        if isinstance(world.deployments, Cluster):
            metrics = SimulatedMetrics(world.cluster)
        else:
            metrics = stack.enter_context(JobMetrics(world.broker, self.deployments, NoExecutors()))
        self.metrics = AttachedMetrics(metrics, attached)

    def looks(self) -> Any:
        try:
            return self.metrics.sample(self.name)
        except HeadroomError as error:
            return error


@pytest.fixture
def outside(world: Any, settled: str) -> Iterator[Outside]:
    with ExitStack() as stack:
        yield Outside(world, settled, stack)


def test_commits_and_lag_are_seen_without_the_driver(world: Any, settled: str, outside: Outside) -> None:
    commits: list[Any] = []

    def has_seen_enough() -> bool:
        commits.extend(outside.looks().commits)
        return len(commits) >= 3 and outside.deployments.status(settled).state == "running"

    world.until(has_seen_enough)
    batches = [commit.batch for commit in commits]
    assert batches == list(range(batches[0], batches[0] + len(batches))), "each once, none left out"
    theirs, ours = world.metrics.sample(settled), outside.looks()
    assert sum(ours.committed.values()) >= sum(theirs.committed.values())
    assert ours.lag_records <= 500.0
    assert isinstance(ours.latency_p95_ms, float)
    assert isinstance(ours.executors, Unknown)


def test_it_runs_on_whatever_is_asked_of_it(world: Any, settled: str, outside: Outside) -> None:
    run_id = world.deployments.status(settled).run_id
    for attempt in (
        lambda: outside.deployments.stop(settled),
        lambda: outside.deployments.scale(settled, 3, epoch=1),
        lambda: outside.deployments.launch(world.plan(name=settled)),
    ):
        with pytest.raises(Unsafe, match="it is run elsewhere"):
            attempt()
    status = world.deployments.status(settled)
    assert (status.state, status.declared_scale_out, status.run_id) == ("running", 2, run_id)
