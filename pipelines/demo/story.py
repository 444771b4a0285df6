"""The stages of the demo.

    start    a live job under a load that changes, evaluated at every interval from now on
    record   record its input
    profile  find the rates that copies of it sustain at several sizes
    drill    cause failures, and measure the recovery
    model    fit the models, check them, put them in charge
    decide   the load rises: find the size that keeps the promise
    apply    change the size, and verify the change
    prove    cause the same failures again, and compare with the prediction

Every stage is a run of a Dagster job. Nothing here depends on the environment; a simulated one passes time
faster, by one clock.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from models.errors import HeadroomError, NotReady
from models.ports import Source, Store
from models.quantities import Unknown, counted, executors
from profiling_jobs.orders import Json, run_order
from profiling_jobs.periodic import Periodic
from profiling_jobs.training.champions import KINDS

from ..orchestration.runs import Runs, Watched
from ..serving import Service
from .scenes import JOB, Scene
from .show import Lines, Outcome

STAGES = ("start", "record", "profile", "drill", "model", "decide", "apply", "prove")
ARRIVES_SHARE = 0.5  # of the load, from which on it is there; judgement
QUIET_TICKS = 2  # in a row without anything to do: it has settled
TIMELINE_EVERY_S = 1.5  # judgement
LOAD_EVERY_S = 5.0  # judgement: smooth beside batches of seconds
SWING = 0.08  # of the level
PERIOD_S = 240.0
LOOK_S = 1.0  # how late an interval may be evaluated
PATIENCE_S = 120.0  # of real time, for one interval


class Demo:
    """One run of the demo."""

    def __init__(self, service: Service, runs: Runs, scene: Scene, show: Lines) -> None:
        self._service, self._runs, self._scene, self._show = service, runs, scene, show
        self._job = service.settings.jobs[JOB]
        self._clock = service.environment.clock
        self._took: dict[str, float] = {}
        self.stages = tuple(name for name in STAGES if scene.proved or name != "prove")
        self.outcome = Outcome(
            service.environment.kind,
            promise={"target_s": self._job.recovery_target_s, "confidence": self._job.confidence},
            took_s=self._took,
        )
        self._timeline = _Timeline(runs, service.environment.store)
        self.evaluator = Evaluator(
            service, JOB, interval_s=self._job.evaluation_interval_s, seen=self._timeline.put
        )

    def run(self) -> Outcome:
        """All stages, from the start of the job to the proof.

        Simulated time stands still but where a stage waits for it, and begins in the same phase of the load:
        how much of it a demo takes does not depend on how busy this machine is.
        """
        with self._service.environment.taking_part():
            if self._service.environment.pace is not None:
                self._paced(self._scene.speed)
                self._clock.sleep(-self._clock.now_s() % PERIOD_S)
            for name in self.stages:
                began_s = time.monotonic()
                getattr(self, f"_{name}")()
                self._took[name] = round(time.monotonic() - began_s, 1)
        return self.outcome

    def close(self) -> None:
        """Stop evaluating and reporting."""
        self.evaluator.close()
        self._timeline.close()

    # -------------------------------------------------------------------------------------------- stages

    def _start(self) -> None:
        scene = self._scene
        self._stage("start", f"start {JOB} with {executors(self._job.scale_out)}")
        run_order(self._service.server, "launch", JOB, say=self._show.say, sleep=self._clock.sleep)
        self.evaluator.load(scene.before_rps)
        self.evaluator.start()
        for number in range(scene.ticks_before):
            self._show.progress(number / scene.ticks_before, "it runs, and is evaluated at every interval")
            self.evaluator.next_tick()
        for _ in range(scene.most_ticks):  # the source takes as long to start as the job
            seen = (self.evaluator.newest.get("observation") or {}).get("arrival_rps")
            if isinstance(seen, int | float) and seen > ARRIVES_SHARE * scene.before_rps:
                break
            self._show.progress(None, "waiting for its input")
            self.evaluator.next_tick()
        self._show.done(
            f"it runs under about {scene.before_rps:,.0f} records/s; without models its size is held"
        )

    def _record(self) -> None:
        self._stage("record", "record the live input")
        config = {"ops": {"recording": {"config": {"seconds": self._scene.record_s}}}}
        found = self._run("record", config)[0]["recording"]
        self._show.done(f"{found['records']:,} records, {found['mean_arrival_rps']:,.0f} a second")

    def _profile(self) -> None:
        self._stage("profile", "measure on copies which rates the job sustains")
        _, order = self._run("profile")
        self.outcome.capacity_rps = order["result"]["capacity_rps"]
        capacities = {int(size): one for size, one in self.outcome.capacity_rps.items() if "mid" in one}
        known = "; ".join(
            f"{executors(size, 'sustain')} {one['mid']:,.0f} records/s" for size, one in capacities.items()
        )
        self._show.done(f"{counted(order['result']['probes'], 'probe')}: {known}")

    def _drill(self) -> None:
        scene = self._scene
        self._stage("drill", f"cause failures on {'the live job' if scene.live_drill else 'a copy'}")
        if scene.live_drill:
            self._drilled({"live": True})
            return
        size, rate = self._job.scale_out, scene.before_rps
        self._drilled({"scale_outs": [size], "rates_rps": [rate], "repeats": scene.drill_repeats})

    def _model(self) -> None:
        self._stage("model", "fit the models, check them, put them in charge")
        self._paced(self._scene.speed_of_changes)  # Dagster's timelines show every second tick then
        try:
            found, _ = self._run("model")
        except NotReady as refused:  # a check that fails leaves the old champion in charge, if there is one
            self._show.say(str(refused))
            found = {}
        for name, metadata in sorted(found.items()):
            self._show.say(f"{name}: {metadata.get('said', '')}")
        champions = self._service.server.context.champions.champions(JOB)
        self.outcome.models = {
            kind: {
                "version": version,
                "figures": dict(champions.figures.get(kind, {})),
                "to_make_it_firm": list(champions.provisional.get(kind, ())),
            }
            for kind, version in champions.versions.items()
        }
        for needed in ("capacity", "workload"):
            if needed not in champions.versions:
                raise NotReady(f"there is no {needed} model in charge: nothing can be decided")
        count = len(champions.provisional)
        self._show.done(
            f"{len(champions.versions)} of {len(KINDS)} models are in charge"
            + (f", {count} of them provisional" if count else "")
        )

    def _decide(self) -> None:
        scene = self._scene
        self._stage("decide", f"the load rises to {scene.after_rps:,.0f} records/s")
        self.evaluator.load(scene.after_rps, ramp_s=scene.ramp_s)
        for _ in range(scene.most_ticks):
            now = self.evaluator.next_tick()
            self._show.progress(None, self._reason())
            if now.get("apply"):
                self._show.done(str(now["apply"]["reason"]))
                return
        raise NotReady(f"nothing was decided in {scene.most_ticks} intervals: {self._reason()}")

    def _apply(self) -> None:
        self._stage("apply", "carry out the decision, and verify it")
        quiet = 0
        for _ in range(self._scene.most_ticks):
            now = self.evaluator.newest
            if now.get("apply"):
                self._carry_out()
                quiet = 0
            quiet = quiet + 1 if _settled(now) and self.evaluator.load_is_steady else 0
            if quiet >= QUIET_TICKS:
                break
            now = self.evaluator.next_tick()
            self._show.progress(None, self._reason())
        self.evaluator.rest()
        self._run("optimization")  # once more, with nothing to do: the picture of all decisions
        self.outcome.evaluation = self.evaluator.decided
        size = self.evaluator.newest.get("scale_out")
        if isinstance(size, int):
            self.outcome.headroom = self._headroom(size)
        stands = executors(size) if isinstance(size, int) else "an unknown size"
        self._show.done(f"{stands}, {'verified' if quiet else 'not verified yet'}")

    def _prove(self) -> None:
        self._stage("prove", "cause the same failures again, which no model has seen")
        self._paced(self._scene.speed)
        size = self.evaluator.newest.get("scale_out")
        if not isinstance(size, int):
            raise NotReady(f"the size of {JOB} is not known: {size}")
        self._drilled({"scale_outs": [size], "rates_rps": [self._scene.after_rps]})

    # ----------------------------------------------------------------------------------------- its parts

    def _drilled(self, details: Mapping[str, Any]) -> None:
        _, order = self._run("drill", {"ops": {"failure_drills": {"config": details}}})
        rows = order["result"]["drills"]
        for row in rows:
            self.outcome.drills.append({**row, "stage": "prove" if self.outcome.models else "drill"})
        kept = sum(bool(row.get("kept")) for row in rows)
        drills, target_s = counted(len(rows), "drill"), self._job.recovery_target_s
        self._show.done(f"{kept} of {drills} recovered within {target_s:.0f} s")

    def _carry_out(self) -> None:
        wanted = self.evaluator.newest
        _, found = self._run("optimization")  # in a later interval perhaps, which decides anew
        if not found:  # and may find that nothing has to change any more
            return
        epoch, at_s = found["details"]["epoch"], wanted["at_s"]
        since = [one for _, one in self._service.environment.store.evaluations(JOB, since_s=at_s)]
        made = (one for one in since if (one.get("apply") or {}).get("epoch") == epoch)
        ordered = next(made, wanted)
        why = (ordered.get("apply") or {}).get("reason", "")
        self.outcome.changes.append({**found["result"], "why": why, "at_s": ordered.get("at_s")})
        self._show.say(str(found["result"]["reason"]))

    def _headroom(self, size: int) -> Mapping[str, Any]:
        capacity = self._service.server.context.champions.champions(JOB).capacity
        sustained = capacity if isinstance(capacity, Unknown) else capacity.predict(size)
        peak = (self.evaluator.newest.get("forecast") or {}).get("peak") or {}
        if isinstance(sustained, Unknown) or peak.get("mid") is None:
            return {"unknown": sustained.reason if isinstance(sustained, Unknown) else "there is no forecast"}
        return {"scale_out": size, "sustained_rps": vars(sustained), "forecast_rps": peak["mid"]}

    def _stage(self, name: str, what: str) -> None:
        self._show.stage(name, what, number=self.stages.index(name) + 1, of=len(self.stages))

    def _run(self, name: str, config: Mapping[str, Any] | None = None) -> tuple[Mapping[str, Any], Json]:
        """A run of Dagster's: asset -> its metadata, and the end of its order, which is shown as it goes."""
        watched = Watched(
            self._service.server,
            say=self._show.say,
            seen=lambda order: self._show.progress(order["share"], str(order["stage"])),
            sleep=lambda seconds: self._clock.sleep(self._scene.speed * seconds),
        )
        found = self._runs.job(name, JOB, config=config, server=watched)
        return found, watched.newest

    def _reason(self) -> str:
        instruction = self.evaluator.newest.get("instruction") or {}
        return str(instruction.get("reason", ""))

    def _paced(self, speed: float) -> None:
        if self._service.environment.pace is not None:
            self._service.environment.pace.set(speed)


class Evaluator:
    """Evaluates the job at every interval and moves its load, in place of Dagster's daemon and of users.

    In two threads from `start` to `close`, by the environment's clock. The load is a gentle wave around a
    level.
    """

    def __init__(
        self,
        service: Service,
        job: str,
        *,
        interval_s: float,
        seen: Callable[[Json], None] = lambda one: None,
    ) -> None:
        self._service, self._job, self._interval_s, self._seen = service, job, interval_s, seen
        self._turn = threading.Lock()
        self._evaluated: int | None = None
        """The interval that was evaluated last."""
        self._count = 0
        self._newest: Json = {}
        self._decided: Json = {}
        self._source: Source | None = None
        self._problem: BaseException | None = None
        self._level = (0.0, 0.0, 0.0, 0.0)
        """From which rate, to which, since when, within how many seconds."""
        self._rests, self._acts = False, False
        self._loading = self._periodic(self._move_load, every_s=LOAD_EVERY_S, name="demo-load")
        self._evaluating = self._periodic(self._evaluate, every_s=LOOK_S, name="demo-evaluator")

    def start(self) -> None:
        self._loading.start()
        self._evaluating.start()

    def rest(self) -> None:
        """Evaluate nothing: the job stays as the summary shows it."""
        self._rests = True

    def go_on(self) -> None:
        """Evaluate again, and carry out the changes of size, too, as a run of Dagster would."""
        self._rests, self._acts = False, True

    def hand_over(self) -> None:
        """Go on with the load; Dagster's daemon evaluates from now on, by the wall clock.

        A simulated clock that is catching up is evaluated until it has: the timelines have no gap.
        """
        clock = self._service.environment.clock
        while (behind_s := time.time() - clock.now_s()) > LOOK_S:  # some time passes meanwhile
            clock.sleep(behind_s)
        self._evaluating.close()

    def close(self) -> None:
        self._evaluating.close()
        self._loading.close()
        if self._source is not None:
            self._source.stop()

    def load(self, rate_rps: float, *, ramp_s: float = 0.0) -> None:
        """Move the load to this level within `ramp_s`."""
        now_s = self._service.environment.clock.now_s()
        self._level = (self._at(now_s), rate_rps, now_s, ramp_s)

    @property
    def load_is_steady(self) -> bool:
        """Whether it has reached its level."""
        _, _, since_s, ramp_s = self._level
        return self._service.environment.clock.now_s() >= since_s + ramp_s

    @property
    def newest(self) -> Json:
        """The newest evaluation."""
        with self._turn:
            return self._newest

    @property
    def decided(self) -> Json:
        """The newest evaluation with an answer of the optimiser; the newest of all where there is none."""
        with self._turn:
            return self._decided or self._newest

    def next_tick(self) -> Json:
        """Wait for the next evaluation."""
        before, until_s = self._count, time.monotonic() + PATIENCE_S + self._interval_s
        while self._count == before and self._problem is None:
            if time.monotonic() > until_s:
                raise NotReady(
                    f"{self._job} was not evaluated for {PATIENCE_S:.0f} s: is the machine asleep?"
                )
            self._service.environment.clock.sleep(LOOK_S)
        if self._problem is not None:
            raise self._problem
        return self.newest

    def _periodic(self, work: Callable[[], None], *, every_s: float, name: str) -> Periodic:
        def guarded() -> None:
            try:
                work()
            except BaseException as error:  # raised in `next_tick`, too
                self._problem = error
                raise

        environment = self._service.environment
        return Periodic(
            guarded, every_s=every_s, name=name, clock=environment.clock, taking_part=environment.taking_part
        )

    def _move_load(self) -> None:
        environment, job = self._service.environment, self._service.settings.jobs[self._job]
        if self._source is None:
            self._source = environment.open_source(self._job, job, f"{self._job}-input", dict(job.inputs))
        now_s = environment.clock.now_s()
        wave = 1.0 + SWING * math.sin(2.0 * math.pi * now_s / PERIOD_S)
        self._source.set_rate(max(1.0, wave * self._at(now_s)))

    def _evaluate(self) -> None:
        interval = math.floor(self._service.environment.clock.now_s() / self._interval_s)
        before, self._evaluated = self._evaluated, interval
        if self._rests or before in (None, interval):  # the interval that began before the job is left out
            return
        server = self._service.server
        try:
            found = server.evaluate(self._job)
        except NotReady:  # not just now
            return
        self._seen(found)
        if self._acts and (change := found.get("apply")):
            with suppress(HeadroomError):  # the next tick asks again
                server.begin("apply", self._job, epoch=change["epoch"], to=change["to"])
        with self._turn:
            self._newest, self._count = found, self._count + 1
            if "verdicts" in (found.get("decision") or {}):
                self._decided = found

    def _at(self, now_s: float) -> float:
        before, after, since_s, ramp_s = self._level
        share = 1.0 if ramp_s <= 0.0 else min(1.0, max(0.0, (now_s - since_s) / ramp_s))
        return before + share * (after - before)


class _Timeline:
    """Reports evaluations to Dagster's timelines in a thread of its own.

    Of those that come faster than one in TIMELINE_EVERY_S only the newest: the database has one writer at a
    time, and runs need it too.
    """

    def __init__(self, runs: Runs, store: Store) -> None:
        self._runs, self._store = runs, store
        self._newest: Json | None = None
        self._written: Json | None = None
        self._thread = Periodic(self._write, every_s=TIMELINE_EVERY_S, name="demo-timeline")
        self._thread.start()

    def put(self, evaluation: Json) -> None:
        self._newest = evaluation

    def close(self) -> None:
        self._thread.close()

    def _write(self) -> None:
        from assets.decide import observations, recent

        newest = self._newest
        if newest is not None and newest is not self._written:
            self._runs.observe(observations(newest, before=recent(self._store, JOB)))
            self._written = newest


def _settled(evaluation: Json) -> bool:
    """Whether nothing is left to do, and the last change was verified."""
    return not evaluation.get("apply") and not evaluation.get("change") and not evaluation.get("recovering")
