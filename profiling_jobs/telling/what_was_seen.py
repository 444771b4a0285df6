"""What did a tick see of its job? Load, lag, executors, latency and forecast, a line each, for a person."""

from __future__ import annotations

from models.quantities import Unknown

from ..loop.evaluation_record import Evaluation
from .in_words import between, count, is_known, lasting, percent, told, why_unknown

LIMITED = {
    "cpu": "the processor limits it",
    "waiting": "it waits more than it computes, its slots limit it",
}


def seen(e: Evaluation) -> tuple[tuple[str, str], ...]:
    """Name and value of each; what could not be read says why."""
    o = e.observation
    found = [
        ("load", told(o.get("arrival_rps"), lambda rps: f"{count(rps)} records/s arrive")),
        ("work", told(o.get("throughput_rps"), lambda rps: f"{count(rps)} records/s are done")),
        ("lag", _lag(e)),
        ("executors", _executors(e)),
    ]
    if is_known(o.get("latency_ms")):
        found.append(("latency", f"{count(o['latency_ms'])} ms, and 5 % of the records take longer"))
    found.append(("forecast", _forecast(e)))
    return tuple(found)


def _lag(e: Evaluation) -> str:
    records = e.observation.get("lag_records")
    if not is_known(records):
        return f"unknown: {why_unknown(records)}"
    waiting = f"{count(records or 0.0)} records wait"
    return waiting if isinstance(e.lag_s, Unknown) else f"{waiting}, {lasting(e.lag_s)} of input"


def _executors(e: Evaluation) -> str:
    if isinstance(e.scale_out, Unknown):
        return f"unknown: {e.scale_out.reason}"
    parts = [f"{e.scale_out} declared"]
    alive, busiest = e.observation.get("executors_alive"), e.observation.get("hottest_share")
    parts.append(f"{alive} alive" if is_known(alive) else "how many are alive is unknown")
    if is_known(busiest):
        parts.append(f"the busiest is busy {percent(min(float(busiest or 0.0), 1.0))} of the time")
    if is_known(limit := e.observation.get("limited_by")) and limit in LIMITED:
        parts.append(LIMITED[limit])
    return ", ".join(parts)


def _forecast(e: Evaluation) -> str:
    if not is_known(e.forecast) or "peak" not in e.forecast:
        return f"unknown: {why_unknown(e.forecast)}"
    peak, by = e.forecast["peak"], e.forecast.get("by")
    text = (
        f"at most {count(peak['mid'])} records/s ({between(peak, count)}) within the next "
        f"{lasting(e.forecast['horizon_s'])}, by {e.forecast['model']}"
    )
    return f"{text}; it stands in: {e.forecast['instead']}" if by == "naive" else text
