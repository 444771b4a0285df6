"""Which of the copies that are free does each probe get?"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest

from models.probing import Probe

from .copies import Copy

Dealt = list[tuple[Probe, Copy | None]]


def dealt(probes: Sequence[Probe], free: Sequence[Copy]) -> tuple[Dealt, list[Copy]]:
    """Each probe with its copy (None: a new one), in the order to begin them; and the copies nobody needs.

    One of its size; or else the smallest probe gets the largest copy that is left. So, changed in this order,
    the copies never hold more executors than they do before or after: nobody is short of a slot on the way.
    """
    left = sorted(free, key=lambda copy: -copy.plan.scale_out)
    found: Dealt = []
    others: list[Probe] = []
    for probe in sorted(probes, key=lambda probe: probe.scale_out):
        same = next((copy for copy in left if copy.plan.scale_out == probe.scale_out), None)
        if same is None:
            others.append(probe)
        else:
            left.remove(same)
            found.append((probe, same))
    return found + list(zip_longest(others, left[: len(others)])), left[len(others) :]
