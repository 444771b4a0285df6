"""How does a model look as an MLflow model, without a pickle?

As a folder: `MLmodel` (signature, requirements), an example, `data/headroom/document.json` and
`picture.png` beside it.
MLflow's loader module is this file, so that `mlflow.pyfunc.load_model("models:/orders.capacity@champion")`
works wherever Headroom is installed: a table in, a table out, one row per question.

    capacity   scale_out                 -> low_rps  mid_rps  high_rps   unknown
    latency    scale_out, rate_rps       -> low_ms   mid_ms   high_ms    normal  unknown
    recovery   kind                      -> low_s    mid_s    high_s     unknown
    workload   steps_ahead               -> low_rps  mid_rps  high_rps   unknown

Where nothing can be said the numbers are NaN and `unknown` says why.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from models.codec import dumps, loads
from models.quantities import Interval, Misuse, Unknown
from profiling_jobs.learning.model_documents import Document, digest, rebuilt, schema_refused

if TYPE_CHECKING:
    from pandas import DataFrame

SCHEMA = 1
FOLDER = "headroom"
DOCUMENT = "document.json"
PICTURE = "picture.png"
UNITS = {"capacity": "rps", "latency": "ms", "recovery": "s", "workload": "rps"}
QUESTIONS: Mapping[str, Mapping[str, str]] = {
    "capacity": {"scale_out": "long"},
    "latency": {"scale_out": "long", "rate_rps": "double"},
    "recovery": {"kind": "string"},
    "workload": {"steps_ahead": "long"},
}


def envelope(name: str, document: Document) -> tuple[str, str]:
    """The text of document.json, and its digest."""
    body = {"name": name, "document": document}
    return dumps("document", {"schema": SCHEMA, **body}), digest(body)


def opened(text: str, *, name: str, expected: str) -> Document | Unknown:
    """The document in the text of a document.json, or why it is not the one that was registered."""
    again = "fit it again and promote the new version"
    try:
        data = loads(text)
    except (ValueError, RecursionError) as broken:
        return Unknown(f"its document is damaged ({broken}): {again}")
    if not isinstance(data, dict) or not isinstance(data.get("document"), Mapping):
        return Unknown(f"its document is damaged: {again}")
    if (wrong := schema_refused(data.get("schema"), what="its document", reads=SCHEMA)) is not None:
        return wrong
    if data.get("name") != name:
        return Unknown(f"its document is that of {data.get('name')}: {again}")
    if digest({"name": name, "document": data["document"]}) != expected:
        return Unknown(f"its document was changed since it was registered (its digest differs): {again}")
    document: Document = data["document"]
    return document


def save(path: Path, *, name: str, document: Document, picture: bytes, identity: Mapping[str, Any]) -> str:
    """Write the MLflow model to a folder that is not there yet; the digest of its document."""
    import mlflow.pyfunc
    import numpy
    from mlflow.models import Model, ModelSignature

    kind = document["kind"]
    data = path.parent / FOLDER
    data.mkdir()
    text, signed = envelope(name, document)
    (data / DOCUMENT).write_text(text, encoding="utf-8")
    if picture:
        (data / PICTURE).write_bytes(picture)
    mlflow.pyfunc.save_model(
        path=str(path),
        loader_module=__name__,
        data_path=str(data),
        mlflow_model=Model(**identity),
        signature=ModelSignature(inputs=_schema(QUESTIONS[kind]), outputs=_schema(_answer_columns(kind))),
        input_example=example(kind, document),
        pip_requirements=[f"mlflow=={mlflow.__version__}", f"numpy=={numpy.__version__}"],
        metadata={"name": name, "digest": signed},
    )
    return signed


def example(kind: str, document: Document) -> DataFrame:
    """Questions that make sense for this very model."""
    from pandas import DataFrame

    model = document["model"]
    sizes = sorted({m["scale_out"] for m in model.get("measurements", ())}) or [1, 2]
    if kind == "workload":
        ahead = sorted({1, max(1, int(model["steps"]) // 2), int(model["steps"])})
        return DataFrame({"steps_ahead": ahead})
    if kind == "recovery":
        return DataFrame({"kind": sorted(model["seen"]) or ["executor_kill", "driver_kill"]})
    if kind == "latency":
        rates = {m["scale_out"]: float(m["offered_rps"]) for m in model["measurements"]}
        return DataFrame({"scale_out": sizes, "rate_rps": [rates.get(s, 1000.0) for s in sizes]})
    return DataFrame({"scale_out": sizes})


class Answers:
    """What MLflow calls: `predict` on a table of questions."""

    def __init__(self, kind: str, model: Any) -> None:
        self.kind = kind
        self.model = model

    def predict(self, questions: Any, params: Any = None) -> DataFrame:
        from pandas import DataFrame

        asked = [list(questions[column]) for column in QUESTIONS[self.kind]]
        rows = [self._row(*each) for each in zip(*asked, strict=True)]
        return DataFrame(rows, columns=list(_answer_columns(self.kind)))

    def _row(self, *question: Any) -> list[Any]:
        found = self._asked(*question)
        normal = self._normal(*question) if self.kind == "latency" else []
        if isinstance(found, Unknown):
            return [math.nan, math.nan, math.nan, *normal, found.reason]
        return [found.low, found.mid, found.high, *normal, ""]

    def _asked(self, *question: Any) -> Interval | Unknown:
        found: Interval | Unknown
        try:
            if self.kind == "capacity":
                found = self.model.predict(int(question[0]))
            elif self.kind == "latency":
                found = self.model.predict(int(question[0]), float(question[1]))
            elif self.kind == "recovery":
                found = self.model.interval(str(question[0]))
            else:
                found = self._ahead(int(question[0]))
        except Misuse as wrong:
            return Unknown(str(wrong))
        return found

    def _normal(self, scale_out: Any, rate_rps: Any) -> list[str]:
        try:
            normal = self.model.is_normal(int(scale_out), float(rate_rps))
        except Misuse:
            return ["unknown"]
        return ["unknown" if isinstance(normal, Unknown) else "yes" if normal else "no"]

    def _ahead(self, step: int) -> Interval | Unknown:
        if not 1 <= step <= self.model.steps:
            return Unknown(f"the forecast reaches from step 1 to {self.model.steps}")
        forecast = self.model.predict()
        low, mid, high = (float(band[step - 1]) for band in (forecast.low, forecast.mid, forecast.high))
        return Interval(min(low, mid), mid, max(high, mid), forecast.confidence)


def _load_pyfunc(path: str) -> Answers:
    """MLflow's entry: `path` is the model's data folder. A model that cannot be used is an error here."""
    from mlflow.models import Model

    signed = Model.load(str(Path(path).parents[1])).metadata or {}  # `MLmodel`, beside data/
    if not {"name", "digest"} <= signed.keys():
        raise Misuse("MLmodel", "has no name or no digest: fit the model again and promote the new version")
    name = str(signed["name"])
    text = (Path(path) / DOCUMENT).read_text(encoding="utf-8")
    document = opened(text, name=name, expected=str(signed["digest"]))
    kind = name.rpartition(".")[2]
    model = document if isinstance(document, Unknown) else rebuilt(document, kind=kind)
    if isinstance(model, Unknown):
        raise Misuse(name, model.reason)
    return Answers(kind, model)


def _answer_columns(kind: str) -> dict[str, str]:
    unit = UNITS[kind]
    normal = {"normal": "string"} if kind == "latency" else {}
    return {
        **dict.fromkeys((f"low_{unit}", f"mid_{unit}", f"high_{unit}"), "double"),
        **normal,
        "unknown": "string",
    }


def _schema(columns: Mapping[str, str]) -> Any:
    from mlflow.types import ColSpec, Schema

    specs: Iterable[Any] = (ColSpec(type_, name) for name, type_ in columns.items())
    return Schema(list(specs))
