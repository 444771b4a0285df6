"""Simulated cluster with a job's topics, a store and a clock, and what copies of the job need there."""

from __future__ import annotations

from typing import Any

from temporary_store import TemporaryStore

from models.ports import Function, Plan
from models.simulation.batches import Behaviour, Platform, contended
from models.simulation.cluster import Cluster, SimulatedClock, SimulatedSource
from models.simulation.sampling import SimulatedMetrics
from profiling_jobs.experiments.copies import ExperimentContext

LIMIT, OVERHEAD_S = 2000, 0.3
PARTITIONS = {"events": 2, "results": 2}
PLAN = Plan(
    name="enrichment",
    job="enrichment",
    role="profile",
    program=Function("profiling_jobs.jobs.enrichment:build"),
    scale_out=1,
    inputs={"events": "orders"},
    outputs={"results": "answers"},
    checkpoint="/checkpoints/enrichment",
    max_offsets_per_trigger=LIMIT,
)


def truth(scale_out: int) -> float:
    """What batches of LIMIT records really sustain."""
    return LIMIT / (OVERHEAD_S + LIMIT / contended(scale_out))


class ExperimentWorld:
    def __init__(self, behaviour: Behaviour, platform: Platform, *, source: Any = SimulatedSource) -> None:
        self.cluster = Cluster({"enrichment": behaviour}, platform)
        self.deployments = self.cluster
        self.store, self.clock = TemporaryStore(), SimulatedClock(self.cluster)
        self.sources: list[Any] = []
        self.source_kind = source
        self.context: dict[str, Any] = {}
        """What experiments are given beside or instead of what is here."""
        for topic in ("orders", "answers"):
            self.cluster.topics.create(topic, partitions=2, at_s=0.0)

    @property
    def around(self) -> ExperimentContext:
        given: dict[str, Any] = {
            "deployments": self.deployments,
            "metrics": SimulatedMetrics(self.cluster),
            "broker": self.cluster.topics,
            "store": self.store,
            "clock": self.clock,
            "open_source": self.open_source,
            "checkpoint": lambda name: f"/checkpoints/{name}",
            **self.context,
        }
        return ExperimentContext(**given)

    def open_source(self, name: str, inputs: Any) -> Any:
        self.sources.append(self.source_kind(self.cluster, dict.fromkeys(inputs.values(), 1.0)))
        self.sources[-1].set_rate(10.0)
        return self.sources[-1]

    def scratch(self) -> list[str]:
        """Topics that copies have left behind."""
        return [name for name in self.cluster.topics.topics() if name.startswith("headroom.")]
