"""Records lost or written twice while executors come, go and die under load.

A job runs as it would run live: two executors, then four, then three, then an executor is killed, one is
frozen and the driver is killed; each time it has to catch up. Afterwards everything that came in is compared
with everything that went out. There is one job for each sink, both at the same time: nothing is timed here.
Kafka's sink is at least once: a task that is run again writes again, which is counted. A sink that knows its
batches has to show neither.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Generator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from bench import Figure
from models.errors import NotReady
from models.ports import Plan, Source
from models.quantities import Unknown
from profiling_jobs.experiments import drill
from profiling_jobs.plans import FILES
from profiling_jobs.telemetry.timeline import Watch

from . import capacity, counting
from .counting import Counted
from .journal import Journal
from .lab import ENRICHMENT, PARTITIONS, PATIENCE_S, SETTLED_LAG_S, Lab, Lengths
from .report import Report

NAME = "rescales"
ASKS = "Records lost or written twice through live rescales and failures"
SIZES = (2, 4, 3)
KINDS = ("executor_kill", "executor_freeze", "driver_kill")
BATCHES = 3
STEPS_S = {"rescale": 30.0, "executor_kill": 30.0, "executor_freeze": 70.0, "driver_kill": 110.0}


@dataclass(frozen=True)
class Sink:
    """Where a job writes, and how that is counted."""

    name: str
    plan: Callable[[Lab], Plan]
    count: Callable[[Lab, Plan], Counted]
    exact: bool
    """Nothing may be there twice."""


def seconds(lengths: Lengths) -> float:
    return 120.0 + 2.0 * STEPS_S["rescale"] + sum(STEPS_S[kind] for kind in KINDS) + 60.0


def sinks() -> tuple[Sink, ...]:
    return (
        Sink("files", _files, _count_files, exact=True),
        Sink("kafka", _kafka, _count_topics, exact=False),
    )


def _files(lab: Lab) -> Plan:
    name = f"{ENRICHMENT}-files"
    return replace(_live(lab, name), outputs={"results": f"{FILES}{_answers(lab, name)}"})


def _answers(lab: Lab, name: str) -> Path:
    return lab.folder.resolve() / "answers" / name


def _count_files(lab: Lab, plan: Plan) -> Counted:
    return counting.in_files(lab.environment, plan.inputs["events"], _answers(lab, plan.name))


def _kafka(lab: Lab) -> Plan:
    return _live(lab, f"{ENRICHMENT}-kafka")


def _live(lab: Lab, name: str) -> Plan:
    return replace(
        lab.plan(ENRICHMENT),
        name=name,
        scale_out=SIZES[0],
        inputs={"events": f"bench.{name}.orders"},
        outputs={"results": f"bench.{name}.answers"},
        checkpoint=lab.environment.checkpoint(name),
        role="live",
    )


def _count_topics(lab: Lab, plan: Plan) -> Counted:
    return counting.in_topics(lab.environment, plan.inputs["events"], plan.outputs["results"])


def run(lab: Lab) -> None:
    wanted = [sink for sink in sinks() if not lab.journal.has(NAME, sink.name)]
    if lab.environment.kind == "simulated":
        lab.say("the twin writes no files: nothing to count there")
        wanted = [sink for sink in wanted if not sink.exact]
    if wanted:
        lab.clear()
        plans = {sink: sink.plan(lab) for sink in wanted}
        try:
            sources = {sink: _started(lab, plan) for sink, plan in plans.items()}
            lab.drive(*(_through(lab, sink, plans[sink], source) for sink, source in sources.items()))
        finally:
            drill.clear_left_over(lab.environment.failures)
            for plan in plans.values():
                _forget(lab, plan)


def _started(lab: Lab, plan: Plan) -> Source:
    here = lab.environment
    _forget(lab, plan)
    for topic in _topics(plan):
        here.broker.create(topic, partitions=PARTITIONS)
    lab.say(f"{plan.name}: starting on {plan.scale_out} executors")
    here.deployments.launch(plan)
    return here.open_source(ENRICHMENT, lab.job(ENRICHMENT), plan.name, plan.inputs)


def _through(lab: Lab, sink: Sink, plan: Plan, source: Source) -> Generator[None, None, None]:
    steps = yield from _steps(lab, plan, source)
    lab.environment.deployments.stop(plan.name)
    counted = sink.count(lab, plan)
    lab.say(f"{sink.name}: {counted}")
    lab.journal.add(NAME, sink.name, {"exact": sink.exact, "steps": steps, **asdict(counted)})


def _forget(lab: Lab, plan: Plan) -> None:
    here = lab.environment
    if plan.name in here.deployments.names():
        here.deployments.stop(plan.name)
    here.forget(plan.name)
    for topic in _topics(plan):
        here.broker.delete(topic)
    shutil.rmtree(_answers(lab, plan.name), ignore_errors=True)


def _topics(plan: Plan) -> list[str]:
    return [one for one in (*plan.inputs.values(), *plan.outputs.values()) if not one.startswith(FILES)]


def _steps(lab: Lab, plan: Plan, source: Source) -> Generator[None, None, list[dict[str, Any]]]:
    here, steps = lab.environment, []
    watch = Watch(plan.name, scale_out=plan.scale_out, metrics=here.metrics, deployments=here.deployments)
    rate = lab.lengths.rescale_share * capacity.capacity_rps(lab.journal, SIZES[0])
    yield from _caught_up(lab, watch, plan.scale_out, rate)
    source.set_rate(rate)
    yield from _caught_up(lab, watch, plan.scale_out, rate)
    for epoch, size in enumerate(SIZES[1:], start=1):
        done = here.deployments.scale(plan.name, size, epoch=epoch)
        steps.append({"what": f"{done.before} → {done.after}", "path": done.path, "took_s": done.took_s})
        lab.say(f"{plan.name}: {done.before} → {done.after} executors, {done.path}, {done.took_s:.1f} s")
        yield from _caught_up(lab, watch, size, rate)
    for kind in KINDS:
        began_s = lab.now_s
        injection = here.failures.inject(plan.name, kind)
        yield from _hurt(lab, watch, kind)
        yield from _caught_up(lab, watch, SIZES[-1], rate)
        here.failures.clear(injection.id)
        steps.append({"what": kind, "path": "failure", "took_s": lab.now_s - began_s})
        lab.say(f"{plan.name}: {kind}, caught up after {lab.now_s - began_s:.0f} s")
        yield from _caught_up(lab, watch, SIZES[-1], rate)
    source.stop()
    until = lab.now_s + PATIENCE_S
    while watch.lag_records != 0.0:
        if lab.now_s > until:
            raise NotReady(f"{plan.name} has not worked off its input: {watch.lag_records} records are left")
        yield
        watch.look(lab.now_s)
    return steps


def _hurt(lab: Lab, watch: Watch, kind: str) -> Generator[None, None, None]:
    """Until the failure can be seen, or has passed unseen: a frozen one first has to be missed."""
    until = lab.now_s + (2.0 * lab.settings.spark.network_timeout_s if kind == "executor_freeze" else 10.0)
    began_s = lab.now_s
    while lab.now_s < until and not watch.doubt(began_s):
        yield
        watch.look(lab.now_s)


def _caught_up(lab: Lab, watch: Watch, size: int, rate_rps: float) -> Generator[None, None, None]:
    """All executors are there, some batches have passed, and lag is small."""
    began_s = lab.now_s
    while True:
        yield
        watch.scale_out = size
        watch.look(lab.now_s)
        lag, status = watch.lag_records, watch.status
        done = watch.timeline.commits(began_s, lab.now_s)
        behind = isinstance(lag, Unknown) or lag > SETTLED_LAG_S * rate_rps
        if status.executors_alive == size and len(done) >= BATCHES and not behind:
            return
        if lab.now_s - began_s > PATIENCE_S:
            raise NotReady(f"{watch.name} has not caught up on {size} executors within {PATIENCE_S:.0f} s")


def report(journal: Journal) -> Report | None:
    pieces = journal.of(NAME)
    if not pieces:
        return None
    figures, rows = [], []
    for name, one in pieces.items():
        figures.append(Figure(f"{name} sink: records lost", one["lost"] + one["unasked"], "", at_most=0))
        twice = Figure(f"{name} sink: records written twice", one["twice"], "")
        figures.append(replace(twice, at_most=0) if one["exact"] else twice)
        what = ", ".join(f"{step['what']} ({step['path']}, {step['took_s']:.0f} s)" for step in one["steps"])
        rows.append((name, f"{one['asked']:,}", f"{one['answered']:,}", one["lost"], one["twice"], what))
    return Report(ASKS, figures, ("sink", "records in", "out", "lost", "twice", "what was done to it"), rows)
