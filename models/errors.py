"""Errors with a message for people: what is wrong and what to do next.

Three kinds, by what has to happen next: nothing (try again), a refusal, a change of settings.
A message ends with the fix. Adapters chain the cause with `from`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class HeadroomError(Exception):
    """Base of all errors of Headroom. Shown as one sentence, never as a traceback."""


class NotReady(HeadroomError):
    """Not yet, or not just now: the same call may succeed at the next tick."""


class BrokerSilent(NotReady):
    """The brokers do not answer: for the job they may be away, too."""


class Unsafe(HeadroomError):
    """Refused, because it could harm the live job, its data, or another owner's processes."""


class Misconfigured(HeadroomError):
    """A setting is wrong or missing. Names the setting and the fix."""

    def __init__(self, setting: str, problem: str) -> None:
        super().__init__(f"{setting}: {problem}")
        self.setting, self.problem = setting, problem


class NoRoom(Misconfigured):
    """The place where jobs run has too few slots, or too small a quota; another copy may leave some."""


def error_to_json(error: BaseException) -> dict[str, str]:
    """An error as it is passed between processes; one that is not ours is NotReady with its class."""
    if isinstance(error, Misconfigured):
        return {"kind": "Misconfigured", "setting": error.setting, "message": error.problem}
    if isinstance(error, HeadroomError):
        return {"kind": "Unsafe" if isinstance(error, Unsafe) else "NotReady", "message": str(error)}
    return {"kind": "NotReady", "message": f"{type(error).__name__}: {error}"[:2000]}


def error_from_json(data: Mapping[str, Any]) -> HeadroomError:
    """The error that was passed."""
    message = str(data.get("message", "no reason given"))
    if data.get("kind") == "Misconfigured":
        return Misconfigured(str(data.get("setting", "")), message)
    return Unsafe(message) if data.get("kind") == "Unsafe" else NotReady(message)
