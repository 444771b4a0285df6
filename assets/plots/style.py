"""The common look of all plots: sheet, axes, labels, marks.

The title says what is to be seen, the line below it what is shown. Colours are those of Okabe and Ito, which
people with any colour vision tell apart; what matters also differs in shape or is named where it stands.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from models.quantities import Interval

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK, FAINT, RULE, PAPER = "#22272e", "#6b7480", "#e3e6ea", "#ffffff"
BLUE, ORANGE, RED, GREEN, SKY, PURPLE = "#0072b2", "#e69f00", "#d55e00", "#009e73", "#56b4e9", "#cc79a7"
SERIES = (BLUE, RED, GREEN, PURPLE, ORANGE, SKY)
MARKS = ("o", "s", "D", "^", "v", "P")
WIDTH, HEIGHT, DPI = 7.6, 4.3, 100
"""Inches. A page shows a picture as large as it is and cuts off what has no room: Dagster's from 1,080 pixels
on, MLflow's on a screen of 1,366 from 770 on, for as long as its assistant is open."""
MARGIN, LEFT, RIGHT = 0.025, 0.095, 0.965
HALO = 2.5


def sheet(
    title: str, subtitle: str, *, panels: Sequence[float] = (1.0,), height: float = HEIGHT, foot: float = 0.58
) -> tuple[Figure, list[Axes]]:
    """A figure with its title, and one panel per share of the height, below each other; `foot` in inches."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH, height), dpi=DPI, facecolor=PAPER)
    FigureCanvasAgg(figure)
    inch = 1.0 / height
    figure.text(MARGIN, 1.0 - 0.30 * inch, title, size=12.5, weight="bold", color=INK, va="center")
    figure.text(MARGIN, 1.0 - 0.56 * inch, subtitle, size=9, color=FAINT, va="center")
    grid = figure.add_gridspec(
        len(panels),
        1,
        height_ratios=list(panels),
        left=LEFT,
        right=RIGHT,
        top=1.0 - 1.0 * inch,
        bottom=foot * inch,
        hspace=0.42,
    )
    axes: list[Axes] = []
    for row in range(len(panels)):
        axes.append(figure.add_subplot(grid[row, 0]))
        plain(axes[-1])
    return figure, axes


def plain(axes: Axes) -> None:
    """Leave nothing on the axes but what is needed to read a value."""
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color(FAINT)
    axes.tick_params(colors=FAINT, labelsize=8.5, length=3, width=0.8)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="y", color=RULE, linewidth=0.8)
    axes.set_axisbelow(True)


def unit(axes: Axes, text: str) -> None:
    """What the vertical axis measures, above it, where it can be read without turning one's head."""
    axes.annotate(
        text,
        (0.0, 1.0),
        xytext=((MARGIN - LEFT) * WIDTH * 72, 7),
        xycoords="axes fraction",
        textcoords="offset points",
        size=8.5,
        color=FAINT,
        va="bottom",
    )


def below(axes: Axes, text: str) -> None:
    """What the horizontal axis measures."""
    axes.set_xlabel(text, size=8.5, color=FAINT, labelpad=5)


def label(axes: Axes, x: float, y: float, text: str, *, color: str = INK, **how: Any) -> None:
    """A label in the plot, readable on any background."""
    from matplotlib.patheffects import withStroke

    axes.annotate(
        text,
        (x, y),
        textcoords="offset points",
        color=color,
        size=how.pop("size", 8.5),
        path_effects=[withStroke(linewidth=HALO, foreground=PAPER)],
        zorder=9,
        **{"xytext": (4, 0), "va": "center", **how},
    )


def thousands(axes: Axes) -> None:
    """Rates as 12k and 1.5M."""
    from matplotlib.ticker import FuncFormatter

    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: short(value)))


def decades(axes: Axes) -> None:
    """A logarithmic axis with the numbers people use: 1, 2, 5, 10, 20, …"""
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    low, high = axes.get_ylim()
    ticks = [f * 10.0**power for power in range(-1, 9) for f in (1, 2, 5)]
    axes.yaxis.set_major_locator(FixedLocator([tick for tick in ticks if low <= tick <= high]))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(
        FuncFormatter(lambda value, _: f"{value:,.0f}" if value >= 1.0 else f"{value:g}")
    )


def percent(axes: Axes) -> None:
    """Shares as percent, along the horizontal axis."""
    from matplotlib.ticker import FuncFormatter

    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.0%}"))


def short(value: float) -> str:
    """12 345 -> 12.3k."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.3g}{letter}"
    return f"{value:.3g}"


def clock(axes: Axes) -> None:
    """Epoch seconds as the time of day, UTC."""
    from matplotlib.ticker import FixedLocator, FuncFormatter

    low, high = axes.get_xlim()
    every = next((s for s in _EVERY if (high - low) / s <= 8), 86_400 * 7)
    first = int(low // every + 1) * every
    ticks = [first + k * every for k in range(int((high - first) // every) + 1)]
    form = "%d %b" if every >= 86_400 else "%H:%M" if every >= 60 else "%H:%M:%S"
    axes.xaxis.set_major_locator(FixedLocator(ticks))
    axes.xaxis.set_major_formatter(
        FuncFormatter(lambda value, _: datetime.fromtimestamp(value, UTC).strftime(form))
    )


_EVERY = (5, 10, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14_400, 28_800, 43_200, 86_400, 172_800)


def names(axes: Axes, named: Sequence[tuple[str, str]]) -> None:
    """Lines and their colours above the panel, right, where lines that cross leave no room for names."""
    right = 0.0
    for name, color in reversed(named):
        text = axes.annotate(
            name,
            (1.0, 1.0),
            xycoords="axes fraction",
            xytext=(right, 7),
            textcoords="offset points",
            ha="right",
            va="bottom",
            size=8.5,
            weight="bold",
            color=color,
        )
        right -= text.get_window_extent().width * 72 / DPI + 12


def band(axes: Axes, x: Sequence[float], intervals: Sequence[Interval]) -> None:
    """Intervals as a pale area."""
    low, high = [one.low for one in intervals], [one.high for one in intervals]
    axes.fill_between(x, low, high, color=BLUE, alpha=0.15, lw=0)


def dots(axes: Axes, points: Iterable[tuple[float, float]], *, mark: str, color: str, **how: Any) -> None:
    """Marks with a thin edge, which sets those apart that lie on each other."""
    if points := list(points):
        how = {"s": 34, "edgecolors": PAPER, "linewidths": 0.7, "zorder": 6, **how}
        axes.scatter(*zip(*points, strict=True), marker=mark, color=color, **how)


def ticks(sizes: Sequence[int]) -> list[int]:
    """At most about sixteen scale-outs."""
    return list(sizes if len(sizes) <= 16 else sizes[:: -(-len(sizes) // 12)])


def legend(axes: Any, where: str, **how: Any) -> None:
    """Marks and their names."""
    box = axes.legend(
        loc=where,
        fontsize=8.5,
        labelcolor=INK,
        handletextpad=0.3,
        borderpad=0.3,
        facecolor=PAPER,
        edgecolor="none",
        framealpha=1.0,
        alignment="left",
        **how,
    )
    box.set_zorder(2.5)


def png(figure: Figure) -> bytes:
    """The picture."""
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=DPI, metadata={"Software": None})
    return file.getvalue()
