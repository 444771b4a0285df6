"""Plots of the evaluations of a job over time.

timeline    load below the capacity in use, lag in seconds of input, and executors, over the same time; a line
            through all of them where the size was changed, a mark where an alarm was raised
sparkline   load (black) below the capacity in use (green), executors (blue) under both; a drawing for a table
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from itertools import zip_longest
from typing import Any
from urllib.parse import quote

from models.quantities import counted

from . import style

Evaluation = Mapping[str, Any]
GAP = 5.0  # intervals; judgement: a busy machine is late by one or two
NOTHING_KNOWN: Evaluation = {
    "observation": {}, "capacity": {}, "forecast": {}, "decision": None, "lag_s": None, "scale_out": None
}  # fmt: skip


def timeline(evaluations: Sequence[Evaluation], *, job: str) -> bytes:
    """The decisions of one job as `Store.evaluations` has them, oldest first."""
    figure, panels = style.sheet(
        _title(evaluations), _subtitle(job, evaluations), panels=(1.5, 1.0, 1.0), height=6.2
    )
    load, lag, size = panels
    evaluations = held(evaluations)
    at = [float(one["at_s"]) for one in evaluations]
    _load(load, at, evaluations)
    _lag(lag, at, evaluations)
    _size(size, at, evaluations)
    for axes in panels:
        axes.set_xlim((at[0], at[-1]) if at else (0.0, 1.0))
        for one in evaluations:
            if one["instruction"]["do"] == "scale":
                axes.axvline(
                    float(one["at_s"]), color=style.BLUE, lw=0.8, alpha=0.7, ls=(0, (1, 2)), zorder=1
                )
        style.clock(axes)
    for axes in panels[:-1]:
        axes.tick_params(labelbottom=False)
    style.below(size, "time, UTC")
    return style.png(figure)


def held(evaluations: Sequence[Evaluation]) -> list[Evaluation]:
    """Append to each run of evaluations the end of its last values, and nothing known until the next run.

    An evaluation holds for one interval. Over a longer gap no line is drawn: nothing was evaluated in it.
    """
    found: list[Evaluation] = []
    for one, following in zip_longest(evaluations, evaluations[1:]):
        found.append(one)
        every = max(1.0, float(one["interval_s"]))
        until = math.inf if following is None else float(following["at_s"])
        if until - float(one["at_s"]) > GAP * every:
            quiet = {"at_s": float(one["at_s"]) + every, "instruction": {"do": "hold"}, "alarms": ()}
            found.append({**one, **quiet})
            if following is not None:
                found.append({**one, **quiet, **NOTHING_KNOWN})
    return found


def _load(axes: style.Axes, at: Sequence[float], evaluations: Sequence[Evaluation]) -> None:
    arrival = [_number(one["observation"].get("arrival_rps")) for one in evaluations]
    used = [_number(_known(one["capacity"].get("used")).get("mid")) for one in evaluations]
    peak = [_number(_known(one["forecast"].get("peak")).get("high")) for one in evaluations]
    axes.step(at, used, where="post", color=style.GREEN, lw=1.6, zorder=3)
    axes.plot(at, peak, color=style.ORANGE, lw=1.2, ls=(0, (4, 2)), zorder=3)
    axes.plot(at, arrival, color=style.INK, lw=1.6, zorder=4)
    known = [v for v in (*arrival, *used, *peak) if not math.isnan(v)]
    axes.set_ylim(0, max([1.0, *known]) * 1.15)
    style.names(
        axes,
        (("arriving", style.INK), ("highest expected", style.ORANGE), ("capacity in use", style.GREEN)),
    )
    style.thousands(axes)
    style.unit(axes, "records/s")


def _lag(axes: style.Axes, at: Sequence[float], evaluations: Sequence[Evaluation]) -> None:
    lag = [_number(one.get("lag_s")) for one in evaluations]
    axes.fill_between(at, lag, color=style.PURPLE, alpha=0.25, lw=0)
    axes.plot(at, lag, color=style.PURPLE, lw=1.5)
    target = _number(evaluations[-1]["promise"].get("target_s")) if evaluations else math.nan
    most = max([v for v in lag if not math.isnan(v)], default=1.0)
    top = max(most, 1.0) * 1.25
    named: list[tuple[str, str]] = []
    if target <= top * 1.6:
        top = max(top, target * 1.15)
        axes.axhline(target, color=style.GREEN, lw=1.2)
        named.append(("recovery target", style.GREEN))
    alarmed = [(t, top * 0.9) for t, one in zip(at, evaluations, strict=True) if one.get("alarms")]
    if alarmed:
        style.dots(axes, alarmed, mark="X", color=style.RED, s=52, linewidths=0.8, zorder=7)
        named.append(("alarm", style.RED))
    axes.set_ylim(0, top)
    style.names(axes, named)
    style.unit(axes, "lag, seconds of input")


def _size(axes: style.Axes, at: Sequence[float], evaluations: Sequence[Evaluation]) -> None:
    declared = [_number(one["scale_out"]) for one in evaluations]
    advised = [_number(_known(one.get("decision")).get("scale_out")) for one in evaluations]
    axes.step(at, advised, where="post", color=style.SKY, lw=1.4, zorder=3)
    axes.step(at, declared, where="post", color=style.BLUE, lw=2.2, zorder=4)
    known = [v for v in (*declared, *advised) if not math.isnan(v)]
    top = max(known, default=1.0)
    axes.set_ylim(0, top * 1.28)
    axes.set_yticks(range(0, int(top) + 1, max(1, math.ceil(top / 5))))
    style.names(axes, (("running", style.BLUE), ("recommended", style.SKY)))
    style.unit(axes, "executors")


def _title(evaluations: Sequence[Evaluation]) -> str:
    if not evaluations:
        return "Nothing was evaluated yet"
    changes = sum(one["instruction"]["do"] == "scale" for one in evaluations)
    alarms = sum(len(one.get("alarms") or ()) for one in evaluations)
    said = f"{counted(changes, 'change')} of size, {counted(alarms, 'alarm')}"
    return f"{said} in {len(evaluations)} evaluations"


def _subtitle(job: str, evaluations: Sequence[Evaluation]) -> str:
    if not evaluations:
        return job
    return f"{job}, mode {evaluations[-1]['mode']}: dotted lines mark changes that were ordered"


def _known(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) and "unknown" not in value else {}


def _number(value: Any) -> float:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else math.nan


# ------------------------------------------------------------------------------------------ the sparkline

MOST_CHARACTERS = 990
POINTS = 48
WIDTH, UPPER, LOWER = 320, 60, 24
"""Pixels: the width, the height of the rates, that of the executors. The drawing makes the table as wide as
itself: on a screen of 1,366 pixels its column has 340, and what is wider cuts off the words of `said`."""


def sparkline(evaluations: Sequence[Evaluation], *, job: str) -> str:
    """The last evaluations as a small drawing in Markdown; empty without two of them.

    Dagster shows Markdown of less than a thousand characters without a click, so this is an SVG of few points
    in the address of an image.
    """
    points = POINTS
    while len(evaluations) > 1 and points > 1:
        every = max(1, -(-len(evaluations) // points))
        said = f"![the last evaluations of {job}]({_address(evaluations[::-1][::every][::-1])})"
        if len(said) < MOST_CHARACTERS:
            return said
        points = points * 3 // 4
    return ""


def _address(shown: Sequence[Evaluation]) -> str:
    load = [_number(one["observation"].get("arrival_rps")) for one in shown]
    used = [_number(_known(one["capacity"].get("used")).get("mid")) for one in shown]
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


def _path(values: Sequence[float], *, at: int, height: int, full: float) -> str:
    """Steps from value to value; nothing where one is not known."""
    path, before, along = "", None, 0
    step = WIDTH // max(1, len(values) - 1)
    for number, value in enumerate(values):
        y = None if math.isnan(value) else at + round(height * (1.0 - value / full))
        if before is not None:
            along += step
        if y != before:
            path += f"h{along}" if along else ""
            along = 0
            if y is not None:
                path += f"M{step * number},{y}" if before is None else f"v{y - before}"
        before = y
    return path + (f"h{along}" if along else "")


def _highest(*columns: Sequence[float]) -> float:
    return max((value for column in columns for value in column if value > 0.0), default=1.0)
