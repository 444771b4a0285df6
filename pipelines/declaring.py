"""How is one key of headroom.toml declared: its default, its bounds, and the sentence that explains it?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import Field, dataclass, field
from typing import Any

REQUIRED = object()


@dataclass(frozen=True)
class Rule:
    """What one key accepts, and what it is for."""

    help: str
    at_least: float | None = None
    above: float | None = None
    at_most: float | None = None
    choices: tuple[str, ...] = ()
    required: bool = False
    secret_from: bool = False
    """The value is the *name* of an environment variable, never the secret itself."""
    refused: Mapping[str, str] = field(default_factory=dict)
    """Values that people will try -> what to do instead."""


def key(default: Any = REQUIRED, *, help: str, **rule: Any) -> Any:
    """One key of a section."""
    required = default is REQUIRED
    metadata = {"rule": Rule(help=help, required=required, **rule)}
    if isinstance(default, dict):
        return field(default_factory=lambda: dict(default), metadata=metadata)
    return field(default=None if required else default, metadata=metadata)


def rule_of(field_: Field[Any]) -> Rule:
    """The rule a field was declared with."""
    rule: Rule = field_.metadata["rule"]
    return rule
