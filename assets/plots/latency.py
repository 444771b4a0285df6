"""Plot of latency over utilisation, normal and abnormal.

Dots are measurements: filled where latency is normal, crosses where it is not. The line is the prediction
for the middle one of the measured scale-outs, with its 90 % band.
"""

from __future__ import annotations

from dataclasses import replace

from models.latency import LatencyModel
from models.quantities import Interval, executors

from . import style

STEPS = 60


def latency(model: LatencyModel, *, job: str, bound_ms: float | None = None) -> bytes:
    """Latency over utilisation, logarithmic."""
    points = [
        (m.offered_rps / found.mid, m.latency_ms, m.scale_out)
        for m in model.measurements
        if m.latency_ms and isinstance(found := model.capacity.predict(m.scale_out), Interval)
    ]
    sizes = sorted({size for _, _, size in points}) or [1]
    size = sizes[len(sizes) // 2]
    normal_ms = model.clusters.normal_up_to_ms
    figure, (axes,) = style.sheet(
        f"Up to {normal_ms:,.0f} ms are normal" if model.clusters.both else "No latency stands out",
        f"{job}: p95 of latency, {len(points)} measurements; line and 90 % band for {executors(size)}",
    )
    axes.set_yscale("log")
    capacity = model.capacity.predict(size)
    last = max([u for u, _, _ in points], default=1.0)
    if isinstance(capacity, Interval):
        ends = [last * 1.02 * (k + 1) / STEPS for k in range(STEPS)]
        said = [(u, model.predict(size, u * capacity.mid)) for u in ends]
        known = [(u, one) for u, one in said if isinstance(one, Interval)]
        if known:
            top = max(one.mid for _, one in known) * 4.0
            shown = [replace(one, low=max(one.low, 1.0), high=min(one.high, top)) for _, one in known]
            style.band(axes, [u for u, _ in known], shown)
            axes.plot([u for u, _ in known], [one.mid for _, one in known], color=style.BLUE, lw=2.0)
    for normal, mark, color in ((True, "o", style.INK), (False, "X", style.RED)):
        here = [(u, ms) for u, ms, _ in points if model.clusters.is_normal(ms) == normal]
        style.dots(axes, here, mark=mark, color=color, linewidths=0.6)
    if model.clusters.both:
        axes.axhline(normal_ms, color=style.GREEN, lw=1.4)
        style.label(axes, 0.0, normal_ms, "normal up to here", color=style.GREEN, xytext=(3, 7), size=8)
    if bound_ms is not None:
        axes.axhline(bound_ms, color=style.ORANGE, lw=1.4, ls=(0, (4, 2)))
        style.label(axes, 0.0, bound_ms, "agreed bound", color=style.ORANGE, xytext=(3, 7), size=8)
    axes.set_xlim(0, last * 1.06)
    style.percent(axes)
    style.decades(axes)
    style.names(axes, (("normal", style.INK), ("abnormal", style.RED)))
    style.unit(axes, "milliseconds")
    style.below(axes, "utilisation: load over capacity")
    return style.png(figure)
