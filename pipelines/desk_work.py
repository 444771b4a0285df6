"""What does the owner do when an order says so?

One method per order of `desk.ORDERS`. Each gets its `Order` for what it has to say, and works by that order's
clock, so that it can be given up at any moment; what was begun is put away by whoever began it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from models import control, probing
from models.probing import Probe, Result
from models.quantities import FAILURE_KINDS, Misuse, Unknown
from profiling_jobs.drills import drilling
from profiling_jobs.drills.drill import Outcome, Subject
from profiling_jobs.drills.drill import run as run_drill
from profiling_jobs.drills.drilling import Drilling, DrillPlan
from profiling_jobs.errors import Misconfigured, NotReady, Unsafe
from profiling_jobs.learning import workload_history
from profiling_jobs.loop import applying
from profiling_jobs.loop.ground import Loop
from profiling_jobs.ports import Store
from profiling_jobs.probing.copies import Copies, Surroundings
from profiling_jobs.probing.probe import ProbeRun
from profiling_jobs.probing.profiling import Profiling
from profiling_jobs.probing.profiling_record import measurement
from profiling_jobs.recording.recorder import Request
from profiling_jobs.signals.watching import Watch

from . import drills, job_plans, timetable
from .desk_orders import Order, OrderClock
from .job_loop import ChampionsInCharge
from .settings import JobSettings, Settings
from .world import World

START_S = 240.0  # measured: 14–46 s until the first batch on an idle machine
LOOK_S = 1.0
Found = Mapping[str, Any]


class Work:
    """Everything that an order may ask of one world."""

    def __init__(
        self,
        world: World,
        settings: Settings,
        folder: Path,
        *,
        loop: Loop,
        champions: ChampionsInCharge,
        control_settings: Callable[[str], control.Settings],
        unwatched: Callable[[str], Any],
    ) -> None:
        """`unwatched`: a context in which nobody else samples this deployment."""
        self._world, self._settings, self._folder = world, settings, folder
        self._loop, self._champions = loop, champions
        self._control_settings, self._unwatched = control_settings, unwatched

    def of(self, what: str) -> Callable[[Order], Found]:
        """Who carries out this order."""
        found: Callable[[Order], Found] = getattr(self, f"_{what}")
        return found

    @staticmethod
    def alone(what: str, job: str) -> str:
        """Two orders with the same answer would be in each other's way."""
        if what in ("profile", "probe", "drill"):
            return f"copies of {job}"
        return f"recording of {job}" if what == "record" else f"{job} itself"

    # ---------------------------------------------------------------------------------------- the live job

    def _launch(self, order: Order) -> Found:
        world, name, job = self._world, order.job, self._job(order)
        plan = job_plans.live_plan(name, job, folder=self._folder)
        if name in world.deployments.names():
            status = world.deployments.status(name)
            return {"launched": False, "state": status.state, "scale_out": status.declared_scale_out}
        if world.own_topics:
            there, wanted = world.broker.topics(), world.partitions(plan)
            for own, topic in (*plan.inputs.items(), *plan.outputs.items()):
                if topic not in there and "/" not in topic:
                    order.say(f"making the topic {topic} with {wanted[own]} partitions")
                    world.broker.create(topic, partitions=wanted[own])
        order.say(f"starting {name} with {plan.scale_out} executors")
        world.deployments.launch(plan)
        clock = OrderClock(world.clock, order)
        until_s = clock.now_s() + START_S
        while True:
            status = world.deployments.status(name)
            if status.state == "running" and status.executors_alive == plan.scale_out:
                order.say(f"{name} runs with {plan.scale_out} executors")
                return {"launched": True, "state": status.state, "scale_out": plan.scale_out}
            if status.state == "failed":
                raise Misconfigured(f"job.{name}", status.reason)
            if clock.now_s() > until_s:
                raise NotReady(f"{name} is still {status.state} after {START_S:.0f} s: {status.reason}")
            clock.sleep(LOOK_S)

    def _stop(self, order: Order) -> Found:
        if order.job not in self._world.deployments.names():
            return {"stopped": False}
        order.say(f"stopping {order.job} between two batches")
        self._world.deployments.stop(order.job)
        return {"stopped": True}

    def _apply(self, order: Order) -> Found:
        settings = self._control_settings(order.job)
        loop = replace(self._loop, clock=OrderClock(self._world.clock, order))
        epoch = order.details["epoch"]
        done = applying.apply(order.job, epoch=epoch, settings=settings, loop=loop, holder=order.id)
        order.say(done.reason)
        return done.to_json()

    def _record(self, order: Order) -> Found:
        world, job = self._world, self._job(order)
        clock, seconds = OrderClock(world.clock, order), float(order.details["seconds"])
        if seconds < 1.0:
            raise Misconfigured("record.seconds", f"must be at least 1, got {seconds:g}")
        began_s = math.ceil(clock.now_s())
        found = {}
        rates: list[tuple[int, Any] | Unknown] = []
        for own, topic in job.inputs.items():
            # Several topics one after the other would be of different times: the later ones look back.
            folder = self._folder / "recordings" / order.job / f"{began_s}-{own}"
            order.say(f"recording {topic} for {seconds:.0f} s")
            kept = world.record(
                f"{order.job}.{own}",
                Request(topic, folder, seconds, from_s=float(began_s)),
                clock=clock,
                say=order.say,
            )
            found[own] = {
                "topic": topic,
                "folder": str(folder),
                "records": kept.records,
                "bytes": kept.bytes,
                "missing": kept.missing,
                "from_s": kept.from_s,
                "until_s": kept.until_s,
                "ended": kept.ended,
                "mean_rps": kept.records / kept.covered_s if kept.covered_s > 0.0 else 0.0,
            }
            order.say(f"{kept.records:,} records of {topic}, {kept.bytes / 1e6:,.1f} MB", share=1.0)
            rates.append(kept.rate_rps())
        _remember(world.store, order.job, rates)
        return {"seconds": seconds, "recordings": found}

    # ------------------------------------------------------------------------------------------- on copies

    def _profile(self, order: Order) -> Found:
        world, name, job = self._world, order.job, self._job(order)
        template = job_plans.live_plan(name, job, folder=self._folder)
        search = job_plans.search(name, job, self._settings.spark)
        try:
            if sizes := order.details.get("scale_outs"):
                search = replace(search, scale_outs=tuple(sizes))
            if budget := order.details.get("budget_executor_s"):
                search = replace(search, budget_executor_seconds=budget)
        except Misuse as wrong:
            raise Misconfigured(f"profile.{wrong.argument}", wrong.problem) from wrong
        told = 0

        def progress(state: probing.State, text: str) -> None:
            nonlocal told
            order.say(text, share=probing.progress(state).fraction)
            for result in state.results[told:]:
                order.found(self._fact(name, result))
            told = len(state.results)

        state = Profiling(
            template,
            search,
            self._around(order),
            partitions=world.partitions(template),
            rules=job_plans.rules(job),
            progress=progress,
        ).run()
        reached = probing.progress(state)
        found = {
            str(size): asdict(one.capacity) if not isinstance(one.capacity, Unknown) else one.capacity
            for size, one in probing.estimates(state).items()
        }
        return {
            "why_done": state.done,
            "text": reached.text,
            "spent_executor_s": reached.spent_executor_seconds,
            "probes": len(state.results),
            "capacity_rps": found,
        }

    def _probe(self, order: Order) -> Found:
        """One probe on a copy of its own, with no search around it."""
        world, name, job = self._world, order.job, self._job(order)
        template = job_plans.live_plan(name, job, folder=self._folder)
        search, around = job_plans.search(name, job, self._settings.spark), self._around(order)
        size, rate = order.details["scale_out"], float(order.details["rate_rps"])
        probe = Probe(0, size, rate, warm_up_s=search.warm_up_s, probe_s=search.probe_s)
        copies = Copies(template, around, partitions=world.partitions(template))
        began_s = around.clock.now_s()
        try:
            if problems := copies.clear():
                raise NotReady(f"an earlier run has left something behind that would not go: {problems[0]}")
            order.say(f"{size} executors at {rate:,.0f} records/s")
            copy = copies.launch(size)
            run = ProbeRun(
                probe,
                watch=copy.watch,
                source=copy.source,
                clock=around.clock,
                rules=job_plans.rules(job),
                fresh=True,
            )
            steps = run.steps()
            while True:
                try:
                    next(steps)
                except StopIteration as finished:
                    result: Result = finished.value
                    break
                around.clock.sleep(LOOK_S)
                took = around.clock.now_s() - began_s
                order.at(min(0.99, took / (search.warm_up_s + search.probe_s)))
        finally:
            for problem in copies.clear():
                order.say(f"left behind: {problem}")
        result = replace(result, executor_seconds=size * (around.clock.now_s() - began_s))
        fact = self._fact(name, result)
        if not result.valid:
            raise NotReady(f"the probe shows nothing: {result.reason}")
        order.say(f"{result.verdict}, {result.value_rps:,.0f} records/s")
        around.store.add_measurement(name, fact["key"], measurement(result), at_s=fact["at_s"])
        order.found(fact)
        return fact

    def _drill(self, order: Order) -> Found:
        world, name, job = self._world, order.job, self._job(order)
        details, champions = order.details, self._champions.champions(name)
        kinds = (details["kind"],) if "kind" in details else job.failure_kinds
        for kind in kinds:
            if kind not in FAILURE_KINDS:
                raise Misconfigured("drill.kind", f"'{kind}' is none; there is {', '.join(FAILURE_KINDS)}")
        models = drills.known_models(world.store, name, job, champions=champions)
        repeats = details.get("repeats", 1)
        if details.get("live"):
            outcomes = self._live_drills(order, job, models, kinds=kinds * repeats)
        else:
            size = details.get("scale_out", job.scale_out)
            rates = (
                (float(details["rate_rps"]),) if "rate_rps" in details else _usual_rates(name, models, size)
            )
            plan = drilling.planned(kinds=kinds, rates_rps={size: rates}, repeats=repeats)
            outcomes = self._copy_drills(order, job, models, plan)
        rows = [drills.as_data(one, target_s=job.recovery_target_s) for one in outcomes]
        return {"drills": rows, "kept": bool(rows) and all(row["kept"] for row in rows)}

    def _copy_drills(self, order: Order, job: JobSettings, models: Any, plan: DrillPlan) -> Sequence[Outcome]:
        world = self._world
        template = job_plans.live_plan(order.job, job, folder=self._folder)
        done = 0

        def say(line: str) -> None:
            nonlocal done
            done += 1
            order.say(line, share=done / len(plan.cells))

        order.say(f"{len(plan.cells)} drills on a copy of {order.job}")
        return Drilling(
            template,
            self._around(order),
            failures=world.failures,
            partitions=world.partitions(template),
            rules=job_plans.rules(job),
            settings=job_plans.drill_settings(job, self._settings.spark),
            batch_began_s=world.batch_began_s,
            say=say,
        ).run(plan, models=models)

    def _live_drills(
        self, order: Order, job: JobSettings, models: Any, *, kinds: Sequence[str]
    ) -> Sequence[Outcome]:
        world, name = self._world, order.job
        if not job.allow_live_drills:
            raise Unsafe(
                f"job.{name}.allow_live_drills is false: the live job is not hurt. Drill a copy, or set it "
                "to true"
            )
        window = timetable.blackout(job, world.clock.now_s())
        if window is not None:
            raise Unsafe(
                f"{name} is in the blackout {window.why}: the live job is not hurt. Drill a copy, or wait"
            )
        if name not in world.deployments.names():
            raise NotReady(f"{name} does not run here: start it first, or drill a copy")
        around = self._around(order)
        found: list[Outcome] = []
        for number, kind in enumerate(kinds):
            window = timetable.blackout(job, world.clock.now_s())
            if window is not None:  # it has begun since the first one
                order.say(f"the blackout {window.why} has begun: {', '.join(kinds[number:])} is left out")
                break
            with self._unwatched(name):
                watch = Watch(
                    name,
                    scale_out=world.deployments.status(name).declared_scale_out,
                    metrics=around.metrics,
                    deployments=world.deployments,
                )
                outcome = run_drill(
                    Subject(
                        name, watch, "live", batch_began_s=lambda batch: world.batch_began_s(name, batch)
                    ),
                    kind,
                    failures=world.failures,
                    clock=around.clock,
                    settings=job_plans.drill_settings(job, self._settings.spark),
                )
            outcome = drilling.with_prediction(outcome, models)
            drilling.keep(around, name, outcome)
            order.say(drilling.described(outcome), share=len(found) / len(kinds))
            found.append(outcome)
        return found

    # ------------------------------------------------------------------------------------------- its parts

    def _job(self, order: Order) -> JobSettings:
        return self._settings.jobs[order.job]

    def _around(self, order: Order) -> Surroundings:
        around = self._world.around(order.job, self._job(order))
        return replace(around, clock=OrderClock(self._world.clock, order))

    def _fact(self, name: str, result: Result) -> dict[str, Any]:
        probe = result.probe
        return {
            "fact": "probe",
            "key": point_key(name, probe.scale_out, probe.rate_rps),
            "number": probe.number,
            "at_s": self._world.clock.now_s(),
            "scale_out": probe.scale_out,
            "rate_rps": probe.rate_rps,
            "verdict": result.verdict,
            "reason": result.reason,
            "offered_rps": result.offered_rps,
            "throughput_rps": result.throughput_rps,
            "standard_error_rps": result.standard_error_rps,
            "latency_ms": result.latency_ms,
            "duration_s": probe.probe_s,
            "executor_seconds": result.cost,
        }


def _remember(store: Store, job: str, rates: Sequence[tuple[int, Any] | Unknown]) -> None:
    """What has arrived in all topics together, second by second, for the workload's history."""
    known = [rate for rate in rates if not isinstance(rate, Unknown)]
    if len(known) < len(rates) or not known:
        return
    first = max(begin for begin, _ in known)
    last = min(begin + each.size for begin, each in known)
    if last > first:
        total = sum(each[first - begin : last - begin] for begin, each in known)
        workload_history.remember(store, job, start_s=float(first), step_s=1.0, rates_rps=total)


def point_key(job: str, scale_out: int, rate_rps: float) -> str:
    """How people name a profiling point: orders/e4/r30000."""
    return f"{job}/e{scale_out}/r{rate_rps:.0f}"


def _usual_rates(name: str, models: Any, size: int) -> tuple[float, ...]:
    capacity = Unknown(f"{name} was never profiled") if models is None else models.capacity.predict(size)
    if isinstance(capacity, Unknown):
        raise Misconfigured("drill.rate_rps", f"is needed, for the capacity is unknown: {capacity.reason}")
    return tuple(share * capacity.mid for share in drills.SHARES)
