"""Model documents and champions: what is kept of a fitted model, and the models in charge of a job.

A document, in the registry and in the champions' files, is plain JSON and no pickle:

    {"schema": 1, "kind": "capacity", "model": {…}, "trained_on": {…}, "figures": {…}, "checks": […]}

`trained_on`: `digest`, `count`, `from_s`, `to_s` of the data, and the `profile` they came from. `figures`:
how good the model was on them. `checks`: the results of training.checks; a model that failed one, or was
never checked, is not put in charge. A capacity model has its `engine` beside it (telemetry.batch_costs).

Promotion writes each champion to `champions/JOB/KIND.json`, which evaluations read also while the registry is
away:

    {"schema": 2, "name": "orders.capacity", "version": 3, "signature": "hmac-sha256:…", "document": {…}}

The signature is over name, version and document, with a key that only this installation has (`models.key`). A
registry keeps the same one with each version. So a damaged file, another job's file, or a model that others
have put into the registry is never taken for ours. What cannot be used is Unknown with what to do, and
decisions hold.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
import zlib
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from models import codec
from models.capacity import CapacityModel
from models.codec import dumps, from_json, loads
from models.control import Models
from models.downtime import DowntimeModel
from models.errors import HeadroomError, Misconfigured, Unsafe
from models.latency import LatencyModel
from models.ports import Registry
from models.quantities import Misuse, Unknown
from models.workload import Forecaster

from .. import secret_file
from ..driver.launch_file import write_text
from ..telemetry.batch_costs import BareCapacity, EngineInputs

DOCUMENT_SCHEMA = 1
KINDS: Mapping[str, Any] = {
    "workload": Forecaster,
    "capacity": CapacityModel,
    "latency": LatencyModel,
    "recovery": DowntimeModel,
}
NAME = re.compile(r"[a-z][a-z0-9-]{0,38}")
"""Of a job: as headroom.toml has it."""
PNG = b"\x89PNG\r\n\x1a\n"
TAKEN = ("headroom.", "mlflow.")
"""Tags that begin so are not the caller's."""
AGAIN = "fit it again and promote the new version"

Document = Mapping[str, Any]
Model = Forecaster | CapacityModel | LatencyModel | DowntimeModel


def known(kind: str) -> str:
    """The kind itself, when it is one."""
    if kind not in KINDS:
        raise Misuse("kind", f"must be one of {', '.join(KINDS)}, got {kind!r}")
    return kind


def model_name(job: str, kind: str) -> str:
    """The name under which it is registered: `orders.capacity`."""
    return f"{job}.{known(kind)}"


def job_and_kind(name: str) -> tuple[str, str]:
    """`orders.capacity` -> orders, capacity."""
    job, _, kind = name.rpartition(".")
    if kind not in KINDS or not NAME.fullmatch(job):
        raise Misuse("name", f"must be JOB.KIND with one of {', '.join(KINDS)}, got {name!r}")
    return job, kind


def check_registration(
    name: str, data: Document, *, tags: Mapping[str, str], picture: bytes
) -> tuple[str, str]:
    """Job and kind; Misuse for what could not be loaded again."""
    job, kind = job_and_kind(name)
    codec.dumps("document", data)  # Misuse that says where it is not plain JSON
    model = rebuilt(data, kind=kind)
    if isinstance(model, Unknown):
        raise Misuse("document", model.reason)
    if not isinstance(data.get("trained_on"), Mapping) or "digest" not in data["trained_on"]:
        raise Misuse("document", "must say which data it was trained on")
    if picture and not picture.startswith(PNG):
        raise Misuse("picture", "must be a PNG")
    for key, value in tags.items():
        if not key or key.startswith(TAKEN) or not isinstance(value, str):
            raise Misuse(
                "tags", f"must be strings and not begin with {' or '.join(TAKEN)}, got {key!r}: {value!r}"
            )
    return job, kind


def document(
    kind: str,
    model: Model,
    *,
    trained_on: Mapping[str, Any],
    figures: Mapping[str, Any] | None = None,
    engine: EngineInputs | None = None,
    checks: Iterable[Mapping[str, Any]] = (),
) -> dict[str, Any]:
    """Everything that is kept of this model; `trained_on` as `training` makes it."""
    if not isinstance(model, KINDS[known(kind)]):
        raise Misuse("model", f"must be a {KINDS[kind].__name__} for {kind}, got {type(model).__name__}")
    if "digest" not in trained_on:
        raise Misuse("trained_on", "must have the digest of the training data")
    if engine is not None and kind != "capacity":
        raise Misuse("engine", f"belongs to the capacity, not to {kind}")
    found = {
        "schema": DOCUMENT_SCHEMA,
        "kind": kind,
        "model": codec.to_json(model),
        "trained_on": dict(trained_on),
        "figures": dict(figures or {}),
    }
    if engine is not None:
        found["engine"] = codec.to_json(engine)
    results = [dict(check) for check in checks]
    return {**found, "checks": results} if results else found


def failed_checks(data: Document) -> tuple[str, ...]:
    """The checks that keep it from being in charge: `name: why`."""
    return tuple(
        f"{check['name']}: {check['said']}"
        for check in data.get("checks", ())
        if check["outcome"] not in ("passed", "warned", "too little data")
    )


def provisional(data: Document) -> tuple[str, ...]:
    """What to measure to make this model firm; empty when no check had too little data."""
    checks = data.get("checks", ())
    return to_make_it_firm(check["needs"] for check in checks if check["outcome"] == "too little data")


def to_make_it_firm(needs: Iterable[str]) -> tuple[str, ...]:
    """What checks need, each thing once: of `2 more drills` and `3 more drills` the larger number."""
    most: dict[str, tuple[int, str]] = {}
    for need in needs:
        found = re.fullmatch(r"([0-9]+) more (\w+?)s?( .*)?", need)
        what, number = (f"{found[2]}{found[3]}", int(found[1])) if found else (need, 0)
        most[what] = max((number, need), most.get(what, (0, "")))
    return tuple(need for _, need in most.values())


def training(
    data: Iterable[Any], *, from_s: float | None = None, to_s: float | None = None, profile: str | None = None
) -> dict[str, Any]:
    """The `trained_on` of a document: `data` is what was fitted, in its order, as plain JSON values."""
    values = list(data)
    found = {"digest": digest(values), "count": len(values), "from_s": from_s, "to_s": to_s}
    return {name: value for name, value in {**found, "profile": profile}.items() if value is not None}


def digest(value: Any) -> str:
    """SHA-256 of plain JSON, whatever the order of its keys."""
    return "sha256:" + hashlib.sha256(_canonical(value)).hexdigest()


def _canonical(value: Any) -> bytes:
    plain = json.loads(codec.dumps("value", value))
    text = json.dumps(plain, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return text.encode("utf-8", "surrogatepass")


def signature(folder: Path, *, name: str, version: int, document: Document) -> str:
    """HMAC-SHA-256 with the key in the `.headroom` folder, which is made where there is none."""
    key = secret_file.kept(folder / KEY)
    body = {"name": name, "version": version, "document": document}
    return "hmac-sha256:" + hmac.new(key.encode(), _canonical(body), hashlib.sha256).hexdigest()


def signature_refused(
    folder: Path, signed: Any, *, name: str, version: int, document: Document
) -> Unknown | None:
    """Why this signature is not ours, and what to do; None when it is."""
    wanted = signature(folder, name=name, version=version, document=document)
    if isinstance(signed, str) and hmac.compare_digest(signed.encode(), wanted.encode()):
        return None
    job, kind = job_and_kind(name)
    problem = "its signature is not of this installation" if signed else "it has no signature"
    return Unknown(
        f"{problem}, so that its origin is not known: look at it, and if it is yours run "
        f"`headroom model {job} --kind {kind} --sign {version}`; or {AGAIN}"
    )


def rebuilt(data: Any, *, kind: str) -> Model | Unknown:
    """The model of a document, or why it cannot be used and what to do."""
    if not isinstance(data, Mapping):
        return Unknown(f"the {kind} model is no document but {type(data).__name__}: {AGAIN}")
    wrong = schema_refused(data.get("schema"), what=f"the {kind} model", reads=DOCUMENT_SCHEMA)
    if wrong is not None:
        return wrong
    if data.get("kind") != known(kind):
        return Unknown(f"expected a {kind} model, got {data.get('kind')!r}: {AGAIN}")
    state = data.get("model")
    if not isinstance(state, Mapping):
        return Unknown(f"the {kind} document holds no model: {AGAIN}")
    what = f"the {kind} model's own state"
    if (
        wrong := schema_refused(state.get("schema"), what=what, reads=getattr(KINDS[kind], "schema", 1))
    ) is not None:
        return wrong
    try:
        model: Model = codec.from_json(KINDS[kind], state, name="model")
        if kind == "capacity" and "engine" in data:
            codec.from_json(EngineInputs, data["engine"], name="engine")
    except (Misuse, KeyError, ValueError, TypeError, AttributeError, IndexError) as error:
        said = str(error) if isinstance(error, Misuse) else f"{type(error).__name__}: {error}"
        return Unknown(f"the {kind} model cannot be rebuilt ({said}): {AGAIN}")
    return model


def schema_refused(schema: Any, *, what: str, reads: int) -> Unknown | None:
    """Why something of this schema version is not read; None when it is."""
    if type(schema) is int and schema == reads:
        return None
    if type(schema) is int and schema > reads:
        return Unknown(
            f"{what} was written by a newer Headroom (schema {schema}, this one reads {reads}): "
            "update this installation, or fit the model again with it and promote that"
        )
    return Unknown(
        f"{what} was written by an older Headroom (schema {schema!r}, this one reads {reads}): {AGAIN}"
    )


FOLDER = "champions"
KEY = "models.key"
SCHEMA = 2
UNSIGNED_SCHEMA = 1
NOT_READ = Unknown("it was not asked for")
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
    def load(cls, folder: Path, job: str, *, kinds: Collection[str] = tuple(KINDS)) -> Champions:
        """The champions of `job` in the `.headroom` folder; what cannot be used says why.

        `kinds`: those that are read; the others are Unknown.
        """
        documents: dict[str, Document] = {}
        found: dict[str, Any] = {}
        versions: dict[str, int] = {}
        for kind in KINDS:
            kept = exported(folder, job, kind) if kind in kinds else NOT_READ
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
    signed = signature(folder, name=name, version=int(version), document=document)
    text = dumps("champion", {"schema": SCHEMA, **body, "signature": signed})
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_text(path, text)
    except OSError as error:
        raise Misconfigured(str(path), f"cannot be written ({error}); the old champion stays") from error
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
    schema = SCHEMA if data.get("schema") == UNSIGNED_SCHEMA else data.get("schema")
    if (wrong := schema_refused(schema, what=f"the champion {path}", reads=SCHEMA)) is not None:
        return wrong
    version, kept = data.get("version"), data.get("document")
    if data.get("name") != name:
        return unusable(f"is that of {data.get('name')}, not of {name}")
    if type(version) is not int or version < 1 or not isinstance(kept, Mapping):
        return unusable("has no version or no document")
    try:
        wrong = signature_refused(folder, data.get("signature"), name=name, version=version, document=kept)
    except (HeadroomError, RecursionError) as error:
        return unusable(f"cannot be checked ({error})")
    if wrong is not None:
        return Unknown(f"the champion {path} was changed, or is not ours: {wrong.reason}")
    return Exported(name, version, kept)


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


def refresh(
    registry: Registry, folder: Path, job: str, *, say: Callable[[str], None] = lambda line: None
) -> tuple[str, ...]:
    """Write the files that are missing, damaged, or not of the registry's champion; the kinds that were.

    A champion of the registry that failed a check, was never checked or is not signed has no effect.
    """
    done = []
    for kind in KINDS:
        champion = registry.load(model_name(job, kind))
        if isinstance(champion, Unknown):
            if "champion" in registry.aliases(model_name(job, kind)):
                say(champion.reason)
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
