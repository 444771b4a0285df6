"""In-memory implementation of the `Store` port; passes the same suite as SQLite.

Values are kept as text, so that only what a database would keep is kept.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from models.arguments import whole
from models.codec import dumps, loads
from models.quantities import Measurement, Misuse, RecoveryEvent


@dataclass
class _Job:
    evaluations: dict[int, tuple[float, str]] = field(default_factory=dict)
    control: Any = None
    state: str = ""
    lease: Any = None
    held: bool = False
    asked: list[tuple[Any, dict[str, Any]]] = field(default_factory=list)
    """Directive (None for a resume) and its entry in the audit."""
    ended_s: dict[int, float] = field(default_factory=dict)
    """Index in `asked` -> when somebody ended it."""
    measurements: dict[str, tuple[float, Measurement]] = field(default_factory=dict)
    events: dict[tuple[float, str], tuple[RecoveryEvent, str]] = field(default_factory=dict)
    documents: dict[str, str] = field(default_factory=dict)


class MemoryStore:
    """Everything in dictionaries, behind one lock."""

    def __init__(self) -> None:
        self._jobs: dict[str, _Job] = {}
        self._turn = threading.RLock()

    def _job(self, name: str) -> _Job:
        return self._jobs.setdefault(name, _Job())

    def record_evaluation(
        self, job: str, *, interval: int, at_s: float, evaluation: Mapping[str, Any]
    ) -> bool:
        text = dumps("evaluation", evaluation)
        with self._turn:
            kept = self._job(job).evaluations
            if interval in kept:
                return False
            kept[interval] = (at_s, text)
            return True

    def evaluations(
        self, job: str, *, since_s: float = 0.0, until_s: float = math.inf, limit: int = 100
    ) -> tuple[tuple[float, Mapping[str, Any]], ...]:
        newest = whole("limit", limit)
        with self._turn:
            kept = self._job(job).evaluations
            found = sorted((at_s, i, text) for i, (at_s, text) in kept.items() if since_s <= at_s <= until_s)
        return tuple((at_s, loads(text)) for at_s, _, text in found[-newest:])

    def forget_evaluations(self, job: str, *, before_s: float) -> int:
        with self._turn:
            kept = self._job(job).evaluations
            old = [interval for interval, (at_s, _) in kept.items() if at_s < before_s]
            for interval in old:
                del kept[interval]
            return len(old)

    def control(self, job: str) -> Any:
        with self._turn:
            kept = self._job(job)
            return None if kept.control is None else replace(kept.control, state=loads(kept.state))

    def save_control(self, control: Any, *, expected_epoch: int | None) -> bool:
        if expected_epoch is not None and control.epoch < expected_epoch:
            raise Misuse("control.epoch", f"must not go back from {expected_epoch} to {control.epoch}")
        text = dumps("control.state", control.state)
        with self._turn:
            kept = self._job(control.job)
            if expected_epoch != (None if kept.control is None else kept.control.epoch):
                return False
            kept.control, kept.state = control, text
            return True

    def claim(self, lease: Any, *, now_s: float) -> bool:
        if lease.until_s <= now_s:
            raise Misuse("lease.until_s", f"is over already: {lease.until_s} at {now_s}")
        with self._turn:
            kept = self._job(lease.job)
            if kept.lease is not None:
                somebody_else = kept.held and kept.lease.holder != lease.holder
                if kept.lease.epoch > lease.epoch or (somebody_else and kept.lease.until_s > now_s):
                    return False
            kept.lease, kept.held = lease, True
            return True

    def release(self, lease: Any) -> None:
        with self._turn:
            kept = self._job(lease.job)
            if kept.lease and (kept.lease.epoch, kept.lease.holder) == (lease.epoch, lease.holder):
                kept.held = False

    def direct(self, directive: Any) -> None:
        with self._turn:
            kept = self._job(directive.job)
            for index, (asked, _) in enumerate(kept.asked):
                if asked is not None and asked.kind == directive.kind:
                    self._end(kept, index, directive.since_s)
            until_s, value = directive.until_s, directive.value
            entry = _entry(directive.kind, directive.who, directive.why, directive.since_s)
            kept.asked.append((directive, entry | {"until_s": until_s, "value": value}))

    def directives(self, job: str, *, now_s: float) -> tuple[Any, ...]:
        with self._turn:
            kept = self._job(job)
            return tuple(
                asked
                for index, (asked, _) in enumerate(kept.asked)
                if asked is not None and asked.since_s <= now_s and _lasts(kept, index, now_s)
            )

    def resume(self, job: str, *, who: str, why: str, now_s: float) -> int:
        with self._turn:
            kept = self._job(job)
            lasting = [i for i, (asked, _) in enumerate(kept.asked) if asked and _lasts(kept, i, now_s)]
            for index in lasting:
                self._end(kept, index, now_s)
            kept.asked.append((None, _entry("resume", who, why, now_s)))
            return len(lasting)

    @staticmethod
    def _end(kept: _Job, index: int, at_s: float) -> None:
        kept.ended_s[index] = min(at_s, kept.ended_s.get(index, at_s))

    def audit(self, job: str) -> tuple[Mapping[str, Any], ...]:
        with self._turn:
            return tuple(dict(entry) for _, entry in self._job(job).asked)

    def add_measurement(self, job: str, key: str, measurement: Measurement, *, at_s: float) -> bool:
        with self._turn:
            kept = self._job(job).measurements
            new = key not in kept
            kept[key] = (at_s, measurement)
            return new

    def measurements(self, job: str) -> tuple[tuple[str, float, Measurement], ...]:
        with self._turn:
            kept = self._job(job).measurements
            ordered = sorted((at_s, key) for key, (at_s, _) in kept.items())
            return tuple((key, at_s, kept[key][1]) for at_s, key in ordered)

    def add_event(self, job: str, event: RecoveryEvent, *, details: Mapping[str, Any]) -> None:
        text = dumps("details", details)
        with self._turn:
            self._job(job).events[event.failed_at_s, event.kind] = (event, text)

    def events(self, job: str) -> tuple[tuple[RecoveryEvent, Mapping[str, Any]], ...]:
        with self._turn:
            return tuple((event, loads(text)) for _, (event, text) in sorted(self._job(job).events.items()))

    def save_document(self, job: str, name: str, document: Mapping[str, Any]) -> None:
        text = dumps(name, document)
        with self._turn:
            self._job(job).documents[name] = text

    def document(self, job: str, name: str) -> Mapping[str, Any] | None:
        with self._turn:
            text = self._job(job).documents.get(name)
        return None if text is None else loads(text)


def _entry(what: str, who: str, why: str, at_s: float) -> dict[str, Any]:
    return {"at_s": at_s, "what": what, "who": who, "why": why, "until_s": None, "value": None}


def _lasts(kept: _Job, index: int, now_s: float) -> bool:
    until_s = kept.asked[index][0].until_s
    ended_s = kept.ended_s.get(index)
    return (until_s is None or until_s > now_s) and (ended_s is None or ended_s > now_s)
