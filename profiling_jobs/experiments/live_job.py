"""Copies of a job wait until the live job has caught up, for they take processors and disks from it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

import numpy as np

from models.errors import NotReady
from models.ports import Clock
from models.quantities import Unknown

from ..telemetry.timeline import Timeline
from .drill_figures import BAND_SHARE, median_batch_s

CALM_S = 15.0  # as long as lag has to stay in its band after a failure
BATCHES_S = 600.0  # judgement: where the usual length of a batch is looked up
LEAST_BAND_S = 10.0  # judgement: samples of a second, and an input that comes in bursts
LOOK_S = 1.0
SAY_S = 30.0


def behind_s(timeline: Timeline, *, now_s: float, trigger_s: float, max_lag_s: float) -> float | Unknown:
    """Largest lag of the last seconds, in seconds of input; 0 where it is as small as between two batches."""
    lag = timeline.lag_s(now_s - CALM_S, now_s)
    known = lag[~np.isnan(lag)]
    if not known.size:
        return Unknown("the lag of the live job is not known")
    batch_s = median_batch_s(timeline.commits(now_s - BATCHES_S, now_s))
    band_s = max(LEAST_BAND_S, 2.0 * BAND_SHARE * max(trigger_s, batch_s))
    largest = float(known.max())
    return largest if largest > min(band_s, max_lag_s) else 0.0


def wait_until_caught_up(
    name: str,
    reading: Callable[[str], AbstractContextManager[Timeline]],
    *,
    clock: Clock,
    trigger_s: float,
    max_lag_s: float,
    patience_s: float,
    say: Callable[[str], None],
) -> None:
    """Return when the live job has caught up, or its lag cannot be read; NotReady after `patience_s`."""
    began_s, said_s = clock.now_s(), -SAY_S
    while True:
        now_s = clock.now_s()
        with reading(name) as timeline:
            lag_s = behind_s(timeline, now_s=now_s, trigger_s=trigger_s, max_lag_s=max_lag_s)
        if isinstance(lag_s, Unknown) or lag_s == 0.0:
            return
        waited_s = now_s - began_s
        if waited_s >= patience_s:
            raise NotReady(
                f"{name} is {lag_s:.0f} s of input behind, and has not caught up within {waited_s:.0f} s: a "
                f"copy would slow it down further. Give it executors, or stop it (`headroom stop {name}`)"
            )
        if waited_s - said_s >= SAY_S:
            said_s = waited_s
            say(f"waiting until {name} has caught up: it is {lag_s:.0f} s of input behind")
        clock.sleep(LOOK_S)
