"""In-memory implementation of the `Registry` port; passes the same suite as MLflow."""

from __future__ import annotations

import threading
from collections.abc import Mapping

from models.codec import dumps, loads
from models.errors import Misconfigured
from models.ports import ModelVersion
from models.quantities import Unknown, whole
from profiling_jobs.training.champions import Document, check_registration, job_and_kind


class MemoryRegistry:
    """Versions as text, so that only what a file would keep is kept."""

    def __init__(self) -> None:
        self._versions: dict[str, list[tuple[str, Mapping[str, str]]]] = {}
        self._aliases: dict[str, dict[str, int]] = {}
        self._turn = threading.RLock()

    def register(
        self,
        name: str,
        document: Document,
        *,
        tags: Mapping[str, str],
        picture: bytes = b"",
        about: str = "",
    ) -> ModelVersion:
        check_registration(name, document, tags=tags, picture=picture)
        with self._turn:
            kept = self._versions.setdefault(name, [])
            kept.append((dumps("document", document), dict(tags)))
            self._aliases.setdefault(name, {})["challenger"] = len(kept)
            return self._version(name, len(kept))

    def promote(self, name: str, version: int, *, alias: str = "champion") -> None:
        job_and_kind(name)
        number = whole("version", version)
        with self._turn:
            if number not in self.versions(name):
                there = ", ".join(map(str, self.versions(name))) or "none"
                raise Misconfigured(f"{name} version {number}", f"is not registered; there are: {there}")
            self._aliases[name][alias] = number

    def load(
        self, name: str, *, alias: str = "champion", version: int | None = None
    ) -> ModelVersion | Unknown:
        job_and_kind(name)
        with self._turn:
            number = self.aliases(name).get(alias) if version is None else whole("version", version)
            if number is None:
                return Unknown(f"{name} has no {alias} yet: fit it and promote a version")
            if number not in self.versions(name):
                return Unknown(f"{name} has no version {number}")
            return self._version(name, number)

    def versions(self, name: str) -> tuple[int, ...]:
        job_and_kind(name)
        return tuple(range(1, len(self._versions.get(name, [])) + 1))

    def aliases(self, name: str) -> Mapping[str, int]:
        job_and_kind(name)
        return dict(self._aliases.get(name, {}))

    def _version(self, name: str, number: int) -> ModelVersion:
        text, tags = self._versions[name][number - 1]
        return ModelVersion(name, number, loads(text), tags)
