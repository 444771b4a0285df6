"""What happened at one tick, in one line? For tables of many."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from typing import Any

from models.quantities import Unknown
from models.wording import executors

from ..loop.evaluation_record import Evaluation
from .in_words import brief_s, count, is_known

VERB = re.compile(
    r"(mode \w+, would scale to \d+ executors?: )?((hold|scale (out|in) from \d+ to) \d+ executors?:? )?"
)
"""What control's reasons begin with and another column says already."""


@dataclass(frozen=True)
class Line:
    """One evaluation in short."""

    at_s: float
    load: str
    """Records/s that arrive; ? where it could not be read."""
    lag: str
    """Seconds of input."""
    scale_out: str
    done: str
    """hold, `2 → 4` (ordered), `2 → 4 again` (brought back), `would 2 → 4` (recommended), paused, …"""
    why: str
    alarms: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Plain JSON."""
        return asdict(self)


def in_short(e: Evaluation) -> Line:
    """The line of one evaluation."""
    rate = e.observation.get("arrival_rps")
    return Line(
        at_s=e.at_s,
        load=count(rate) if rate is not None and is_known(rate) else "?",
        lag="?" if isinstance(e.lag_s, Unknown) else brief_s(e.lag_s),
        scale_out="?" if isinstance(e.scale_out, Unknown) else str(e.scale_out),
        done=_done(e),
        why=_why(e.reason),
        alarms=tuple(e.alarms),
    )


def _done(e: Evaluation) -> str:
    order, now = e.instruction, "?" if isinstance(e.scale_out, Unknown) else e.scale_out
    if order["do"] == "scale":
        return f"{now} → {order['to']}{' again' if e.reassert else ''}"
    if order.get("would") is not None:
        return f"would {now} → {order['would']}"
    if "pause" in e.orders:
        return "paused"
    if e.foreign:
        return "theirs"
    if "pin" in e.orders:
        return "pinned"
    return "drill" if "drill" in e.orders else "hold"


def _why(reason: str) -> str:
    """`forecast 31–36k rps fits 42k, …` of `hold 6 executors: forecast 31–36k rps fits 42k, …`."""
    limit, cut, wanted = reason.partition("; wanted: ")
    if cut and (to := re.match(r"scale (?:out|in) from \d+ to (\d+) executors?", wanted)):
        return f"{limit} (wanted {executors(int(to[1]))})"
    return reason[match.end() :] if (match := VERB.match(reason)) else reason
