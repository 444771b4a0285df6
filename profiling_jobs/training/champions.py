"""The models in charge of a job, as files that evaluations read also while the registry is away.

Promotion writes each champion to `champions/JOB/KIND.json`:

    {"schema": 1, "name": "orders.capacity", "version": 3, "digest": "sha256:…", "document": {…}}

The digest is over name, version and document, so that a damaged file or another job's file is never taken for
a model. What cannot be used is Unknown with what to do, and decisions hold.
"""

from __future__ import annotations

import os
import tempfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from models.capacity import CapacityModel
from models.codec import dumps, from_json, loads
from models.control import Models
from models.downtime import DowntimeModel
from models.errors import Misconfigured, Unsafe
from models.latency import LatencyModel
from models.ports import Registry
from models.quantities import Unknown
from models.workload import Forecaster

from ..telemetry.batch_costs import BareCapacity, EngineInputs
from .model_documents import (
    KINDS,
    Document,
    digest,
    failed_checks,
    known,
    model_name,
    provisional,
    rebuilt,
    schema_refused,
)

FOLDER = "champions"
SCHEMA = 1
WANTED = {
    "workload": "fit the workload model (`headroom model`)",
    "capacity": "profile the job (`headroom profile`)",
    "latency": "profile the job (`headroom profile`)",
    "recovery": "run a drill, or fit the recovery model",
}


@dataclass(frozen=True)
class Champions:
    """The models in charge of one job; what depends on one that is Unknown is held."""

    job: str
    forecaster: Forecaster | Unknown
    """It knows the rates up to `forecaster_until_s`; `update` it with later ones."""
    capacity: CapacityModel | Unknown
    """What is sustained, overhead included: T', as profiling measures it."""
    latency: LatencyModel | Unknown
    downtime: DowntimeModel | Unknown
    engine: EngineInputs | Unknown
    versions: Mapping[str, int]
    """Kind -> version, of those that could be used."""
    trained_on: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Kind -> digest, count, from_s, to_s, profile of the training data."""
    figures: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    provisional: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Kind -> what to measure to make it firm, of those whose checks had too little data."""

    @classmethod
    def load(cls, folder: Path, job: str) -> Champions:
        """The champions of `job` in the `.headroom` folder; what cannot be used says why."""
        documents: dict[str, Document] = {}
        found: dict[str, Any] = {}
        versions: dict[str, int] = {}
        for kind in KINDS:
            kept = exported(folder, job, kind)
            if isinstance(kept, Unknown):
                found[kind] = kept
                continue
            model = rebuilt(kept.document, kind=kind)
            if isinstance(model, Unknown):
                found[kind] = Unknown(f"{kept.name} version {kept.version}: {model.reason}")
                continue
            found[kind], documents[kind], versions[kind] = model, kept.document, kept.version
        engine = found["capacity"]
        if "capacity" in documents:
            engine = Unknown(
                f"{model_name(job, 'capacity')} does not say what a batch costs: profile the job"
            )
            if (data := documents["capacity"].get("engine")) is not None:
                engine = from_json(EngineInputs, data)
        return cls(
            job=job,
            forecaster=found["workload"],
            capacity=found["capacity"],
            latency=found["latency"],
            downtime=found["recovery"],
            engine=engine,
            versions=versions,
            trained_on={kind: dict(d.get("trained_on", {})) for kind, d in documents.items()},
            figures={kind: dict(d.get("figures", {})) for kind, d in documents.items()},
            provisional={kind: needs for kind, d in documents.items() if (needs := provisional(d))},
        )

    @property
    def version(self) -> str:
        """One identifier for all of them, for example `capacity 3, recovery 1`."""
        return ", ".join(f"{kind} {number}" for kind, number in sorted(self.versions.items())) or "none"

    @property
    def seed(self) -> int:
        """The same draws for the same job and models, or decisions would flap."""
        return zlib.crc32(f"{self.job}: {self.version}".encode())

    @property
    def forecaster_until_s(self) -> float | Unknown:
        """The end of the rates that the forecaster knows."""
        until = self.trained_on.get("workload", {}).get("to_s")
        return (
            Unknown("the workload model does not say until when it was trained") if until is None else until
        )

    def models(self, *, limit_records: float | None = None, trigger_s: float | None = None) -> Models:
        """What control needs; the arguments are the job's settings now, where they differ from the profile's.

        The capacity in it is the bare T, which is what the batch engine beside it asks for.
        """
        if isinstance(self.engine, Unknown):
            return Models(self.capacity, self.downtime, self.latency, self.engine, self.version)
        capacity = self.capacity
        return Models(
            capacity=capacity if isinstance(capacity, Unknown) else BareCapacity(capacity, self.engine),
            downtime=self.downtime,
            latency=self.latency,
            engine=self.engine.engine(limit_records=limit_records, trigger_s=trigger_s),
            version=self.version,
        )


@dataclass(frozen=True)
class Exported:
    """One champion's file, after every check of its envelope."""

    name: str
    version: int
    document: Document


def path_of(folder: Path, job: str, kind: str) -> Path:
    """The file of this champion in the `.headroom` folder."""
    return folder / FOLDER / job / f"{known(kind)}.json"


def export(folder: Path, job: str, kind: str, version: int, document: Document) -> Path:
    """Put a model in charge: durable when it returns, whole or not at all.

    A document that could not be loaded again, or failed a check, is refused, and the old champion stays.
    """
    name = model_name(job, kind)
    _refuse_unfit(name, version, kind, document)
    body = {"name": name, "version": int(version), "document": document}
    path = path_of(folder, job, kind)
    _write(path, dumps("champion", {"schema": SCHEMA, **body, "digest": digest(body)}))
    return path


def exported(folder: Path, job: str, kind: str) -> Exported | Unknown:
    """The champion's file, or why it cannot be used."""
    path, name = path_of(folder, job, kind), model_name(job, kind)

    def unusable(why: str) -> Unknown:
        return Unknown(f"the champion {path} {why}: promote the champion again, which writes it anew")

    try:
        data = loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return Unknown(f"{name} has no champion yet: {WANTED[kind]}")
    except (OSError, UnicodeDecodeError) as unreadable:
        return unusable(f"cannot be read ({unreadable})")
    except (ValueError, RecursionError) as broken:
        return unusable(f"is damaged ({broken})")
    if not isinstance(data, dict):
        return unusable("is damaged (no object)")
    if (wrong := schema_refused(data.get("schema"), what=f"the champion {path}", reads=SCHEMA)) is not None:
        return wrong
    body = {key: data.get(key) for key in ("name", "version", "document")}
    if data.get("digest") != digest(body):
        return unusable("was changed or damaged (its digest differs)")
    if body["name"] != name:
        return unusable(f"is that of {body['name']}, not of {name}")
    if type(body["version"]) is not int or body["version"] < 1 or not isinstance(body["document"], Mapping):
        return unusable("has no version or no document")
    return Exported(name, body["version"], body["document"])


def promote(registry: Registry, folder: Path, *, job: str, kind: str, version: int) -> Path:
    """Make a version the champion: in the registry, and in the file that evaluations read.

    What could not be loaded again, failed a check or was never checked is refused before anything is changed.
    When it is interrupted between the two, `refresh` completes it: before a refit, or when the server starts.
    """
    name = model_name(job, kind)
    kept = registry.load(name, version=version)
    if isinstance(kept, Unknown):
        raise Misconfigured(f"{name} version {version}", kept.reason)
    _refuse_unfit(name, version, kind, kept.document)
    if not kept.document.get("checks"):
        raise Unsafe(f"{name} version {version} is not put in charge: it was never checked, fit it again")
    registry.promote(name, version)
    return export(folder, job, kind, version, kept.document)


def refresh(registry: Registry, folder: Path, job: str) -> tuple[str, ...]:
    """Write the files that are missing, damaged, or not of the registry's champion; the kinds that were.

    A champion of the registry that failed a check or was never checked has no effect.
    """
    done = []
    for kind in KINDS:
        champion = registry.load(model_name(job, kind))
        if isinstance(champion, Unknown):
            continue
        if not champion.document.get("checks") or failed_checks(champion.document):
            continue
        there = exported(folder, job, kind)
        if isinstance(there, Unknown) or there.version != champion.version:
            export(folder, job, kind, champion.version, champion.document)
            done.append(kind)
    return tuple(done)


def _refuse_unfit(name: str, version: int, kind: str, document: Document) -> None:
    model = rebuilt(document, kind=kind)
    why = model.reason if isinstance(model, Unknown) else "; ".join(failed_checks(document))
    if why:
        raise Unsafe(f"{name} version {version} is not put in charge: {why}")


def _write(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle, partial = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")  # two may write at once
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            os.replace(partial, path)
        finally:
            Path(partial).unlink(missing_ok=True)
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError as error:
        raise Misconfigured(str(path), f"cannot be written ({error}); the old champion stays") from error
