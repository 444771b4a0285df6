"""Which size, and why no other: stories of one decision each."""

from __future__ import annotations

import json
import math
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench._truths_optimise import DOWNTIMES, Downtimes, Paths, load, question
from models import codec
from models.downtime import DowntimeModel
from models.optimise import Decision, aligned_scale_outs, decide, predictions
from models.optimise.judging import first_true
from models.optimise.question import BatchEngine, ContinuousEngine
from models.promise import Promise
from models.quantities import Interval, RecoveryEvent, Unknown

pytestmark = pytest.mark.fast

SPARK = BatchEngine(overhead_s=2.0, trigger_s=10.0)


def conditions(decision: Decision, scale_out: int) -> set[str]:
    return {e.condition for e in decision.of(scale_out).excuses}


def sizes_with(decision: Decision, status: str) -> list[int]:
    return [v.scale_out for v in decision.verdicts if v.status == status]


class Latency:
    """Abnormal above a share of the capacity, 100 ms below."""

    def __init__(self, per_executor_rps=1000.0, share=0.8, unknown=()):
        self.per_executor_rps, self.share, self.unknown = per_executor_rps, share, unknown

    def predict(self, scale_out, rate_rps):
        if scale_out in self.unknown:
            return Unknown("never measured near there")
        mid = 100.0 if rate_rps <= self.share * scale_out * self.per_executor_rps else 9000.0
        return Interval(mid / 2, mid, mid * 2, 0.9)

    def is_normal(self, scale_out, rate_rps):
        expected = self.predict(scale_out, rate_rps)
        return expected if isinstance(expected, Unknown) else expected.mid < 1000.0


@pytest.mark.parametrize("engine", [ContinuousEngine(replay_s=10.0), SPARK], ids=["continuous", "batches"])
def test_the_smallest_size_that_keeps_the_promise_is_taken(engine) -> None:
    decision = decide(question(engine=engine, current=3))
    chosen = decision.of(decision.scale_out)
    assert (decision.feasible, decision.alarm) == (True, None)
    assert sizes_with(decision, "feasible") == list(range(decision.scale_out, 13))
    assert 4 <= decision.scale_out <= 7  # 3 000 rps at D = 60 s of 180 s need about 4.5, and a margin
    assert chosen.probability >= 0.95
    below = decision.of(decision.scale_out - 1)
    assert "recovery" in conditions(decision, decision.scale_out - 1)
    assert below.recovery_s.high > 180 >= chosen.recovery_s.high
    assert decision.reason.startswith(f"scale out from 3 to {decision.scale_out} executors: forecast ")


def test_one_line_says_what_was_decided() -> None:
    smallest = decide(question()).smallest_feasible
    held = decide(question(current=smallest))
    assert held.scale_out == smallest
    forecast, recovery = held.reason.removeprefix(f"hold {smallest} executors: ").split(", ")
    assert forecast.startswith("forecast 3.")
    assert forecast.endswith(f"k rps fits {smallest}k")
    within = held.of(smallest).recovery_s.promised
    assert recovery == f"95 % of recoveries within {within:.0f} s ≤ 180 s"


SURE = re.compile(r"([\d.]+) % of recoveries within ([\d.]+) s ([≤>]) 180 s$")
SHARE = re.compile(r"recovery within 180 s in ([\d.]+) % ([≥<]) ([\d.]+) %$")


@pytest.mark.parametrize("engine", [ContinuousEngine(replay_s=10.0), SPARK], ids=["continuous", "batches"])
@pytest.mark.parametrize("confidence", [0.4, 0.7, 0.9, 0.95, 0.99])
def test_the_recovery_that_is_told_is_the_one_that_was_compared(engine, confidence) -> None:
    promise = Promise(180.0, confidence)
    for current in (3, 5, 8):
        decision = decide(question(engine=engine, current=current, promise=promise))
        told = SURE.search(decision.reason)
        assert told, decision.reason
        assert float(told[1]) == pytest.approx(100 * confidence)
        chosen = decision.of(decision.scale_out)
        assert (told[3] == "≤") == decision.feasible == (chosen.probability >= confidence)
        assert (float(told[2]) <= 180) == decision.feasible
        for verdict in decision.verdicts:
            if not isinstance(verdict.recovery_s, Unknown):
                assert (verdict.recovery_s.promised <= 180) != verdict.fails("recovery")


def test_a_recovery_nobody_saw_the_end_of_is_told_by_its_share() -> None:
    decision = decide(question(mean_rps=30_000.0))
    told = SHARE.search(decision.reason)
    assert told, decision.reason
    assert told.groups() == ("0", "<", "95")


def test_each_failed_condition_is_its_own_excuse() -> None:
    slow = Downtimes(DOWNTIMES.median_s | {"live_out": 170.0})
    decision = decide(question(current=1, downtime=slow, latency=Latency(), latency_bound_ms=50.0))
    assert conditions(decision, 1) == {"recovery", "observed", "forecast", "latency"}
    assert conditions(decision, 2) == {"recovery", "observed", "forecast", "latency", "rescale"}
    assert conditions(decision, 12) == {"latency", "rescale"}
    assert len(decision.of(2).excuses) == 6  # latency: abnormal, and above the bound


def test_capacity_must_cover_what_is_observed_even_if_the_forecast_is_lower() -> None:
    quiet = Paths(load(mean_rps=1000.0, paths=60, steps=300))
    decision = decide(question(forecast=quiet, observed_rps=7000.0))
    assert "observed" in conditions(decision, 6)
    assert "forecast" not in conditions(decision, 6)
    assert decision.scale_out == 8


@pytest.mark.parametrize("engine", [ContinuousEngine(), SPARK], ids=["continuous", "batches"])
def test_a_single_second_above_its_capacity_is_not_held_against_a_size(engine) -> None:
    calm = load(mean_rps=3000.0, paths=60, steps=300, noise=0.0)
    peaks = calm.copy()
    peaks[np.arange(60), np.random.default_rng(1).integers(0, 120, 60)] *= 4.0
    smallest = decide(question(forecast=Paths(calm), engine=engine)).smallest_feasible
    with_peaks = decide(question(forecast=Paths(peaks), engine=engine))
    assert with_peaks.smallest_feasible == smallest
    assert "forecast" not in conditions(with_peaks, smallest)
    assert "forecast" in conditions(with_peaks, 2), "what lasts is"


def test_a_size_that_is_too_slow_to_reach_is_not_taken() -> None:
    easy = Downtimes({"executor_kill": 20.0, "restart_out": 175.0, "restart_in": 20.0})
    decision = decide(question(current=5, rescale="restart", downtime=easy))
    assert decision.scale_out <= 5
    assert all(conditions(decision, s) == {"rescale"} for s in range(6, 13))


def test_the_worst_kind_decides() -> None:
    both = decide(question(kinds=("executor_kill", "driver_kill")))
    assert {v.worst_kind for v in both.verdicts if 0 < v.probability < 1} == {"driver_kill"}
    assert both.smallest_feasible > decide(question()).smallest_feasible


# -- what is not known


def test_unknown_capacity_is_neither_feasible_nor_infeasible() -> None:
    asked = question()
    some = {s: c if s in (2, 4, 8) else Unknown("never probed") for s, c in asked.capacity.items()}
    decision = decide(question(capacity=some))
    assert decision.scale_out == 8
    assert sizes_with(decision, "unknown") == [1, 3, 5, 6, 7, 9, 10, 11, 12]
    assert conditions(decision, 6) == {"capacity"}
    assert decision.of(6).excuses[0].measure == "measure the capacity of 6 executors"


def test_with_nothing_feasible_the_largest_known_size_is_taken_with_an_alarm() -> None:
    asked = question(mean_rps=30_000.0)
    decision = decide(question(mean_rps=30_000.0, capacity=asked.capacity | {12: Unknown("never probed")}))
    assert (decision.scale_out, decision.feasible) == (11, False)
    assert "there 95 % of recoveries take more than 900 s" in decision.alarm
    assert "0 % are in time where 95 % are promised" in decision.alarm
    assert "to settle what is open: measure the capacity of 12 executors" in decision.alarm


def test_a_present_size_that_nobody_measured_is_not_left_for_a_smaller_one_that_fails() -> None:
    asked = question(mean_rps=30_000.0)
    decision = decide(
        question(mean_rps=30_000.0, current=12, capacity=asked.capacity | {12: Unknown("never probed")})
    )
    assert (decision.scale_out, decision.feasible) == (12, False)
    assert "measure the capacity of 12 executors" in decision.alarm


def test_a_present_size_beyond_bounds_that_were_moved_is_left() -> None:
    assert decide(question(candidates=(8, 9, 10), current=7)).scale_out == 8
    assert decide(question(current=7)).feasible, "seven would do, too"
    down = decide(question(candidates=(1, 2), current=7))
    assert (down.scale_out, down.feasible) == (2, False)
    assert "2 executors come closest" in down.alarm
    assert decide(question(candidates=(1, 2, 8), current=7)).scale_out == 7, "within them it may stay"


def test_an_alarm_says_by_how_much_the_promise_is_missed() -> None:
    decision = decide(question(sizes=5, current=5, lag_s=60.0))
    assert decision.scale_out == 5
    assert not decision.feasible
    high = decision.of(5).recovery_s.promised
    assert 180 < high < 900
    assert f"there 95 % of recoveries take up to {high:.0f} s where 180 s are promised" in decision.alarm


def test_a_latency_bound_without_a_model_keeps_the_present_size_and_says_what_to_measure() -> None:
    decision = decide(question(latency_bound_ms=500.0, current=8))
    assert (decision.scale_out, decision.feasible) == (8, False)
    assert decision.of(8).status == "unknown"
    assert decision.of(1).status == "infeasible"
    assert "measure the latency at" in decision.alarm


def test_with_batches_the_open_latency_still_leaves_the_smallest_that_recovers() -> None:
    told = decide(question(engine=SPARK, current=1))
    open_ = decide(question(engine=SPARK, current=1, latency_bound_ms=500.0))
    assert (open_.scale_out, open_.feasible) == (told.scale_out, False)
    assert open_.of(told.scale_out - 1).status == "infeasible"


def test_a_latency_nobody_can_judge_is_open_and_a_larger_size_is_taken() -> None:
    plain = decide(question()).scale_out
    decision = decide(question(current=9, latency=Latency(unknown=(plain,))))
    assert decision.of(plain).status == "unknown"
    assert decision.scale_out == plain + 1


def test_an_unknown_downtime_is_a_drill_to_run() -> None:
    class Partly(Downtimes):
        def samples(self, kind, *, paths, seed):
            if kind == "driver_kill":
                return Unknown("no driver_kill was ever seen")
            return super().samples(kind, paths=paths, seed=seed)

    asked = question(kinds=("executor_kill", "driver_kill"), downtime=Partly(DOWNTIMES.median_s), current=9)
    decision = decide(asked)
    assert (decision.scale_out, decision.feasible) == (9, False)
    assert "run a drill of driver_kill" in decision.alarm
    assert decision.of(2).status == "infeasible"


@pytest.mark.parametrize("name", ["forecast", "observed_rps", "lag_records", "engine"])
def test_what_cannot_be_read_is_not_guessed(name) -> None:
    decision = decide(question(**{name: Unknown(f"{name} was not read")}))
    assert decision.scale_out == Unknown(f"{name} was not read")
    assert not decision.feasible
    assert "was not read" in decision.reason


def test_nothing_measured_at_all_names_the_first_measurement() -> None:
    nothing = {s: Unknown("never probed") for s in range(1, 13)}
    decision = decide(question(capacity=nothing))
    assert isinstance(decision.scale_out, Unknown)
    assert "measure the capacity of 1 executor" in decision.alarm


# -- fewer executors


def test_nothing_is_taken_away_while_a_lag_is_worked_off() -> None:
    calm, behind = decide(question(current=12)), decide(question(current=12, lag_s=60.0))
    assert calm.scale_out < 12
    assert behind.scale_out == 12
    assert behind.smallest_feasible < 12
    assert "while a lag of 180k records (60 s of input) is worked off" in behind.reason


def test_not_even_from_a_size_that_was_never_measured() -> None:
    asked = question(current=12, lag_s=60.0)
    unmeasured = asked.capacity | {12: Unknown("never probed")}
    behind = decide(question(current=12, lag_s=60.0, capacity=unmeasured))
    assert (behind.scale_out, behind.feasible) == (12, False)
    calm = decide(question(current=12, capacity=unmeasured))
    assert calm.feasible
    assert calm.scale_out < 12


def test_the_open_batch_is_no_lag_to_work_off() -> None:
    assert decide(question(current=12, lag_s=12.0, engine=SPARK)).scale_out < 12
    assert decide(question(current=12, lag_s=60.0, engine=SPARK)).scale_out == 12


def test_a_move_that_costs_more_than_it_saves_is_not_made() -> None:
    short, long = decide(question(current=8, stay_s=20.0)), decide(question(current=8, stay_s=3600.0))
    assert short.scale_out == 8
    cost, saved = re.findall(r"the change costs (\d+) executor-seconds and saves (\d+)", short.reason)[0]
    assert int(cost) > int(saved)
    assert int(cost) == pytest.approx(8 * 10.0, rel=0.2)  # eight executors idle for ten seconds, and the lag
    assert long.scale_out < 8


# -- micro-batches


def test_with_batches_the_shown_recovery_is_the_stepped_one() -> None:
    asked = question(engine=SPARK, current=7)
    decision = decide(asked)
    stepped = decision.of(decision.scale_out)
    continuous = decide(question(current=7)).of(decision.scale_out)
    assert stepped.recovery_s != continuous.recovery_s
    assert stepped.recovery_s.high <= 180 < decision.of(decision.scale_out - 1).recovery_s.high


@pytest.mark.parametrize("engine", [ContinuousEngine(), SPARK], ids=["continuous", "batches"])
def test_what_is_right_does_not_depend_on_where_the_job_stands(engine) -> None:
    answers = {decide(question(engine=engine, current=s)).smallest_feasible for s in (1, 4, 6, 9, 12)}
    assert len(answers) == 1


@pytest.mark.parametrize("near", range(9))
@pytest.mark.parametrize("truth", range(10))
def test_the_search_finds_the_first_size_that_holds(near, truth) -> None:
    asked = []
    assert first_true(lambda i: asked.append(i) or i >= truth, 9, near=near) == min(truth, 9)
    assert len(asked) == len(set(asked)) <= 2 + 2 * math.ceil(math.log2(1 + abs(min(truth, 8) - near)) + 1)


def test_batches_that_cannot_keep_up_need_more_executors_or_are_refused() -> None:
    # at most 50 000 records per 10 s trigger: 5 000 rps whatever the size
    limited = BatchEngine(overhead_s=1.0, limit_records=50_000, trigger_s=10.0)
    assert decide(question(engine=limited, mean_rps=2000.0)).feasible
    refused = decide(question(engine=limited, mean_rps=5500.0))
    assert not refused.feasible
    assert "forecast" in conditions(refused, 12)


def test_the_capacity_that_is_told_is_what_full_batches_keep_up_with() -> None:
    limited = BatchEngine(overhead_s=1.0, limit_records=50_000, trigger_s=10.0)
    told = {v.scale_out: v.capacity for v in decide(question(engine=limited)).verdicts}
    bare = {v.scale_out: v.capacity for v in decide(question(engine=ContinuousEngine())).verdicts}
    assert told[12].mid == pytest.approx(5000.0)  # one batch per trigger
    one = 50_000 / (1.0 + 50_000 / bare[1].mid)
    assert told[1].mid == pytest.approx(one)
    assert told[1].low < told[1].mid < bare[1].mid


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 1000), st.sampled_from([0.0, 30.0, 90.0]), st.sampled_from([SPARK, ContinuousEngine()]))
def test_every_smaller_size_has_an_excuse_and_every_larger_one_is_no_worse(seed, lag_s, engine) -> None:
    rng = np.random.default_rng(seed)
    forecast = Paths(load(mean_rps=rng.uniform(500, 6000), paths=20, steps=300, seed=seed, noise=0.1))
    decision = decide(question(forecast=forecast, lag_s=lag_s, engine=engine, current=1, seed=seed, sizes=16))
    feasible = sizes_with(decision, "feasible")
    if decision.feasible:
        assert decision.scale_out == min(feasible)
        assert feasible == list(range(min(feasible), 17))
        assert all(v.excuses for v in decision.verdicts if v.scale_out < decision.scale_out)
    else:
        assert not feasible
        assert decision.scale_out == 16
        assert decision.alarm


def test_the_same_question_has_the_same_answer() -> None:
    assert decide(question(lag_s=30.0)) == decide(question(lag_s=30.0))


@pytest.mark.parametrize("engine", [ContinuousEngine(), SPARK], ids=["continuous", "batches"])
def test_a_failure_it_may_not_come_back_from_cannot_be_promised_away(engine) -> None:
    def model(lost):
        events = [RecoveryEvent("executor_kill", 4, 0.0, 30.0, 90.0)] * 9
        events += [RecoveryEvent("live_out", 4, 0.0, 5.0, 20.0)] * 9
        return DowntimeModel.fit(events + [RecoveryEvent("executor_kill", 4, 0.0, math.inf, math.inf)] * lost)

    assert decide(question(engine=engine, current=4, downtime=model(0))).feasible
    decision = decide(question(engine=engine, current=4, downtime=model(3)))
    assert not decision.feasible
    assert decision.of(12).probability < 0.8
    assert decision.of(12).recovery_s.high == math.inf
    assert "the downtime alone may last longer than 180 s" in decision.alarm


@pytest.mark.parametrize("lag_s", [0.0, 90.0])
def test_a_decision_is_plain_json(lag_s) -> None:
    decision = decide(question(sizes=4, mean_rps=9000.0, lag_s=lag_s))
    text = json.dumps(codec.readable(decision), allow_nan=False)
    data = json.loads(text)
    assert data["schema"] == 1
    assert data["feasible"] is False
    assert [v["scale_out"] for v in data["verdicts"]] == [1, 2, 3, 4, 6]
    assert data["verdicts"][3]["recovery_s"]["high"] is None  # not within what was looked at
    assert "unknown" in data["verdicts"][0]["latency_ms"]


# -- questions


@pytest.mark.parametrize(
    ("bounds", "tasks", "sizes"),
    [
        ((1, 6), None, (1, 2, 3, 4, 5, 6)),
        ((1, 24), 24, (1, 2, 3, 4, 5, 6, 8, 12, 24)),
        ((5, 11), 24, (5, 6, 8, 11)),
        ((1, 40), 16, (1, 2, 3, 4, 6, 8, 16, 40)),
        ((7, 7), 3, (7,)),
    ],
)
def test_only_sizes_with_fewer_waves_are_candidates(bounds, tasks, sizes) -> None:
    assert aligned_scale_outs(*bounds, tasks=tasks) == sizes
    if tasks:
        waves = {math.ceil(tasks / s) for s in range(bounds[0], bounds[1] + 1)}
        assert {math.ceil(tasks / s) for s in sizes} == waves


def test_a_coarser_forecast_is_answered_too() -> None:
    fine = load(mean_rps=3000.0, paths=40, steps=10, noise=0.0)
    coarse = decide(question(forecast=Paths(fine, step_s=30.0)))
    repeated = decide(question(forecast=Paths(np.repeat(fine, 30, axis=1))))
    assert [v.probability for v in coarse.verdicts] == [v.probability for v in repeated.verdicts]


def test_zero_load_needs_one_executor() -> None:
    decision = decide(
        question(forecast=Paths(np.zeros((20, 300))), observed_rps=0.0, promise=Promise(180.0), current=2)
    )
    assert (decision.scale_out, decision.feasible) == (1, True)


# The recovery from a failure now, of every kind


BOTH = ("executor_kill", "driver_kill")


@pytest.mark.parametrize("engine", [ContinuousEngine(replay_s=10.0), SPARK], ids=["continuous", "batches"])
def test_every_kind_of_failure_is_predicted_at_the_current_size(engine) -> None:
    found = predictions(question(engine=engine, current=6, kinds=BOTH))
    lost, restarted = found["executor_kill"], found["driver_kill"]
    assert lost.mid < restarted.mid  # down for 60 and for 90 s
    assert lost.probability >= restarted.probability
    for one in found.values():
        assert one.low <= one.mid <= one.high
        assert (one.promised <= 180.0) == (one.probability >= 0.95)


def test_without_a_forecast_the_load_stays_as_it_is() -> None:
    known = question(engine=SPARK, forecast=Paths(np.full((50, 300), 3000.0)))
    without = predictions(question(engine=SPARK, forecast=Unknown("too little history")))
    assert without["executor_kill"].mid == pytest.approx(predictions(known)["executor_kill"].mid, rel=0.03)


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"observed_rps": Unknown("the broker is silent")}, "the broker is silent"),
        ({"lag_records": Unknown("no commit was read")}, "no commit was read"),
        ({"engine": Unknown("not described")}, "not described"),
        ({"capacity": {6: Unknown("not profiled")}}, "not profiled"),
        ({"downtime": Unknown("no drill yet")}, "no drill yet"),
    ],
)
def test_what_is_missing_for_a_prediction_is_said(changed, why) -> None:
    asked = question(**{"engine": SPARK, "kinds": BOTH} | changed)
    assert predictions(asked) == dict.fromkeys(BOTH, Unknown(why))
