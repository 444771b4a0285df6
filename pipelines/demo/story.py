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

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Protocol

from models.codec import readable
from models.errors import HeadroomError, NotReady
from models.ports import Store
from models.quantities import Unknown, executors
from profiling_jobs.orders import Json, run_order
from profiling_jobs.periodic import Periodic
from profiling_jobs.training.model_documents import KINDS

from ..orchestration.runs import Runs
from ..serving import Service
from .evaluator import Evaluator
from .scenes import JOB, Scene

STAGES = ("start", "record", "profile", "drill", "model", "decide", "apply", "prove")
ARRIVES_SHARE = 0.5  # of the load, from which on it is there; judgement
QUIET_TICKS = 2  # in a row without anything to do: it has settled
TIMELINE_EVERY_S = 1.5  # judgement


class Show(Protocol):
    """Output of the demo: lines, or progress bars."""

    def stage(self, name: str, what: str, *, number: int, of: int) -> None: ...
    def say(self, line: str) -> None: ...
    def progress(self, share: float | None, what: str) -> None: ...
    def done(self, what: str) -> None: ...


@dataclass
class Outcome:
    """Results of the demo."""

    kind: str
    promise: Mapping[str, Any] = field(default_factory=dict)
    capacity_rps: Mapping[str, Any] = field(default_factory=dict)
    models: Mapping[str, Any] = field(default_factory=dict)
    changes: list[Mapping[str, Any]] = field(default_factory=list)
    drills: list[Mapping[str, Any]] = field(default_factory=list)
    evaluation: Mapping[str, Any] = field(default_factory=dict)
    """The newest one at which a size was asked for."""
    headroom: Mapping[str, Any] = field(default_factory=dict)
    """`scale_out`, its `sustained_rps` (low, mid, high), and `forecast_rps`: the peak."""
    took_s: Mapping[str, float] = field(default_factory=dict)

    @property
    def applied(self) -> bool:
        """Whether a decision was carried out."""
        return any(change.get("did") == "scaled" for change in self.changes)

    def to_json(self) -> dict[str, Any]:
        """Plain JSON."""
        found: dict[str, Any] = readable({"schema": 1, **vars(self), "applied": self.applied})
        return found


class Demo:
    """One run of the demo."""

    def __init__(
        self, service: Service, runs: Runs, scene: Scene, show: Show, *, seconds: Callable[[], float]
    ) -> None:
        """`seconds`: real time, for what each stage took."""
        self._service, self._runs, self._scene, self._show = service, runs, scene, show
        self._seconds = seconds
        self._job = service.settings.jobs[JOB]
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
        """All stages, from the start of the job to the proof."""
        for name in self.stages:
            began_s = self._seconds()
            getattr(self, f"_{name}")()
            self._took[name] = round(self._seconds() - began_s, 1)
        return self.outcome

    def close(self) -> None:
        """Stop evaluating and reporting."""
        self.evaluator.close()
        self._timeline.close()

    # -------------------------------------------------------------------------------------------- stages

    def _start(self) -> None:
        scene = self._scene
        self._stage("start", f"start {JOB} with {executors(self._job.scale_out)}")
        run_order(self._service.server, "launch", JOB, say=self._show.say)
        self._paced(scene.speed)
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
        self._show.done(f"it runs under about {scene.before_rps:,.0f} records/s: {self._reason()}")

    def _record(self) -> None:
        self._stage("record", "record the live input")
        config = {"ops": {"recording": {"config": {"seconds": self._scene.record_s}}}}
        found = self._run("record", config)["recording"]
        self._show.done(f"{found['records']:,} records, {found['mean_arrival_rps']:,.0f} a second")

    def _profile(self) -> None:
        self._stage("profile", "measure on copies which rates the job sustains")
        self._run("profile")
        order = self._newest("profile")
        self.outcome.capacity_rps = order["result"]["capacity_rps"]
        known = ", ".join(
            f"{one['mid']:,.0f} at {size}" for size, one in self.outcome.capacity_rps.items() if "mid" in one
        )
        self._show.done(f"{order['result']['probes']} probes; records/s and executors: {known}")

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
        self._paced(self._scene.speed_of_changes)  # fitting takes real time, and decisions begin with it
        try:
            found = self._run("model")
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
        self.evaluator.acts = True
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
        self._run("drill", {"ops": {"failure_drills": {"config": details}}})
        rows = self._newest("drill")["result"]["drills"]
        for row in rows:
            self.outcome.drills.append({**row, "stage": "prove" if self.outcome.models else "drill"})
        kept = sum(bool(row.get("kept")) for row in rows)
        self._show.done(f"{kept} of {len(rows)} recovered within {self._job.recovery_target_s:.0f} s")

    def _carry_out(self) -> None:
        wanted = self.evaluator.newest
        self._run("optimization")  # in a later interval perhaps, which decides anew
        found = self._newest("apply")
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

    def _run(self, name: str, config: Mapping[str, Any] | None = None) -> Mapping[str, Any]:
        """A run of Dagster's, whose order is shown as it goes."""
        with _shown(self._service, self._show):
            return self._runs.job(name, JOB, config=config)

    def _newest(self, what: str) -> Json:
        orders = [one for one in self._service.server.orders() if one["what"] == what]
        if not orders:
            raise NotReady(f"no order of the kind '{what}' was given")
        return self._service.server.order(orders[-1]["id"])

    def _reason(self) -> str:
        instruction = self.evaluator.newest.get("instruction") or {}
        return str(instruction.get("reason", ""))

    def _paced(self, speed: float) -> None:
        if self._service.environment.pace is not None:
            self._service.environment.pace.set(speed)


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
    """Nothing is to be done, and the last change was verified."""
    return not evaluation.get("apply") and not evaluation.get("change") and not evaluation.get("recovering")


@contextmanager
def _shown(service: Service, show: Show, *, every_s: float = 0.3) -> Iterator[None]:
    """Show the lines of the orders that a run gives, while the run itself keeps this thread busy."""
    over = threading.Event()
    before = {order["id"] for order in service.server.orders()}
    read: dict[str, int] = {}

    def look() -> None:
        for id in [order["id"] for order in service.server.orders() if order["id"] not in before]:
            now = service.server.order(id, since=read.get(id, 0))
            for line in now["lines"]:
                show.say(str(line))
            read[id] = now["next"]
            if now["state"] == "running":
                show.progress(now["share"], str(now["stage"]))

    def work() -> None:
        with suppress(HeadroomError):  # it is only shown
            while not over.wait(every_s):
                look()
            look()

    thread = threading.Thread(target=work, name="headroom-demo-show", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
