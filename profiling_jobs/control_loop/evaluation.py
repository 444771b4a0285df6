"""What should happen to this job now, and where is it written down?

One evaluation of one job, once per interval whoever asks: look, foresee, hear what people say, step control,
save what is remembered by compare-and-set, tell the store. It changes nothing but the store; what has to be
done is in `Evaluation.apply` and is carried out by `profiling_jobs.control_loop.applying`.

What cannot be read or computed becomes a hold with its reason; an error is raised only where going on could
do harm (a newer version's control state) or where the store itself does not answer.

What does one tick write down of what it saw, decided and ordered?

How does what an evaluation has found reach the store, also when somebody dies in between?

After the control state is saved the evaluation is recorded, its facts are kept for the models, and a foreign
edit leaves a `hold` that people see and end. All of it may be told again: it is the same then.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from models import control
from models.control import Settings, State, lost_our_size
from models.control.deciding import Decider, Decision, Models, PredictsCapacity, Situation
from models.control.evidence import NEEDED
from models.control.step import NO_DIGITS
from models.errors import HeadroomError, NotReady
from models.observation import Observation
from models.optimise.engine import sustained
from models.ports import Directive, Store
from models.quantities import (
    Alarm,
    Hold,
    Instruction,
    Interval,
    Learn,
    Measurement,
    RecoveryEvent,
    Scale,
    Unknown,
    executors,
)

from . import directives
from .applying import followed, pending, still_ordered
from .changes import Order, outcome
from .context import InCharge, Loop
from .evaluation_record import Evaluation, fact_to_json, short
from .live_capacity import LiveCapacity, learnt_online, said_live
from .live_state import Memory, next_epoch, recall, save
from .observe import Foreseen, foresee, look, nothing


def written_down(
    job: str,
    *,
    after: Memory,
    observation: Observation,
    foreseen: Foreseen,
    charge: InCharge | Unknown,
    instructions: Sequence[Instruction],
    interval: int,
    now_s: float,
) -> Evaluation:
    """The evaluation of this tick, without what has to be carried out."""
    state, o = after.control, observation
    settings, first = state.settings, instructions[0]
    assert isinstance(first, Scale | Hold)
    instruction = {
        "do": "scale" if isinstance(first, Scale) else "hold",
        "to": first.to if isinstance(first, Scale) else None,
        "would": first.would if isinstance(first, Hold) else None,
        "reason": first.reason,
    }
    change, incident = state.change, state.recovering
    decided = state.last_decision
    asked = not isinstance(decided, Unknown) and decided.at_s == now_s
    return Evaluation(
        job=job,
        at_s=now_s,
        interval=interval,
        interval_s=settings.interval_s,
        mode=settings.mode,
        epoch=after.epoch or 0,
        scale_out=o.scale_out,
        instruction=instruction,
        apply=None,
        alarms=[each.reason for each in instructions if isinstance(each, Alarm)],
        learnt=[fact_to_json(each.fact) for each in instructions if isinstance(each, Learn)],
        observation=_observed(o),
        lag_s=_lag_s(state, o),
        decision=short(decided) if asked else {"unknown": first.reason},
        models={} if isinstance(charge, Unknown) else dict(charge.versions),
        provisional={}
        if isinstance(charge, Unknown)
        else {kind: "; ".join(needs) for kind, needs in charge.provisional.items()},
        models_version=settings.models.version,
        seed=settings.seed,
        capacity=_capacity(settings, after, o.scale_out),
        forecast=dict(foreseen.told),
        requests=[dict(each) for each in foreseen.requests],
        promise=vars(settings.promise),
        recovering=None
        if incident is None
        else {"kind": incident.kind, "failed_at_s": incident.failed_at_s, "why": incident.why},
        change=None
        if change is None
        else {name: getattr(change, name) for name in ("origin", "before", "to", "at_s", "problem")},
        foreign=None if state.foreign is None else vars(state.foreign),
        reassert=None
        if isinstance(o.scale_out, Unknown) or not lost_our_size(state, o.scale_out)
        else {"found": o.scale_out, "ours": state.last_good},
        attached=settings.only_commits,
        quarantined=[
            {name: getattr(each, name) for name in ("scale_out", "direction", "until_s", "why")}
            for each in state.quarantined
            if now_s < each.until_s
        ],
    )


def _observed(o: Observation) -> dict[str, Any]:
    rates = ("arrival_rps", "throughput_rps", "lag_records", "latency_ms", "last_commit_at_s")
    names = ("at_s", "scale_out", "executors_alive", "run_id", *rates, "limited_by")
    found = {name: getattr(o, name) for name in names}
    workers = o.cpu
    hottest: float | Unknown = workers if isinstance(workers, Unknown) else max(workers.values())
    return {**found, "hottest_share": hottest, "workers": 0 if isinstance(workers, Unknown) else len(workers)}


def _capacity(settings: Settings, after: Memory, scale_out: int | Unknown) -> dict[str, Any]:
    if isinstance(scale_out, Unknown):
        return {}
    used: PredictsCapacity | Unknown = settings.models.capacity
    profile = used.profile if isinstance(used, LiveCapacity) else used
    found = {
        "profile": _predicted(profile, scale_out),
        "online": said_live(after.online, scale_out)
        if len(after.online.workers) == scale_out
        else Unknown(f"nothing was learnt with {executors(scale_out)} yet"),
        "used": _predicted(used, scale_out),
    }
    engine = settings.models.engine  # it steps batches, and the models know how fast the records inside go
    if isinstance(engine, Unknown):
        return found
    return {
        name: rate if isinstance(rate, Unknown) else sustained(rate, engine, scale_out=scale_out)
        for name, rate in found.items()
    }


def _predicted(model: PredictsCapacity | Unknown, scale_out: int) -> Interval | Unknown:
    if isinstance(model, Unknown):
        return model
    try:
        return model.predict(scale_out)
    except (ValueError, TypeError, LookupError, ArithmeticError, AttributeError) as error:
        return Unknown(f"the capacity model could not be evaluated ({error})")


def _lag_s(state: State, o: Observation) -> float | Unknown:
    """As control has seen it; a tick without a new sample has the time of the last one, but not its lag."""
    if isinstance(o.lag_records, Unknown):
        return o.lag_records
    if state.history and state.history[-1].at_s == o.at_s:
        return state.history[-1].lag_s
    return Unknown("the lag was not read at this tick")


DAY_S = 86_400.0
WHO = "headroom"


def deliver(loop: Loop, evaluation: Evaluation, *, before: Evaluation | None) -> None:
    """Tell the store. `before`: the evaluation before this one, by which the daily tidying up is due."""
    store, job = loop.store, evaluation.job
    told = f"told of {job}"
    if loop.remembered.get(told) == evaluation.epoch:
        return
    new = store.record_evaluation(
        job, interval=evaluation.interval, at_s=evaluation.at_s, evaluation=evaluation.to_json()
    )
    for fact in evaluation.facts:
        _keep(store, evaluation, fact)
    if new and evaluation.foreign is not None:
        _hold(store, evaluation)
    if before is not None and before.at_s // DAY_S != evaluation.at_s // DAY_S:
        store.forget_evaluations(job, before_s=evaluation.at_s - loop.keep_s)
    loop.remembered[told] = evaluation.epoch


def _keep(store: Store, evaluation: Evaluation, fact: Measurement | RecoveryEvent) -> None:
    if isinstance(fact, Measurement):
        sort = "steady" if fact.sustained else "saturated"
        key = f"live/e{fact.scale_out}/{sort}/{evaluation.at_s:.0f}"
        store.add_measurement(evaluation.job, key, fact, at_s=evaluation.at_s)
        return
    details = {
        "origin": "live",
        "learnt_at_s": evaluation.at_s,
        "epoch": evaluation.epoch,
        "models": evaluation.models_version,
    }
    store.add_event(evaluation.job, fact, details=details)


def _hold(store: Store, evaluation: Evaluation) -> None:
    """A foreign edit is held until `resume`, also if the control state is lost."""
    if any(each.kind == "hold" for each in store.directives(evaluation.job, now_s=evaluation.at_s)):
        return
    foreign = evaluation.foreign or {}
    why = f"somebody set {executors(foreign['found'])} where we had set {foreign['ours']}"
    store.direct(Directive(evaluation.job, "hold", WHO, why, since_s=evaluation.at_s))


__all__ = ["evaluate", "Evaluation"]

NO_SIZE = Unknown("the declared size was not read")
BROKEN = (HeadroomError, ValueError, TypeError, LookupError, ArithmeticError, AttributeError, OSError)
"""What a model that was damaged, or made for something else, may raise."""


def evaluate(job: str, *, settings: Settings, loop: Loop, now_s: float) -> Evaluation:
    """The evaluation of this interval: the one that is recorded already, or a new one.

    `settings` without models: those in charge are taken from `loop`.
    """
    interval = math.floor(now_s / settings.interval_s)
    memory = recall(loop.store, job, settings)
    found = _recorded(memory, interval, loop, settings, now_s)
    if found is not None:
        return found
    after = _tick(job, settings=settings, loop=loop, memory=memory, interval=interval, now_s=now_s)
    assert after.evaluation is not None
    if save(loop.store, job, after, expected_epoch=memory.epoch):
        deliver(loop, after.evaluation, before=memory.evaluation)
        return after.evaluation
    found = _recorded(recall(loop.store, job, settings), interval, loop, settings, now_s)
    if found is not None:
        return found
    raise NotReady(f"somebody else evaluated {job} at the same time: the next tick goes on from there")


def _recorded(
    memory: Memory, interval: int, loop: Loop, settings: Settings, now_s: float
) -> Evaluation | None:
    """The evaluation of this interval, if there is one; the newest is told again, in case nobody had."""
    newest = memory.evaluation
    if newest is None:
        return None
    deliver(loop, newest, before=None)
    if (newest.interval, newest.interval_s) != (interval, settings.interval_s):
        return None
    return replace(newest, apply=pending(newest.job, order=memory.order, loop=loop, now_s=now_s))


def _tick(job: str, *, settings: Settings, loop: Loop, memory: Memory, interval: int, now_s: float) -> Memory:
    epoch = next_epoch(memory, interval)
    charge = _in_charge(job, loop)
    champion = charge if isinstance(charge, Unknown) else charge.forecaster
    step_s = None if isinstance(champion, Unknown) else champion.step_s
    seen = look(job, loop=loop, memory=memory, settings=settings, step_s=step_s, now_s=now_s)
    foreseen = foresee(
        job,
        loop=loop,
        charge=charge,
        scoring=memory.scoring,
        rates=seen.rates,
        settings=settings,
        now_s=now_s,
    )
    ours = outcome(loop.store, job)
    said = directives.directives(job, loop=loop, memory=memory, now_s=now_s)
    size = seen.observation.scale_out
    settings = _with_models(settings, charge, memory)
    state = memory.control.with_settings(settings)
    state, order, worries, trouble = followed(state, order=memory.order, outcome=ours, said=said, now_s=now_s)
    said = directives.marked(said, scale_out=size, state=state, ours=ours, status=seen.status)
    state = state.with_directives(said)
    state, instructions = _stepped(state, replace(seen.observation, forecast=foreseen.forecast), now_s)
    first = instructions[0]
    if isinstance(first, Scale) and state.change is not None:
        order = Order(epoch, state.change.before, first.to, state.change.origin, first.reason, now_s)
    else:
        order = still_ordered(state, order)
    worries += tuple(why for why in (memory.trouble, seen.down) if why)
    alarms, told_at_s = _own_alarms(job, memory, state, seen.observation, worries, now_s)
    after = Memory(
        control=state,
        epoch=epoch,
        rates=seen.rates,
        scoring=foreseen.scoring,
        online=learnt_online(memory.online, seen.observation, before=memory.control, after=state),
        order=order,
        anchor=seen.anchor,
        told_at_s=told_at_s,
    )
    evaluation = written_down(
        job,
        after=after,
        observation=seen.observation,
        foreseen=foreseen,
        charge=charge,
        instructions=instructions,
        interval=interval,
        now_s=now_s,
    )
    drift = memory.drift.seen(
        version=charge if isinstance(charge, Unknown) else charge.capacity_version,
        scale_out=size,
        profile=evaluation.capacity.get("profile", NO_SIZE),
        online=evaluation.capacity.get("online", NO_SIZE),
        alarms=evaluation.alarms,
        longest_gap_s=settings.longest_gap_s,
        now_s=now_s,
    )
    evaluation = replace(
        evaluation,
        alarms=[*evaluation.alarms, *alarms],
        requests=[*evaluation.requests, *drift.requests],
        trouble=[*worries, *trouble, *seen.trouble],
        orders=directives.told(said, now_s=now_s),
        apply=pending(job, order=order, loop=loop, now_s=now_s),
    )
    return replace(after, evaluation=evaluation, drift=drift)


def _in_charge(job: str, loop: Loop) -> InCharge | Unknown:
    try:
        return loop.champions(job)
    except BROKEN as error:
        return Unknown(f"the champions could not be read ({error}): promote them again")


def _with_models(settings: Settings, charge: InCharge | Unknown, memory: Memory) -> Settings:
    decide = _careful(settings.decide)
    if isinstance(charge, Unknown):
        return replace(settings, models=Models(capacity=charge), decide=decide)
    capacity = charge.models.capacity
    if not isinstance(capacity, Unknown):
        capacity = LiveCapacity(capacity, memory.online)
    models = replace(charge.models, capacity=capacity)
    return replace(settings, models=models, seed=charge.seed, decide=decide)


@dataclass(frozen=True)
class _NoAnswer:
    """The optimiser could not answer."""

    reason: str
    feasible: bool = False
    alarm: str | None = None

    @property
    def scale_out(self) -> Unknown:
        return Unknown(self.reason)


def _careful(decide: Decider) -> Decider:
    """The same, but models that break give no answer instead of no tick."""

    def answered(situation: Situation) -> Decision:
        try:
            return decide(situation)
        except BROKEN as error:
            return _NoAnswer(f"the models could not be evaluated ({type(error).__name__}: {error})")

    return answered


def _stepped(state: State, seen: Observation, now_s: float) -> tuple[State, list[Instruction]]:
    try:
        return control.step(state, seen, now_s)
    except BROKEN as broken:
        why = f"what was read makes no sense ({type(broken).__name__}: {broken})"
        return control.step(state, nothing(now_s, Unknown(why)), now_s)


def _own_alarms(
    job: str, memory: Memory, after: State, seen: Observation, worries: Sequence[str], now_s: float
) -> tuple[list[str], dict[str, float]]:
    """What the loop itself has to say, not again within `alarm_every_s`."""
    settings = after.settings
    told = {key: at_s for key, at_s in memory.told_at_s.items() if now_s - at_s < settings.alarm_every_s}
    blind_s = now_s - min(after.missing_since_s, now_s)
    if blind_s >= max(settings.missing_for_s, settings.interval_s):
        missing = (getattr(seen, name) for name in NEEDED)
        why = next((f" ({one.reason})" for one in missing if isinstance(one, Unknown)), "")
        worries = (*worries, f"{job} cannot be seen for {blind_s:.0f} s: its size is held{why}")
    alarms = []
    for worry in worries:
        key = worry.split(":")[0].translate(NO_DIGITS)
        if key not in told:
            told[key] = now_s
            alarms.append(worry)
    return alarms, told
