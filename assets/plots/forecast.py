"""Plot of the forecast, and of the errors of its candidates.

Above: the last hours, the forecast and its 90 % band, and the maximum that is expected. Below: the error of
every candidate in the back-test over the horizon in use; the one that forecasts is marked.
"""

from __future__ import annotations

from datetime import UTC, datetime

import numpy as np

from models.series import Grid
from models.workload import Forecaster

from . import style

PAST = 4  # horizons of history; judgement: enough to see the pattern, the forecast stays readable
CANDIDATES = 6  # shown; the others were worse


def forecast(forecaster: Forecaster, *, job: str, history: Grid) -> bytes:
    """The forecast with its band, and the back-test beside it. `history` ends where the forecast begins."""
    said = forecaster.predict()
    step, now_s = said.step_s, history.start_s + history.step_s * history.values.size
    figure, (axes, errors) = style.sheet(
        f"No more than {style.short(said.peak.high)} records/s over the next {_span(said.horizon_s)}",
        f"{job}: forecast by {said.model} from {datetime.fromtimestamp(now_s, UTC):%H:%M} UTC, 90 % band",
        panels=(2.4, 1.0),
        height=5.3,
        foot=0.25,
    )
    points = max(20, round(PAST * said.horizon_s / history.step_s))
    past = history.values[-points:]
    start = now_s - history.step_s * past.size
    axes.step(
        start + history.step_s * np.arange(past.size + 1),
        np.append(past, past[-1]),
        where="post",
        color=style.INK,
        lw=1.2,
        zorder=4,
    )
    ahead = now_s + step * (np.arange(said.mid.size) + 0.5)
    axes.fill_between(ahead, said.low, said.high, color=style.BLUE, alpha=0.18, lw=0)
    axes.plot(ahead, said.mid, color=style.BLUE, lw=2.0, zorder=5)
    axes.axvline(now_s, color=style.FAINT, lw=0.9, ls=(0, (2, 2)))
    axes.axhline(said.peak.high, xmin=0.0, color=style.RED, lw=1.0, ls=(0, (5, 3)))
    top = float(np.nanmax([*past, *said.high, said.peak.high, 1e-9])) * 1.16
    axes.set_ylim(0, top)
    axes.set_xlim(start, ahead[-1] + step / 2)
    style.label(
        axes, start, said.peak.high, "highest expected (95 %)", color=style.RED, xytext=(3, 6), size=8
    )
    style.label(axes, now_s, top, "now", color=style.FAINT, xytext=(-4, -6), ha="right", size=8)
    style.label(axes, now_s, top, "forecast", color=style.BLUE, xytext=(5, -6), size=8.5, weight="bold")
    style.clock(axes)
    style.thousands(axes)
    style.unit(axes, "records/s arriving")
    _errors(errors, forecaster)
    return style.png(figure)


def _errors(axes: style.Axes, forecaster: Forecaster) -> None:
    tried = sorted(forecaster.backtest.items(), key=lambda item: item[1].mae_rps)[:CANDIDATES]
    style.unit(axes, "mean error in the back-test, records/s")
    axes.grid(visible=False)
    axes.spines["bottom"].set_visible(False)
    axes.set_xticks([])
    if not tried:
        axes.set_yticks([])
        axes.text(0.0, 0.5, "the history is too short for one", color=style.FAINT, size=8.5)
        return
    most = max(error.mae_rps for _, error in tried) or 1.0
    for row, (name, error) in enumerate(tried):
        wins = name == forecaster.model
        color = style.BLUE if wins else "#b8bfc8"
        axes.barh(row, error.mae_rps, height=0.66, color=color)
        weight = "bold" if wins else "normal"
        text = f"{style.short(error.mae_rps)}  {name}" + "  forecasts" * wins
        inside = error.mae_rps > 0.6 * most
        axes.annotate(
            text,
            (0.0 if inside else error.mae_rps, row),
            xytext=(5, 0),
            textcoords="offset points",
            va="center_baseline",
            size=8,
            color=style.PAPER if inside and wins else style.INK,
            weight=weight,
        )
    axes.set_yticks([])
    axes.set_ylim(len(tried) - 0.5, -0.6)
    axes.set_xlim(0, most * 1.02)


def _span(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.3g} minutes" if seconds < 7200 else f"{seconds / 3600:.2g} hours"
