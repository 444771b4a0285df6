"""Plots of recovery against scale-out, of downtimes, and of drills against their prediction.

recovery    one mark per failure kind and scale-out, and a line that ends where the promised share of
            recoveries has ended; across is the target. Beyond the horizon: at the top edge.
downtime    the 90 % interval of the next downtime and its middle; hollow without any event, from the prior
drills      one mark per drill: measured recovery to the right, predicted upwards with its 90 % interval, by
            models without it; on the line they are equal, the band is 15 % to both sides
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from models.downtime import DowntimeModel
from models.quantities import EVENT_KINDS, Interval, Unknown, counted, executors
from profiling_jobs.training.checks import DRILL_ERROR, Drilled

from . import style


def downtime(model: DowntimeModel, *, job: str, kinds: Sequence[str] = ()) -> bytes:
    """Downtimes of the kinds that are promised, and of those that were seen."""
    shown = [k for k in EVENT_KINDS if k in kinds or model.events(k)]
    seen = sum(model.events(kind) for kind in shown)
    figure, (axes,) = style.sheet(
        f"Downtime learnt from {counted(seen, 'event')}" if seen else "Downtime as the prior says",
        f"{job}: from the event to the first new commit, 90 % intervals",
    )
    ends = []
    for row, kind in enumerate(shown):
        found, count = model.interval(kind), model.events(kind)
        ends += [e for e in (found.mid, found.high) if math.isfinite(e)]
        color = style.BLUE if count else style.FAINT
        if math.isfinite(found.high):
            axes.hlines(row, found.low, found.high, color=color, lw=2.4, alpha=0.5)
        middle = [(found.mid, row)] if math.isfinite(found.mid) else []
        fill = color if count else style.PAPER
        style.dots(axes, middle, mark="o", color=fill, s=46, edgecolors=color, linewidths=1.3, zorder=5)
        text = counted(count, "event") if count else "prior only"
        if not math.isfinite(found.mid):
            text += ", and the job did not come back"
        at = found.high if math.isfinite(found.high) else 0.0
        style.label(axes, at, row, text, color=color, xytext=(7, 0), size=8)
    axes.set_yticks(range(len(shown)), [kind.replace("_", " ") for kind in shown])
    axes.tick_params(axis="y", labelcolor=style.INK, pad=-2)
    axes.set_ylim(len(shown) - 0.4, -0.6)
    axes.set_xlim(0, max([*ends, 10.0]) * 1.18)
    axes.grid(visible=False, axis="y")
    axes.grid(visible=True, axis="x", color=style.RULE, linewidth=0.8)
    figure.subplots_adjust(left=0.19)
    style.below(axes, "seconds")
    return style.png(figure)


def drills(found: Sequence[Drilled], *, job: str, target_s: float | None = None) -> bytes:
    """Predicted against measured recovery; what did not recover is counted, and has no place on the axes."""
    lost = sum(math.isinf(one.measured_s) for one in found)
    error = sum(one.error for one in found) / len(found) if found else math.nan
    title = f"Recovery was predicted to within {error:.0%} on average" if found else "No drill was run so far"
    figure, (axes,) = style.sheet(
        title,
        f"{job}: {counted(len(found), 'drill')}, each predicted by models that have not seen it"
        + f"; {lost} did not recover" * bool(lost),
    )
    found = [one for one in found if math.isfinite(one.measured_s)]
    ends = [max(one.measured_s, _finite(one.predicted.high, one.predicted.mid)) for one in found]
    top = 1.12 * max([*ends, 1.0 if found else 60.0])
    edges = [0, top * (1 - DRILL_ERROR)], [0, top * (1 + DRILL_ERROR)]
    axes.fill_between([0, top], *edges, color=style.FAINT, alpha=0.13, lw=0)
    axes.plot([0, top], [0, top], color=style.FAINT, lw=1.0)
    at, beside = top * 0.93, {"xytext": (-6, 8), "ha": "right", "size": 8}
    style.label(axes, at, at, f"equal, ±{DRILL_ERROR:.0%}", color=style.FAINT, **beside)
    if target_s is not None and target_s < top:
        axes.axvline(target_s, color=style.GREEN, lw=1.4)
        style.label(
            axes, target_s, top * 0.04, f"target {target_s:.0f} s", color=style.GREEN, xytext=(4, 0), size=8
        )
    kinds = sorted({one.kind for one in found})
    for number, kind in enumerate(kinds):
        color = style.SERIES[number % len(style.SERIES)]
        here = [one for one in found if one.kind == kind]
        for one in here:
            high = min(one.predicted.high, top)
            axes.vlines(one.measured_s, one.predicted.low, high, color=color, lw=1.8, alpha=0.4)
        mark, points = style.MARKS[number % len(style.MARKS)], []
        for one in here:
            points.append((one.measured_s, min(one.predicted.mid, top)))
            how: Any = {"ha": "center", "va": "center_baseline", "size": 7, "weight": "bold", "zorder": 7}
            axes.annotate(str(one.scale_out), points[-1], color=style.PAPER, **how)
        style.dots(axes, points, mark=mark, color=color, s=120, label=kind.replace("_", " "))
    if kinds:
        style.legend(axes, "upper left", title="failure (number: executors)", title_fontsize=8)
    axes.set_xlim(0, top)
    axes.set_ylim(0, top)
    axes.grid(axis="x", color=style.RULE, linewidth=0.8)
    style.unit(axes, "predicted seconds until caught up")
    style.below(axes, "measured seconds until caught up")
    return style.png(figure)


def _finite(value: float, otherwise: float) -> float:
    return value if math.isfinite(value) else otherwise if math.isfinite(otherwise) else 0.0


HIGHEST = 2.0  # targets; judgement: what takes longer is not kept, however long it takes


def recovery(
    found: Mapping[str, Mapping[int, Interval | Unknown]],
    *,
    job: str,
    target_s: float,
    promised: float,
    rate_rps: float,
) -> bytes:
    """Recovery against scale-out at one load. `found`: failure kind -> scale-out -> seconds; the share
    `promised` of them ends by `high`."""
    known = {
        kind: {s: one for s, one in sorted(sizes.items()) if isinstance(one, Interval)}
        for kind, sizes in found.items()
    }
    every = sorted({s for sizes in found.values() for s in sizes})
    keeps = [s for s in every if all(s in k and k[s].high <= target_s for k in known.values())]
    figure, (axes,) = style.sheet(
        _title(keeps, target_s, every),
        f"{job}: recovery after a failure at {style.short(rate_rps)} records/s, "
        f"{100 * promised:g} % have ended where a line ends",
    )
    ends = [end for sizes in known.values() for one in sizes.values() for end in (one.mid, one.high)]
    top = 1.15 * max([end for end in ends if end <= HIGHEST * target_s], default=0.0)
    top = max(top, 1.15 * 1.25 * target_s)
    axes.set_ylim(0, top)
    axes.set_xlim((every or [1])[0] - 0.6, (every or [1])[-1] + 0.6)
    axes.axhspan(0, target_s, facecolor=style.GREEN, alpha=0.07, lw=0, zorder=0)
    axes.axhline(target_s, color=style.GREEN, lw=1.6, zorder=2)
    right, how = axes.get_xlim()[1], {"xytext": (-2, 7), "ha": "right", "weight": "bold"}
    style.label(axes, right, target_s, f"target {target_s:.0f} s", color=style.GREEN, **how)
    for number, sizes in enumerate(known.values()):
        _one(axes, sizes, number, len(known), top)
    for size in every:
        if not any(size in sizes for sizes in known.values()):
            style.label(axes, size, top * 0.5, "unknown", color=style.FAINT, ha="center", rotation=90, size=8)
    axes.set_xticks(style.ticks(every))
    named = [(k.replace("_", " "), style.SERIES[n % len(style.SERIES)]) for n, k in enumerate(known)]
    style.names(axes, named)
    if any(one.high > top for sizes in known.values() for one in sizes.values()):
        style.label(
            axes, every[0] - 0.5, top, "▲ longer than shown", color=style.FAINT, xytext=(0, -14), size=8
        )
    style.unit(axes, "seconds until caught up")
    style.below(axes, "executors")
    return style.png(figure)


def _title(keeps: list[int], target_s: float, every: list[int]) -> str:
    if not keeps:
        return f"No scale-out is sure to recover within {target_s:.0f} s"
    if keeps[0] == every[0]:
        return f"Every scale-out from {executors(keeps[0])} on recovers within {target_s:.0f} s"
    return f"{executors(keeps[0], 'recover')} within {target_s:.0f} s, fewer are not sure to"


def _one(axes: style.Axes, sizes: Mapping[int, Interval], number: int, count: int, top: float) -> None:
    color, mark = style.SERIES[number % len(style.SERIES)], style.MARKS[number % len(style.MARKS)]
    aside = (number - (count - 1) / 2) * 0.2
    for size, one in sizes.items():
        low, high = min(one.low, top), min(one.high, top)
        if low < top:
            axes.vlines(size + aside, low, high, color=color, lw=2.2, alpha=0.45, zorder=3)
        if one.high > top:
            axes.plot(size + aside, top * 0.985, marker="^", ms=5, color=color, clip_on=False, zorder=5)
    shown = [(s + aside, one.mid) for s, one in sizes.items() if one.mid < top]
    style.dots(axes, shown, mark=mark, color=color)
