"""Under which names do the figures of evaluations and orders appear on an asset's page?

The same name with its unit everywhere, so that the plots of a job line up: what Dagster plots are numbers
under one key over time. What is unknown is left out of the plots and says why in words; an infinity has no
place in a plot either.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping
from typing import Any

import dagster as dg

Json = Mapping[str, Any]
Shown = dict[str, dg.MetadataValue]


def number(value: Any) -> float | None:
    """A number that can be plotted."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value)


def shortened(value: float) -> float:
    """With the digits that somebody reads: 1171.6 of 1171.6336165690109, 0.0127207 of 0.012720712."""
    return round(value, 1) if abs(value) >= 1000.0 else float(f"{value:.6g}")


def figures(**named: Any) -> Shown:
    """Those that are known; whole numbers stay whole."""
    found: Shown = {}
    for name, value in named.items():
        plotted = number(value)
        if plotted is not None:
            found[name] = (
                dg.MetadataValue.int(value)
                if isinstance(value, int)
                else dg.MetadataValue.float(shortened(plotted))
            )
    return found


def plain(data: Json) -> Shown:
    """A result as it is: numbers to plot, sentences, and the rest as JSON."""
    found: Shown = {}
    for name, value in data.items():
        if value is None or name == "schema":
            continue
        if isinstance(value, bool):
            found[name] = dg.MetadataValue.bool(value)
        elif isinstance(value, int | float):
            found.update(figures(**{name: value}))
        elif isinstance(value, str):
            found[name] = dg.MetadataValue.text(value)
        elif isinstance(value, Mapping) and set(value) == {"unknown"}:
            found[name] = dg.MetadataValue.text(f"unknown: {value['unknown']}")
        else:
            found[name] = dg.MetadataValue.json(value if isinstance(value, Mapping) else {"all": list(value)})
    return found


def picture(png: bytes, what: str) -> dg.MetadataValue:
    """A PNG that the page shows."""
    return dg.MetadataValue.md(f"![{what}](data:image/png;base64,{base64.b64encode(png).decode()})")


# ------------------------------------------------------------------------------------------ evaluations


def of_evaluation(evaluation: Json) -> Shown:
    """What an evaluation says, as a point on the timelines of `decision`."""
    decision = _known(evaluation.get("decision"))
    chosen = _chosen(decision)
    recovery = _known(chosen.get("recovery_s"))
    capacity = _known(_known(evaluation.get("capacity")).get("used"))
    seen = _known(evaluation.get("observation"))
    forecast = _known(evaluation.get("forecast"))
    promise = _known(evaluation.get("promise"))
    arrival, most = number(seen.get("arrival_rps")), number(capacity.get("mid"))
    shown: Shown = {"said": dg.MetadataValue.text(sentence(evaluation))}
    shown |= figures(
        scale_out=evaluation.get("scale_out"),
        recommended_scale_out=decision.get("scale_out"),
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
    """How fast the input grows."""
    return figures(arrival_rps=_known(evaluation.get("observation")).get("arrival_rps"))


def of_query(evaluation: Json) -> Shown:
    """How the running query does."""
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


def _chosen(decision: Json) -> Json:
    """The verdict on the recommended size."""
    return next(
        (one for one in decision.get("verdicts") or () if one["scale_out"] == decision.get("scale_out")), {}
    )


def _known(value: Any) -> Json:
    """A mapping of numbers; nothing where it is unknown."""
    return value if isinstance(value, Mapping) and "unknown" not in value else {}
