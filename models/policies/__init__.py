"""Autoscalers that the arena compares. A policy is an initial state and a pure step."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Protocol

from ..control import Settings
from ..observation import Observation
from ..quantities import Instruction
from . import headroom


class Policy(Protocol):
    """Interface of an autoscaler. Its state is its own, and plain JSON."""

    def start(self, settings: Settings) -> Any: ...

    def step(self, state: Any, observation: Observation, now: float) -> tuple[Any, list[Instruction]]: ...


POLICIES: Mapping[str, Policy] = MappingProxyType({"headroom": headroom})
