"""Plot of the capacity: the curve, its interval, the measurements and what is still unknown.

Filled dots are runs that were saturated, which show the capacity; hollow triangles runs that kept up, which
show that it is at least that. The band is the 90 % interval. While the form is open every form that fits is
drawn, named at its end.
"""

from __future__ import annotations

from collections.abc import Sequence

from models.capacity import CapacityModel
from models.capacity.profiled import Candidate
from models.quantities import Interval, counted, executors

from . import style

MOST_NAMED = 6  # judgement: more say the same
APART = 0.04  # of the height; closer, forms lie on each other and so do their names


def capacity(model: CapacityModel, *, job: str, candidates: Sequence[int] = ()) -> bytes:
    """The capacity curve with its brackets, interval, and the forms that are still possible."""
    measured = {m.scale_out for m in model.measurements}
    sizes = sorted({*candidates, *measured}) or [1]
    known = [(s, found) for s in sizes if isinstance(found := model.predict(s), Interval)]
    open_ = [s for s in sizes if s not in {size for size, _ in known}]
    figure, (axes,) = style.sheet(_title(known), _subtitle(job, model))
    forms = [c for c in model.candidates.values() if c.plausibility > 0.0]
    several = model.form == "undetermined" and len(forms) > 1
    axes.set_xlim(sizes[0] - 0.5, sizes[-1] + (0.5 + 0.07 * (sizes[-1] - sizes[0]) if several else 0.5))
    top = max([f.high for _, f in known] + [m.throughput_rps for m in model.measurements] + [1.0])
    if known:
        x = [s for s, _ in known]
        style.band(axes, x, [f for _, f in known])
        axes.plot(x, [f.mid for _, f in known], color=style.BLUE, lw=2.0, zorder=4)
        if len(x) == 1:
            axes.vlines(x, known[0][1].low, known[0][1].high, color=style.BLUE, alpha=0.3, lw=9)
    if several and len(known) > 1:
        _forms(axes, forms, known, top)
    for size in sorted(measured):
        _bracket(axes, model, size)
    _runs(axes, model)
    for size in open_:
        axes.axvspan(size - 0.5, size + 0.5, facecolor=style.RULE, alpha=0.55, lw=0, zorder=0)
    for size in open_ if len(open_) <= MOST_NAMED else open_[len(open_) // 2 :][:1]:
        how = {"size": 8, "rotation": 90, "ha": "center", "xytext": (0, 0)}
        style.label(axes, size, top * 0.3, "unknown", color=style.FAINT, **how)
    axes.set_ylim(0, top * 1.13)
    axes.set_xticks(style.ticks(sizes))
    style.thousands(axes)
    style.unit(axes, "records/s sustained")
    style.below(axes, "executors")
    return style.png(figure)


def _title(known: Sequence[tuple[int, Interval]]) -> str:
    if not known:
        return "Capacity is not known yet"
    size, found = known[-1]
    low, mid, high = (style.short(rate) for rate in (found.low, found.mid, found.high))
    return f"{executors(size, 'sustain')} {mid} records/s ({low}–{high})"


def _subtitle(job: str, model: CapacityModel) -> str:
    form = "form still open" if model.form == "undetermined" else f"form: {model.form}"
    live = sum(m.origin == "live" for m in model.measurements)
    probes = counted(len(model.measurements) - live, "probe")
    lived = f" and {counted(live, 'live measurement')}" if live else ""
    return f"{job}: {probes}{lived}, {form}, 90 % interval"


def _forms(
    axes: style.Axes, forms: Sequence[Candidate], known: Sequence[tuple[int, Interval]], top: float
) -> None:
    """Every form that fits, thin, with its name where it ends."""
    names = [(known[-1][1].mid, "together", style.BLUE)]
    ends = [f.mid for one in forms if isinstance(f := one.predict(known[-1][0]), Interval)]
    if max(ends, default=0.0) - min(ends, default=0.0) < APART * top:
        return
    for color, one in zip(style.SERIES[1:], forms, strict=False):
        points = [(s, found.mid) for s, _ in known if isinstance(found := one.predict(s), Interval)]
        if len(points) < 2:
            continue
        axes.plot(*zip(*points, strict=True), color=color, lw=1.1, ls=(0, (4, 2)), zorder=3)
        names.append((points[-1][1], one.form, color))
    at = -1.0
    for y, name, color in sorted(names):
        at = max(y, at + top * 0.055)  # names do not lie on each other
        weight = "bold" if color == style.BLUE else "normal"
        style.label(axes, known[-1][0], at, name, color=color, size=8, weight=weight)


def _bracket(axes: style.Axes, model: CapacityModel, size: int) -> None:
    """From the highest rate sustained to the lowest that was not."""
    here = [m for m in model.measurements if m.scale_out == size]
    sustained = [m.throughput_rps for m in here if m.sustained]
    over = [m.throughput_rps for m in here if not m.sustained]
    if sustained and over and max(sustained) < min(over):
        axes.vlines(size, max(sustained), min(over), color=style.INK, lw=1.2, zorder=5)


def _runs(axes: style.Axes, model: CapacityModel) -> None:
    """What was measured, with its names."""
    kinds = (
        (True, "profile", "^", "kept up: at least this"),
        (False, "profile", "o", "saturated: the capacity itself"),
        (True, "live", "2", "live, kept up"),
        (False, "live", "x", "live, saturated"),
    )
    for sustained, origin, mark, name in kinds:
        found = [m for m in model.measurements if m.sustained == sustained and m.origin == origin]
        hollow = sustained and origin == "profile"
        how = {"s": 26, "edgecolors": None if mark in "2x" else style.INK, "linewidths": 1.0, "label": name}
        points = [(m.scale_out, m.throughput_rps) for m in found]
        style.dots(axes, points, mark=mark, color=style.PAPER if hollow else style.INK, **how)
    if model.measurements:
        style.legend(axes, "upper left")
