"""Errors with a message for people: what is wrong and what to do next.

Three kinds, told apart by what has to happen: nothing (try again), a refusal, a change of settings.
A message ends with the fix. Adapters chain the cause with `from`.
"""

from __future__ import annotations


class HeadroomError(Exception):
    """Anything Headroom says to a person. Shown as one sentence, never as a traceback."""


class NotReady(HeadroomError):
    """Not yet, or not just now: the same call may succeed at the next tick."""


class Unsafe(HeadroomError):
    """Refused, because it could harm the live job, its data, or another owner's processes."""


class Misconfigured(HeadroomError):
    """A setting is wrong or missing. Names the setting and the fix."""

    def __init__(self, setting: str, problem: str) -> None:
        super().__init__(f"{setting}: {problem}")
        self.setting = setting
