"""Output of the demo: its stages while it runs, what came of it, and the summary."""

from __future__ import annotations

import shlex
import shutil
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from models.codec import readable
from models.quantities import executors
from profiling_jobs.explain import wording

from .scenes import JOB

Echo = Callable[[str], None]


class Lines:
    """A line for what each stage does and has found, and lines or a bar for what happens meanwhile."""

    def __init__(
        self,
        echo: Echo,
        *,
        bar: Callable[[float | None, str], None] | None = None,
        seconds: Callable[[], float] = time.monotonic,
    ) -> None:
        """`bar`: shows the progress and the newest line on a terminal, where no other lines are printed."""
        self._echo, self._bar, self._seconds = echo, bar, seconds
        self._said, self._began_s = "", seconds()

    def stage(self, name: str, what: str, *, number: int, of: int) -> None:
        self._began_s = self._seconds()
        self._echo(f"[{number}/{of}] {name}: {what}")

    def say(self, line: str) -> None:
        if self._bar is not None:
            self._bar(None, line)
        elif line and line != self._said:
            self._said = line
            self._echo(f"      {line}")

    def progress(self, share: float | None, what: str) -> None:
        if self._bar is not None:
            self._bar(share, what)
        elif share is None:
            self.say(what)

    def done(self, what: str) -> None:
        self._echo(f"      → {what} ({self._seconds() - self._began_s:.0f} s)")


@dataclass
class Outcome:
    """Results of the demo."""

    kind: str
    promise: Mapping[str, Any] = field(default_factory=dict)
    capacity_rps: Mapping[str, Any] = field(default_factory=dict)
    models: Mapping[str, Any] = field(default_factory=dict)
    changes: list[Mapping[str, Any]] = field(default_factory=list)
    drills: list[Mapping[str, Any]] = field(default_factory=list)
    evaluation: Mapping[str, Any] = field(default_factory=dict)
    """The newest one at which a size was asked for."""
    headroom: Mapping[str, Any] = field(default_factory=dict)
    """`scale_out`, its `sustained_rps` (low, mid, high), and `forecast_rps`: the peak."""
    took_s: Mapping[str, float] = field(default_factory=dict)

    @property
    def applied(self) -> bool:
        """Whether a decision was carried out."""
        return any(change.get("did") == "scaled" for change in self.changes)

    def to_json(self) -> dict[str, Any]:
        """Plain JSON."""
        found: dict[str, Any] = readable({"schema": 1, **vars(self), "applied": self.applied})
        return found


def summary(outcome: Outcome) -> list[tuple[str, str]]:
    """Promise, decisions, drills and models: what each line is about, and the line."""
    evaluation, promise = outcome.evaluation, outcome.promise
    found = [
        (
            "promise",
            f"after {_failures(outcome)} {JOB} has caught up with its input within "
            f"{promise['target_s']:.0f} s, with a probability of {100 * promise['confidence']:g} %",
        )
    ]
    for change in outcome.changes:
        found += [("decided", change["why"]), ("applied", change["reason"])]
    found.append(("now", (evaluation.get("instruction") or {}).get("reason", "nothing was decided")))
    found += _why_not_fewer(evaluation.get("decision") or {})
    known = outcome.headroom
    if "sustained_rps" in known:
        capacity, peak = known["sustained_rps"]["mid"], known["forecast_rps"]
        sustained = f"{executors(known['scale_out'], 'sustain')} {capacity:,.0f} records/s"
        share = 100 * (1.0 - peak / capacity)
        found.append(("headroom", f"{share:.0f} %: {sustained}, at most about {peak:,.0f} are expected"))
    newest = {(row["stage"], row["kind"]): row for row in outcome.drills}
    found += [("proved" if row["stage"] == "prove" else "drilled", _drill(row)) for row in newest.values()]
    champions = [
        f"{kind} {one['version']}{' (provisional)' if one['to_make_it_firm'] else ''}"
        for kind, one in sorted(outcome.models.items())
    ]
    found.append(("models", f"in charge: {', '.join(champions) or 'none'}"))
    found += [
        ("", f"to make {kind} firm: {'; '.join(one['to_make_it_firm'])}")
        for kind, one in sorted(outcome.models.items())
        if one["to_make_it_firm"]
    ]
    return found


def where_to_click(addresses: Mapping[str, str], *, opened: str = "") -> list[str]:
    """The pages, and what to look at first. `opened`: the address that lets a browser in, if it is shown."""
    dagster, mlflow = addresses["dagster"], addresses.get("mlflow")
    how = "open this one first: it lets your browser in" if opened else "`headroom open` lets your browser in"
    shown = [
        ("Pages", opened or addresses["pages"], how),
        ("Dagster", f"{dagster}/asset-groups", "the five stages"),
        (
            "",
            f"{dagster}/assets/decision?view=overview",
            "the last evaluations, drawn; `timeline` shows six hours",
        ),
        ("", f"{dagster}/automation", "the sensor, and why it did what it did"),
    ]
    if mlflow:
        model = "a model's versions and its champion; a version's page shows its picture and figures"
        shown.append(("MLflow", f"{mlflow}/#/models/{JOB}.capacity", model))
    return [line for name, address, what in shown for line in (f"{name:10} {address}", f"{'':13}{what}")]


def what_to_type(place: Path) -> str:
    """A line for the shell: the commands take headroom.toml and its folder from where they are called."""
    headroom = shutil.which("headroom") or str(Path(sys.executable).with_name("headroom"))
    return f"Commands   cd {shlex.quote(str(place))} && {shlex.quote(headroom)} explain {JOB}"


def _failures(outcome: Outcome) -> str:
    kinds = dict.fromkeys(str(row["kind"]) for row in outcome.drills)
    return " or ".join(wording.KINDS.get(kind, kind) for kind in kinds) or "a failure"


def _why_not_fewer(decision: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The first excuse of the largest smaller size."""
    chosen, verdicts = decision.get("scale_out"), decision.get("verdicts") or ()
    smaller = [one for one in verdicts if isinstance(chosen, int) and one["scale_out"] < chosen]
    nearest: Mapping[str, Any] = max(smaller, key=lambda one: int(one["scale_out"]), default={})
    return [
        ("not fewer", f"{executors(nearest['scale_out'])}: {excuse['sentence']}")
        for excuse in (nearest.get("excuses") or ())[:1]
    ]


def _drill(row: Mapping[str, Any]) -> str:
    rate = "" if row.get("rate_rps") is None else f" at {row['rate_rps']:,.0f} records/s"
    text = f"{wording.KINDS.get(row['kind'], row['kind'])}, {executors(row['scale_out'])}{rate}: "
    if "invalid" in row:
        return f"{text}invalid, {row['invalid']}"
    if row.get("recovery_s") is None:
        return f"{text}it did not recover"
    text += f"recovered after {row['recovery_s']:.0f} s"
    said = (row.get("details") or {}).get("predicted_recovery_s") or {}
    if said.get("mid") is None:
        return f"{text}; there was no prediction"
    high = "?" if said.get("high") is None else f"{said['high']:.0f}"
    return f"{text}, predicted {said['mid']:.0f} s ({said['low']:.0f} to {high})"
