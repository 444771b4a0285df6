"""Which figures do our assets report, and in which units?

One list for all of them: the same name everywhere, its unit at its end, so that what Dagster plots over time
lines up from stage to stage. `labelled` refuses a name that is not in it.
"""

from collections.abc import Mapping
from typing import Any

import dagster as dg

from models.quantities import Misuse, Unknown

from .figures import Shown, figures, picture

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
    "history_s": "seconds of arrivals behind the forecast",
    "horizon_s": "seconds the forecast reaches",
    "hours": "hours of arrivals that are remembered",
    "missing_share": "0…1 of them that nobody has seen",
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
    "largest_size": "executors that capacity_rps is said of",
    "saturated_sizes": "scale-outs at which the job was saturated",
    "measurements": "probes and live stretches used",
    "live_measurements": "live stretches among them",
    "left_out_in_recovery": "live stretches left out: the job was recovering",
    "left_out_contradicting": "live stretches left out: the profile or newer ones say otherwise",
    "profile_taken_at": "0…1 of the profile's capacities, as much as live stretches show",
    "slower_at": "executors at which they show it",
    "slower_since_s": "seconds since 1970 at which the first of them ended",
    "executor_seconds": "executor-seconds that the measurements have cost",
    "overhead_s": "seconds a batch costs beside its records, at most",
    "fold_error": "0…1, larger sizes foretold from smaller ones",
    # latency
    "normal_up_to_ms": "milliseconds up to which latency is normal",
    "miss_rate": "0…1 of abnormal points, classified as normal when left out",
    "false_alarm_rate": "0…1 of normal points, classified as abnormal when left out",
    "abnormal_tp": "abnormal points classified as abnormal",
    "abnormal_fp": "normal points classified as abnormal",
    "abnormal_fn": "abnormal points classified as normal",
    "abnormal_tn": "normal points classified as normal",
    # downtime
    "events": "failures and changes lived through",
    "events_lost": "of them without return",
    "drills": "drills that predictions were held against",
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
    "promoted": "1: it took charge",
    "checks_failed": "checks that kept it from taking charge",
    "checks_warned": "checks that passed with a warning",
    "checks_too_little_data": "checks that had too little data; with any, the model is provisional",
}
BY_KIND = ("events_", "downtime_")
"""Before the name of a kind of failure: `events_executor_kill`, `downtime_executor_kill_s`."""
WORDS = frozenset(
    {
        "said",
        "mode",
        "models",
        "alarms",
        "trouble",
        "trained_on",
        "why",
        "mlflow",
        "sizes",
        "checks",
        "last_evaluations",
    }
)
PICTURES = frozenset({"picture", "drills_picture", "downtime_picture", "timeline"})


def labelled(values: Mapping[str, Any]) -> Shown:
    """Figures by their agreed names; what is unknown says why, a picture is shown."""
    found: Shown = {}
    for name, value in values.items():
        if not known(name):
            raise Misuse("metadata", f"has no agreed name {name!r}: add it to assets/metadata.py")
        if isinstance(value, bytes):
            if value:
                found[name] = picture(value, name)
        elif isinstance(value, Unknown):
            found[name] = dg.MetadataValue.text(f"unknown: {value.reason}")
        elif isinstance(value, bool):
            found |= figures(**{name: int(value)})
        elif isinstance(value, str):
            found |= {name: dg.MetadataValue.url(value) if "://" in value else dg.MetadataValue.text(value)}
        else:
            found |= figures(**{name: value})
    return found


def known(name: str) -> bool:
    """Is this name agreed?"""
    return name in KEYS or name in WORDS or name in PICTURES or name.startswith(BY_KIND)
