"""The timeline of a job as a drawing: what was evaluated, read from the store, as paths for an SVG.

Three panels over the same time: load, the highest load expected and the capacity in use; the lag; executors.
Lines through all of them mark changes of size, failures and alarms. Colours are those of the page, light or
dark. matplotlib, which draws the timeline on Dagster's page, would take 31 MB in the door (measured).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from models.ports import Store
from models.quantities import FAILURE_KINDS, RESCALE_KINDS, executors
from profiling_jobs.control_loop.memory import EVALUATION_SCHEMA, happened_live
from profiling_jobs.explain.wording import brief_s, capital, count, kind

AT_ONCE = 60  # evaluations that are held in memory: one of 256 sizes takes some 200 kB
MOST = 1500  # judgement: a day of ticks, and two for each pixel
GAP = 5.0  # intervals, as on Dagster's page: over a longer one no line is drawn
WIDTH, LEFT, RIGHT = 720.0, 62.0, 8.0
TOP, HEIGHTS, BETWEEN, BOTTOM = 22.0, (130.0, 80.0, 80.0), 34.0, 22.0
TICKS = 6
EVERY_S = (60, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200, 86_400)
CLOSE_S = 10.0  # judgement: so far apart the moments of one failure are that several evaluations name

Sort = Literal["change", "failure", "alarm"]


@dataclass(frozen=True)
class Point:
    """One evaluation; NaN is unknown."""

    at_s: float
    interval_s: float
    load_rps: float
    expected_rps: float
    capacity_rps: float
    lag_s: float
    alive: float
    declared: float
    recommended: float


@dataclass(frozen=True)
class Mark:
    """Something that happened at one moment."""

    at_s: float
    sort: Sort
    text: str


@dataclass(frozen=True)
class Line:
    """One quantity of a panel: the class of its colour, its name, and its path."""

    sort: str
    name: str
    path: str


@dataclass(frozen=True)
class Panel:
    """One panel of the drawing, with the labels of its height."""

    unit: str
    top: float
    bottom: float
    levels: tuple[tuple[float, str], ...]
    lines: tuple[Line, ...]


@dataclass(frozen=True)
class Drawing:
    """All that the template needs."""

    width: float
    height: float
    left: float
    right: float
    top: float
    bottom: float
    panels: tuple[Panel, ...]
    ticks: tuple[tuple[float, str], ...]
    marks: tuple[tuple[float, Mark], ...]


def read(store: Store, job: str, *, since_s: float, until_s: float) -> tuple[list[Point], list[Mark]]:
    """The evaluations and what has happened, oldest first. Evaluations are read a few at a time."""
    points: list[Point] = []
    marks: list[Mark] = []
    before_s = until_s
    while len(points) < MOST:
        found = store.evaluations(job, since_s=since_s, until_s=before_s, limit=AT_ONCE)
        for at_s, evaluation in reversed(found):
            if evaluation.get("schema") == EVALUATION_SCHEMA:  # another version of Headroom may have run
                points.append(_point(at_s, evaluation))
                marks += _marks(at_s, evaluation)
        if len(found) < AT_ONCE:
            break
        before_s = math.nextafter(found[0][0], -math.inf)
    # First, as a failure that is over says more than one that goes on.
    marks = [*_failures(store, job, since_s=since_s, until_s=until_s), *marks]
    return points[::-1], _once(marks)


def draw(
    points: Sequence[Point], marks: Sequence[Mark], *, since_s: float, until_s: float, target_s: float | None
) -> Drawing:
    """Points and marks as paths, from one moment to another."""

    def x(at_s: float) -> float:
        share = min(1.0, max(0.0, (at_s - since_s) / (until_s - since_s)))
        return round(LEFT + share * (WIDTH - LEFT - RIGHT), 1)

    rates = (
        ("capacity", "capacity in use", [p.capacity_rps for p in points]),
        ("expected", "highest expected", [p.expected_rps for p in points]),
        ("load", "arriving", [p.load_rps for p in points]),
    )
    sizes = (
        ("recommended", "recommended", [p.recommended for p in points]),
        ("alive", "alive", [p.alive for p in points]),
        ("declared", "declared", [p.declared for p in points]),
    )
    lags = [p.lag_s for p in points]
    panels, top = [], TOP
    for unit, height, columns in (
        ("records/s", HEIGHTS[0], rates),
        ("lag, seconds of input", HEIGHTS[1], (("lag", "lag", lags),)),
        ("executors", HEIGHTS[2], sizes),
    ):
        highest = _round_up(max((v for _, _, values in columns for v in values if v > 0.0), default=1.0))
        if unit == "executors":
            highest = max(2.0, float(math.ceil(highest)))

        def y(value: float, top: float = top, height: float = height, highest: float = highest) -> float:
            return round(top + height * (1.0 - value / highest), 1)

        lines = [Line(sort, name, _path(points, values, x, y)) for sort, name, values in columns]
        if unit.startswith("lag") and target_s is not None and target_s <= highest:
            across = f"M{LEFT},{y(target_s)}H{WIDTH - RIGHT}"
            lines.insert(0, Line("target", "recovery target", across))
        levels = ((y(0.0), "0"), (y(highest), count(highest)))
        panels.append(Panel(unit, top, top + height, levels, tuple(lines)))
        top += height + BETWEEN
    bottom = top - BETWEEN
    return Drawing(
        width=WIDTH,
        height=bottom + BOTTOM,
        left=LEFT,
        right=WIDTH - RIGHT,
        top=TOP,
        bottom=bottom,
        panels=tuple(panels),
        ticks=tuple((x(at_s), text) for at_s, text in _ticks(since_s, until_s)),
        marks=tuple((x(mark.at_s), mark) for mark in marks if since_s <= mark.at_s <= until_s),
    )


def _point(at_s: float, evaluation: Mapping[str, Any]) -> Point:
    seen, forecast = _known(evaluation.get("observation")), _known(evaluation.get("forecast"))
    return Point(
        at_s=at_s,
        interval_s=float(evaluation["interval_s"]),
        load_rps=_number(seen.get("arrival_rps")),
        expected_rps=_number(_known(forecast.get("peak")).get("high")),
        capacity_rps=_number(_known(_known(evaluation.get("capacity")).get("used")).get("mid")),
        lag_s=_number(evaluation.get("lag_s")),
        alive=_number(seen.get("executors_alive")),
        declared=_number(evaluation.get("scale_out")),
        recommended=_number(_known(evaluation.get("decision")).get("scale_out")),
    )


def _marks(at_s: float, evaluation: Mapping[str, Any]) -> list[Mark]:
    found = [Mark(at_s, "alarm", capital(str(alarm))) for alarm in evaluation.get("alarms") or ()]
    order = _known(evaluation.get("instruction"))
    if order.get("do") == "scale":
        now = evaluation.get("scale_out")
        came = f"from {now} " if isinstance(now, int) else ""
        found.append(Mark(at_s, "change", f"Ordered: {came}to {executors(int(order['to']))}"))
    incident = _known(evaluation.get("recovering"))
    if incident and incident["kind"] not in RESCALE_KINDS:
        text = f"{capital(kind(str(incident['kind'])))}: {incident['why']}"
        found.append(Mark(float(incident["failed_at_s"]), "failure", text))
    return found


def _failures(store: Store, job: str, *, since_s: float, until_s: float) -> list[Mark]:
    """Failures of the live job that are over."""
    return [
        Mark(event.failed_at_s, "failure", f"{capital(kind(event.kind))}, {_back_after(event.recovery_s)}")
        for event, details in store.events(job)
        if since_s <= event.failed_at_s <= until_s and event.kind in FAILURE_KINDS and happened_live(details)
    ]


def _back_after(recovery_s: float) -> str:
    """`back after 34 s`, `not back`."""
    return f"back after {brief_s(recovery_s)} s" if math.isfinite(recovery_s) else "not back"


def _once(marks: Sequence[Mark]) -> list[Mark]:
    """By time, and each failure once: every evaluation names the one that goes on."""
    found: list[Mark] = []
    failed_s = -math.inf
    for mark in sorted(marks, key=lambda mark: round(mark.at_s)):
        if mark.sort == "failure":
            if mark.at_s - failed_s <= CLOSE_S:
                continue
            failed_s = mark.at_s
        found.append(mark)
    return found


def _path(
    points: Sequence[Point],
    values: Sequence[float],
    x: Callable[[float], float],
    y: Callable[[float], float],
) -> str:
    """Steps from value to value, as each holds for an interval; nothing where one is not known."""
    parts: list[str] = []
    joined = False
    for number, (point, value) in enumerate(zip(points, values, strict=True)):
        if math.isnan(value):
            joined = False
            continue
        after_s = points[number + 1].at_s if number + 1 < len(points) else math.inf
        goes_on = after_s - point.at_s <= GAP * point.interval_s
        parts.append(f"V{y(value)}" if joined else f"M{x(point.at_s)},{y(value)}")
        parts.append(f"H{x(after_s if goes_on else point.at_s + point.interval_s)}")
        joined = goes_on
    return "".join(parts)


def _ticks(since_s: float, until_s: float) -> list[tuple[float, str]]:
    """Full hours, or minutes, of the clock here."""
    every = next((e for e in EVERY_S if (until_s - since_s) / e <= TICKS), EVERY_S[-1])
    offset = datetime.fromtimestamp(until_s).astimezone().utcoffset()
    ahead = offset.total_seconds() if offset else 0.0
    first = math.ceil((since_s + ahead) / every) * every - ahead
    found = []
    while first <= until_s:
        found.append((first, f"{datetime.fromtimestamp(first):%H:%M}"))
        first += every
    return found


def _round_up(value: float) -> float:
    """The next of 1, 2, 2.5, 5, 10, 20, 25, …"""
    power = 10.0 ** math.floor(math.log10(value))
    return next(step * power for step in (1.0, 2.0, 2.5, 5.0, 10.0) if value <= step * power * (1.0 + 1e-9))


def _known(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) and "unknown" not in value else {}


def _number(value: Any) -> float:
    finite = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    return float(value) if finite else math.nan
