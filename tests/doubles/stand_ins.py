"""Stand-ins for fitted models, for the optimiser and for the plan of a job."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from models.ports import Function, Plan
from models.quantities import Interval, Unknown


@dataclass(frozen=True)
class Linear:
    """A capacity model: so many records per second for each executor, give or take a share."""

    per_executor_rps: float = 1_000.0
    share: float = 0.03

    def predict(self, scale_out: int) -> Interval:
        mid = self.per_executor_rps * scale_out
        return Interval((1.0 - self.share) * mid, mid, (1.0 + self.share) * mid, 0.9)


@dataclass(frozen=True)
class Answer:
    """A decision, as `Settings.decide` returns one."""

    scale_out: int | Unknown
    reason: str = "because"
    feasible: bool = True
    alarm: str | None = None


def plan(name: str = "orders", **changes: Any) -> Plan:
    """A live job, or with `role` and `job` a copy of one, that reads one topic and writes another."""
    given: dict[str, Any] = {
        "name": name,
        "job": name,
        "role": "live",
        "program": Function("a:b"),
        "scale_out": 1,
        "inputs": {"events": f"{name}-in"},
        "outputs": {"alerts": f"{name}-out"},
        "checkpoint": f"/checkpoints/{name}",
        **changes,
    }
    return Plan(**given)
