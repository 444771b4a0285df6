"""What a failure teaches: the standstill that has its recovery, not the first commit after it."""

import math
from dataclasses import replace

import numpy as np
import pytest

from bench._truths_optimise import Paths
from models.capacity import CapacityModel
from models.downtime import DowntimeModel
from models.optimise import Question, decide
from models.promise import Promise
from models.quantities import Interval, Measurement, RecoveryEvent, Unknown
from models.recovery import batch_recovery_seconds
from profiling_jobs.experiments.drill_prediction import Models, lesson, recovery_s
from profiling_jobs.telemetry.batch_costs import BareCapacity, EngineInputs
from profiling_jobs.training import training_data

pytestmark = pytest.mark.fast
LIMIT = 2000.0


class Known:
    def __init__(self, rps):
        self.rps = rps

    def predict(self, scale_out):
        return Unknown("nobody knows") if self.rps is None else Interval(self.rps, self.rps, self.rps, 0.9)


def models(rps=1333.0, *, downtime=None, **changes):
    engine = EngineInputs(**({"overhead_s": {2: 0.3}, "limit_records": LIMIT} | changes))
    return Models(Known(rps), downtime or DowntimeModel(), engine)


def drill(recovery_s, *, downtime_s=1.0, kind="executor_kill", rate_rps=700.0):
    event = RecoveryEvent(kind, 2, 1.7e9, downtime_s, recovery_s)
    batch_s = 0.3 / max(0.1, 1.0 - rate_rps / 1666.0)  # on average one and a half are not committed
    return event, {"rate_rps": rate_rps, "lag_before_records": 1.5 * batch_s * rate_rps, "longest_s": 600.0}


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
        longest_s=600.0,
    )
    assert said.mid == pytest.approx(measured_s, rel=0.12, abs=1.5)


def test_at_another_rate_it_is_the_same_standstill():
    slow, fast = (lesson(*drill(20.0 / (1.0 - u), rate_rps=1333.0 * u), models()) for u in (0.4, 0.75))
    assert slow.started_s == pytest.approx(fast.started_s, rel=0.2)


@pytest.mark.parametrize("share", [0.02, 0.4, 0.8])
@pytest.mark.parametrize("recovery_s", [math.inf, None], ids=["not recovered", "live"])
def test_a_first_commit_is_carried_to_the_start_of_its_batch_at_its_own_load(share, recovery_s):
    """30 s until the batch began, and then the longer the more had arrived meanwhile."""
    found = models(1000.0, limit_records=math.inf)
    event, details = drill(recovery_s or 100.0, rate_rps=share * 1000.0)
    if recovery_s is None:  # of the live job the load is known, and no more
        details = {"rate_rps": details["rate_rps"]}
    commit_s = 30.0 + 0.3 + (details.get("lag_before_records", 0.0) + 30.0 * share * 1000.0) / 1000.0
    event = replace(event, downtime_s=commit_s)
    taught = lesson(event, details, found)
    assert taught.downtime_s == commit_s
    assert taught.started_s == pytest.approx(30.0)
    assert DowntimeModel.fit([taught] * 50).interval("executor_kill").mid == pytest.approx(30.0, rel=0.1)


@pytest.mark.parametrize("start_s", np.arange(1.0, 12.0, 0.7))
def test_a_recovery_teaches_by_the_band_that_it_was_measured_by(start_s):
    """A narrower band is reached a batch later, which made standstills up to 1.3 s too short."""
    rate_rps, band_s = 530.0, 2.2
    asked = {"capacity_rps": 1333.0, "overhead_s": 0.3, "limit_records": math.inf, "trigger_s": 0.0}
    back_s = float(
        batch_recovery_seconds(
            np.full(300, rate_rps), downtime_s=start_s, lag_records=400.0, band_s=band_s, **asked
        )
    )
    details = {"rate_rps": rate_rps, "lag_before_records": 400.0, "band_s": band_s, "longest_s": 600.0}
    found = Models(Known(1333.0), DowntimeModel(), EngineInputs({2: 0.3}, math.inf))
    learnt = lesson(RecoveryEvent("driver_kill", 2, 0.0, start_s + 0.5, back_s), details, found)
    assert learnt.started_s == pytest.approx(start_s, abs=0.11)


def test_a_longer_recovery_is_a_longer_standstill():
    found = [lesson(*drill(float(seconds)), models()).downtime_s for seconds in range(5, 120, 5)]
    assert found == sorted(found)


@pytest.mark.parametrize(
    ("downtime_s", "recovery_s"), [(3.0, math.inf), (math.inf, math.inf), (18.0, 0.0)], ids=str
)
def test_what_was_not_seen_to_its_end_or_never_left_its_band_teaches_its_downtime(downtime_s, recovery_s):
    event, details = drill(recovery_s, downtime_s=downtime_s)
    assert lesson(event, details, models()).downtime_s == event.downtime_s


def test_a_rate_beyond_the_capacity_teaches_the_longest_it_may_have_been():
    event, details = drill(20.0, rate_rps=5000.0)
    assert 0.0 <= lesson(event, details, models()).downtime_s < math.inf


def test_a_capacity_that_is_unknown():
    event, details = drill(20.0)
    assert lesson(event, details, models(None)) == Unknown("nobody knows")


def test_the_band_of_a_prediction_fits_its_overhead():
    """A lag at rest is twice a batch: an overhead that is too large does not keep it out of its band."""
    asked = {"scale_out": 2, "rate_rps": 1100.0, "lag_records": 2300.0, "longest_s": 500.0}
    much, less = (
        recovery_s(models(1550.0, overhead_s={2: o}, limit_records=6000.0), "executor_freeze", **asked)
        for o in (1.07, 0.42)
    )
    assert much.mid == pytest.approx(less.mid, rel=0.05)
    assert 60.0 < less.mid < 500.0


def test_a_drill_is_predicted_with_what_a_decision_says():
    found = models(downtime=DowntimeModel.fit([RecoveryEvent("driver_kill", 2, 0.0, 30.0, 90.0)] * 9))
    said = recovery_s(found, "driver_kill", scale_out=2, rate_rps=700.0, lag_records=0.0, longest_s=270.0)
    asked = Question(
        candidates=(2,),
        current=2,
        promise=Promise(180.0),
        forecast=Paths(np.full((50, 240), 700.0)),
        observed_rps=700.0,
        lag_records=0.0,
        capacity={2: BareCapacity(found.capacity, found.engine).predict(2)},
        downtime=found.downtime,
        kinds=("driver_kill",),
        moments_s=60.0,
        engine=found.engine.engine(),
    )
    decided = decide(asked).of(2).recovery_s
    assert (said.low, said.mid, said.high) == pytest.approx(
        (decided.low, decided.mid, decided.high), rel=0.03
    )


@pytest.mark.parametrize(
    ("reported", "started_s"),
    [({"first_batch_s": 8.7}, 13.2), ({"first_batch_s": "not reported"}, 20.7), ({}, 20.7)],
)
def test_a_capacity_that_is_only_a_lower_bound_explains_no_downtime_away(reported, started_s):
    """Measured: a driver that was away for 13 s was learnt as one that had never been away."""
    bound = Measurement(1, 20_000.0, 20_000.0, sustained=True)
    capacity = CapacityModel.fit([bound], cautious=True)
    event = RecoveryEvent("driver_kill", 1, 0.0, 21.9, 32.4)
    details = {"rate_rps": 12_000.0, "lag_before_records": 20_000.0, "longest_s": 360.0, "band_s": 3.9}
    found = [(event, {**details, "downtime": reported})]
    (learnt,) = training_data.downtimes(found, capacity=capacity, engine=EngineInputs({1: 1.2}))
    assert learnt.started_s == pytest.approx(started_s)
