"""Is everything there and right that Headroom needs, and if not, what puts it right?

A check is a function from the `Patient` to findings. They run side by side and none may take long: what has
not answered by the deadline is a finding too. Nothing is started, nothing is changed.
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

State = Literal["ok", "warning", "problem"]
DEADLINE_S = 2.5  # with imports the command stays below three seconds


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at."""

    what: str
    state: State
    found: str
    fix: str = ""
    """What to do about it; empty where it is ok."""


@dataclass(frozen=True)
class Patient:
    """What is looked at."""

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


Check = Callable[[Patient], Sequence[Finding]]


def examined(patient: Patient, checks: Mapping[str, Check], *, deadline_s: float) -> tuple[Finding, ...]:
    """What all the checks found, in their order."""
    answers: dict[str, Sequence[Finding]] = {}

    def ask(what: str, check: Check) -> None:
        try:
            answers[what] = check(patient)
        except Exception as error:  # noqa: BLE001  (a check that breaks must not hide the others)
            told = f"could not be checked: {type(error).__name__}: {error}"
            answers[what] = [Finding(what, "warning", told, "see what it says; the rest was checked")]

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
