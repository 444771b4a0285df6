"""From what was measured and lived through to models in charge, or not."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from memory_registry import MemoryRegistry
from temporary_store import TemporaryStore

from models import codec
from models.capacity import CapacityModel
from models.ports import Control
from models.quantities import Measurement, RecoveryEvent, Unknown
from models.series import Grid
from profiling_jobs.control_loop.forecasting import Rates, forecast_step_s
from profiling_jobs.telemetry.batch_costs import EngineInputs
from profiling_jobs.training import checks, fitting, promoting, training_data, workload_history
from profiling_jobs.training.champions import Champions
from profiling_jobs.training.checks import Evidence
from profiling_jobs.training.promoting import TrainingContext, refit
from profiling_jobs.training.training_data import Measured, Purpose, Slowdown

Fill = Callable[..., None]
ORDER = ("capacity", "workload", "latency", "recovery")  # latency is read against the capacity
PURPOSE = Purpose(
    job="orders",
    horizon_s=270.0,
    candidates=tuple(range(1, 9)),
    failure_kinds=("executor_kill", "driver_kill"),
    target_s=180.0,
    limit_records=20_000.0,
)
NOW_S = 1_763_474_400.0


@pytest.fixture
def room(tmp_path: Path) -> TrainingContext:
    return TrainingContext(TemporaryStore(), MemoryRegistry(), tmp_path)


def every_model(room: TrainingContext) -> dict[str, promoting.Made]:
    return {kind: refit(kind, PURPOSE, room) for kind in ORDER}


def known(found: Any) -> Any:
    assert not isinstance(found, Unknown), found.reason
    return found


def outcomes(made: promoting.Made) -> dict[str, str]:
    return {one.name: one.outcome for one in made.checks}


def checked(found: Any, **purpose: Any) -> dict[str, str]:
    evidence = Evidence(replace(PURPOSE, **purpose))
    return {one.name: one.outcome for one in checks.run_checks(found, evidence)}


@pytest.fixture
def profiled(lived: Fill) -> TemporaryStore:
    """What is known of a job that was profiled, and not drilled or watched."""
    store = TemporaryStore()
    lived(store, drills=0, hours=0)
    return store


def measured(store: Any) -> Measured:
    return training_data.measured(store, "orders")


def stretches(store: Any, rates: list[float], *, size: int = 4, begin_s: float = NOW_S) -> None:
    """Live ones, an hour apart; sustained where the rate is negative."""
    for hour, rate in enumerate(rates, 1):
        live = Measurement(
            size, 9_000.0, abs(rate), rate < 0.0, 300.0, 180.0, origin="live", standard_error_rps=40.0
        )
        store.add_measurement("orders", f"live-{begin_s}-{hour}", live, at_s=begin_s + 3600.0 * hour)


class TestAllFour:
    def test_a_job_that_was_profiled_drilled_and_watched_gets_its_models(
        self, room: TrainingContext, lived: Fill
    ) -> None:
        lived(room.store)
        made = every_model(room)
        assert {kind: one.promoted for kind, one in made.items()} == dict.fromkeys(ORDER, True)
        champions = Champions.load(room.folder, "orders")
        assert champions.versions == {"workload": 1, "capacity": 1, "latency": 1, "recovery": 1}
        assert isinstance(champions.capacity, CapacityModel)
        eight = known(champions.capacity.predict(8))
        truth = 20_000.0 / (0.5 + 20_000.0 / (4000.0 * 8**0.85))
        assert eight.mid == pytest.approx(truth, rel=0.05)
        assert isinstance(champions.engine, EngineInputs)
        assert champions.engine.overhead_s[4] == pytest.approx(0.5, abs=0.01)
        assert champions.engine.limit_records == 20_000.0
        assert champions.trained_on["workload"]["to_s"] == NOW_S
        assert outcomes(made["recovery"])["agrees_with_drills"] == "warned"  # 15 to 50 %, in the intervals
        assert outcomes(made["recovery"])["enough_points"] == "too little data"
        assert "a drill of driver_kill" in champions.provisional["recovery"]
        assert "1 is in charge, provisional: " in made["recovery"].said
        assert "To make it firm: a drill of driver_kill" in made["recovery"].said

    def test_without_anything_there_is_no_model_and_it_says_what_to_do(self, room: TrainingContext) -> None:
        made = every_model(room)
        wanted = {"capacity": "profile the job", "workload": "record its input", "latency": "profile the job"}
        for kind, said in wanted.items():
            assert made[kind].version is None
            assert said in made[kind].said
            assert "no champion" in made[kind].said
            assert made[kind].checks == ()
        assert made["recovery"].promoted  # the prior is careful enough to decide with
        assert "3 more drills of executor_kill" in made["recovery"].said
        assert Champions.load(room.folder, "orders").versions == {"recovery": 1}

    def test_the_same_data_give_the_same_document(self, room: TrainingContext, lived: Fill) -> None:
        lived(room.store, hours=1.0)
        first, second = (refit(kind, PURPOSE, room) for kind in ("workload", "workload"))
        assert first.document == second.document
        assert second.version == second.champion == 1  # and no second version of the same
        assert second.said.startswith("Nothing is new")

    def test_no_check_is_called_passed_that_had_too_little_data(
        self, room: TrainingContext, lived: Fill
    ) -> None:
        """One drill that recovered 70 % later than predicted says nothing yet: the model is provisional."""
        lived(room.store, hours=0, drills=1)
        event, details = room.store.events("orders")[0]
        room.store.add_event("orders", replace(event, recovery_s=1.7 * event.recovery_s), details=details)
        made = refit("capacity", PURPOSE, room)
        assert made.promoted
        assert outcomes(made)["agrees_with_drills"] == "too little data"
        passed = sum(outcome == "passed" for outcome in outcomes(made).values())
        assert f"provisional: {passed} of {len(made.checks)} checks passed" in made.said
        needs = Champions.load(room.folder, "orders").provisional["capacity"]
        assert "3 more drills of driver_kill" in needs
        kept = known(room.registry.load("orders.capacity"))
        assert kept.tags["checks"] == "provisional"
        assert "3 more drills" in kept.tags["to_make_it_firm"]


class TestPromotion:
    def test_a_failed_check_leaves_the_old_champion_in_charge(
        self, room: TrainingContext, lived: Fill, muddled: Fill
    ) -> None:
        lived(room.store)
        assert refit("capacity", PURPOSE, room).promoted
        room = replace(room, store=TemporaryStore())
        muddled(room.store)
        made = refit("capacity", PURPOSE, room)
        assert not made.promoted
        assert outcomes(made)["held_out_error"] == "failed"
        assert "Version 1 stays in charge" in made.said
        assert Champions.load(room.folder, "orders").versions == {"capacity": 1}
        assert room.registry.aliases("orders.capacity") == {"champion": 1, "challenger": 2}
        refused = known(room.registry.load("orders.capacity", alias="challenger"))
        assert "held_out_error" in refused.tags["failed_checks"]

    def test_a_first_commit_of_those_that_are_left_misleads_nobody(
        self, room: TrainingContext, lived: Fill
    ) -> None:
        """The batch in flight is committed at once, and the recovery takes its time all the same."""
        lived(room.store, hours=0)
        for event, details in room.store.events("orders"):
            room.store.add_event("orders", replace(event, downtime_s=0.3), details=details)
        assert outcomes(refit("capacity", PURPOSE, room))["agrees_with_drills"] == "warned"
        made = refit("recovery", PURPOSE, room)
        assert outcomes(made)["agrees_with_drills"] == "warned"
        assert not isinstance(made.document, Unknown)
        assert made.document["figures"]["downtime_executor_kill_s"] == pytest.approx(
            7.3, rel=0.35
        )  # 12 with its batch

    def test_recoveries_that_never_ended_are_held_against_the_model(
        self, room: TrainingContext, lived: Fill
    ) -> None:
        lived(room.store, hours=0)
        for event, details in room.store.events("orders")[2:]:
            room.store.add_event("orders", replace(event, recovery_s=math.inf), details=details)
        made = refit("capacity", PURPOSE, room)
        assert outcomes(made)["agrees_with_drills"] == "failed"
        assert "There is no champion" in made.said

    def test_a_new_profile_of_one_size_takes_over_there_and_leaves_the_others(
        self, room: TrainingContext, lived: Fill
    ) -> None:
        lived(room.store, sizes=(1, 2, 3, 4), drills=0, hours=0)
        purpose = replace(PURPOSE, candidates=(1, 2, 3, 4))
        before = refit("capacity", purpose, room)
        lived(room.store, sizes=(4,), drills=0, hours=0, seed=2)
        made = refit("capacity", purpose, room)
        assert (made.version, made.promoted) == (2, True)
        assert outcomes(made)["enough_points"] == outcomes(before)["enough_points"] == "passed"
        champions = Champions.load(room.folder, "orders")
        assert isinstance(champions.capacity, CapacityModel)
        assert champions.capacity.saturated_at == (1, 2, 3, 4)
        assert isinstance(champions.engine, EngineInputs)
        assert set(champions.engine.overhead_s) == {1, 2, 3, 4}

    def test_what_was_put_in_charge_by_hand_is_in_charge_before_anything_is_compared_with_it(
        self, room: TrainingContext, lived: Fill, muddled: Fill
    ) -> None:
        lived(room.store, sizes=(1, 2, 4))
        assert refit("capacity", PURPOSE, room).champion == 1
        lived(room.store, seed=2)
        assert refit("capacity", PURPOSE, room).champion == 2
        room.registry.promote("orders.capacity", 1)  # as anybody can on MLflow's pages
        room = replace(room, store=TemporaryStore())
        muddled(room.store)
        made = refit("capacity", PURPOSE, room)
        assert "Version 1 stays in charge" in made.said
        assert Champions.load(room.folder, "orders").versions == {"capacity": 1}

    def test_a_job_that_has_become_slower_is_believed_and_told(
        self, room: TrainingContext, lived: Fill
    ) -> None:
        lived(room.store, hours=0)
        before = refit("capacity", PURPOSE, room)
        assert outcomes(before)["agrees_with_live"] == "passed"
        champion = Champions.load(room.folder, "orders").capacity
        assert isinstance(champion, CapacityModel)
        then = {size: champion.predict(size) for size in (2, 4, 8)}
        half = 0.5 * then[4].mid
        stretches(room.store, [half * (1.0 + 0.004 * (number % 5)) for number in range(20)])
        made = refit("capacity", PURPOSE, room)
        assert made.promoted
        assert outcomes(made)["agrees_with_live"] == "warned"
        told = next(one.said for one in made.checks if one.name == "agrees_with_live")
        assert "at 4 executors reach 5" in told
        assert "profile the job again" in told
        now = Champions.load(room.folder, "orders").capacity
        assert isinstance(now, CapacityModel)
        for size, found in then.items():
            assert now.predict(size).mid == pytest.approx(0.5 * found.mid, rel=0.07)

    def test_a_forecast_worse_than_the_naive_one_is_refused(self, room: TrainingContext, lived: Fill) -> None:
        lived(room.store)
        found = known(fitting.fit_workload(training_data.arrivals(room.store, "orders"), horizon_s=270.0))
        assert checked(found)["not_worse_than_naive"] == "passed"
        figures = {**found["figures"], "held_out_mae_rps": 3.0 * found["figures"]["naive_mae_rps"]}
        assert checked({**found, "figures": figures})["not_worse_than_naive"] == "failed"


@pytest.mark.fast
class TestTraining:
    def test_a_point_that_was_probed_again_takes_the_place_of_the_old_result(
        self, profiled: TemporaryStore, lived: Fill
    ) -> None:
        before = measured(profiled).measurements
        old = max((m for m in before if m.scale_out == 4 and not m.sustained), key=lambda m: m.offered_rps)
        point = f"orders/e4/r{old.offered_rps:.0f}"
        new = replace(old, throughput_rps=1.05 * old.throughput_rps)
        profiled.add_measurement("orders", point, new, at_s=NOW_S - 60.0)  # the search came after it
        assert measured(profiled).measurements == before
        profiled.add_measurement("orders", point, new, at_s=NOW_S + 60.0)
        found = measured(profiled)
        assert set(before) ^ set(found.measurements) == {old, new}
        assert found.to_s == NOW_S + 60.0
        lived(profiled, sizes=(2,), drills=0, hours=0)  # of another size
        assert new in measured(profiled).measurements

    def test_a_point_of_a_size_that_no_search_has_visited_joins(self, lived: Fill) -> None:
        store = TemporaryStore()
        lived(store, sizes=(1, 2, 4), drills=0, hours=0)
        alone = Measurement(3, 12_000.0, 8200.0, False, duration_s=60.0)
        store.add_measurement("orders", "orders/e3/r12000", alone, at_s=NOW_S + 60.0)
        found = known(fitting.fit_capacity(measured(store)))
        assert found["figures"]["saturated_sizes"] == 4

    def test_stretches_in_recovery_teach_nothing(self, profiled: TemporaryStore) -> None:
        before = measured(profiled)
        live = Measurement(4, 9000.0, 9000.0, True, duration_s=600.0, origin="live")
        profiled.add_event("orders", RecoveryEvent("driver_kill", 4, NOW_S + 300.0, 20.0, 90.0), details={})
        for minute, key in ((4, "before"), (9, "during"), (15, "worked off in it"), (17, "after")):
            profiled.add_measurement("orders", f"live-{key}", live, at_s=NOW_S + 60.0 * minute)
        found = measured(profiled)
        assert found.in_recovery == 2
        assert len(found.measurements) == len(before.measurements) + 2

    def test_a_recovery_that_never_ended_is_over_one_day(self, profiled: TemporaryStore) -> None:
        live = Measurement(4, 9000.0, 9000.0, True, duration_s=600.0, origin="live")
        event = RecoveryEvent("driver_kill", 4, NOW_S, math.inf, math.inf)
        profiled.add_event("orders", event, details={})
        profiled.add_measurement("orders", "live-1", live, at_s=NOW_S + 700.0)
        profiled.add_measurement("orders", "live-2", live, at_s=NOW_S + 7200.0)
        assert measured(profiled).in_recovery == 1

    def test_live_stretches_that_contradict_the_profile_are_left_out_and_counted(
        self, profiled: TemporaryStore
    ) -> None:
        far = Measurement(4, 30_000.0, 30_000.0, True, duration_s=600.0, origin="live")
        profiled.add_measurement("orders", "live-1", far, at_s=NOW_S + 700.0)
        found = known(fitting.fit_capacity(measured(profiled)))
        assert found["figures"]["left_out_contradicting"] == 1
        assert found["figures"]["live_measurements"] == 0

    @pytest.mark.parametrize(
        ("rates", "slower"),
        [
            ([4_000.0], False),
            ([4_000.0] * 2, False),
            ([4_000.0] * 3, True),
            ([9_500.0] * 20 + [4_000.0] * 3, True),  # of late
            ([9_500.0, 4_000.0, 9_500.0, 4_000.0, 9_500.0], False),
            ([4_000.0] * 20 + [9_500.0] * 3, False),  # it is over
            ([4_000.0] * 3 + [-9_500.0] * 3, False),  # as much as was profiled is sustained again
            ([4_000.0] * 3 + [-3_000.0] * 20, True),  # less was asked of it
        ],
    )
    def test_a_majority_of_the_newest_saturated_stretches_is_believed(
        self, profiled: TemporaryStore, rates: list[float], slower: bool
    ) -> None:
        """Profiled were 9,800 records/s at four executors."""
        before = measured(profiled)
        stretches(profiled, rates)
        found = measured(profiled)
        assert (found.slower is not None) == slower
        if slower:
            assert found.contradicting == sum(rate == 9_500.0 for rate in rates)
            assert not isinstance(fitting.fit_capacity(found), Unknown)
        else:
            assert found.measurements[: len(before.measurements)] == before.measurements

    def test_a_newer_profile_ends_it_and_older_stretches_say_nothing(self, profiled: TemporaryStore) -> None:
        stretches(profiled, [4_000.0] * 5, begin_s=NOW_S - 86_400.0)
        assert measured(profiled).slower is None

    def test_a_slower_job_is_not_held_against_the_drills_of_before(self, lived: Fill) -> None:
        store = TemporaryStore()
        lived(store, hours=0)  # its last drill came at 7,000 s
        for drills_after in (0, 1):
            begin_s = NOW_S + 8_000.0 - 2_000.0 * drills_after
            data = replace(measured(store), slower=Slowdown(4, 0.5, begin_s))
            found = known(fitting.fit_capacity(data))
            evidence = Evidence(replace(PURPOSE, candidates=(1, 2, 4)), events=store.events("orders"))
            (verdict,) = (v for v in checks.run_checks(found, evidence) if v.name == "agrees_with_drills")
            assert ("no drill" in verdict.said) == (drills_after == 0)


@pytest.mark.fast
class TestFits:
    @pytest.mark.parametrize(
        ("measurements", "said"),
        [
            ((), "profile the job"),
            ((Measurement(2, 100.0, 100.0, True),), "never saturated"),
            (
                (Measurement(2, 200.0, 200.0, True), Measurement(2, 150.0, 100.0, False)),
                "contradict each other",
            ),
        ],
    )
    def test_capacity_without_evidence_is_unknown(
        self, measurements: tuple[Measurement, ...], said: str
    ) -> None:
        data = Measured(measurements, {1: 0.4}, None, None, None)
        found = fitting.fit_capacity(data)
        assert isinstance(found, Unknown)
        assert said in found.reason

    def test_one_measured_size_is_not_enough_for_several(self) -> None:
        data = Measured((Measurement(2, 150.0, 100.0, False, duration_s=60.0),) * 3, {2: 0.4}, "1", 0.0, 1.0)
        found = known(fitting.fit_capacity(data))
        assert checked(found, candidates=(1, 2, 4))["enough_points"] == "failed"
        assert checked(found, candidates=(2,))["enough_points"] != "failed"

    def test_latencies_of_one_cluster_are_no_reason_to_refuse(self) -> None:
        """Overload is called abnormal although no measured latency stands apart."""
        seconds = [0.8, 0.9, 1.0, 1.4, 1.9, 2.5, 3.3, 4.5, 6.0, 9.0, 14.0, 21.0]
        shares = [0.1, 0.12, 0.2, 0.3, 0.4, 0.42, 0.5, 0.7, 0.8, 0.9, 0.97, 0.99]
        runs = tuple(
            Measurement(2, 1000.0 * share, 1000.0 * share, True, latency_ms=1000.0 * each)
            for share, each in zip(shares, seconds, strict=True)
        )
        runs = (*runs, Measurement(2, 1500.0, 1000.0, False))
        found = known(
            fitting.fit_latency(Measured(runs, {2: 0.4}, "1", 0.0, 1.0), capacity=CapacityModel.fit(runs))
        )
        assert "normal_up_to_ms" not in found["figures"]
        named = checked(found)
        assert named["abnormal_found"] == named["enough_points"] == "too little data"

    def test_a_forecast_that_does_not_reach_far_enough_is_refused(self) -> None:
        store = TemporaryStore()
        workload_history.remember(store, "orders", start_s=0.0, step_s=10.0, rates_rps=[100.0, 110.0] * 30)
        found = known(fitting.fit_workload(workload_history.history(store, "orders"), horizon_s=90.0))
        verdict = checks.run_checks(found, Evidence(replace(PURPOSE, horizon_s=500.0)))[0]
        assert (verdict.name, verdict.outcome) == ("enough_points", "failed")
        assert "reaches 90 s and decisions need 500 s" in verdict.said

    def test_few_arrivals_are_not_enough_and_more_are(self) -> None:
        store = TemporaryStore()
        for count, known in ((11, False), (12, True)):
            rates = [100.0 + i for i in range(count)]
            workload_history.remember(store, "orders", start_s=0.0, step_s=10.0, rates_rps=rates)
            found = fitting.fit_workload(workload_history.history(store, "orders"), horizon_s=60.0)
            assert isinstance(found, Unknown) != known


@pytest.mark.fast
class TestHeldOut:
    def test_capacity_is_predicted_where_the_truth_is_a_form(self) -> None:
        rng = np.random.default_rng(5)
        runs = [
            Measurement(s, 9e5, 1000.0 * s**0.9 * float(rng.normal(1.0, 0.02)), False, duration_s=60.0)
            for s in (1, 2, 4, 8, 12)
            for _ in range(3)
        ]
        found = fitting.held_out_capacity(runs)
        assert found["held_out_count"] == 15
        assert found["held_out_error"] < 0.05
        assert not checks.rare(int(found["held_out_inside"]), 15)

    def test_downtimes_of_which_there_are_two_test_nothing(self) -> None:
        events = [RecoveryEvent("executor_kill", 2, float(i), 10.0 + i, 40.0) for i in range(2)]
        assert fitting.held_out_recovery(events) == {"held_out_count": 0}

    @pytest.mark.parametrize(
        ("inside", "count", "said"),
        [
            (1, 1, False),
            (0, 1, False),
            (0, 2, True),
            (1, 3, False),
            (0, 3, True),
            (1, 4, True),
            (9, 10, False),
        ],
    )
    def test_chance_is_given_its_share(self, inside: int, count: int, said: bool) -> None:
        assert checks.rare(inside, count) is said


@pytest.mark.fast
class TestHistory:
    def test_pieces_of_any_step_become_one_grid(self) -> None:
        store = TemporaryStore()
        workload_history.remember(store, "orders", start_s=1000.0, step_s=1.0, rates_rps=[10.0] * 30)
        workload_history.remember(store, "orders", start_s=1050.0, step_s=5.0, rates_rps=[20.0] * 4)
        grid = known(workload_history.history(store, "orders"))
        assert grid.start_s == 1000.0
        np.testing.assert_allclose(grid.values, [10.0, 10.0, 10.0, math.nan, math.nan, 20.0, 20.0])

    def test_what_is_told_again_replaces_and_what_is_missing_does_not(self) -> None:
        store = TemporaryStore()
        workload_history.remember(store, "orders", start_s=0.0, step_s=10.0, rates_rps=[1.0, 2.0, 3.0])
        workload_history.remember(store, "orders", start_s=10.0, step_s=10.0, rates_rps=[math.nan, 5.0])
        grid = known(workload_history.history(store, "orders"))
        assert grid.values.tolist() == [1.0, 2.0, 5.0]

    def test_the_newest_week_is_kept(self) -> None:
        store = TemporaryStore()
        workload_history.remember(store, "orders", start_s=0.0, step_s=10.0, rates_rps=[1.0])
        week = 10.0 * workload_history.MOST_CELLS
        grid = workload_history.remember(store, "orders", start_s=week, step_s=10.0, rates_rps=[2.0])
        assert grid.values.size == workload_history.MOST_CELLS
        assert grid.start_s == 10.0

    def test_nothing_known_is_unknown(self) -> None:
        store = TemporaryStore()
        assert isinstance(workload_history.history(store, "orders"), Unknown)
        workload_history.remember(store, "orders", start_s=0.0, step_s=10.0, rates_rps=[math.nan])
        assert isinstance(workload_history.history(store, "orders"), Unknown)

    def test_a_job_that_ran_for_minutes_is_forecast_from_its_recording_too_and_no_second_counts_twice(
        self,
    ) -> None:
        store = TemporaryStore()
        recorded = [100.0, 200.0] * 15
        each_second = np.repeat(recorded, 10)
        workload_history.remember(store, "orders", start_s=600.0, step_s=1.0, rates_rps=each_second)
        live = Rates(60.0, 14, (150.0, 160.0, 170.0, 180.0))  # from 840 s on; the recording ends at 900 s
        store.save_control(Control("orders", 1, {"rates": codec.to_json(live)}), expected_epoch=None)
        for _ in range(2):  # told twice is known once
            grid = known(training_data.arrivals(store, "orders"))
            assert grid.start_s == 600.0
            assert grid.values.tolist() == [*recorded, *[160.0] * 6, *[170.0] * 6, *[180.0] * 6]
        assert not isinstance(fitting.fit_workload(grid, horizon_s=60.0), Unknown)

    def test_a_clock_that_was_ahead_for_minutes_costs_nothing_of_the_history(self) -> None:
        def seen(first_s: float, values: tuple[float, ...]) -> Grid:
            state = {"rates": codec.to_json(Rates(60.0, round(first_s / 60.0), values))}
            kept = store.control("orders")
            epoch = None if kept is None else kept.epoch
            store.save_control(Control("orders", (epoch or 0) + 1, state), expected_epoch=epoch)
            grid = known(training_data.arrivals(store, "orders"))
            return grid

        store, week_s = TemporaryStore(), 7 * 86_400.0
        workload_history.remember(store, "orders", start_s=0.0, step_s=10.0, rates_rps=[1.0] * 30_000)
        before = seen(300_000.0, (2.0,) * 60)
        for ahead_s in (week_s / 2.0, 52.0 * week_s):
            astray = seen(303_600.0 + ahead_s, (math.nan,) * 2_870 + (9.0,) * 10)
            assert np.isfinite(astray.values).sum() >= np.isfinite(before.values).sum()
            assert astray.start_s == 0.0
            right = seen(303_600.0, (3.0,) * 5)
            assert (right.start_s, right.start_s + right.values.size * 10.0) == (0.0, 303_900.0)
            np.testing.assert_array_equal(right.values[: before.values.size], before.values)

    def test_a_job_that_comes_back_after_weeks_is_known_anew_within_an_hour(self) -> None:
        store = TemporaryStore()
        workload_history.remember(store, "orders", start_s=0.0, step_s=10.0, rates_rps=[1.0] * 30_000)
        for minutes in (5, 60):
            live = Rates(60.0, 40_000, (7.0,) * minutes)
            before = None if minutes == 5 else 5
            store.save_control(
                Control("orders", minutes, {"rates": codec.to_json(live)}), expected_epoch=before
            )
            grid = known(training_data.arrivals(store, "orders"))
            assert (np.nanmax(grid.values) == 7.0) == (minutes == 60)

    def test_what_was_recorded_after_the_loop_had_ended_stays(self) -> None:
        store = TemporaryStore()
        live = Rates(60.0, 10, (150.0, 160.0))
        store.save_control(Control("orders", 1, {"rates": codec.to_json(live)}), expected_epoch=None)
        training_data.arrivals(store, "orders")
        workload_history.remember(store, "orders", start_s=900.0, step_s=10.0, rates_rps=[5.0] * 6)
        grid = known(training_data.arrivals(store, "orders"))
        assert grid.values[-6:].tolist() == [5.0] * 6

    def test_steps_of_a_forecast_begin_at_whole_steps(self) -> None:
        store = TemporaryStore()
        workload_history.remember(store, "orders", start_s=20.0, step_s=10.0, rates_rps=[3.0, 1.0, 2.0, 3.0])
        grid = known(workload_history.history(store, "orders"))
        coarse = fitting.coarser(grid, step_s=30.0)
        assert coarse.start_s == 30.0
        assert coarse.values.tolist() == [2.0]


@pytest.mark.fast
@pytest.mark.parametrize(
    ("horizon_s", "step_s"), [(50.0, 10.0), (90.0, 10.0), (180.0, 20.0), (270.0, 30.0), (1080.0, 60.0)]
)
def test_a_forecast_has_steps_that_fit_its_horizon(horizon_s: float, step_s: float) -> None:
    assert forecast_step_s(horizon_s) == step_s
