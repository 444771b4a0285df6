"""What is estimated before a profile or drills, against what they take on the stepped twin."""

import pytest
from experiment_world import LIMIT, OVERHEAD_S, PARTITIONS, PLAN, ExperimentWorld, truth

from models.simulation.batches import Behaviour, Platform, contended
from models.simulation.cluster import SimulatedFailures
from pipelines.settings import job_plans
from pipelines.settings.schema import JobSettings, SparkSettings
from profiling_jobs.experiments import expected_cost
from profiling_jobs.experiments.drilling import Drilling, planned
from profiling_jobs.experiments.profiling import Profiling
from profiling_jobs.telemetry.spark_page import StageTime

FACTOR = 1.5


def job(**more):
    return JobSettings(script="job.py", inputs={"events": "orders"}, max_offsets_per_trigger=LIMIT, **more)


def within(estimate, taken):
    assert taken / FACTOR <= estimate <= taken * FACTOR, f"{estimate:,.0f} estimated, {taken:,.0f} taken"


@pytest.mark.parametrize(
    ("settings", "capacity_rps"),
    [
        ({}, contended),
        ({}, lambda size: 6_000.0 * size),
        ({}, lambda size: 500.0 * min(size, 4)),
        ({"profile_scale_outs": (1, 2, 4)}, contended),
        ({"profile_scale_outs": (1, 2, 4), "profile_precision": 0.03}, contended),
        ({"profile_scale_outs": (1, 2, 4), "profile_most_probes": 1}, contended),
        ({"profile_scale_outs": (2,)}, contended),
        ({"profile_scale_outs": (1, 2, 4), "probe_s": 120.0, "warm_up_s": 60.0}, contended),
        ({"profile_scale_outs": (1, 2), "longest_window_s": 300.0}, contended),
        ({"profile_scale_outs": (1, 2, 4), "profile_budget_executor_s": 600.0}, contended),
        ({"profile_scale_outs": (1, 2, 4), "profile_parallel": 2}, contended),
        ({"profile_scale_outs": (1, 2, 4), "profile_guess_rps": 800.0}, contended),
    ],
)
@pytest.mark.parametrize("scouts", [True, False])
def test_a_profile_takes_what_was_estimated(settings, capacity_rps, scouts):
    given = job(**settings)
    search = job_plans.search("enrichment", given, SparkSettings())
    estimate = expected_cost.of_profile(search, longest_window_s=given.longest_window_s)
    world = ExperimentWorld(
        Behaviour(warm_up_s=8.0, overhead_s=OVERHEAD_S, capacity_rps=capacity_rps), Platform(slots=12)
    )
    if scouts:  # as on Spark: the stages of a single executor show where to begin
        world.context["stages"] = lambda name: (StageTime(10_000, 10_000 / capacity_rps(1)),)
    began_s = world.clock.now_s()
    state = Profiling(PLAN, search, world.around, partitions=PARTITIONS, rules=job_plans.rules(given)).run()
    within(estimate.seconds, world.clock.now_s() - began_s)
    within(estimate.executor_seconds, state.spent)


def test_a_stepped_profile_is_estimated_at_its_budget():
    given = job(strategy="stepped", profile_scale_outs=(1, 2, 4), profile_budget_executor_s=3000.0)
    found = expected_cost.of_profile(job_plans.search("enrichment", given, SparkSettings()))
    assert 2000.0 < found.executor_seconds <= 3000.0


@pytest.mark.parametrize(
    "kinds", [("executor_kill", "driver_kill"), ("driver_freeze",), ("executor_freeze", "executor_kill")]
)
@pytest.mark.parametrize("scale_out", [1, 4])
def test_drills_take_what_was_estimated(kinds, scale_out):
    given = job(scale_out=scale_out)
    plan = planned(kinds=kinds, rates_rps={scale_out: [0.6 * truth(scale_out)]}, repeats=1)
    settings = job_plans.drill_settings(given, SparkSettings())
    estimate = expected_cost.of_drills(
        plan.cells,
        ready_s=job_plans.search("enrichment", given, SparkSettings()).warm_up_s,
        trigger_s=given.trigger_s,
        silence_s=SparkSettings().network_timeout_s,
        longest_s=settings.longest_s,
    )
    world = ExperimentWorld(Behaviour(warm_up_s=8.0, overhead_s=OVERHEAD_S), Platform(slots=12))
    began_s = world.clock.now_s()
    drills = Drilling(
        PLAN,
        world.around,
        failures=SimulatedFailures(world.cluster),
        partitions=PARTITIONS,
        rules=job_plans.rules(given),
        settings=settings,
    ).run(plan)
    assert [one.kind for one in drills] == list(kinds)
    taken_s = world.clock.now_s() - began_s
    within(estimate.seconds, taken_s)
    within(estimate.executor_seconds, scale_out * taken_s)
