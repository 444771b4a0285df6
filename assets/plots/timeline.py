"""Plot of the evaluations of a job over time.

Three panels over the same time: load below the capacity in use, lag in seconds of input, executors. A line
through all of them where the size was changed, a mark where an alarm was raised.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from . import style

Evaluation = Mapping[str, Any]


def timeline(evaluations: Sequence[Evaluation], *, job: str) -> bytes:
    """The decisions of one job as `Store.evaluations` has them, oldest first."""
    figure, panels = style.sheet(
        _title(evaluations), _subtitle(job, evaluations), panels=(1.5, 1.0, 1.0), height=6.2
    )
    load, lag, size = panels
    every = max(1.0, float(evaluations[-1]["interval_s"])) if evaluations else 60.0
    if evaluations:  # the newest one holds until the next
        last = evaluations[-1]
        held = {"at_s": float(last["at_s"]) + every, "instruction": {"do": "hold"}, "alarms": ()}
        evaluations = [*evaluations, {**last, **held}]
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


def _load(axes: style.Axes, at: Sequence[float], evaluations: Sequence[Evaluation]) -> None:
    arrival = [_number(one["observation"].get("arrival_rps")) for one in evaluations]
    used = [_number(_known(one["capacity"].get("used")).get("mid")) for one in evaluations]
    peak = [_number(_known(one["forecast"].get("peak")).get("high")) for one in evaluations]
    axes.step(at, used, where="post", color=style.GREEN, lw=1.6, zorder=3)
    axes.plot(at, peak, color=style.ORANGE, lw=1.2, ls=(0, (4, 2)), zorder=3)
    axes.plot(at, arrival, color=style.INK, lw=1.6, zorder=4)
    known = [v for v in (*arrival, *used, *peak) if not math.isnan(v)]
    axes.set_ylim(0, max([1.0, *known]) * 1.15)
    named = (
        ("arriving", style.INK),
        ("highest expected", style.ORANGE),
        ("capacity in use", style.GREEN),
    )
    style.names(axes, named)
    style.thousands(axes)
    style.unit(axes, "records/s")


def _lag(axes: style.Axes, at: Sequence[float], evaluations: Sequence[Evaluation]) -> None:
    lag = [_number(one.get("lag_s")) for one in evaluations]
    axes.fill_between(at, lag, color=style.PURPLE, alpha=0.25, lw=0)
    axes.plot(at, lag, color=style.PURPLE, lw=1.5)
    target = _number(evaluations[-1]["promise"].get("target_s")) if evaluations else math.nan
    most = max([v for v in lag if not math.isnan(v)], default=1.0)
    top = max(most, 1.0) * 1.25
    if target <= top * 1.6:
        top = max(top, target * 1.15)
        axes.axhline(target, color=style.GREEN, lw=1.2)
        named: list[tuple[str, str]] = [("recovery target", style.GREEN)]
    else:
        named = []
    alarmed = [(t, one) for t, one in zip(at, evaluations, strict=True) if one.get("alarms")]
    if alarmed:
        axes.scatter(
            [t for t, _ in alarmed],
            [top * 0.9] * len(alarmed),
            marker="X",
            s=52,
            color=style.RED,
            edgecolors=style.PAPER,
            linewidths=0.8,
            zorder=7,
        )
        named.append(("alarm", style.RED))
    axes.set_ylim(0, top)
    style.names(axes, named)
    style.unit(axes, "lag, seconds of input")


def _size(axes: style.Axes, at: Sequence[float], evaluations: Sequence[Evaluation]) -> None:
    declared = [_number(one["scale_out"]) for one in evaluations]
    advised = [_advised(one) for one in evaluations]
    axes.step(at, advised, where="post", color=style.SKY, lw=1.4, ls=(0, (3, 2)), zorder=3)
    axes.step(at, declared, where="post", color=style.BLUE, lw=2.2, zorder=4)
    known = [v for v in (*declared, *advised) if not math.isnan(v)]
    top = max(known, default=1.0)
    axes.set_ylim(0, top * 1.28)
    axes.set_yticks(range(0, int(top) + 1, max(1, math.ceil(top / 4))))
    style.names(axes, (("running", style.BLUE), ("recommended", style.SKY)))
    style.unit(axes, "executors")


def _title(evaluations: Sequence[Evaluation]) -> str:
    changes = [one for one in evaluations if one["instruction"]["do"] == "scale"]
    alarms = sum(len(one.get("alarms") or ()) for one in evaluations)
    if not evaluations:
        return "Nothing was evaluated yet"
    said = f"{len(changes)} change{'s' * (len(changes) != 1)} of size"
    return f"{said}, {alarms} alarm{'s' * (alarms != 1)} in {len(evaluations)} evaluations"


def _subtitle(job: str, evaluations: Sequence[Evaluation]) -> str:
    if not evaluations:
        return job
    return f"{job}, mode {evaluations[-1]['mode']}: dotted lines mark changes that were ordered"


def _advised(one: Evaluation) -> float:
    value = _number(_known(one.get("decision")).get("scale_out"))
    return value if not math.isnan(value) else math.nan


def _known(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) and "unknown" not in value else {}


def _number(value: Any) -> float:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else math.nan
