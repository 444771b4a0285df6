"""What if the clock goes back, because somebody has set it right?

A little, and the samples that would be older than those before are missed until it has made up for it. Far,
and waiting would last for as long: whatever was remembered lies ahead now, so it is dropped and begun anew.
"""

from __future__ import annotations

WAITED_FOR_S = 15.0  # judgement: as timeline.EDGE_S, a gap that spans are still answered across


def is_far(newest_s: float, now_s: float) -> bool:
    """Is the newest that is remembered so far ahead that nobody waits for it?"""
    return newest_s - now_s > WAITED_FOR_S


def missed(newest_s: float, now_s: float) -> str:
    """Why there is no sample now."""
    return f"the clock went back by {newest_s - now_s:.1f} s: samples go on when it has made up for it"


def dropped(newest_s: float, now_s: float) -> str:
    """Why there is nothing from before."""
    return (
        f"the clock went back by {newest_s - now_s:,.0f} s: what was sampled before is dropped, it lies ahead"
    )
