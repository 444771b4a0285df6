"""The last evaluations as a small drawing that Dagster shows in the table of metadata without a click.

Dagster shows Markdown of less than a thousand characters where it stands, so this is an SVG of few points in
the address of an image: arriving load (black) below the capacity in use (green), executors (blue) under both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

from ..plots import style

MOST_CHARACTERS = 990
POINTS = 48
WIDTH, UPPER, LOWER = 480, 60, 24  # pixels: the width, the height of the rates, that of the executors


def sparkline(evaluations: Sequence[Mapping[str, Any]], *, job: str) -> str:
    """Markdown; empty without two evaluations."""
    points = POINTS
    while len(evaluations) > 1 and points > 1:
        every = max(1, -(-len(evaluations) // points))
        said = f"![the last evaluations of {job}]({_address(evaluations[::-1][::every][::-1])})"
        if len(said) < MOST_CHARACTERS:
            return said
        points = points * 3 // 4
    return ""


def _address(shown: Sequence[Mapping[str, Any]]) -> str:
    load = [_number(one["observation"].get("arrival_rps")) for one in shown]
    used = [_number((one["capacity"].get("used") or {}).get("mid")) for one in shown]
    size = [_number(one["scale_out"]) for one in shown]
    highest, most = _highest(load, used), _highest(size)
    began, ended = (
        datetime.fromtimestamp(float(one["at_s"]), UTC).strftime("%H:%M") for one in (shown[0], shown[-1])
    )
    top, low = 12, 12 + UPPER + 6
    svg = (
        f"<svg xmlns='http://www.w3.org/2000/svg' width='{WIDTH}' height='{low + LOWER + 14}' fill='none'>"
        f"<rect width='{WIDTH}' height='{low + LOWER + 14}' fill='#fff'/>"
        f"<g font-size='10' fill='#555'><text y='9'>records/s, up to {highest:,.0f}</text>"
        f"<text y='{low + LOWER + 11}'>{began}–{ended} UTC, up to {most:.0f} executors</text></g>"
    )
    for values, color, at, height, full in (
        (used, style.GREEN, top, UPPER, highest),
        (load, style.INK, top, UPPER, highest),
        (size, style.BLUE, low, LOWER, most),
    ):
        svg += f"<path stroke='{color}' d='{_path(values, at=at, height=height, full=full)}'/>"
    return "data:image/svg+xml," + quote(svg + "</svg>", safe="/:=,;'-+.")


def _path(values: Sequence[float | None], *, at: int, height: int, full: float) -> str:
    """Steps from value to value; nothing where one is not known."""
    path, before, along = "", None, 0
    step = WIDTH // max(1, len(values) - 1)
    for number, value in enumerate(values):
        y = None if value is None else at + round(height * (1.0 - value / full))
        if before is not None:
            along += step
        if y != before:
            path += f"h{along}" if along else ""
            along = 0
            if y is not None:
                path += f"M{step * number},{y}" if before is None else f"v{y - before}"
        before = y
    return path + (f"h{along}" if along else "")


def _highest(*columns: Sequence[float | None]) -> float:
    return max((value for column in columns for value in column if value), default=1.0)


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
