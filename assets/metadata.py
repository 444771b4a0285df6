"""Metadata of the assets: the same name with its unit everywhere, so that Dagster's plots line up.

Dagster plots numbers under one key over time. What is unknown is left out of the plots and says why in words;
so is an infinity. `labelled` refuses a name that is not in KEYS, WORDS or PICTURES.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import dagster as dg

from models.quantities import Misuse, Unknown

KEYS: Mapping[str, str] = {
    # the load
    "arrival_rps": "records/s arriving",
    "throughput_rps": "records/s committed",
    "mean_arrival_rps": "records/s, mean of the history",
    "highest_arrival_rps": "records/s, highest of the history",
    "forecast_peak_rps": "records/s, highest over the horizon",
    "forecast_peak_high_rps": "records/s, upper end of it (95 %)",
    "rates_seen": "steps at which arrivals are known",
    "rates_missing": "steps at which they are not",
    "history_s": "seconds of arrivals that the forecast is fitted to",
    "horizon_s": "seconds the forecast reaches",
    "hours": "hours of arrivals in the history",
    "missing_share": "0…1 of them without an observation",
    "step_s": "seconds per step",
    # how the job does
    "lag_records": "records waiting",
    "lag_s": "seconds of input waiting",
    "p95_latency_ms": "milliseconds, 95th percentile over records",
    "executors_alive": "executors",
    "hottest_share": "0…1, the busiest worker",
    "utilisation": "0…1, load over capacity",
    # what is promised and decided
    "scale_out": "executors, declared",
    "recommended_scale_out": "executors that should run",
    "smallest_scale_out": "executors, the fewest that keep the promise",
    "recovery_s": "seconds until caught up after a failure",
    "recovery_promised_s": "seconds by when the promised share of recoveries has ended",
    "recovery_target_s": "seconds that are promised",
    "kept_probability": "0…1 that a failure is recovered in time",
    "epoch": "number of the control state",
    # capacity
    "capacity_rps": "records/s sustained",
    "capacity_low_rps": "records/s, lower end of it (95 %)",
    "capacity_high_rps": "records/s, upper end of it (95 %)",
    "largest_size": "executors of capacity_rps",
    "saturated_sizes": "scale-outs at which the job was saturated",
    "measurements": "probes and live measurements used",
    "live_measurements": "live measurements among them",
    "left_out_in_recovery": "live measurements left out: the job was recovering",
    "left_out_contradicting": "live measurements left out: they contradict the profile or newer ones",
    "profile_taken_at": "0…1 of the profiled capacities that live measurements reach",
    "slower_at": "executors at which they were made",
    "slower_since_s": "seconds since 1970 at which the first of them ended",
    "executor_seconds": "executor-seconds, cost of the measurements",
    "overhead_s": "seconds a batch costs beside its records, at most",
    "fold_error": "0…1, error of larger sizes predicted from smaller ones",
    # latency
    "normal_up_to_ms": "milliseconds up to which latency is normal",
    "miss_rate": "0…1 of abnormal points, classified as normal when left out",
    "false_alarm_rate": "0…1 of normal points, classified as abnormal when left out",
    "abnormal_tp": "abnormal points classified as abnormal",
    "abnormal_fp": "normal points classified as abnormal",
    "abnormal_fn": "abnormal points classified as normal",
    "abnormal_tn": "normal points classified as normal",
    # downtime
    "events": "failures and changes of size",
    "events_lost": "of them from which the job did not come back",
    "drills": "drills compared with their prediction",
    "drill_error": "0…1, mean error of predicted recoveries",
    # how good a model is
    "held_out_error": "0…1, mean relative error on what was left out",
    "held_out_count": "values left out",
    "held_out_inside": "of them inside their 90 % interval",
    "held_out_horizons": "horizons left out",
    "held_out_mae_rps": "records/s, mean error on them",
    "held_out_mean_rps": "records/s, mean of them",
    "naive_mae_rps": "records/s, mean error of the better naive forecast on them",
    "backtest_mae_rps": "records/s, mean error in the back-test",
    "interval_coverage": "0…1 of what was left out lies in its 90 % interval",
    # which model
    "model_version": "number of the version that was registered",
    "champion_version": "number of the version in charge",
    "promoted": "1: it was put in charge",
    "checks_failed": "failed checks; with any, the model is refused",
    "checks_warned": "checks that passed with a warning",
    "checks_too_little_data": "checks that had too little data; with any, the model is provisional",
}
BY_KIND = ("events_", "downtime_")
"""Before the name of a kind of failure: `events_executor_kill`, `downtime_executor_kill_s`."""
WORDS = frozenset(
    "said mode models alarms trouble trained_on why mlflow sizes checks jobs last_evaluations".split()
)
PICTURES = frozenset({"picture", "drills_picture", "downtime_picture", "timeline"})


def labelled(values: Mapping[str, Any]) -> Shown:
    """Values as metadata; Misuse for a name that is not in the lists."""
    found: Shown = {}
    for name, value in values.items():
        if not known(name):
            raise Misuse("metadata", f"has no agreed name {name!r}: add it to assets/metadata.py")
        if isinstance(value, bytes):
            if value:
                found[name] = picture(value, name)
        elif isinstance(value, Unknown):
            found[name] = dg.MetadataValue.text(f"unknown: {value.reason}")
        elif isinstance(value, str):
            found[name] = dg.MetadataValue.url(value) if "://" in value else dg.MetadataValue.text(value)
        else:
            found |= figures(**{name: int(value) if isinstance(value, bool) else value})
    return found


def known(name: str) -> bool:
    """Whether the name is in one of the lists."""
    return name in KEYS or name in WORDS or name in PICTURES or name.startswith(BY_KIND)


Json = Mapping[str, Any]
Shown = dict[str, dg.MetadataValue]


def number(value: Any) -> float | None:
    """A number that can be plotted."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value)


def figures(**named: Any) -> Shown:
    """The known values, to six digits; whole numbers stay whole."""
    found: Shown = {}
    for name, value in named.items():
        plotted = number(value)
        if plotted is None:
            continue
        if isinstance(value, int):
            found[name] = dg.MetadataValue.int(value)
        else:
            short = round(plotted, 1) if abs(plotted) >= 1000.0 else float(f"{plotted:.6g}")
            found[name] = dg.MetadataValue.float(short)
    return found


def picture(png: bytes, what: str) -> dg.MetadataValue:
    """A PNG that the page shows."""
    return dg.MetadataValue.md(f"![{what}](data:image/png;base64,{base64.b64encode(png).decode()})")


def table(header: str, rows: Iterable[Sequence[str]]) -> str:
    """A table in Markdown. `header`: names of columns between `|`; those that end with `:` hold numbers."""
    names = [name.strip() for name in header.split("|")]
    rules = ["---:" if name.endswith(":") else "---" for name in names]
    lines = [[name.removesuffix(":") for name in names], rules]
    lines += [[cell.replace("|", "/") for cell in row] for row in rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


# ------------------------------------------------------------------------------------------ evaluations


def of_evaluation(evaluation: Json) -> Shown:
    """Metadata of an evaluation, a point on the timelines of `decision`."""
    decision = _known(evaluation.get("decision"))
    size = decision.get("scale_out")
    chosen: Json = next((one for one in decision.get("verdicts") or () if one["scale_out"] == size), {})
    recovery = _known(chosen.get("recovery_s"))
    capacity = _known(_known(evaluation.get("capacity")).get("used"))
    seen = _known(evaluation.get("observation"))
    forecast = _known(evaluation.get("forecast"))
    promise = _known(evaluation.get("promise"))
    arrival, most = number(seen.get("arrival_rps")), number(capacity.get("mid"))
    shown: Shown = {"said": dg.MetadataValue.text(sentence(evaluation))}
    shown |= figures(
        scale_out=evaluation.get("scale_out"),
        recommended_scale_out=size,
        smallest_scale_out=decision.get("smallest"),
        recovery_s=recovery.get("mid"),
        recovery_promised_s=recovery.get("promised"),
        recovery_target_s=promise.get("target_s"),
        kept_probability=chosen.get("probability"),
        capacity_rps=most,
        capacity_low_rps=capacity.get("low"),
        utilisation=arrival / most if arrival is not None and most else None,
        forecast_peak_rps=_known(forecast.get("peak")).get("mid"),
        forecast_peak_high_rps=_known(forecast.get("peak")).get("high"),
    )
    shown |= of_input(evaluation) | of_query(evaluation)
    shown["mode"] = dg.MetadataValue.text(str(evaluation["mode"]))
    shown["models"] = dg.MetadataValue.text(_models(evaluation))
    for name in ("alarms", "trouble"):
        if evaluation.get(name):
            shown[name] = dg.MetadataValue.text("; ".join(evaluation[name]))
    return shown


def of_input(evaluation: Json) -> Shown:
    """Arrival rate of the input."""
    return figures(arrival_rps=_known(evaluation.get("observation")).get("arrival_rps"))


def of_query(evaluation: Json) -> Shown:
    """Lag, rate and latency of the running query."""
    seen = _known(evaluation.get("observation"))
    return figures(
        executors_alive=seen.get("executors_alive"),
        throughput_rps=seen.get("throughput_rps"),
        lag_records=seen.get("lag_records"),
        lag_s=evaluation.get("lag_s"),
        p95_latency_ms=seen.get("latency_ms"),
        hottest_share=seen.get("hottest_share"),
    )


def sentence(evaluation: Json) -> str:
    """`hold 6 executors: …`, one line that reads without the code."""
    return str(evaluation["instruction"]["reason"])


def _models(evaluation: Json) -> str:
    """`capacity 3 (provisional), recovery 1`."""
    provisional = evaluation.get("provisional") or {}
    return (
        ", ".join(
            f"{kind} {version}{' (provisional)' if kind in provisional else ''}"
            for kind, version in sorted((evaluation.get("models") or {}).items())
        )
        or "none"
    )


def _known(value: Any) -> Json:
    """A mapping of numbers; nothing where it is unknown."""
    return value if isinstance(value, Mapping) and "unknown" not in value else {}
