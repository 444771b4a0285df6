"""How long does recovery take at each scale-out, and which keep the promise?

One mark per failure kind and scale-out, and a line that ends where the promised share of recoveries has
ended; across is the target. What is not recovered within the horizon stands at the top edge.
"""

from __future__ import annotations

from collections.abc import Mapping

from models.quantities import Interval, Unknown

from . import style

HIGHEST = 2.0  # targets; judgement: what takes longer is not kept, however long it takes


def recovery(
    found: Mapping[str, Mapping[int, Interval | Unknown]],
    *,
    job: str,
    target_s: float,
    promised: float,
    rate_rps: float,
    chosen: int | None = None,
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
    ends = [
        e
        for k in known.values()
        for one in k.values()
        for e in (one.mid, one.high)
        if e <= HIGHEST * target_s
    ]
    top = 1.15 * max([*ends, 1.25 * target_s])
    axes.set_ylim(0, top)
    axes.set_xlim((every or [1])[0] - 0.6, (every or [1])[-1] + 0.6)
    axes.axhspan(0, target_s, facecolor=style.GREEN, alpha=0.07, lw=0, zorder=0)
    axes.axhline(target_s, color=style.GREEN, lw=1.6, zorder=2)
    style.label(
        axes,
        axes.get_xlim()[1],
        target_s,
        f"target {target_s:.0f} s",
        color=style.GREEN,
        xytext=(-2, 7),
        ha="right",
        weight="bold",
    )
    if chosen is not None:
        axes.axvspan(chosen - 0.42, chosen + 0.42, facecolor=style.SKY, alpha=0.18, lw=0, zorder=0)
        style.label(axes, chosen, 0.0, "chosen", color=style.BLUE, xytext=(0, 7), ha="center", weight="bold")
    for number, (kind, sizes) in enumerate(known.items()):
        _one(axes, kind, sizes, number, len(known), top)
    for size in every:
        if not any(size in sizes for sizes in known.values()):
            style.label(axes, size, top * 0.5, "unknown", color=style.FAINT, ha="center", rotation=90, size=8)
    axes.set_xticks(every if len(every) <= 16 else every[:: -(-len(every) // 12)])
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
    plural = "s" * (keeps[0] != 1)
    if keeps[0] == every[0]:
        return f"Every scale-out from {keeps[0]} executor{plural} on recovers within {target_s:.0f} s"
    return f"{keeps[0]} executor{plural} recover within {target_s:.0f} s, fewer are not sure to"


def _one(
    axes: style.Axes, kind: str, sizes: Mapping[int, Interval], number: int, count: int, top: float
) -> None:
    color, mark = style.SERIES[number % len(style.SERIES)], style.MARKS[number % len(style.MARKS)]
    aside = (number - (count - 1) / 2) * 0.2
    for size, one in sizes.items():
        low, high = min(one.low, top), min(one.high, top)
        if low < top:
            axes.vlines(size + aside, low, high, color=color, lw=2.2, alpha=0.45, zorder=3)
        if one.high > top:
            axes.plot(size + aside, top * 0.985, marker="^", ms=5, color=color, clip_on=False, zorder=5)
    shown = [(s + aside, one.mid) for s, one in sizes.items() if one.mid < top]
    if shown:
        axes.scatter(
            [x for x, _ in shown],
            [y for _, y in shown],
            marker=mark,
            s=34,
            color=color,
            edgecolors=style.PAPER,
            linewidths=0.7,
            zorder=6,
        )
