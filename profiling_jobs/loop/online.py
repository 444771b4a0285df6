"""What does the running job say about its capacity, beside what profiling says?

The online capacity learns from every tick in which nothing was wrong: no failure, no change, all executors
there and the job settled. A decision then takes both into account (`models.capacity.blend`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from models.capacity import OnlineCapacity
from models.capacity.blend import joined
from models.control import State
from models.control.deciding import PredictsCapacity
from models.observation import Observation
from models.quantities import Interval, Unknown

MOVED = 0.10
"""Of the mean rate. Judgement: a load that stands still shows nothing but the scatter of its samples."""
TOGETHER = 0.9
"""Judgement: then the line is too flat by a tenth at most."""
MOST_SHARE = 1.05  # as models.capacity.online: more is sampling jitter no longer


def said_live(online: OnlineCapacity, scale_out: int) -> Interval | Unknown:
    """What the workers say, once the load has moved enough to show it."""
    moved, together = online.movement()
    if moved < MOVED or together < TOGETHER:
        return Unknown(
            f"the load has moved by {moved:.0%} (r² of the workers' shares {together:.2f}): a line needs "
            f"{MOVED:.0%} and {TOGETHER:g}"
        )
    return online.total(scale_out)


@dataclass(frozen=True)
class LiveCapacity:
    """The profile's capacity, corrected by what the running workers show."""

    profile: PredictsCapacity
    online: OnlineCapacity

    def predict(self, scale_out: int) -> Interval | Unknown:
        """What can be worked off at this size? Nothing where the profile says nothing."""
        profiled = self.profile.predict(scale_out)
        if isinstance(profiled, Unknown):
            return profiled
        return joined(
            profiled,
            said_live(self.online, scale_out),
            was_probed=scale_out in _probed(self.profile),
            is_running=scale_out == len(self.online.workers),
        )


def learnt_online(
    online: OnlineCapacity, seen: Observation, *, before: State, after: State
) -> OnlineCapacity:
    """The online capacity with this tick, if anything can be learnt from it."""
    cpu, rates, size = seen.cpu, seen.worker_rps, seen.scale_out
    if isinstance(cpu, Unknown) or isinstance(rates, Unknown) or isinstance(size, Unknown):
        return online
    if after.recovering is not None or after.change is not None or after.observed_at_s != seen.at_s:
        return online
    if seen.at_s - after.settled_at_s < after.settings.settle_s or seen.executors_alive != size:
        return online
    workers = sorted(set(cpu) & set(rates))
    if len(workers) != size or not all(0.0 <= cpu[w] <= MOST_SHARE for w in workers):
        return online
    step_s = seen.at_s - before.observed_at_s
    if not 0.0 < step_s <= after.settings.longest_gap_s:
        step_s = after.settings.interval_s
    return online.update({w: cpu[w] for w in workers}, {w: rates[w] for w in workers}, step_s=step_s)


def _probed(profile: Any) -> tuple[int, ...]:
    """The sizes that were saturated when the job was profiled."""
    model = getattr(profile, "sustained", profile)
    return tuple(getattr(model, "saturated_at", ()))
