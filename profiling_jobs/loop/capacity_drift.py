"""Does the running job still have the capacity that profiling found, and which size should be measured again?

Compared at the size the job runs at: where the 90 % intervals of the profile and of the running workers have
not touched for half an hour, the profile is out of date, and exactly that size is asked for. So it is where
control has caught the models in the act: the job fell behind although they said that its size fits.

Half an hour at one size, tick after tick: of a time in which nothing could be compared nobody can say that
the two disagreed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Self

from models.quantities import Interval, Json, Unknown
from models.wording import executors

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

    def to_json(self) -> dict[str, Any]:
        """Plain JSON."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Json) -> Self:
        """What `to_json` wrote."""
        return cls(**data)
