"""How long is the job down after each kind of failure, and how much of that was measured?

A line is the 90 % interval of the next downtime, the dot its middle; hollow where no event was seen and only
the prior speaks.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from models.downtime import DowntimeModel
from models.quantities import EVENT_KINDS

from . import style


def downtime(model: DowntimeModel, *, job: str, kinds: Sequence[str] = ()) -> bytes:
    """Downtimes of the kinds that are promised, and of those that were seen."""
    shown = [k for k in EVENT_KINDS if k in kinds or model.events(k)]
    seen = sum(model.events(kind) for kind in shown)
    figure, (axes,) = style.sheet(
        f"Downtime learnt from {seen} event{'s' * (seen != 1)}" if seen else "Downtime as the prior says",
        f"{job}: from the event to the first new commit, 90 % intervals",
    )
    ends = []
    for row, kind in enumerate(shown):
        found, count = model.interval(kind), model.events(kind)
        ends += [e for e in (found.mid, found.high) if math.isfinite(e)]
        color = style.BLUE if count else style.FAINT
        if math.isfinite(found.high):
            axes.hlines(row, found.low, found.high, color=color, lw=2.4, alpha=0.5)
        axes.scatter(
            [found.mid] if math.isfinite(found.mid) else [],
            [row] if math.isfinite(found.mid) else [],
            s=46,
            facecolors=color if count else style.PAPER,
            edgecolors=color,
            linewidths=1.3,
            zorder=5,
        )
        text = f"{count} event{'s' * (count != 1)}" if count else "prior only"
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
