"""The product's own policy: `models.control` in mode `apply`, as in production.

In the arena a policy that only recommends would change nothing, so the mode is set here.
"""

from __future__ import annotations

from dataclasses import replace

from .. import control
from ..control import Settings, State

step = control.step


def start(settings: Settings) -> State:
    """Initial state of control, in mode `apply`."""
    return control.start(replace(settings, mode="apply"))
