"""Which autoscalers can be compared, and how is one written? A policy is a start and a pure step."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Protocol

from ..control import Settings
from ..observation import Observation
from ..quantities import Instruction
from . import headroom


class Policy(Protocol):
    """What an autoscaler is to the arena and to the control loop. Its state is its own, and plain JSON."""

    def start(self, settings: Settings) -> Any:
        """The memory of a job nobody has looked at yet."""

    def step(self, state: Any, observation: Observation, now: float) -> tuple[Any, list[Instruction]]:
        """The next memory, and what is to be done now."""


POLICIES: Mapping[str, Policy] = MappingProxyType({"headroom": headroom})
