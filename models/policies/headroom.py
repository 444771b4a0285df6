"""What does the product itself do? Exactly what runs in production: `models.control`, in mode `apply`.

A contestant that only recommends would change nothing, so the mode is the one thing that is set here.
"""

from __future__ import annotations

from dataclasses import replace

from .. import control
from ..control import Settings, State

step = control.step


def start(settings: Settings) -> State:
    """Control's memory at the beginning, allowed to act."""
    return control.start(replace(settings, mode="apply"))
