"""One job from its profile to a rescale under load, on real Kafka and real Spark.

`enrichment` waits a millisecond per record, so its capacity grows with the executors even on two cores.
What is asserted is that every step works and that its figures make sense; how exact they are is measured by
`make bench-real`, on a machine that has nothing else to do. The figures are shown.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import click
import pytest
from orders import orders
from waiting import until

from models.capacity import CapacityModel
from models.downtime import DowntimeModel
from models.ports import Plan, Source
from models.probing import Settings as Search
from models.probing import estimates
from models.quantities import Interval, Unknown
from pipelines.environments import base
from pipelines.environments.base import Environment
from pipelines.integrations.java import Java
from pipelines.integrations.kafka_broker import KafkaBroker
from pipelines.processes.owner import cleanup
from pipelines.settings import job_plans, loading
from pipelines.settings.schema import JobSettings, Settings
from profiling_jobs.experiments import drill_prediction
from profiling_jobs.experiments.drill_prediction import Models, lesson
from profiling_jobs.experiments.drilling import Drilling, planned
from profiling_jobs.experiments.profiling import Profiling
from profiling_jobs.experiments.profiling_record import measured, overheads_s
from profiling_jobs.telemetry.batch_costs import EngineInputs

pytestmark = pytest.mark.real

SIZES = (1, 2, 4)
LIMIT = 2000
PARTITIONS = 12
RATE_SHARE = 0.6  # of the capacity, for drill and rescale
BUDGET_EXECUTOR_S = 3000.0
PATIENCE_S = 300.0
STOPPING_S = 60.0  # a copy that the budget ends takes a moment to go, on a busy machine
Show = Callable[[str], None]
TOML = f"""
[spark]
slots = 6

[job.enrichment]
build = "profiling_jobs.jobs.enrichment:build"
inputs = {{events = "orders"}}
outputs = {{results = "answers"}}
max_offsets_per_trigger = {LIMIT}
state_partitions = {PARTITIONS}
events = "generator:enrichment?count=300000"
scale_out = 2
scale_out_max = 6
warm_up_s = 5
probe_s = 12
conf = {{"spark.sql.adaptive.enabled" = "false", "spark.sql.adaptive.streaming.stateless.enabled" = "false"}}
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, real_java: Java) -> Path:
    return tmp_path_factory.mktemp("enrichment") / ".headroom"


@pytest.fixture(scope="module")
def show(request: pytest.FixtureRequest) -> Show:
    """The figures are what this is for: they are shown although pytest keeps what tests print."""
    capture = request.config.pluginmanager.getplugin("capturemanager")

    def echo(text: str) -> None:
        with capture.global_and_fixture_disabled():
            click.echo(f"    {text}")

    return echo


@pytest.fixture(scope="module")
def settings() -> Settings:
    return loading.parse(TOML, environment={})


@pytest.fixture(scope="module")
def job(settings: Settings) -> JobSettings:
    return settings.jobs["enrichment"]


@pytest.fixture(scope="module")
def here(folder: Path, settings: Settings, show: Show) -> Iterator[Environment]:
    try:
        with base.opened(settings, folder, say=show) as found:
            for topic in ("orders", "answers"):
                found.broker.create(topic, partitions=PARTITIONS)
            yield found
    finally:
        assert all(one.how != "survived" for one in cleanup(folder, end_owner=True))


@pytest.fixture(scope="module")
def plan(job: JobSettings, folder: Path) -> Plan:
    return job_plans.live_plan("enrichment", job, folder=folder)


@pytest.fixture(scope="module")
def capacity(here: Environment, job: JobSettings, plan: Plan, show: Show) -> CapacityModel:
    """A short search at 1, 2 and 4 executors, and the model of what it has found."""
    search = Search(
        scale_outs=SIZES,
        warm_up_s=job.warm_up_s + 60.0,  # with the start of a copy
        probe_s=job.probe_s,
        budget_executor_seconds=BUDGET_EXECUTOR_S,
        most_probes=3,  # the first valid one of a size ends its search: a thorough one takes far longer
        bracket=1.0,
    )
    began_s = time.monotonic()
    profiling = Profiling(
        plan,
        search,
        here.around("enrichment", job),
        partitions=here.partitions(plan, job),
        rules=job_plans.rules(job),
        progress=lambda state, text: show(f"{time.monotonic() - began_s:6.0f} s  {text}"),
    )
    state = profiling.run()
    assert state.spent <= BUDGET_EXECUTOR_S + max(SIZES) * STOPPING_S
    for size, found in estimates(state).items():
        show(f"{size} executors: {found.capacity}, {found.probes} probes, {found.invalid} invalid")
    show(f"{state.done}; {state.spent:,.0f} executor-seconds, {time.monotonic() - began_s:.0f} s")
    kept = measured(here.store, "enrichment")
    assert not isinstance(kept, Unknown)
    return CapacityModel.fit(kept)


@pytest.fixture(scope="module")
def models(here: Environment, capacity: CapacityModel, show: Show) -> Models:
    """Everything that is known before the drill: the downtime is believed, not learnt."""
    overheads = overheads_s(here.store, "enrichment")
    assert not isinstance(overheads, Unknown)
    show(f"overhead of a batch: { ({size: round(one, 2) for size, one in sorted(overheads.items())}) }")
    return Models(capacity, DowntimeModel.fit(()), EngineInputs(overheads, LIMIT))


@pytest.mark.timeout(4000)  # with the search, whose budget is 3,000 s of one executor
def test_more_executors_process_more(here: Environment, capacity: CapacityModel, show: Show) -> None:
    found = [capacity.predict(size) for size in SIZES]
    show(f"capacity ({capacity.form}): {dict(zip(SIZES, found, strict=True))}")
    rates = [one.mid for one in found if isinstance(one, Interval)]
    assert len(rates) == len(SIZES)
    assert rates == sorted(rates)
    assert 0.0 < rates[0] < 1000.0  # a record takes a millisecond at least
    assert rates[0] < rates[2]
    assert here.deployments.names() == ()
    assert [topic for topic in here.broker.topics() if topic.startswith("headroom.")] == []


def test_a_killed_executor_is_recovered_from(
    here: Environment, job: JobSettings, plan: Plan, settings: Settings, models: Models, show: Show
) -> None:
    rate = RATE_SHARE * _mid(models, 2)
    (outcome,) = Drilling(
        plan,
        here.around("enrichment", job),
        failures=here.failures,
        partitions=here.partitions(plan, job),
        rules=job_plans.rules(job),
        settings=replace(job_plans.drill_settings(job, settings.spark), max_lag_s=60.0),
        batch_began_s=here.batch_began_s,
        say=show,
    ).run(planned(kinds=["executor_kill"], rates_rps={2: [rate]}, repeats=1), models=models)[-1:]
    show(json.dumps(dict(outcome.details), default=str))
    assert not isinstance(outcome.event, Unknown), outcome.event.reason
    event = outcome.event
    assert 0.0 < event.downtime_s < 120.0
    assert math.isfinite(event.recovery_s)
    said = outcome.details["predicted_recovery_s"]
    assert math.isfinite(said["mid"])
    taught = lesson(event, outcome.details, models)
    assert not isinstance(taught, Unknown), taught.reason
    learnt = replace(models, downtime=models.downtime.update(taught))
    with_it = drill_prediction.of_drill(learnt, "executor_kill", scale_out=2, details=outcome.details)
    show(f"measured {event.recovery_s:.1f} s, predicted {said['mid']:.1f} s; with this drill: {with_it}")
    assert here.failures.active() == ()
    assert [kept for kept, _ in here.store.events("enrichment")] == [event]


def test_a_live_rescale_under_load_loses_nothing(
    here: Environment, job: JobSettings, plan: Plan, models: Models, show: Show
) -> None:
    source = here.open_source("enrichment", job, "orders-live", {"events": "orders"})
    here.deployments.launch(plan)
    try:
        until(
            lambda: here.deployments.status("enrichment").executors_alive == 2,
            "two executors",
            timeout_s=PATIENCE_S,
        )
        until(lambda: _lag(here) < 100.0, "the first batches", timeout_s=PATIENCE_S)
        rate = RATE_SHARE * _mid(models, 2)
        source.set_rate(rate)
        for epoch, size in enumerate((4, 3), start=1):
            _commits(here, 3)
            done = here.deployments.scale("enrichment", size, epoch=epoch)
            show(f"{done.before} → {done.after} executors: {done.path}, {done.took_s:.1f} s at {rate:,.0f}/s")
            assert (done.path, done.after) == ("live", size)
            _commits(here, 3)
            assert here.deployments.status("enrichment").executors_alive == size
        _finish(here, source)
    finally:
        source.stop()
        here.deployments.stop("enrichment")
    _nothing_was_lost(here, show, rescales=2)


def _nothing_was_lost(here: Environment, show: Show, *, rescales: int) -> None:
    assert isinstance(here.broker, KafkaBroker)
    asked, answered = orders(here.broker, "orders"), orders(here.broker, "answers")
    lost = asked - answered
    twice = answered - asked
    unasked = [order for order in answered if order not in asked]
    show(
        f"{asked.total():,} orders, {answered.total():,} answers: {lost.total()} lost, {twice.total()} twice "
        "(Kafka's sink is at least once: a task that is run again writes again)"
    )
    assert asked.total() > 0
    assert lost.total() == 0
    assert unasked == []
    # Only what was at work when executors were taken away may be written again: one batch each time.
    assert twice.total() <= rescales * LIMIT


def _mid(models: Models, size: int) -> float:
    found = models.capacity.predict(size)
    assert isinstance(found, Interval)
    return found.mid


def _lag(here: Environment) -> float:
    lag = here.metrics.sample("enrichment").lag_records
    return math.inf if isinstance(lag, Unknown) else lag


def _commits(here: Environment, count: int) -> None:
    """Let some batches pass."""
    seen = 0

    def enough() -> bool:
        nonlocal seen
        seen += len(here.metrics.sample("enrichment").commits)
        return seen >= count

    until(enough, f"{count} batches", timeout_s=PATIENCE_S)


def _finish(here: Environment, source: Source) -> None:
    source.stop()
    until(lambda: _lag(here) == 0.0, "the last batch", timeout_s=PATIENCE_S)
