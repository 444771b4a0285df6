"""Do failures take as long as the models say?

Each mark is a drill: measured recovery to the right, predicted upwards with its 90 % interval, by models
that have not seen it. On the line they are the same; the band is 15 % to both sides.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from profiling_jobs.learning.verdicts import DRILL_ERROR, Drilled

from . import style


def drills(found: Sequence[Drilled], *, job: str, target_s: float | None = None) -> bytes:
    """Predicted against measured recovery; what did not recover is counted, and has no place on the axes."""
    lost = sum(math.isinf(one.measured_s) for one in found)
    error = sum(one.error for one in found) / len(found) if found else math.nan
    title = f"Recovery was predicted to within {error:.0%} on average" if found else "No drill was run so far"
    plural = "s" * (len(found) != 1)
    figure, (axes,) = style.sheet(
        title,
        f"{job}: {len(found)} drill{plural}, each predicted by models that have not seen it"
        + f"; {lost} did not recover" * bool(lost),
    )
    found = [one for one in found if math.isfinite(one.measured_s)]
    ends = [max(one.measured_s, _finite(one.predicted.high, one.predicted.mid)) for one in found]
    top = 1.12 * max([*ends, 1.0 if found else 60.0])
    axes.fill_between(
        [0, top],
        [0, top * (1 - DRILL_ERROR)],
        [0, top * (1 + DRILL_ERROR)],
        color=style.FAINT,
        alpha=0.13,
        lw=0,
    )
    axes.plot([0, top], [0, top], color=style.FAINT, lw=1.0)
    style.label(
        axes,
        top * 0.93,
        top * 0.93,
        f"equal, ±{DRILL_ERROR:.0%}",
        color=style.FAINT,
        xytext=(-6, 8),
        ha="right",
        size=8,
    )
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
        axes.scatter(
            [one.measured_s for one in here],
            [min(one.predicted.mid, top) for one in here],
            marker=style.MARKS[number % len(style.MARKS)],
            color=color,
            edgecolors=style.PAPER,
            linewidths=0.7,
            s=120,
            zorder=6,
            label=kind.replace("_", " "),
        )
        for one in here:
            axes.annotate(
                str(one.scale_out),
                (one.measured_s, min(one.predicted.mid, top)),
                ha="center",
                va="center_baseline",
                size=7,
                weight="bold",
                color=style.PAPER,
                zorder=7,
            )
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
