"""Verdicts of probes, and what the probes at one scale-out say about the others."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from models import codec
from models.capacity import CapacityModel
from models.capacity.curves import effective_slots
from models.capacity.smooth import Seen, fit_curve
from models.probing import Facts, Probe, Result, judge, lag_slope, processed_rps
from models.quantities import Measurement, Misuse, Unknown

pytestmark = pytest.mark.fast

PROBE = Probe(number=0, scale_out=4, rate_rps=1000.0, warm_up_s=120.0, probe_s=60.0)
TIMES = np.arange(0.0, 61.0, 5.0)


def facts(*, achieved=1000.0, processed=None, slope=None, saw=20.0, seed=1, **changes) -> Facts:
    """A stretch in which lag does what the rates say, unless told otherwise."""
    processed = achieved if processed is None else processed
    lag_rate = achieved - processed if slope is None else slope
    lag = 3000.0 + lag_rate * TIMES + saw * np.random.default_rng(seed).uniform(-1.0, 1.0, TIMES.size)
    given = {
        "achieved_rps": achieved,
        "processed_rps": processed,
        "lag_times_s": TIMES,
        "lag_records": lag,
        "warm_up_over": True,
        "restarted": False,
    }
    return Facts(**(given | changes))


@pytest.mark.parametrize(
    ("what", "seen", "verdict", "value"),
    [
        ("it keeps up", facts(), "sustained", 1000.0),
        ("the source is a little fast", facts(achieved=1030.0), "sustained", 1030.0),
        ("it works off an old backlog beside", facts(processed=1015.0), "sustained", 1000.0),
        ("it is far past its capacity", facts(processed=600.0), "not sustained", 600.0),
        ("it is just past its capacity", facts(processed=980.0, saw=5.0), "not sustained", 980.0),
        ("99.5 %, lag rises", facts(processed=995.0, saw=1.0), "not sustained", 995.0),
        ("99.5 %, lag rises in doubt", facts(processed=995.0, saw=150.0), "sustained", 995.0),
        ("97 %, lag rises in doubt", facts(processed=970.0, saw=900.0), "not sustained", 970.0),
        ("lag rises, yet more is counted", facts(processed=1010, slope=8, saw=1), "not sustained", 1000.0),
    ],
)
def test_a_probe_that_can_be_believed(what, seen, verdict, value):
    result = judge(PROBE, seen)
    assert result.verdict == verdict, result.reason
    assert result.value_rps == pytest.approx(value)


@pytest.mark.parametrize(
    ("what", "seen", "says"),
    [
        (
            "the source stayed at its start rate",
            facts(achieved=300.0),
            "never reached its rate: 300 of 1,000",
        ),
        ("the source is 2 % short", facts(achieved=980.0), "never reached its rate"),
        ("the source is dead", facts(achieved=0.0), "never reached"),
        ("still warming up", facts(warm_up_over=False), "warm-up was not over"),
        ("restarted and saturated", facts(processed=500.0, restarted=True), "restarted"),
        ("lag is flat though a third is missing", facts(processed=667.0, slope=0.0), "do not add up"),
        ("lag rises though all is processed", facts(slope=200.0), "do not add up"),
        (
            "lag rises in doubt though nearly all is processed",
            facts(slope=14.0, saw=400.0),
            "watch for longer",
        ),
        ("half a batch is missing at the edge", facts(processed=985.0, slope=0.0, saw=1.0), "too short"),
        ("nothing processed", facts(processed=0.0), "processed nothing"),
        (
            "throughput not observed",
            facts(processed_rps=Unknown("no commits readable")),
            "no commits readable",
        ),
        ("source not observed", facts(achieved_rps=Unknown("no report")), "no report"),
        ("NaN", facts(processed_rps=math.nan), "rate of the job is unknown"),
        ("negative", facts(processed_rps=-3.0), "rate of the job is unknown"),
        ("NaN source", facts(achieved_rps=math.nan), "rate of the source is unknown"),
        ("no lag", facts(lag_times_s=[], lag_records=[]), "only 0 lag samples"),
        ("lag all missing", facts(lag_records=np.full(TIMES.size, math.nan)), "only 0 lag samples"),
        ("one moment", facts(lag_times_s=np.zeros(TIMES.size)), "same time"),
    ],
)
def test_a_probe_that_lies_yields_no_value(what, seen, says):
    result = judge(PROBE, seen)
    assert result.verdict == "invalid"
    assert says in result.reason
    assert result.throughput_rps is None
    with pytest.raises(Misuse, match="no value"):
        _ = result.value_rps


@pytest.mark.parametrize("seen", [facts(), facts(processed=600.0), facts(processed=0.0)])
def test_how_long_it_was_watched_goes_with_it(seen):
    assert judge(PROBE, seen).duration_s == PROBE.probe_s
    result = judge(PROBE, replace(seen, measured_s=118.0))
    assert (result.duration_s, codec.from_json(Result, codec.to_json(result))) == (118.0, result)


def test_an_infinitely_steady_lag_is_not_rising():
    slope = lag_slope(TIMES, np.full(TIMES.size, 500.0))
    assert slope.rps == 0.0
    assert not slope.above_zero
    assert judge(PROBE, facts(saw=0.0)).sustained


def test_order_and_gaps_of_the_samples_do_not_matter():
    lag = 100.0 + 7.0 * TIMES
    shuffled = np.random.default_rng(3).permutation(TIMES.size)
    assert lag_slope(TIMES[shuffled], lag[shuffled]).rps == pytest.approx(7.0)
    holed = lag.copy()
    holed[3] = math.nan
    assert lag_slope(TIMES, holed).rps == pytest.approx(7.0)
    with pytest.raises(Misuse, match="lag_records"):
        lag_slope([1.0, 2.0], [1.0])


@pytest.mark.parametrize("period_s", [4.0, 10.0, 17.0])
def test_the_saw_of_micro_batches_is_seldom_called_rising(period_s):
    # 120 s under steady load; the saw starts anywhere, batches vary by 10 %.
    times = np.arange(0.0, 120.0, 1.0)
    random = np.random.default_rng(11)
    alarms = 0
    for _ in range(300):
        phase = (times + random.uniform(0.0, period_s)) % period_s
        lag = 1000.0 * phase * random.uniform(0.9, 1.1) + 200.0 * random.standard_normal(times.size)
        alarms += lag_slope(times, lag).above_zero
    assert alarms <= 0.09 * 300, "5 % asked for; a binomial of 300 allows 9 %"


def micro_batches(*, rate, capacity, trigger_s, probe_s, start_s, cut=False):
    """Commits of a job that takes a batch every trigger, or back to back when late; seen every 2 s."""
    now, committed, commits = 0.0, 0.0, [(0.0, 0.0)]
    while now < start_s + probe_s:
        size = min(rate * now - committed, 1.5 * capacity * trigger_s)
        took = 0.5 + size / capacity
        committed += size
        commits.append((now + took, committed))
        now = max(now + took, (now // trigger_s + 1) * trigger_s)
    seen = start_s + np.arange(0.0, probe_s + 1e-9, 2.0)
    inside = [(t, c) for t, c in commits if start_s <= t <= start_s + probe_s]
    done = np.array([max(c for t, c in commits if t <= at) for at in seen])
    return facts(
        achieved=rate,
        processed=(done[-1] - done[0]) / probe_s if cut else processed_rps(*zip(*inside, strict=True)),
        lag_times_s=seen,
        lag_records=rate * seen - done,
    )


def uneven_batches(random, *, utilisation, unevenness, probe_s=60.0, start_s=60.0):
    """Back to back, each with what has come and by chance quicker or slower; lag as if record by record."""
    now, taken, commits = 0.0, 0.0, []
    while now < start_s + probe_s:
        size = 1000.0 * utilisation * now - taken
        now += (1.0 + size / 1000.0) * math.exp(unevenness * random.standard_normal())
        taken += size
        commits.append((now, taken))
    times, done = np.array([one for one in commits if one[0] >= start_s][:-1]).T
    seen = np.arange(math.ceil(times[0]), times[-1], 1.0)
    return facts(
        achieved=1000.0 * utilisation,
        processed=processed_rps(times, done),
        lag_times_s=seen,
        lag_records=1000.0 * utilisation * seen - np.interp(seen, times, done),
    )


@pytest.mark.parametrize("unevenness", [0.05, 0.15])
@pytest.mark.parametrize("utilisation", [0.3, 0.5, 0.7])
def test_a_job_at_ease_is_hardly_ever_called_saturated(utilisation, unevenness):
    random = np.random.default_rng(31)
    probe = replace(PROBE, rate_rps=1000.0 * utilisation)
    seen = [uneven_batches(random, utilisation=utilisation, unevenness=unevenness) for _ in range(300)]
    assert [judge(probe, one).verdict for one in seen].count("not sustained") <= 0.01 * len(seen)


@pytest.mark.parametrize("cut", [True, False])
@pytest.mark.parametrize("trigger_s", [2.0, 5.0, 7.0, 10.0, 11.0])
def test_batches_cut_at_the_edges_never_look_like_saturation(trigger_s, cut):
    random = np.random.default_rng(21)
    how = {"rate": 1000.0, "capacity": 4000.0, "trigger_s": trigger_s, "probe_s": 60.0, "cut": cut}
    verdicts = [
        judge(PROBE, micro_batches(start_s=random.uniform(100, 130), **how)).verdict for _ in range(60)
    ]
    assert verdicts.count("not sustained") <= 0.1 * len(verdicts), (
        "the slope test alone may err one time in 20"
    )
    if not cut:
        assert verdicts.count("sustained") >= 0.9 * len(verdicts), "counted between commits they are believed"


@pytest.mark.parametrize(
    ("times", "committed", "says"),
    [
        ([1.0, 2.0], [0.0, 5.0], "only 2 commits"),
        ([], [], "only 0 commits"),
        ([1.0, 2.0, 3.0, 4.0], [0.0, 5.0, 4.0, 9.0], "backwards"),
        ([1.0, 3.0, 2.0, 4.0], [0.0, 5.0, 6.0, 9.0], "backwards"),
        ([1.0, 1.0, 1.0, 1.0], [0.0, 5.0, 6.0, 9.0], "same time"),
    ],
)
def test_commits_that_give_no_rate(times, committed, says):
    assert says in processed_rps(times, committed).reason


def test_a_job_far_behind_is_seen_to_be_behind_through_its_batches():
    for trigger_s in (2.0, 5.0, 10.0):
        seen = micro_batches(rate=1000.0, capacity=600.0, trigger_s=trigger_s, probe_s=120.0, start_s=300.0)
        result = judge(PROBE, seen)
        assert result.verdict == "not sustained", result.reason
        assert result.value_rps == pytest.approx(600.0, rel=0.15)


def test_a_lag_that_rises_through_the_saw_is_noticed():
    times = np.arange(0.0, 120.0, 1.0)
    random = np.random.default_rng(12)
    found = 0
    for _ in range(100):
        phase = (times + random.uniform(0.0, 10.0)) % 10.0
        found += lag_slope(times, 1000.0 * phase + 100.0 * times).above_zero
    assert found >= 95


# What the probes at one scale-out say about the others


SIZES = (2, 4, 8, 16)


def curve(measurements, sizes=SIZES, tasks=None):
    return CapacityModel.fit(measurements, tasks=tasks).expected(sizes)


def saturated(scale_out, rps):
    return Measurement(scale_out, 1.3 * rps, rps, sustained=False)


def line(exponent=0.8):
    return [saturated(s, 1000.0 * s**exponent) for s in SIZES]


def width(interval):
    return interval.high / interval.low


def test_repeats_narrow_the_interval_as_their_number_grows():
    widths = [width(curve([saturated(4, 5000.0)] * n, sizes=(4,))[4].interval) for n in (1, 2, 4, 8, 16)]
    assert widths == sorted(widths, reverse=True)
    # One probe alone has about its own noise; sixteen alike leave a quarter of it or less.
    assert math.log(widths[0]) / 2 == pytest.approx(1.645 * 0.03, rel=0.5)
    assert math.log(widths[-1]) <= math.log(widths[0]) / 4


def test_neighbours_on_a_line_share_their_strength():
    alone = curve([saturated(8, 1000.0 * 8**0.8)])[8].interval
    together = curve(line())[8].interval
    assert width(together) < width(alone)
    assert together.mid == pytest.approx(1000.0 * 8**0.8, rel=0.01)


def test_neighbours_that_jump_do_not_pull():
    steps = [saturated(s, rps) for s, rps in zip(SIZES, (1000.0, 1000.0, 2000.0, 2000.0), strict=True)]
    found = curve(steps)
    for one in steps:
        assert found[one.scale_out].interval.mid == pytest.approx(one.throughput_rps, rel=0.06)


def test_a_size_nobody_probed_is_wide_and_wider_outside():
    seen = [one for one in line() if one.scale_out != 8]
    inside, outside = curve(seen)[8].interval, curve(seen, sizes=(2, 4, 8, 16, 64))[64].interval
    assert width(curve(line())[8].interval) < width(inside) < width(outside)
    assert inside.low < 1000.0 * 8**0.8 < inside.high


def test_partitions_make_scale_outs_with_as_many_waves_alike():
    assert [effective_slots(s, 24) for s in (11, 12, 23, 24, 99)] == [8.0, 12.0, 12.0, 24.0, 24.0]
    assert effective_slots(7, None) == 7.0
    known = curve([saturated(12, 12_000.0), saturated(6, 6_000.0)], sizes=(6, 12, 23), tasks=24)
    assert known[23].interval.mid == pytest.approx(12_000.0, rel=0.02)
    assert width(known[23].interval) < width(curve([saturated(12, 12_000.0)], sizes=(12, 23))[23].interval)


def test_a_contradiction_ends_in_numbers():
    bounds = [Seen(4.0, 1e6, sustained=True), Seen(4.0, 1e9, sustained=True)]
    found = fit_curve(SIZES, [Seen(4.0, 100.0, sustained=False), *bounds], noise=0.03)
    assert np.isfinite(found.log_mean).all()
    assert np.isfinite(found.log_deviation).all()
    assert (found.log_deviation > 0).all()


def test_a_probe_where_little_is_known_settles_most():
    found = curve([one for one in line() if one.scale_out != 8])
    assert max(found, key=lambda s: found[s].gain) == 8
