"""A model as an MLflow model, without a pickle, and its page.

The MLflow model is a folder: `MLmodel` (signature, requirements), an example, and `data/headroom/` with
`document.json`. MLflow's loader module is this file, so that
`mlflow.pyfunc.load_model("models:/orders.capacity@champion")` works wherever Headroom is installed: a table
in, a table out, one row per question.

    capacity   scale_out                 -> low_rps  mid_rps  high_rps   unknown
    latency    scale_out, rate_rps       -> low_ms   mid_ms   high_ms    normal  unknown
    recovery   kind                      -> low_s    mid_s    high_s     unknown
    workload   steps_ahead               -> low_rps  mid_rps  high_rps   unknown

Where the answer is unknown the numbers are NaN and `unknown` says why. The page of a version is Markdown of
at most MOST_CHARACTERS; its picture is served by the MLflow server that shows it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from models.codec import dumps, loads
from models.quantities import Interval, Misuse, Unknown
from profiling_jobs.training.champions import AGAIN, Document, digest, job_and_kind, rebuilt, schema_refused

if TYPE_CHECKING:
    from pandas import DataFrame


MOST_CHARACTERS = 4900  # MLflow's database keeps 5000
SCHEMA = 1
FOLDER = "headroom"
DOCUMENT = "document.json"
UNITS = {"capacity": "rps", "latency": "ms", "recovery": "s", "workload": "rps"}
INPUT_COLUMNS: Mapping[str, Mapping[str, str]] = {
    "capacity": {"scale_out": "long"},
    "latency": {"scale_out": "long", "rate_rps": "double"},
    "recovery": {"kind": "string"},
    "workload": {"steps_ahead": "long"},
}

QUESTIONS = {
    "capacity": "How many records per second can {job} keep up with, at each number of executors?",
    "workload": "How many records per second will arrive at {job} over the next minutes?",
    "latency": "How late are the records of {job} at a number of executors and a rate, and is that normal?",
    "recovery": "How long is {job} down after a failure or a change, from the event to the next commit?",
}
READING = {
    "capacity": "A row says: with `scale_out` executors, between `low_rps` and `high_rps` records/s are "
    "sustained (90 %), most likely `mid_rps`. Overhead of batches is included. Outside the sizes that were "
    "probed it may say *unknown*; that is on purpose, and names the probe that would settle it.",
    "workload": "A row says: so many steps ahead the rate is between `low_rps` and `high_rps` (90 %), most "
    "likely `mid_rps`. The band is made of the errors that the same model made in the past (back-test).",
    "latency": "A row says: the 95th percentile of latency is between `low_ms` and `high_ms` (90 %), most "
    "likely `mid_ms`; `normal` says whether it belongs to the latencies of a healthy job. The measured "
    "latencies are clustered in two, normal and abnormal (two means of their logarithm). Latency is "
    "regressed on utilisation (rate over capacity) and the number of executors, and never falls as "
    "utilisation grows. `miss_rate` is the share of abnormal points that a model without them calls normal.",
    "recovery": "A row says: an event of this `kind` stops the job for `low_s` to `high_s` (90 %), typically "
    "`mid_s`. Catching up afterwards depends on load and capacity and is computed, not stored here.",
}
REFERENCE = (
    "Decisions read the champion's exported copy (`.headroom/champions/`), so they go on while MLflow is "
    "away. `champion` is in charge, `challenger` is the newest one; checks decide whether it takes over."
)


def of_the_model(name: str) -> str:
    """The page of the registered model, above its versions."""
    job, kind = job_and_kind(name)
    return f"**{QUESTIONS[kind].format(job=job)}**\n\n{READING[kind]}\n\n{REFERENCE}"


def of_the_version(
    name: str,
    document: Document,
    *,
    about: str,
    run_id: str,
    experiment_id: str,
    model_id: str,
    picture: str,
) -> str:
    """The page of one version."""
    job, kind = job_and_kind(name)
    parts = [f"**{QUESTIONS[kind].format(job=job)}**", about.strip(), trained(document)]
    run = f"#/experiments/{experiment_id}/runs/{run_id}"
    links = [
        f"[parameters and metrics]({run})",
        f"[signature, example and the document](#/experiments/{experiment_id}/models/{model_id}/artifacts)",
    ]
    if picture:
        parts.append(f"![{name}](get-artifact?path={picture}&run_uuid={run_id})")
        links.insert(0, f"[the picture alone]({run}/artifacts/{picture})")
    parts.append(" · ".join(links))
    parts.append(READING[kind])
    rows = _figures(metrics(document))
    if rows:
        parts.append(f"**Figures**\n\n{rows}")
    parts.append(
        "```python\nimport mlflow  # from a checkout of Headroom\n"
        f'mlflow.pyfunc.load_model("models:/{name}@champion").predict(questions)\n```'
    )
    text = ""
    for part in filter(None, parts):  # whole paragraphs only, as many as there is room for
        if len(text) + len(part) + 2 <= MOST_CHARACTERS:
            text += part + "\n\n"
    return text.rstrip()


def trained(document: Document) -> str:
    """The data that it was made from."""

    def moment(seconds: float) -> str:
        return datetime.fromtimestamp(float(seconds), UTC).strftime("%Y-%m-%d %H:%M")

    data = document["trained_on"]
    said = [f"Made from {data.get('count', '?')} values"]
    if "from_s" in data and "to_s" in data:
        said.append(f"of {moment(data['from_s'])} to {moment(data['to_s'])} UTC")
    if "profile" in data:
        said.append(f"of profile {data['profile']}")
    return " ".join(said) + f"; digest `{data['digest']}`."


def metrics(document: Document) -> dict[str, float]:
    """The figures as MLflow takes them: flat, finite numbers."""
    return {
        name: float(value)
        for name, value in _flat(document.get("figures", {}))
        if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    }


def parameters(document: Document) -> dict[str, str]:
    """Parameters for MLflow, which compares them between versions."""
    kind, model, data = document["kind"], document["model"], document["trained_on"]
    found: dict[str, Any] = {"schema": document["schema"]}
    found |= {f"trained_on/{key}": value for key, value in data.items()}
    if kind == "capacity":
        found |= {"form": model["form"], "forms_tried": ", ".join(model["forms"]), "tasks": model["tasks"]}
        found["scale_outs"] = ", ".join(map(str, sorted({m["scale_out"] for m in model["measurements"]})))
    elif kind == "workload":
        found |= {"model": model["model"]["kind"], "why": model["why"]}
        found |= {key: model[key] for key in ("step_s", "steps", "seed")}
    elif kind == "latency":
        up_to_ms = model["clusters"]["normal_up_to_ms"]
        normal = up_to_ms if math.isfinite(up_to_ms) else "everything"
        found |= {"normal_up_to_ms": normal, "slope": model["slope"], "knots": len(model["knots"])}
    else:
        found |= {f"events/{k}": s["returned"] + s["lost"] for k, s in sorted(model["seen"].items())}
    if "engine" in document:
        engine = document["engine"]
        found |= {f"engine/{key}": engine[key] for key in ("limit_records", "trigger_s")}
        found |= {f"engine/overhead_s/{size}": value for size, value in engine["overhead_s"].items()}
    # MLflow takes finite numbers alone as metrics.
    kept = metrics(document)
    found |= {f"figures/{k}": v for k, v in _flat(document.get("figures", {})) if k not in kept}
    return {key: str(value) for key, value in found.items()}


def _figures(found: Mapping[str, float]) -> str:
    """The figures with their meaning, as a list: MLflow's tables leave no room between their columns."""
    from assets.metadata import KEYS  # imports Dagster, which loading a model does not need

    order = {name: number for number, name in enumerate(KEYS)}
    lines = []
    for name, value in sorted(found.items(), key=lambda one: (order.get(one[0], len(order)), one[0])):
        said = f"{value:,.0f}" if abs(value) >= 1000.0 else f"{value:.4g}"
        lines.append(f"- `{name}` **{said}** {KEYS.get(name, '')}".rstrip())
    return "\n".join(lines)


def _flat(values: Mapping[str, Any], before: str = "") -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    for key, value in values.items():
        name = f"{before}{''.join(c if c.isalnum() or c in '_-. ' else '_' for c in key)}"
        found += _flat(value, f"{name}/") if isinstance(value, Mapping) else [(name, value)]
    return found


def opened(text: str, *, name: str, expected: str) -> Document | Unknown:
    """The document in the text of a document.json, or why it is not the one that was registered."""
    try:
        data = loads(text)
    except (ValueError, RecursionError) as broken:
        return Unknown(f"its document is damaged ({broken}): {AGAIN}")
    if not isinstance(data, dict) or not isinstance(data.get("document"), Mapping):
        return Unknown(f"its document is damaged: {AGAIN}")
    if (wrong := schema_refused(data.get("schema"), what="its document", reads=SCHEMA)) is not None:
        return wrong
    if data.get("name") != name:
        return Unknown(f"its document is that of {data.get('name')}: {AGAIN}")
    if digest({"name": name, "document": data["document"]}) != expected:
        return Unknown(f"its document was changed since it was registered (its digest differs): {AGAIN}")
    document: Document = data["document"]
    return document


def save(path: Path, *, name: str, document: Document, identity: Mapping[str, Any]) -> str:
    """Write the MLflow model to a folder that is not there yet; the digest of its document."""
    import mlflow.pyfunc
    import numpy
    from mlflow.models import Model, ModelSignature

    kind = document["kind"]
    data = path.parent / FOLDER
    data.mkdir()
    body = {"name": name, "document": document}
    signed = digest(body)
    (data / DOCUMENT).write_text(dumps("document", {"schema": SCHEMA, **body}), encoding="utf-8")
    mlflow.pyfunc.save_model(
        path=str(path),
        loader_module=__name__,
        data_path=str(data),
        mlflow_model=Model(**identity),
        signature=ModelSignature(inputs=_schema(INPUT_COLUMNS[kind]), outputs=_schema(_answer_columns(kind))),
        input_example=example(kind, document),
        pip_requirements=[f"mlflow=={mlflow.__version__}", f"numpy=={numpy.__version__}"],
        metadata={"name": name, "digest": signed},
    )
    return signed


def example(kind: str, document: Document) -> DataFrame:
    """Questions for the sizes and kinds that this model knows."""
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
    """The loaded model: MLflow calls `predict` with a table of questions."""

    def __init__(self, kind: str, model: Any) -> None:
        self.kind = kind
        self.model = model

    def predict(self, questions: Any, params: Any = None) -> DataFrame:
        from pandas import DataFrame

        python = {"long": int, "double": float, "string": str}
        columns = INPUT_COLUMNS[self.kind].items()
        asked = [[python[kind](one) for one in questions[column]] for column, kind in columns]
        rows = [self._row(*each) for each in zip(*asked, strict=True)]
        return DataFrame(rows, columns=list(_answer_columns(self.kind)))

    def _row(self, *question: Any) -> list[Any]:
        """Low, mid and high, whether that is normal (latency only), and why it is unknown."""
        ask = {"workload": self._ahead, "recovery": getattr(self.model, "interval", None)}
        try:
            found: Interval | Unknown = (ask.get(self.kind) or self.model.predict)(*question)
            normal = self.model.is_normal(*question) if self.kind == "latency" else True
        except Misuse as wrong:
            found = normal = Unknown(str(wrong))
        said = ["unknown" if isinstance(normal, Unknown) else "yes" if normal else "no"]
        said = said if self.kind == "latency" else []
        if isinstance(found, Unknown):
            return [math.nan, math.nan, math.nan, *said, found.reason]
        return [found.low, found.mid, found.high, *said, ""]

    def _ahead(self, step: int) -> Interval | Unknown:
        if not 1 <= step <= self.model.steps:
            return Unknown(f"the forecast reaches from step 1 to {self.model.steps}")
        forecast = self.model.predict()
        low, mid, high = (float(band[step - 1]) for band in (forecast.low, forecast.mid, forecast.high))
        return Interval(min(low, mid), mid, max(high, mid), forecast.confidence)


def _load_pyfunc(path: str) -> Answers:
    """Called by MLflow with the model's data folder; Misuse for a model that cannot be used."""
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
