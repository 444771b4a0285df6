"""Wrong arguments of the profiling jobs: each call names the argument that cannot be used."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from temporary_store import TemporaryStore
from wrong_arguments import refused

from models.quantities import Misuse
from pipelines.environments.replay import Together
from profiling_jobs.brokers import Brokers
from profiling_jobs.control_loop.forecasting import Rates
from profiling_jobs.jobs import load
from profiling_jobs.recording.recorder import Request
from profiling_jobs.replay.replay_plan import MICROS, Replay, Schedule
from profiling_jobs.replay.sources import draw
from profiling_jobs.training import workload_history

pytestmark = pytest.mark.fast

NAN, INF = math.nan, math.inf
SECOND = Schedule.constant(1, duration_s=1)
FOLDER = Path("/folder")


CASES = [
    *refused(
        partial(Request, topic="orders", folder=FOLDER),
        {"duration_s": 10.0},
        duration_s=[0, NAN],
        from_s=[-1],
        max_bytes=[0, 1.5],
    ),
    *refused(
        partial(Replay, topic="events", source="a", schedule=SECOND, brokers=Brokers("h:1"), folder=FOLDER),
        {},
        tasks=[0],
        seed=[-1],
    ),
    *refused(
        lambda rate, duration: Schedule.constant(rate, duration_s=duration),
        {"rate": 1, "duration": 1},
        rate=[-1, NAN, 1e12],
        duration=[0, INF, 1e9],
    ),
    *refused(Schedule.steps, {}, steps=[[]]),
    *refused(partial(Schedule, end_us=10), {}, stretches=[((0, 1), (0, 2)), ((5, 1),)]),
    *refused(SECOND.changed, {"rate_rps": 1, "at_us": 0}, rate_rps=[-1], at_us=[MICROS]),
    *refused(SECOND.mean_rps, {"from_us": 5}, to_us=[5]),
    *refused(
        partial(draw, seed=0, number=0),
        {"position": 0, "advance": 10, "count": 1},
        position=[-1],
        advance=[-1],
        count=[-1],
    ),
    *refused(Together, {}, parts=[[], [(None, 0.0), (None, 0.0)], [(None, 2.0), (None, -1.0)]]),
    *refused(
        load("traffic").function("events"),
        {"seed": 1, "count": 5, "start_s": 1_763_000_000.0},
        count=[-1, 1.5],
        rate_rps=[0.0, NAN],
        start_s=[1_763_000_000_000.0, 0.0, 9_999_999_999.0],
    ),
    *refused(
        lambda **given: workload_history.remember(TemporaryStore(), "orders", **given),
        {"start_s": 0.0, "step_s": 10.0, "rates_rps": [1.0]},
        step_s=[0.0],
        rates_rps=[[-1.0]],
        start_s=[NAN],
    ),
    *refused(Rates.begin, {"at_s": 1.0}, step_s=[0.0]),
]


@pytest.mark.parametrize(("ask", "given", "argument"), CASES)
def test_a_wrong_argument_is_named(ask: Callable[..., Any], given: dict[str, Any], argument: str) -> None:
    with pytest.raises(Misuse) as error:
        ask(**given)
    assert argument in error.value.argument
