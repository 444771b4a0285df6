"""Failures on the stepped twin: what they cost, what spoils a drill, and that none is left behind."""

import json
from dataclasses import replace

import pytest
from experiment_world import LIMIT, OVERHEAD_S, PARTITIONS, PLAN, ExperimentWorld, truth

from models.downtime import DowntimeModel
from models.errors import Misconfigured, NotReady
from models.optimise.question import BatchEngine, sustained
from models.quantities import Interval, Unknown
from models.simulation.batches import Behaviour, Platform
from models.simulation.cluster import SimulatedFailures
from profiling_jobs.experiments import drill, drilling
from profiling_jobs.experiments.drill_prediction import Models, lesson
from profiling_jobs.experiments.drilling import Cell, Drilling, DrillPlan, described, planned
from profiling_jobs.experiments.probe import Rules
from profiling_jobs.telemetry import batch_costs
from profiling_jobs.telemetry.batch_costs import EngineInputs

RATE = 900.0
KINDS = ("executor_kill", "executor_freeze", "driver_kill", "driver_freeze", "broker_restart")


def once(*kinds):
    return planned(kinds=kinds, rates_rps={2: [RATE]}, repeats=1)


class World(ExperimentWorld):
    def __init__(self, **platform):
        behaviour = Behaviour(warm_up_s=4.0, overhead_s=OVERHEAD_S, state_load_s=1.0)
        super().__init__(behaviour, Platform(**({"slots": 12} | platform)))
        self.failures = SimulatedFailures(self.cluster)
        self.said = []

    def drilling(self, template=PLAN, **settings):
        return Drilling(
            template,
            self.around,
            failures=self.failures,
            partitions=PARTITIONS,
            rules=Rules(limit_records=LIMIT),
            settings=drill.Settings(
                **({"max_lag_s": 90.0, "recorded": {"spark.network.timeout": "20s"}} | settings)
            ),
            say=self.said.append,
        )

    def one(self, kind, *, scale_out=2, rate_rps=RATE, models=None, **settings):
        plan = planned(kinds=[kind], rates_rps={scale_out: [rate_rps]}, repeats=1)
        return self.drilling(**settings).run(plan, models=models)[-1]

    def three_seconds_after_a_failure(self, do):
        """Once, in the middle of a drill."""
        sleep = self.clock.sleep
        left = [do]

        def slept(seconds):
            sleep(seconds)
            if left and any(self.clock.now_s() - one.at_s >= 3.0 for one in self.failures.active()):
                left.pop()()

        self.clock.sleep = slept

    def launch_live(self, **changes):
        self.deployments.launch(replace(PLAN, **changes))
        self.clock.sleep(30.0)

    def nothing_is_left(self):
        return (self.failures.active(), self.deployments.names(), self.scratch()) == ((), (), [])


class TestOneDrill:
    @pytest.mark.parametrize("kind", KINDS)
    def test_every_kind_is_lived_through_and_cleared(self, kind):
        world = World()
        outcome = world.one(kind)
        assert outcome.valid, outcome.event
        event = outcome.event
        assert (event.kind, event.scale_out) == (kind, 2)
        assert 0.0 <= event.recovery_s < 200.0
        assert 0.0 < event.downtime_s < 60.0
        assert world.nothing_is_left()
        (kept, details), *more = world.store.events("enrichment")
        assert (kept, more) == (event, [])
        assert details["recorded"] == {"spark.network.timeout": "20s"}
        json.dumps(dict(details))

    def test_a_frozen_driver_costs_its_timeout_more_than_a_dead_one(self):
        killed, frozen = (World().one(kind).event for kind in ("driver_kill", "driver_freeze"))
        assert frozen.downtime_s - killed.downtime_s == pytest.approx(20.0, abs=2.0)
        assert frozen.recovery_s > killed.recovery_s + 20.0

    def test_a_downtime_is_the_sum_of_its_parts(self):
        outcome = World().one("driver_kill")
        parts = outcome.details["downtime"]
        assert parts["detection_s"] <= 1.0  # it is looked at twice a second
        assert parts["restart_s"] == pytest.approx(12.2, abs=1.5)  # driver 0.2 + 7 s, executors 5 s
        known = [value for value in parts.values() if isinstance(value, float)]
        assert sum(known) <= outcome.event.downtime_s + 1e-6

    def test_the_prediction_stands_beside_the_measurement(self):
        world = World()
        models = Models(Known(), DowntimeModel(), EngineInputs({1: OVERHEAD_S}, LIMIT))
        before = [World().one("driver_kill", rate_rps=rate) for rate in (600.0, 900.0)]
        learnt = [lesson(one.event, one.details, models) for one in before]
        models = replace(models, downtime=DowntimeModel.fit(learnt * 2))
        outcome = world.one("driver_kill", models=models)
        said = outcome.details["predicted_recovery_s"]
        assert said["mid"] == pytest.approx(outcome.event.recovery_s, rel=0.25)
        assert "predicted" in described(outcome)

    def test_a_job_that_never_recovers_has_an_event_and_counts(self):
        world = World(driver_start_s=200.0)
        outcome = world.one("driver_kill", longest_s=100.0, max_lag_s=1000.0)
        assert outcome.valid
        assert outcome.event.recovery_s == float("inf")
        assert "not recovered" in described(outcome)
        assert world.nothing_is_left()


class Known:
    """A capacity model that knows the truth."""

    def predict(self, scale_out):
        return Interval(truth(scale_out), truth(scale_out), truth(scale_out), 0.9)


class TestInvalidDrills:
    def test_a_job_that_was_behind_before(self):
        outcome = World().one("driver_kill", rate_rps=900.0, max_lag_s=1.0)
        assert "more than max_lag_s" in outcome.event.reason

    def test_a_source_that_stops_after_the_failure(self):
        world = World()
        inject = world.failures.inject

        def inject_and_stop(deployment, kind):
            world.sources[-1].stop()
            return inject(deployment, kind)

        world.failures.inject = inject_and_stop
        assert "the source was short" in world.one("driver_kill").event.reason

    def test_a_job_whose_lag_was_rising_teaches_nothing(self):
        world = World()
        assert "rising" in world.one("driver_kill", rate_rps=1400.0).event.reason
        assert world.store.events("enrichment") == ()
        assert world.nothing_is_left()

    def test_a_job_that_had_recovered_before_it_worked_again(self, monkeypatch):
        def uneven(*given, **more):
            return replace(undisturbed(*given, **more), band_s=9.0, hold_s=5.0)

        undisturbed = drill.undisturbed
        monkeypatch.setattr(drill, "undisturbed", uneven)
        outcome = World().one("driver_kill")
        assert outcome.details["peak_lag_s"] > 9.0
        assert "too uneven to say when it had recovered" in outcome.event.reason

    def test_a_kind_that_cannot_be_caused_here(self):
        with pytest.raises(Misconfigured, match="cannot be caused here"):
            World().one("node_loss")


class TestNothingIsLeftBehind:
    @pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
    def test_on_ctrl_c_and_on_any_exception_the_failure_is_cleared(self, error):
        world = World()
        sleep = world.clock.sleep

        def interrupted(seconds):
            if world.failures.active():
                raise error
            sleep(seconds)

        world.clock.sleep = interrupted
        with pytest.raises(error):
            world.one("executor_freeze")
        assert world.nothing_is_left()

    def test_what_a_crash_has_left_is_cleared_before_the_next_begins(self):
        world = World()
        world.launch_live(role="live", name="live")
        SimulatedFailures(world.cluster).inject("live", "executor_freeze")
        world.one("executor_kill")
        assert world.failures.active() == ()

    def test_one_failure_that_cannot_be_cleared_keeps_nothing_else_from_being_put_away(self):
        world = World()
        clear = world.failures.clear

        def broken(injection_id):
            clear(injection_id)
            raise NotReady("the Spark master did not start")

        world.failures.clear = broken
        with pytest.raises(NotReady, match="the Spark master did not start"):
            world.one("driver_kill")
        assert world.nothing_is_left()
        ((event, _),) = world.store.events("enrichment")
        assert event.recovery_s > event.downtime_s

    def test_what_cannot_be_cleared_is_told_again_by_the_next_run_which_puts_the_rest_away(self):
        world = World()
        world.drilling()._copies.launch(2)  # by an owner that was killed then
        (name,) = world.deployments.names()
        world.clock.sleep(30.0)
        crashed = SimulatedFailures(world.cluster)
        broken = crashed.inject(name, "broker_restart")
        crashed.inject(name, "executor_freeze")
        clear = world.failures.clear

        def clears_all_but_one(injection_id):
            if injection_id == broken.id:
                raise NotReady("the broker does not start")
            clear(injection_id)

        world.failures.clear = clears_all_but_one
        with pytest.raises(NotReady, match="the broker does not start"):
            world.one("driver_kill")
        assert world.failures.active() == (broken,)
        assert world.deployments.names() == ()


class TestOneBesideAnother:
    @pytest.mark.parametrize("kind", ["executor_freeze", "driver_freeze"])
    def test_drills_of_another_job_leave_a_failure_alone(self, kind):
        world = World()
        other = world.drilling(replace(PLAN, name="payments", job="payments"))
        world.three_seconds_after_a_failure(lambda: other.run(DrillPlan((), 0, 0.0)))
        assert world.one(kind).event == World().one(kind).event

    def test_a_failure_that_somebody_clears_shows_nothing(self):
        world = World()
        world.three_seconds_after_a_failure(
            lambda: [world.failures.clear(one.id) for one in world.failures.active()]
        )
        plan = once("driver_freeze")
        spoilt, again = world.drilling().run(plan)
        assert "the failure was cleared from elsewhere" in spoilt.event.reason
        ((kept, _),) = world.store.events("enrichment")
        assert kept == again.event
        assert world.nothing_is_left()

    def test_one_that_cannot_be_followed_was_caused_all_the_same_and_is_cleared(self, monkeypatch):
        monkeypatch.setattr(drilling, "RETRIES", 0)
        world = World()
        active = world.failures.active

        def away():
            world.failures.active = back
            raise NotReady("the API server does not answer")

        def back():
            return active()

        world.three_seconds_after_a_failure(lambda: setattr(world.failures, "active", away))
        (spoilt,) = world.drilling().run(once("executor_freeze"))
        assert spoilt.event.reason == "its recovery could not be followed: the API server does not answer"
        assert spoilt.details["victim"]
        assert world.nothing_is_left()

    @pytest.mark.parametrize(
        ("kind", "meanwhile", "reason"),
        [
            ("executor_kill", lambda world, name: world.deployments.stop(name), "stopped meanwhile"),
            (
                "executor_kill",
                lambda world, name: world.deployments.scale(name, 4, epoch=9),
                "the job was rescaled to 4 executors meanwhile",
            ),
            (
                "driver_kill",
                lambda world, name: world.failures.inject("payments", "broker_restart"),
                "another failure was caused meanwhile: broker_restart of payments",
            ),
        ],
    )
    def test_whatever_else_happens_to_the_job_spoils_it(self, monkeypatch, kind, meanwhile, reason):
        monkeypatch.setattr(drilling, "RETRIES", 0)
        world = World()
        world.launch_live(name="payments", job="payments", checkpoint="/payments")
        world.three_seconds_after_a_failure(lambda: meanwhile(world, world.failures.active()[0].deployment))
        plan = once(kind)
        (spoilt,) = world.drilling().run(plan)
        assert reason in spoilt.event.reason

    def test_a_job_that_is_rescaled_before_the_failure_shows_nothing(self, monkeypatch):
        world = World()
        sleep, begun, hit = world.clock.sleep, [], []
        run = drill.DrillRun.run

        def slept(seconds):
            sleep(seconds)
            if begun:
                name, began_s = begun[0]
                if world.clock.now_s() - began_s >= 10.0:
                    begun.clear()
                    world.deployments.scale(name, 4, epoch=9)

        def spied(one):
            if not hit:
                hit.append(one.kind)
                begun.append((one.watch.name, world.clock.now_s()))
            return run(one)

        world.clock.sleep = slept
        monkeypatch.setattr(drill.DrillRun, "run", spied)
        spoilt = world.drilling().run(once("driver_kill"))[0]
        assert "the job was rescaled to 4 executors" in spoilt.event.reason

    def test_what_nobody_has_in_hand_is_left_over(self):
        world = World()
        copy = world.drilling()._copies.launch(2)
        world.clock.sleep(30.0)
        injection = world.failures.inject(copy.plan.name, "executor_freeze")
        assert world.failures.left_over() == ()
        assert SimulatedFailures(world.cluster).left_over() == (injection,)


class TestPlans:
    def test_every_cell_comes_once_before_any_comes_twice(self):
        plan = planned(kinds=KINDS[:2], rates_rps={2: [500.0, 900.0], 4: [900.0, 1500.0]}, repeats=3)
        assert len(plan.cells) == 24
        assert len({replace(cell, repeat=1) for cell in plan.cells[:8]}) == 8
        assert plan.left_out == 0

    def test_it_is_cut_where_the_budget_ends_and_says_so(self):
        asked = {"rates_rps": {2: [500.0]}, "budget_executor_seconds": 800.0}
        plan = planned(kinds=["driver_kill"], repeats=3, **asked)
        assert (len(plan.cells), plan.left_out, plan.executor_seconds) == (2, 1, 720.0)
        plan = planned(kinds=KINDS[:2], repeats=10**9, **asked)  # more than can be counted one by one
        assert (len(plan.cells), plan.left_out) == (2, 2 * 10**9 - 2)

    def test_what_turns_out_dearer_ends_where_the_budget_does_and_goes_on_next_time(self):
        world = World()
        plan = once("executor_kill", "driver_kill")
        first = world.drilling().run(plan, budget_executor_seconds=plan.executor_seconds - 200.0)
        assert [outcome.kind for outcome in first] == ["executor_kill"]
        assert "executor-seconds are spent, driver_kill with 2 executors may take 360" in world.said[-1]
        assert [outcome.kind for outcome in world.drilling().run(plan)] == ["driver_kill"]

    @pytest.mark.parametrize(
        ("budget", "reason"),
        [
            (400.0, "the budget ended before it had recovered"),
            (360.0 / 2.4, "the budget ended before the failure was caused"),
        ],
    )
    def test_no_drill_goes_on_beyond_the_budget(self, monkeypatch, budget, reason):
        monkeypatch.setattr(drilling, "DRILL_S", 10.0)  # whatever was thought of before
        world = World()
        inject = world.failures.inject

        def inject_and_flood(deployment, kind):
            injection = inject(deployment, kind)
            world.sources[-1].set_rate(6.0 * RATE)
            return injection

        world.failures.inject = inject_and_flood
        plan = once("driver_kill")
        series = world.drilling(longest_s=540.0)
        (outcome,) = series.run(plan, budget_executor_seconds=budget)
        assert reason in outcome.event.reason
        assert series._spent <= budget + 2 * 1.0  # a sample of two executors
        assert world.store.events("enrichment") == ()
        assert world.nothing_is_left()

    def test_nor_does_a_copy_that_does_not_get_ready(self):
        world = World(executor_start_s=1000.0)
        plan = once("driver_kill")
        series = world.drilling()
        (outcome,) = series.run(plan, budget_executor_seconds=plan.executor_seconds)
        assert "budget" in outcome.event.reason
        assert series._spent <= plan.executor_seconds + 2 * 1.0

    def test_a_drill_that_shows_nothing_is_not_tried_again_beyond_the_budget(self, monkeypatch):
        world, tried = World(), []

        def shows_nothing(one):
            tried.append(one.kind)
            one.clock.sleep(100.0)
            return drill.Outcome(one.kind, 2, RATE, Unknown("disturbed"), {})

        monkeypatch.setattr(drill.DrillRun, "run", shows_nothing)
        plan = once("executor_kill")
        outcomes = world.drilling().run(plan, budget_executor_seconds=500.0)
        assert (len(tried), len(outcomes)) == (1, 1)
        assert world.said[-1].startswith("the budget is used up")
        assert world.nothing_is_left()

    def test_a_copy_that_has_recovered_at_a_rate_is_ready_for_the_next_drill_at_it(self):
        world = World()
        rates = {2: [0.5 * truth(2), 0.6 * truth(2)]}
        plan = planned(kinds=["executor_kill", "driver_kill"], rates_rps=rates, repeats=1)
        found = world.drilling().run(plan)
        assert [outcome.valid for outcome in found] == [True] * 4
        assert [("gets ready" in line) for line in world.said if line.split(":")[0] in KINDS] == [
            *(True, False),
            *(True, False),
        ], "once for each rate"
        recovered_s = [outcome.event.failed_at_s + outcome.event.recovery_s for outcome in found]
        for before_s, after in zip(recovered_s[::2], found[1::2], strict=True):
            assert 60.0 <= after.event.failed_at_s - before_s <= 100.0, "its hold, and the undisturbed window"
        assert world.nothing_is_left()

    def test_an_interrupted_plan_goes_on_where_it_stopped(self):
        world = World()
        plan = once("executor_kill", "driver_kill")
        drilling = world.drilling()
        say = drilling._say

        def stop_after_the_first(text):
            say(text)
            if "driver_kill" in text:
                raise KeyboardInterrupt

        drilling._say = stop_after_the_first
        with pytest.raises(KeyboardInterrupt):
            drilling.run(plan)
        again = world.drilling().run(plan)
        assert [outcome.kind for outcome in again] == ["driver_kill"]
        assert world.store.document("enrichment", "drills")["done"] == [
            vars(Cell(cell.kind, cell.scale_out, cell.rate_rps)) for cell in plan.cells
        ]


@pytest.mark.fast
class TestBatchCosts:
    def test_overhead_and_capacity_are_told_apart(self):
        batches = [(n, 0.4 + n / 1500.0) for n in (50, 80, 120, 500, 900, 1500, 2000, 2000)]
        cost = batch_costs.fit([*batches, (2000, 25.0)])  # one met a pause of the machine
        assert cost.overhead_s == pytest.approx(0.4, abs=0.01)
        assert cost.capacity_rps == pytest.approx(1500.0, rel=0.01)

    @pytest.mark.parametrize(
        "batches",
        [
            [],
            [(10, 1.0)],
            [(1000, 1.0)] * 20,
            [(0, 1.0)] * 20,
            [(n, 5.0 - n / 1000) for n in range(100, 3000, 100)],
        ],
    )
    def test_what_cannot_be_told_is_unknown(self, batches):
        assert isinstance(batch_costs.fit(batches), Unknown)

    def test_batches_that_take_as_long_whatever_their_size_are_all_overhead(self):
        seconds = (1.2, 1.3, 1.1, 1.25, 1.0, 1.2, 1.15, 1.05)
        cost = batch_costs.fit([(5000 * n, s) for n, s in enumerate(seconds, start=1)])
        assert cost.overhead_s == pytest.approx(1.25)
        assert cost.capacity_rps == float("inf")

    @pytest.mark.parametrize(("overhead_s", "bare"), [(0.5, 2000.0), (0.95, 20_000.0), (1.1, 20_000.0)])
    def test_where_batches_are_nearly_all_overhead_its_error_decides_nothing(self, overhead_s, bare):
        found = batch_costs.bare_capacity_rps(1000.0, overhead_s=overhead_s, limit_records=1000.0)
        assert found == pytest.approx(bare)

    def test_what_batches_sustain_and_what_they_could_are_one_thing(self):
        bare = batch_costs.bare_capacity_rps(1000.0, overhead_s=0.5, limit_records=2000.0)
        assert 2000.0 / (0.5 + 2000.0 / bare) == pytest.approx(1000.0)
        engine = BatchEngine(overhead_s=0.5, limit_records=2000.0)
        again = sustained(Interval(bare, bare, bare, 0.9), engine, scale_out=1).mid
        assert again == pytest.approx(1000.0)
        assert batch_costs.bare_capacity_rps(1000.0, overhead_s=0.5, limit_records=float("inf")) == 1000.0
        assert isinstance(
            batch_costs.bare_capacity_rps(5000.0, overhead_s=0.5, limit_records=2000.0), Unknown
        )
