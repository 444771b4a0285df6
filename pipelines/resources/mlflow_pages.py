"""What does somebody read who opens a model in MLflow and did not make it?

What question it answers, how its answers are read, what it was made from, how good it is, what it does not
know, and the picture. MLflow shows Markdown; the picture is served by the same server that shows the page.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from profiling_jobs.learning.model_documents import Document, job_and_kind

MOST_CHARACTERS = 4900  # MLflow's database keeps 5000

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
    return _fitting([part for part in parts if part])


def trained(document: Document) -> str:
    """From which data was it made?"""
    data = document["trained_on"]
    said = [f"Made from {data.get('count', '?')} values"]
    if "from_s" in data and "to_s" in data:
        said.append(f"of {_moment(data['from_s'])} to {_moment(data['to_s'])} UTC")
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
    """What was chosen or found, in a form that can be compared between versions."""
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
    # What is no number or not finite is no metric, but should not be lost either.
    kept = metrics(document)
    found |= {f"figures/{k}": v for k, v in _flat(document.get("figures", {})) if k not in kept}
    return {key: str(value) for key, value in found.items()}


def _figures(found: Mapping[str, float]) -> str:
    """Each with what it counts, in the order in which one explains the next.

    A list, because MLflow's tables leave no room between their columns.
    """
    from assets.metadata import KEYS  # takes Dagster along, which whoever only loads a model can do without

    order = {name: number for number, name in enumerate(KEYS)}
    lines = []
    for name, value in sorted(
        found.items(), key=lambda one: (order.get(_agreed(one[0]), len(order)), one[0])
    ):
        said = f"{value:,.0f}" if abs(value) >= 1000.0 else f"{value:.4g}"
        lines.append(f"- `{name}` **{said}** {KEYS.get(_agreed(name), '')}".rstrip())
    return "\n".join(lines)


def _agreed(name: str) -> str:
    """What the assets call it."""
    return "forecast_peak_rps" if name == "peak_rps" else name


def _flat(values: Mapping[str, Any], before: str = "") -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    for key, value in values.items():
        name = f"{before}{''.join(c if c.isalnum() or c in '_-. ' else '_' for c in key)}"
        found += _flat(value, f"{name}/") if isinstance(value, Mapping) else [(name, value)]
    return found


def _moment(seconds: float) -> str:
    return datetime.fromtimestamp(float(seconds), UTC).strftime("%Y-%m-%d %H:%M")


def _fitting(parts: list[str]) -> str:
    """Whole paragraphs only, as many as there is room for."""
    text = ""
    for part in parts:
        if len(text) + len(part) + 2 > MOST_CHARACTERS:
            continue
        text += part + "\n\n"
    return text.rstrip()
