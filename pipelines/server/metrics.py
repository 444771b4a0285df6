"""The metrics of every job, in the text format of Prometheus.

Nothing is measured for it: the values are those of the newest evaluation, the directives in force, the
recoveries that were measured, and the champions. What is not known is left out, never 0 or NaN. So is what
an evaluation says of its moment, once three intervals have passed without another one.

Counters begin at 0 with the server. A job has the label `job_name`, as Prometheus itself sets `job` to the
name of the scrape.
"""

from __future__ import annotations

import math
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from prometheus_client import CollectorRegistry, Metric, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from models.control.state import ALARM_EVERY_S
from models.control.step import trouble_key
from models.ports import LATE_TICKS, Store
from profiling_jobs.control_loop.memory import Evaluation
from profiling_jobs.explain.wording import verdict_on

from ..settings.schema import JobSettings
from .context import Context

MOST = 1000  # evaluations of one look; half an hour has 180 at the most
ENDS = {"": "mid", "_low": "low", "_high": "high"}
"""Ending of a metric's name -> which value of an interval it is."""
DIRECTIVES = {"paused": "pause", "pinned": "pin", "held": "hold"}


@dataclass(frozen=True)
class Family:
    """One metric: what it is, and which label its samples have beside `job_name`."""

    help: str
    label: str = ""

    @property
    def labels(self) -> tuple[str, ...]:
        """All labels of a sample."""
        return ("job_name", self.label) if self.label else ("job_name",)


FAMILIES: Mapping[str, Family] = {
    "headroom_job_load_records_per_second": Family("Records that arrive."),
    "headroom_job_throughput_records_per_second": Family("Records that are processed."),
    "headroom_job_forecast_peak_records_per_second": Family("Highest load within the forecast's horizon."),
    "headroom_job_forecast_peak_low_records_per_second": Family("Lower end of that peak's interval."),
    "headroom_job_forecast_peak_high_records_per_second": Family("Upper end of that peak's interval."),
    "headroom_job_capacity_records_per_second": Family("Load that is sustained at the declared size."),
    "headroom_job_capacity_low_records_per_second": Family("Lower end of that capacity's interval."),
    "headroom_job_capacity_high_records_per_second": Family("Upper end of that capacity's interval."),
    "headroom_job_lag_records": Family("Records that wait."),
    "headroom_job_lag_seconds": Family("Lag in seconds of input."),
    "headroom_job_executors_declared": Family("Size that is set."),
    "headroom_job_executors_alive": Family("Executors that run."),
    "headroom_job_executors_wanted": Family("Size that the decision recommends; absent without a decision."),
    "headroom_job_recovery_target_seconds": Family("The promise: caught up after a failure within this."),
    "headroom_job_promise_confidence": Family("The promise: probability, 0-1, of being in time."),
    "headroom_job_promise_kept": Family("1: the declared size keeps the promise. 0: it does not."),
    "headroom_job_promise_probability": Family(
        "Probability, 0-1, of being in time after a failure at the worst moment until the next decision."
    ),
    "headroom_job_recovery_probability": Family(
        "Probability, 0-1, of being in time after a failure of this kind now.", "kind"
    ),
    "headroom_job_predicted_recovery_seconds": Family("Recovery from a failure of this kind now.", "kind"),
    "headroom_job_predicted_recovery_high_seconds": Family(
        "Time within which the promised share of such recoveries has ended.", "kind"
    ),
    "headroom_job_last_recovery_seconds": Family(
        "Newest measured recovery, in a drill or not; absent if the job did not recover in time.", "kind"
    ),
    "headroom_job_last_recovery_timestamp_seconds": Family("When that failure was.", "kind"),
    "headroom_job_evaluation_interval_seconds": Family("Time between two evaluations."),
    "headroom_job_last_evaluation_timestamp_seconds": Family("When the job was evaluated last."),
    "headroom_job_evaluations_total": Family("Evaluations since the start of headroom serve."),
    "headroom_job_evaluation_errors_total": Family(
        "Evaluations at which something could not be read, learnt or done."
    ),
    "headroom_job_changes_total": Family("Changes of size that were ordered."),
    "headroom_job_alarms_total": Family("Alarms that were raised; one that lasts, every half hour."),
    "headroom_job_alarms": Family("Different alarms that were raised within the last half hour."),
    "headroom_job_model_version": Family("Version of the model in charge.", "model"),
    "headroom_job_model_provisional": Family("1: its checks had too little data. 0: they passed.", "model"),
    "headroom_job_model_trained_timestamp_seconds": Family("Up to when its data reach.", "model"),
    "headroom_job_paused": Family("1: headroom pause is in force."),
    "headroom_job_pinned": Family("1: headroom pin is in force."),
    "headroom_job_held": Family("1: others have set the size, which stays until headroom resume."),
}

Add = Callable[..., None]
"""`add(name, value, *labels)`: one sample."""


class Samples(Collector):
    """What is known of the metrics at one moment."""

    def __init__(self) -> None:
        self._found = {name: _family(name, each) for name, each in FAMILIES.items()}

    def add(self, name: str, value: Any, *labels: str) -> None:
        """Add a sample; a value that is no number, or no finite one, is not known and left out."""
        if isinstance(value, int | float) and math.isfinite(value):
            self._found[name].add_metric(labels, float(value))

    def collect(self) -> Iterable[Metric]:
        return [found for found in self._found.values() if found.samples]

    def text(self) -> str:
        """The text format, version 0.0.4: every metric with its help and its type in front."""
        registry = CollectorRegistry()
        registry.register(self)
        return generate_latest(registry).decode()


def _family(name: str, about: Family) -> CounterMetricFamily | GaugeMetricFamily:
    kind = CounterMetricFamily if name.endswith("_total") else GaugeMetricFamily
    return kind(name, about.help, labels=about.labels)


@dataclass
class _Seen:
    """What was seen of the evaluations of one job, each of which is read once."""

    looked: bool = False
    newest_at_s: float = -math.inf
    newest: Evaluation | None = None
    """None before the first one, and where another version has written it."""
    counts: Counter[str] = field(default_factory=Counter)
    raised_at_s: dict[str, float] = field(default_factory=dict)
    """Alarm, without its numbers -> when it was raised last."""

    def look(self, store: Store, job: str, *, now_s: float) -> None:
        """Take over what was evaluated since the last look; what was before the first is not counted."""
        if self.looked:
            after_s = math.nextafter(self.newest_at_s, math.inf)
            new = store.evaluations(job, since_s=after_s, limit=MOST)
        else:
            lately = store.evaluations(job, since_s=now_s - ALARM_EVERY_S, limit=MOST)
            new = lately or store.evaluations(job, limit=1)
        for at_s, document in new:
            self.newest_at_s, self.newest = at_s, Evaluation.if_readable(document)
            self._note(at_s, self.newest)
        if not self.looked:
            self.counts.clear()
            self.looked = True

    def _note(self, at_s: float, evaluation: Evaluation | None) -> None:
        self.counts["evaluations"] += 1
        if evaluation is None:
            return
        self.counts["evaluation_errors"] += bool(evaluation.trouble)
        self.counts["changes"] += evaluation.instruction["do"] == "scale"
        self.counts["alarms"] += len(evaluation.alarms)
        for alarm in evaluation.alarms:
            self.raised_at_s[trouble_key(alarm)] = at_s

    def alarms(self, *, now_s: float, interval_s: float) -> int:
        """Alarms in force: one that lasts comes again at the first evaluation after ALARM_EVERY_S."""
        since_s = now_s - ALARM_EVERY_S - 2 * interval_s
        self.raised_at_s = {alarm: at_s for alarm, at_s in self.raised_at_s.items() if at_s > since_s}
        return len(self.raised_at_s)


class Exporter:
    """The metrics of the jobs of one server. Safe from several threads."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._seen: dict[str, _Seen] = {}
        self._turn = threading.Lock()

    def text(self) -> str:
        """The metrics of now, in the text format."""
        jobs, now_s = self._context.settings.jobs, self._context.environment.clock.now_s()
        found = Samples()
        with self._turn:
            for name, settings in sorted(jobs.items()):
                self._job(name, settings, partial(_add, found, name), now_s=now_s)
        return found.text()

    def _job(self, name: str, settings: JobSettings, add: Add, *, now_s: float) -> None:
        store, interval_s = self._context.environment.store, settings.evaluation_interval_s
        add("recovery_target_seconds", settings.recovery_target_s)
        add("promise_confidence", settings.confidence)
        add("evaluation_interval_seconds", interval_s)

        seen = self._seen.setdefault(name, _Seen())
        seen.look(store, name, now_s=now_s)
        for counted in ("evaluations", "evaluation_errors", "changes", "alarms"):
            add(f"{counted}_total", seen.counts[counted])
        add("alarms", seen.alarms(now_s=now_s, interval_s=interval_s))
        add("last_evaluation_timestamp_seconds", seen.newest_at_s)
        if seen.newest is not None and now_s - seen.newest_at_s <= LATE_TICKS * interval_s:
            _evaluated(seen.newest, add)

        for kind, event in {event.kind: event for event, _ in store.events(name)}.items():
            add("last_recovery_seconds", event.recovery_s, kind)
            add("last_recovery_timestamp_seconds", event.failed_at_s, kind)
        champions = self._context.champions.champions(name)
        for model, version in champions.versions.items():
            add("model_version", version, model)
            add("model_provisional", model in champions.provisional, model)
            add("model_trained_timestamp_seconds", champions.trained_on[model].get("to_s"), model)
        in_force = {one.kind for one in store.directives(name, now_s=now_s)}
        for metric, directive in DIRECTIVES.items():
            add(metric, directive in in_force)


def _add(found: Samples, job: str, name: str, value: Any, *labels: str) -> None:
    found.add(f"headroom_job_{name}", value, job, *labels)


def _evaluated(e: Evaluation, add: Add) -> None:
    """What the evaluation says of its moment."""
    seen = e.observation
    add("load_records_per_second", seen.get("arrival_rps"))
    add("throughput_records_per_second", seen.get("throughput_rps"))
    add("lag_records", seen.get("lag_records"))
    add("lag_seconds", e.lag_s)
    add("executors_declared", e.scale_out)
    add("executors_alive", seen.get("executors_alive"))
    add("executors_wanted", e.decision.get("scale_out"))
    for end, value in ENDS.items():
        add(f"forecast_peak{end}_records_per_second", _part(e.forecast.get("peak"), value))
        add(f"capacity{end}_records_per_second", _part(e.capacity.get("used"), value))
    verdict = verdict_on(e, e.scale_out) if isinstance(e.scale_out, int) else None
    add("promise_kept", {"feasible": 1, "infeasible": 0}.get(str(_part(verdict, "status"))))
    add("promise_probability", _part(verdict, "probability"))
    for kind, recovery in e.recoveries.items():
        add("recovery_probability", _part(recovery, "probability"), kind)
        add("predicted_recovery_seconds", _part(recovery, "mid"), kind)
        add("predicted_recovery_high_seconds", _part(recovery, "promised"), kind)


def _part(value: Any, name: str) -> Any:
    """One value of a mapping; None where the mapping is missing or unknown."""
    return value.get(name) if isinstance(value, Mapping) else None
