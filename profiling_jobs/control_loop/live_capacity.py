"""The capacity that the running job shows, and its disagreement with the profile.

`LiveCapacity` corrects the profile by what the running executors show (`OnlineCapacity`), which learns from
every tick without a failure or a change in which all executors are there and the job has settled.

`CapacityDrift` compares both at the size the job runs with. Where their 90 % intervals have not touched for
half an hour, tick after tick at one size, the profile is out of date and that size is to be measured again;
so it is where the job fell behind although the models said that its size fits.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from models.capacity import OnlineCapacity
from models.capacity.online import joined
from models.control import State
from models.control.deciding import PredictsCapacity
from models.observation import Observation
from models.quantities import Interval, Unknown, executors

APART_S = 1800.0  # judgement: three stretches that teach, and longer than a noisy neighbour mostly stays
CONTRADICTED = "models contradicted"  # how control begins that alarm
ASK_AGAIN_S = 86_400.0  # judgement: measuring costs executor-seconds


@dataclass(frozen=True)
class CapacityDrift:
    """Since when profile and running job have disagreed."""

    version: int = 0
    """Of the capacity model: a new one begins anew. The others are fitted more often than it is measured."""
    apart_since_s: float = math.inf
    apart_until_s: float = -math.inf
    """The newest tick of which that is known."""
    apart_at: int = 0
    """The size at which they disagree."""
    scale_out: int = 0
    """The size that was asked for."""
    asked_since_s: float = math.inf
    """When the request that stands was made."""
    why: str = ""

    def seen(
        self,
        *,
        version: int | Unknown,
        scale_out: int | Unknown,
        profile: Interval | Unknown,
        online: Interval | Unknown,
        alarms: Sequence[str],
        longest_gap_s: float,
        now_s: float,
    ) -> CapacityDrift:
        """The state one tick later. `longest_gap_s`: ticks further apart do not belong together."""
        state = self
        if not isinstance(version, Unknown) and version != self.version:
            state = CapacityDrift(version=version)
        if isinstance(scale_out, Unknown):
            return state
        if any(alarm.startswith(CONTRADICTED) for alarm in alarms):
            return state._asking(
                f"the job fell behind at {executors(scale_out)}, which fit", scale_out, now_s
            )
        if isinstance(profile, Unknown) or isinstance(online, Unknown):
            return state
        if online.low <= profile.high and profile.low <= online.high:
            return replace(state, apart_since_s=math.inf)
        goes_on = state.apart_at == scale_out and now_s - state.apart_until_s <= longest_gap_s
        since_s = min(state.apart_since_s, now_s) if goes_on else now_s
        state = replace(state, apart_since_s=since_s, apart_until_s=now_s, apart_at=scale_out)
        if now_s - state.apart_since_s < APART_S:
            return state
        return state._asking(
            f"{executors(scale_out, 'show')} {online.low:.0f}–{online.high:.0f} records/s where the profile "
            f"says {profile.low:.0f}–{profile.high:.0f}",
            scale_out,
            now_s,
        )

    @property
    def requests(self) -> tuple[dict[str, Any], ...]:
        """What should be measured again."""
        if not self.why:
            return ()
        asked = {"do": "profile", "model": "capacity", "why": self.why, "since_s": self.asked_since_s}
        return ({**asked, "scale_outs": [self.scale_out]},)

    def _asking(self, why: str, scale_out: int, now_s: float) -> CapacityDrift:
        if self.why and self.scale_out == scale_out and now_s - self.asked_since_s < ASK_AGAIN_S:
            return self
        return replace(self, scale_out=scale_out, asked_since_s=now_s, why=why)


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
