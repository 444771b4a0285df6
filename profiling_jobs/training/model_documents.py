"""The JSON document that is kept of a fitted model, in the registry and in the champions' files.

    {"schema": 1, "kind": "capacity", "model": {…}, "trained_on": {…}, "figures": {…}, "checks": […]}

Plain JSON and no pickle; `rebuilt` needs numpy alone. `trained_on`: `digest`, `count`, `from_s`, `to_s` of
the data, and the `profile` they came from. `figures`: how good the model was on them. `checks`: the results
of training.checks; a model that failed one, or was never checked, is not put in charge. A capacity model has
its `engine` beside it (telemetry.batch_costs).
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from models import codec
from models.capacity import CapacityModel
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
        "schema": SCHEMA,
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
    return tuple(dict.fromkeys(check["needs"] for check in checks if check["outcome"] == "too little data"))


def training(
    data: Iterable[Any], *, from_s: float | None = None, to_s: float | None = None, profile: str | None = None
) -> dict[str, Any]:
    """The `trained_on` of a document: `data` is what was fitted, in its order, as plain JSON values."""
    values = list(data)
    found = {"digest": digest(values), "count": len(values), "from_s": from_s, "to_s": to_s}
    return {name: value for name, value in {**found, "profile": profile}.items() if value is not None}


def digest(value: Any) -> str:
    """SHA-256 of plain JSON, whatever the order of its keys."""
    plain = json.loads(codec.dumps("value", value))
    text = json.dumps(plain, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return "sha256:" + hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def rebuilt(data: Any, *, kind: str) -> Model | Unknown:
    """The model of a document, or why it cannot be used and what to do."""
    if not isinstance(data, Mapping):
        return Unknown(f"the {kind} model is no document but {type(data).__name__}: {AGAIN}")
    if (wrong := schema_refused(data.get("schema"), what=f"the {kind} model", reads=SCHEMA)) is not None:
        return wrong
    if data.get("kind") != known(kind):
        return Unknown(f"expected a {kind} model, got {data.get('kind')!r}: {AGAIN}")
    state = data.get("model")
    if not isinstance(state, Mapping):
        return Unknown(f"the {kind} document holds no model: {AGAIN}")
    what = f"the {kind} model's own state"
    if (wrong := schema_refused(state.get("schema"), what=what, reads=1)) is not None:
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
