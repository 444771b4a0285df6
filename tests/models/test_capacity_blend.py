"""Profile and live job together: precision decides, and what was seen outranks what was extrapolated."""

from __future__ import annotations

import numpy as np
import pytest

from models.capacity import CapacityModel, OnlineCapacity
from models.capacity.online import joined
from models.quantities import Interval, Measurement

pytestmark = pytest.mark.fast


def profile(rate, sizes=(1, 2, 4, 8)):
    return CapacityModel.fit([Measurement(s, 1.3 * rate * s, rate * s, False) for s in sizes])


def live(rate, workers, *, rows=600, noise=0.02, seed=0):
    random = np.random.default_rng(seed)
    cpu = random.uniform(0.3, 0.7, (rows, 1)) * np.ones((1, workers))
    return OnlineCapacity().update(cpu, rate * cpu * (1 + noise * random.standard_normal(cpu.shape)))


def blended(model, online, size):
    return joined(
        model.predict(size),
        online.total(size),
        was_probed=size in model.saturated_at,
        is_running=size == len(online.workers),
    )


def test_where_both_agree_the_blend_is_sharper_than_either():
    model, online = profile(1000.0), live(1000.0, 4, rows=60, noise=0.1)
    both = blended(model, online, 4)
    for one in (model.predict(4), online.total(4)):
        assert both.high / both.low < one.high / one.low
    assert both.mid == pytest.approx(4000.0, rel=0.02)


def test_the_running_size_outranks_an_extrapolated_profile():
    """Profiled up to 4, running on 8 that carry a quarter less than a straight line says."""
    model, online = profile(1000.0, sizes=(1, 2, 3, 4)), live(750.0, 8)
    assert blended(model, online, 8).mid == pytest.approx(6000.0, rel=0.02)
    assert blended(model, online, 8).mid < 0.9 * model.predict(8).mid


def test_a_profiled_size_outranks_live_workers_scaled_to_it():
    model, online = profile(1000.0), live(700.0, 4)
    assert blended(model, online, 8).mid == pytest.approx(8000.0, rel=0.05)


def test_where_both_saw_it_and_disagree_the_precise_one_leads_and_the_interval_widens():
    model, online = profile(1000.0), live(700.0, 4)
    both, now = blended(model, online, 4), online.total(4)
    assert both.mid == pytest.approx(now.mid, rel=0.06)
    assert both.high - both.low > 5.0 * (now.high - now.low)


def test_the_one_that_knows_speaks_alone():
    model, online, nothing = profile(1000.0), live(1000.0, 4), CapacityModel.fit([])
    assert blended(model, OnlineCapacity(), 4) == model.predict(4)
    assert blended(nothing, online, 4) == online.total(4)
    neither = blended(nothing, OnlineCapacity(), 4)
    assert "nothing was measured" in neither.reason
    assert "no worker" in neither.reason


def test_the_blend_lies_between_the_two():
    model = profile(1000.0)
    for rate in (800.0, 950.0, 1000.0, 1050.0, 1300.0):
        online = live(rate, 4)
        both = blended(model, online, 4)
        assert isinstance(both, Interval)
        low, high = sorted((model.predict(4).mid, online.total(4).mid))
        assert low * 0.999 <= both.mid <= high * 1.001
