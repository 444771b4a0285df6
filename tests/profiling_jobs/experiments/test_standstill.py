"""What a failure teaches: the standstill that has its recovery, not the first commit after it."""

import math

import pytest

from models.downtime import DowntimeModel
from models.quantities import Interval, RecoveryEvent, Unknown
from profiling_jobs.experiments.drill_prediction import Models, lesson, paced, recovery_s
from profiling_jobs.telemetry.batch_costs import bare_capacity_rps, overhead_now_s

pytestmark = pytest.mark.fast
LIMIT = 2000.0


class Known:
    def __init__(self, rps):
        self.rps = rps

    def predict(self, scale_out):
        return Unknown("nobody knows") if self.rps is None else Interval(self.rps, self.rps, self.rps, 0.9)


def models(rps=1333.0, **changes):
    given = {"capacity": Known(rps), "downtime": DowntimeModel.fit(), "overhead_s": {2: 0.3}}
    return Models(**(given | {"limit_records": LIMIT} | changes))


def drill(recovery_s, *, downtime_s=1.0, kind="executor_kill", rate_rps=700.0):
    event = RecoveryEvent(kind, 2, 1.7e9, downtime_s, recovery_s)
    return event, {"rate_rps": rate_rps, "lag_before_records": 600.0, "band_s": 2.5}


@pytest.mark.parametrize("measured_s", [8.0, 25.0, 60.0, 240.0])
@pytest.mark.parametrize("share", [0.3, 0.5, 0.8])
def test_the_models_that_learnt_it_predict_it(measured_s, share):
    """A first batch after a second says nothing of a recovery of 25."""
    event, details = drill(measured_s, rate_rps=share * 1333.0)
    learnt = lesson(event, details, models())
    assert learnt.recovery_s == event.recovery_s
    said = recovery_s(
        models(downtime=DowntimeModel.fit([learnt] * 40)),
        "executor_kill",
        scale_out=2,
        rate_rps=details["rate_rps"],
        lag_records=details["lag_before_records"],
        band_s=details["band_s"],
        horizon_s=600.0,
    )
    assert said.mid == pytest.approx(measured_s, rel=0.12, abs=1.5)


def test_at_another_rate_it_is_the_same_standstill():
    slow, fast = (lesson(*drill(20.0 / (1.0 - u), rate_rps=1333.0 * u), models()) for u in (0.4, 0.75))
    assert slow.downtime_s == pytest.approx(fast.downtime_s, rel=0.2)


def test_a_longer_recovery_is_a_longer_standstill():
    found = [lesson(*drill(float(seconds)), models()).downtime_s for seconds in range(5, 120, 5)]
    assert found == sorted(found)


@pytest.mark.parametrize(
    ("downtime_s", "recovery_s"), [(3.0, math.inf), (math.inf, math.inf), (18.0, 0.0)], ids=str
)
def test_what_was_not_seen_to_its_end_or_never_left_its_band_teaches_its_downtime(downtime_s, recovery_s):
    event, details = drill(recovery_s, downtime_s=downtime_s)
    assert lesson(event, details, models()) == event


def test_a_rate_beyond_the_capacity_teaches_the_longest_it_may_have_been():
    event, details = drill(20.0, rate_rps=5000.0)
    assert 0.0 <= lesson(event, details, models()).downtime_s < math.inf


def test_models_that_do_not_know():
    event, details = drill(20.0)
    assert lesson(event, details, models(None)) == Unknown("nobody knows")
    assert isinstance(lesson(event, details, models(overhead_s={})), Unknown)


class TestThePaceOfTheLastMinute:
    @pytest.mark.parametrize("overhead_s", [0.2, 0.6, 1.4])
    @pytest.mark.parametrize("rate_rps", [200.0, 700.0, 1000.0])
    def test_the_overhead_that_batches_show(self, overhead_s, rate_rps):
        """A batch of d seconds has f·d records and takes d = o + f·d/T."""
        sustained = 1100.0
        bare = bare_capacity_rps(sustained, overhead_s=overhead_s, limit_records=LIMIT)
        batch_s = overhead_s / (1.0 - rate_rps / bare)
        found = overhead_now_s(batch_s, rate_rps=rate_rps, sustained_rps=sustained, limit_records=LIMIT)
        assert found == pytest.approx(overhead_s)

    def test_a_profile_with_too_much_overhead_predicts_no_end_and_the_last_minute_does(self):
        wrong = models(1550.0, overhead_s={2: 1.07}, limit_records=6000.0)
        asked = {"scale_out": 2, "rate_rps": 1100.0, "lag_records": 2300.0, "band_s": 4.2, "horizon_s": 500.0}
        assert recovery_s(wrong, "executor_freeze", **asked).mid > 490.0
        right = paced(wrong, 2, rate_rps=1100.0, batch_s=1.46)
        assert 60.0 < recovery_s(right, "executor_freeze", **asked).mid < 450.0

    @pytest.mark.parametrize(
        "seen", [{"rate_rps": 700.0, "batch_s": 0.0}, {"rate_rps": 1400.0, "batch_s": 1.0},
                 {"rate_rps": 700.0, "batch_s": 3.0}],
    )  # fmt: skip
    def test_batches_that_show_nothing_change_nothing(self, seen):
        assert paced(models(), 2, **seen).overhead_s == {2: 0.3}

    def test_with_a_trigger_batches_do_not_come_back_to_back(self):
        assert paced(models(trigger_s=5.0), 2, rate_rps=700.0, batch_s=5.0).overhead_s == {2: 0.3}
