"""How does a twin say no, without knowing the errors of the outside world?

With one error of its own; profiling_jobs.errors has one class per kind, and pipelines.resources.simulated
puts the two together.
"""

from __future__ import annotations

from typing import Literal


class Refused(Exception):
    """Not done, and why. `kind` tells what has to happen next; `setting` is what has to be changed."""

    def __init__(
        self, kind: Literal["not_ready", "unsafe", "misconfigured"], problem: str, *, setting: str = ""
    ) -> None:
        super().__init__(f"{setting}: {problem}" if setting else problem)
        self.kind = kind
        self.problem = problem
        self.setting = setting
