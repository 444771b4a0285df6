"""What is written down of a fitted model, so that it comes back as it was, or is refused with a reason?

    {"schema": 1, "kind": "capacity", "model": to_json() of the model, "trained_on": {…}, "figures": {…}}

Plain JSON, evaluated with numpy alone after `rebuilt`; no pickle. `trained_on` says which data (`digest`,
`count`, `from_s`, `to_s`, and the `profile` they came from where there is one), `figures` how good the model
was on them. A capacity model has an `engine` beside it (profiling_jobs.telemetry.batch_costs). `checks` says
how each check came out (profiling_jobs.training.checks): what failed one, or was never checked, is not put
in charge. The registry and the champions' files keep the same document.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from models import codec
from models.capacity import CapacityModel
from models.codec import dumps
from models.downtime import DowntimeModel
from models.latency import LatencyModel
from models.quantities import Misuse, Unknown
from models.workload import Forecaster

from ..telemetry.batch_costs import EngineInputs

SCHEMA = 1
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

Document = Mapping[str, Any]
Model = Forecaster | CapacityModel | LatencyModel | DowntimeModel


def model_name(job: str, kind: str) -> str:
    """Under which name is it registered?"""
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
    """May this be registered? Job and kind, or Misuse: what could not be loaded again is not kept."""
    job, kind = job_and_kind(name)
    dumps("document", data)  # plain JSON, or Misuse that says where it is not
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
    result = {
        "schema": SCHEMA,
        "kind": kind,
        "model": codec.to_json(model),
        "trained_on": dict(trained_on),
        "figures": dict(figures or {}),
    }
    if engine is not None:
        result["engine"] = engine.to_json()
    return checked(result, checks)


def checked(data: Document, checks: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """The document with how its checks came out, each with `name`, `outcome` and what was `said`."""
    told = [dict(check) for check in checks]
    return {**data, "checks": told} if told else dict(data)


def failed_checks(data: Document) -> tuple[str, ...]:
    """Which checks forbid that this takes charge: `name: why`."""
    return tuple(
        f"{check['name']}: {check['said']}"
        for check in data.get("checks", ())
        if check["outcome"] not in ("passed", "warned", "too little data")
    )


def provisional(data: Document) -> tuple[str, ...]:
    """What to measure to make this model firm; empty when no check had too little data."""
    checks = data.get("checks", ())
    return tuple(dict.fromkeys(check["needs"] for check in checks if check["outcome"] == "too little data"))


def training(
    data: Iterable[Any], *, from_s: float | None = None, to_s: float | None = None, profile: str | None = None
) -> dict[str, Any]:
    """The `trained_on` of a document: `data` is what was fitted, in its order, as plain JSON values."""
    values = list(data)
    found: dict[str, Any] = {"digest": digest(values), "count": len(values)}
    return found | {
        name: value
        for name, value in (("from_s", from_s), ("to_s", to_s), ("profile", profile))
        if value is not None
    }


def digest(value: Any) -> str:
    """SHA-256 of plain JSON, whatever the order of its keys."""
    plain = json.loads(dumps("value", value))
    text = json.dumps(plain, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return "sha256:" + hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def rebuilt(data: Any, *, kind: str) -> Model | Unknown:
    """The model of a document, or why it cannot be used and what to do."""
    problem = refused(data, kind=kind)
    if problem is not None:
        return problem
    try:
        model: Model = codec.from_json(KINDS[kind], data["model"], name="model")
        if kind == "capacity" and "engine" in data:
            EngineInputs.from_json(data["engine"])
    except (Misuse, KeyError, ValueError, TypeError, AttributeError, IndexError) as wrong:
        return Unknown(f"the {kind} model cannot be rebuilt ({_said(wrong)}): {_AGAIN}")
    return model


_AGAIN = "fit it again and promote the new version"


def refused(data: Any, *, kind: str) -> Unknown | None:
    """Why a document is not one that this Headroom reads as this kind of model; None when it is."""
    if not isinstance(data, Mapping):
        return Unknown(f"the {kind} model is no document but {type(data).__name__}: {_AGAIN}")
    if (wrong := schema_refused(data.get("schema"), what=f"the {kind} model", reads=SCHEMA)) is not None:
        return wrong
    if data.get("kind") != known(kind):
        return Unknown(f"a {kind} model is wanted, this is {data.get('kind')!r}: {_AGAIN}")
    model = data.get("model")
    if not isinstance(model, Mapping):
        return Unknown(f"the {kind} document holds no model: {_AGAIN}")
    return schema_refused(model.get("schema"), what=f"the {kind} model's own state", reads=1)


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
        f"{what} was written by an older Headroom (schema {schema!r}, this one reads {reads}): {_AGAIN}"
    )


def known(kind: str) -> str:
    """The kind itself, when it is one."""
    if kind not in KINDS:
        raise Misuse("kind", f"must be one of {', '.join(KINDS)}, got {kind!r}")
    return kind


def _said(wrong: Exception) -> str:
    return str(wrong) if isinstance(wrong, Misuse) else f"{type(wrong).__name__}: {wrong}"
