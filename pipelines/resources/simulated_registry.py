"""How does the registry's twin become the port? With the classes, errors and checks of every registry."""

from __future__ import annotations

from collections.abc import Mapping

from models.quantities import Unknown
from models.simulation.refusals import Refused
from models.simulation.registry import MemoryRegistry
from profiling_jobs.errors import Misconfigured
from profiling_jobs.learning.model_documents import Document, check_registration, job_and_kind
from profiling_jobs.ports import ModelVersion


class SimulatedRegistry:
    """Versions that are forgotten with the process."""

    def __init__(self, registry: MemoryRegistry) -> None:
        self._registry = registry

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
        made = self._registry.register(name, document, tags=tags, picture=picture, about=about)
        return ModelVersion(made.name, made.version, made.document, made.tags)

    def promote(self, name: str, version: int, *, alias: str = "champion") -> None:
        job_and_kind(name)
        try:
            self._registry.promote(name, version, alias=alias)
        except Refused as refused:
            raise Misconfigured(refused.setting, refused.problem) from refused

    def load(
        self, name: str, *, alias: str = "champion", version: int | None = None
    ) -> ModelVersion | Unknown:
        job_and_kind(name)
        kept = self._registry.load(name, alias=alias, version=version)
        if isinstance(kept, Unknown):
            return kept
        return ModelVersion(kept.name, kept.version, kept.document, kept.tags)

    def versions(self, name: str) -> tuple[int, ...]:
        job_and_kind(name)
        return self._registry.versions(name)

    def aliases(self, name: str) -> Mapping[str, int]:
        job_and_kind(name)
        return self._registry.aliases(name)
