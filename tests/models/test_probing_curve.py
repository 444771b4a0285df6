"""What do the probes at one scale-out say about the others, and how sure can one be?"""

from __future__ import annotations

import math

import numpy as np
import pytest

from models.probing.curve import Seen, effective_slots, fit_curve

SIZES = (2, 4, 8, 16)


def curve(seen, sizes=SIZES, **how):
    return fit_curve(sizes, seen, **({"noise": 0.03, "drift": 0.2} | how))


def saturated(scale_out, rps):
    return Seen(scale_out, rps, sustained=False)


def line(exponent=0.8):
    return [saturated(s, 1000.0 * s**exponent) for s in SIZES]


def width(interval):
    return interval.high / interval.low


def test_repeats_narrow_the_interval_as_their_number_grows():
    widths = [width(curve([saturated(4, 5000.0)] * n, sizes=(4,)).interval(4)) for n in (1, 2, 4, 8, 16)]
    assert widths == sorted(widths, reverse=True)
    # One probe alone has about its own noise; sixteen alike leave a quarter of it or less.
    assert math.log(widths[0]) / 2 == pytest.approx(1.645 * 0.03, rel=0.5)
    assert math.log(widths[-1]) <= math.log(widths[0]) / 4


def test_neighbours_on_a_line_share_their_strength():
    alone = curve([saturated(8, 1000.0 * 8**0.8)]).interval(8)
    together = curve(line()).interval(8)
    assert width(together) < width(alone)
    assert together.mid == pytest.approx(1000.0 * 8**0.8, rel=0.01)


def test_neighbours_that_jump_do_not_pull():
    steps = [saturated(s, rps) for s, rps in zip(SIZES, (1000.0, 1000.0, 2000.0, 2000.0), strict=True)]
    found = curve(steps)
    for one in steps:
        assert found.interval(one.scale_out).mid == pytest.approx(one.rps, rel=0.06)


def test_a_size_nobody_probed_is_wide_and_wider_outside():
    seen = [one for one in line() if one.scale_out != 8]
    inside, outside = curve(seen).interval(8), curve(seen, sizes=(2, 4, 8, 16, 64)).interval(64)
    assert width(curve(line()).interval(8)) < width(inside) < width(outside)
    assert inside.low < 1000.0 * 8**0.8 < inside.high


def test_a_sustained_rate_is_a_bound_and_nothing_more():
    far_below = curve([*line(), Seen(8, 10.0, sustained=True)])
    assert far_below.interval(8).mid == pytest.approx(curve(line()).interval(8).mid, rel=1e-4)
    above = curve([*line(), Seen(8, 1000.0 * 8**0.8 * 1.05, sustained=True)])
    assert above.interval(8).mid > curve(line()).interval(8).mid


def test_partitions_make_scale_outs_with_as_many_waves_alike():
    assert [effective_slots(s, 24) for s in (11, 12, 23, 24, 99)] == [8.0, 12.0, 12.0, 24.0, 24.0]
    assert effective_slots(7, None) == 7.0
    known = curve([saturated(12, 12_000.0), saturated(6, 6_000.0)], sizes=(6, 12, 23), tasks=24)
    assert known.interval(23).mid == pytest.approx(12_000.0, rel=0.02)
    assert width(known.interval(23)) < width(curve([saturated(12, 12_000.0)], sizes=(12, 23)).interval(23))


def test_earlier_results_count_less_than_new_ones_and_drift_together():
    earlier = [Seen(s, 1000.0 * s, sustained=False, earlier=True) for s in SIZES]
    only_earlier = curve(earlier)
    assert math.log(width(only_earlier.interval(8))) / 2 > 0.1
    # One new probe says that all has become a fifth slower.
    found = curve([*earlier, saturated(4, 3200.0)])
    assert found.interval(4).mid == pytest.approx(3200.0, rel=0.03)
    assert found.interval(16).mid < 0.9 * 16_000.0


def test_a_contradiction_ends_in_numbers():
    found = curve([saturated(4, 100.0), Seen(4, 1e6, sustained=True), Seen(4, 1e9, sustained=True)])
    assert np.isfinite(found.log_mean).all()
    assert np.isfinite(found.log_deviation).all()
    assert (found.log_deviation > 0).all()


def test_a_probe_where_little_is_known_settles_most():
    found = curve([one for one in line() if one.scale_out != 8])
    gains = dict(zip(found.scale_outs, found.gain, strict=True))
    assert max(gains, key=gains.get) == 8
