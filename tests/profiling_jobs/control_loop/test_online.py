"""What the running workers say, on a job whose batches cost them something beside their records."""

from __future__ import annotations

import numpy as np
import pytest

from models.quantities import Interval, Unknown
from profiling_jobs.control_loop.live_capacity import LiveCapacity, said_live
from profiling_jobs.control_loop.memory import nothing_learnt

pytestmark = pytest.mark.fast

CAPACITY_RPS = 1000.0
IDLE_SHARE = 0.7  # of its time a worker is at work at no load at all; `enrichment` was measured so


class Profile:
    def predict(self, scale_out: int) -> Interval | Unknown:
        return Interval(950.0, CAPACITY_RPS, 1050.0, 0.9)


def watched(rates_rps: list[float]):
    online, noise = nothing_learnt(), np.random.default_rng(1)
    for rate in rates_rps:
        share = IDLE_SHARE + (1.0 - IDLE_SHARE) * rate / CAPACITY_RPS + float(noise.normal(0.0, 0.005))
        online.update({"a": share}, {"a": rate}, step_s=60.0)
    return online


def test_a_load_that_moves_shows_where_it_ends() -> None:
    found = said_live(watched([200.0, 400.0, 300.0, 550.0, 250.0, 450.0] * 3), 1)
    assert isinstance(found, Interval)
    assert found.mid == pytest.approx(CAPACITY_RPS, rel=0.1)


@pytest.mark.parametrize("rates", [[300.0] * 30, [300.0 + n % 7 for n in range(30)], [300.0], []])
def test_a_load_that_stands_still_shows_nothing_and_the_profile_holds(rates: list[float]) -> None:
    online = watched(rates)
    assert isinstance(said_live(online, 1), Unknown)
    assert LiveCapacity(Profile(), online).predict(1) == Profile().predict(1)


def test_shares_that_do_not_follow_the_load_show_nothing() -> None:
    online, noise = nothing_learnt(), np.random.default_rng(2)
    for rate in [200.0, 400.0, 300.0, 550.0] * 5:
        online.update({"a": float(noise.uniform(0.5, 0.9))}, {"a": rate}, step_s=60.0)
    found = said_live(online, 1)
    assert isinstance(found, Unknown)
    assert "r²" in found.reason
