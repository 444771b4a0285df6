"""Findings of `headroom doctor`, and how its checks are run.

A check is a function from `Surroundings` to findings. They run side by side; one that has not answered by the
deadline is a finding too. Nothing is started or changed.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from ...settings.schema import Settings
from .. import options

State = Literal["ok", "warning", "problem"]
DEADLINE_S = 2.5  # with imports the command stays below three seconds


@dataclass(frozen=True)
class Finding:
    """Result of one check."""

    what: str
    state: State
    found: str
    fix: str = ""
    """What to do about it; empty where it is ok."""


def ok(what: str, found: str) -> list[Finding]:
    """A check that found nothing wrong."""
    return [Finding(what, "ok", found)]


def warning(what: str, found: str, fix: str) -> list[Finding]:
    """It works now, but may not for long."""
    return [Finding(what, "warning", found, fix)]


def problem(what: str, found: str, fix: str) -> list[Finding]:
    """It does not work until this is fixed."""
    return [Finding(what, "problem", found, fix)]


def refused(what: str, message: str) -> list[Finding]:
    """A problem that an error describes, with its fix."""
    found, fix = options.problem_and_fix(message)
    return problem(what, found, fix or "see what it says")


@dataclass(frozen=True)
class Surroundings:
    """What the checks look at: settings, folder and environment."""

    settings: Settings
    file: Path
    folder: Path
    now_s: float
    environment: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))

    @property
    def root(self) -> Path:
        """The folder that headroom.toml stands in."""
        return self.file.resolve().parent

    @property
    def real(self) -> bool:
        """Whether jobs run on real Kafka and Spark."""
        return self.settings.deployment.kind != "simulated"


Check = Callable[[Surroundings], Sequence[Finding]]


def examined(around: Surroundings, checks: Mapping[str, Check], *, deadline_s: float) -> tuple[Finding, ...]:
    """Findings of all checks, in their order."""
    answers: dict[str, Sequence[Finding]] = {}

    def ask(what: str, check: Check) -> None:
        try:
            answers[what] = check(around)
        except Exception as error:  # noqa: BLE001  (a check that breaks must not hide the others)
            broken = f"could not be checked: {type(error).__name__}: {error}"
            answers[what] = warning(what, broken, "see what it says; the rest was checked")

    until = time.monotonic() + deadline_s
    threads = {
        what: threading.Thread(target=ask, args=(what, check), daemon=True) for what, check in checks.items()
    }
    for thread in threads.values():
        thread.start()
    for thread in threads.values():
        thread.join(max(0.0, until - time.monotonic()))
    found: list[Finding] = []
    for what in checks:
        late = Finding(
            what,
            "warning",
            f"did not answer within {deadline_s:g} s",
            "try again; if it stays so, look at what is in its way",
        )
        found += answers.get(what, [late])
    return tuple(found)
