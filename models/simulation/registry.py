"""Which model versions are there while everything is only simulated?

The twin of the registry: the same answers as MLflow, forgotten with the process. Documents go through their
written form, so that what would not survive a file does not survive here either.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..arguments import whole
from ..codec import dumps, loads
from ..quantities import Unknown
from .topics import Refused


@dataclass(frozen=True)
class Version:
    """What is kept of one version."""

    name: str
    version: int
    text: str
    tags: Mapping[str, str]
    picture: bytes
    about: str

    @property
    def document(self) -> Any:
        """As it was written."""
        return loads(self.text)


@dataclass
class _Model:
    versions: list[Version] = field(default_factory=list)
    aliases: dict[str, int] = field(default_factory=dict)


class MemoryRegistry:
    """Every version in a list, behind one lock."""

    def __init__(self) -> None:
        self._models: dict[str, _Model] = {}
        self._turn = threading.RLock()

    def register(
        self, name: str, document: Mapping[str, Any], *, tags: Mapping[str, str], picture: bytes, about: str
    ) -> Version:
        text = dumps("document", document)
        with self._turn:
            model = self._models.setdefault(name, _Model())
            made = Version(name, len(model.versions) + 1, text, dict(tags), picture, about)
            model.versions.append(made)
            model.aliases["challenger"] = made.version
            return made

    def promote(self, name: str, version: int, *, alias: str) -> None:
        number = whole("version", version)
        with self._turn:
            model = self._models.get(name, _Model())
            if number > len(model.versions):
                there = ", ".join(str(one.version) for one in model.versions) or "none"
                raise Refused(
                    "misconfigured",
                    f"is not registered; there are: {there}",
                    setting=f"{name} version {number}",
                )
            model.aliases[alias] = number

    def load(self, name: str, *, alias: str, version: int | None) -> Version | Unknown:
        with self._turn:
            model = self._models.get(name, _Model())
            number = model.aliases.get(alias) if version is None else whole("version", version)
            if number is None:
                return Unknown(f"{name} has no {alias} yet: fit it and promote a version")
            if number > len(model.versions):
                return Unknown(f"{name} has no version {number}")
            return model.versions[number - 1]

    def versions(self, name: str) -> tuple[int, ...]:
        with self._turn:
            return tuple(one.version for one in self._models.get(name, _Model()).versions)

    def aliases(self, name: str) -> Mapping[str, int]:
        with self._turn:
            return dict(self._models.get(name, _Model()).aliases)
