"""Evaluate a job: collect → forecast → follow → step → record, once per interval.

`evaluate` changes nothing but the store. What has to be done is in `Evaluation.apply`, and is carried out by
`profiling_jobs.control_loop.applying`. The state is saved by compare-and-set before anything else is written:
of two processes that evaluate the same interval one wins, and the other returns the winner's evaluation.

What cannot be read or computed becomes a hold with its reason; an error is raised only where going on could
do harm (a newer version's control state) or where the store itself does not answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from models import codec, control
from models.control import Directives, Settings, State, lost_our_size
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

from .applying import Followed, follow, pending
from .context import InCharge, Loop
from .evaluation_record import Evaluation, fact_to_json
from .forecasting import Foreseen, foresee
from .live_capacity import LiveCapacity, learnt_online, said_live
from .memory import Memory, next_epoch, recall, save
from .observe import Observed, Tick, nothing, observe

__all__ = ["evaluate", "Evaluation"]

NO_CAPACITY = Unknown("there is no capacity model in charge")
NO_SIZE = Unknown("the declared size was not read")
BROKEN = (HeadroomError, ValueError, TypeError, LookupError, ArithmeticError, AttributeError, OSError)
"""What a model that was damaged, or made for something else, may raise."""
DAY_S = 86_400.0
WHO = "headroom"


def evaluate(job: str, *, settings: Settings, loop: Loop, now_s: float) -> Evaluation:
    """The evaluation of this interval: the one that is recorded already, or a new one.

    `settings` come without models: those in charge are taken from `loop`.
    """
    memory = recall(loop.store, job, settings)
    tick = Tick(job, settings, loop, memory, now_s)
    recorded = _recorded(tick)
    if recorded is not None:
        return recorded
    after = _evaluated(tick)
    assert after.evaluation is not None
    if save(loop.store, job, after, expected_epoch=memory.epoch):
        deliver(loop, after.evaluation, before=memory.evaluation)
        return after.evaluation
    recorded = _recorded(replace(tick, memory=recall(loop.store, job, settings)))
    if recorded is not None:
        return recorded
    raise NotReady(
        f"{job} was evaluated by another process at the same time: the next tick goes on from there"
    )


def _evaluated(tick: Tick) -> Memory:
    """One tick; the memory after it holds the evaluation."""
    now_s = tick.now_s
    champions = _champions(tick)
    champion = champions if isinstance(champions, Unknown) else champions.forecaster

    # collect
    seen = observe(tick, step_s=None if isinstance(champion, Unknown) else champion.step_s)

    # forecast
    load = foresee(
        tick.job,
        champions,
        rates=seen.rates,
        scoring=tick.memory.scoring,
        horizon_s=tick.settings.horizon_s,
        cache=tick.loop.remembered,
        now_s=now_s,
    )

    # follow the change that was ordered before
    settings = _with_models(tick.settings, champions, tick.memory)
    followed = follow(tick.memory.control.with_settings(settings), tick, seen)

    # step
    state, instructions = _stepped(followed.state, replace(seen.observation, forecast=load.forecast), now_s)
    epoch = next_epoch(tick.memory, tick.interval)
    if isinstance(instructions[0], Scale) and state.change is not None:
        state = replace(state, change=replace(state.change, epoch=epoch))

    # record
    problems = _problems(tick, state, seen, followed)
    alarms, alarmed_at_s = _not_again(problems, tick)
    after = Memory(
        control=state,
        epoch=epoch,
        rates=seen.rates,
        scoring=load.scoring,
        online=learnt_online(tick.memory.online, seen.observation, before=tick.memory.control, after=state),
        anchor=seen.anchor,
        alarmed_at_s=alarmed_at_s,
    )
    evaluation = _record(tick, after, seen, load, champions, instructions)
    drift = tick.memory.drift.seen(
        version=NO_CAPACITY
        if isinstance(champions, Unknown)
        else champions.versions.get("capacity", NO_CAPACITY),
        scale_out=seen.observation.scale_out,
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
        trouble=[*problems, *followed.trouble, *seen.trouble],
    )
    return replace(after, evaluation=evaluation, drift=drift)


def _recorded(tick: Tick) -> Evaluation | None:
    """The evaluation of this interval, if there is one. The newest is delivered again, in case it was not."""
    newest, settings = tick.memory.evaluation, tick.settings
    if newest is None:
        return None
    deliver(tick.loop, newest, before=None)
    if (newest.interval, newest.interval_s) != (
        tick.interval,
        settings.interval_s,
    ):
        return None
    return replace(newest, apply=pending(tick.memory.control, tick))


def _champions(tick: Tick) -> InCharge | Unknown:
    try:
        return tick.loop.champions(tick.job)
    except BROKEN as error:
        return Unknown(f"the champions could not be read ({error}): promote them again")


def _with_models(settings: Settings, champions: InCharge | Unknown, memory: Memory) -> Settings:
    decide = _careful(settings.decide)
    if isinstance(champions, Unknown):
        return replace(settings, models=Models(capacity=champions), decide=decide)
    capacity = champions.models.capacity
    if not isinstance(capacity, Unknown):
        capacity = LiveCapacity(capacity, memory.online)
    models = replace(champions.models, capacity=capacity)
    return replace(settings, models=models, seed=champions.seed, decide=decide)


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


def _problems(tick: Tick, state: State, seen: Observed, followed: Followed) -> list[str]:
    """What a person has to look at, as far as the loop itself knows."""
    found = [why for why in (*followed.alarms, tick.memory.trouble, seen.down) if why]
    blind_s = tick.now_s - min(state.missing_since_s, tick.now_s)
    if blind_s >= max(tick.settings.missing_for_s, tick.settings.interval_s):
        missing = (getattr(seen.observation, name) for name in NEEDED)
        why = next((f" ({one.reason})" for one in missing if isinstance(one, Unknown)), "")
        found.append(f"{tick.job} cannot be observed for {blind_s:.0f} s: its size is held{why}")
    return found


def _not_again(problems: Sequence[str], tick: Tick) -> tuple[list[str], dict[str, float]]:
    """Those that were not raised within `alarm_every_s`, and when each was raised last."""
    every_s, now_s = tick.settings.alarm_every_s, tick.now_s
    raised = {key: at_s for key, at_s in tick.memory.alarmed_at_s.items() if now_s - at_s < every_s}
    new = []
    for problem in problems:
        key = problem.split(":")[0].translate(NO_DIGITS)
        if key not in raised:
            raised[key] = now_s
            new.append(problem)
    return new, raised


def _record(
    tick: Tick,
    after: Memory,
    seen: Observed,
    load: Foreseen,
    champions: InCharge | Unknown,
    instructions: Sequence[Instruction],
) -> Evaluation:
    """The evaluation of this tick, without the alarms and requests of the loop itself."""
    state, o = after.control, seen.observation
    settings, first = state.settings, instructions[0]
    assert isinstance(first, Scale | Hold)
    change, incident, decided = state.change, state.recovering, state.last_decision
    asked = not isinstance(decided, Unknown) and decided.at_s == tick.now_s
    return Evaluation(
        job=tick.job,
        at_s=tick.now_s,
        interval=tick.interval,
        interval_s=settings.interval_s,
        mode=settings.mode,
        epoch=after.epoch or 0,
        scale_out=o.scale_out,
        instruction={
            "do": "scale" if isinstance(first, Scale) else "hold",
            "to": first.to if isinstance(first, Scale) else None,
            "would": first.would if isinstance(first, Hold) else None,
            "reason": first.reason,
        },
        apply=pending(state, tick),
        alarms=[each.reason for each in instructions if isinstance(each, Alarm)],
        learnt=[fact_to_json(each.fact) for each in instructions if isinstance(each, Learn)],
        observation=_observed(o),
        lag_s=_lag_s(state, o),
        decision=codec.to_json(decided) if asked else {"unknown": first.reason},
        models={} if isinstance(champions, Unknown) else dict(champions.versions),
        provisional={}
        if isinstance(champions, Unknown)
        else {kind: "; ".join(needs) for kind, needs in champions.provisional.items()},
        models_version=settings.models.version,
        seed=settings.seed,
        capacity=_capacity(settings, after, o.scale_out),
        forecast=dict(load.summary),
        requests=[dict(each) for each in load.requests],
        orders=_in_force(state.directives, tick.now_s),
        promise=vars(settings.promise),
        recovering=None if incident is None else _named(incident, "kind", "failed_at_s", "why"),
        change=None if change is None else _named(change, "origin", "before", "to", "at_s", "problem"),
        foreign=None if state.foreign is None else vars(state.foreign),
        reassert=None
        if isinstance(o.scale_out, Unknown) or not lost_our_size(state, o.scale_out)
        else {"found": o.scale_out, "ours": state.last_good},
        attached=settings.only_commits,
        quarantined=[
            _named(each, "scale_out", "direction", "until_s", "why")
            for each in state.quarantined
            if tick.now_s < each.until_s
        ],
    )


def _named(value: object, *names: str) -> dict[str, Any]:
    return {name: getattr(value, name) for name in names}


def _in_force(said: Directives, now_s: float) -> dict[str, Any]:
    """The directives in force, as the evaluation shows them."""
    found = {
        name: vars(each) for name in ("pause", "pin", "blackout") if (each := getattr(said, name)) is not None
    }
    if drill := said.drilled(now_s):
        found["drill"] = {"kind": drill.kind, "since_s": drill.since_s}
    return found


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


def deliver(loop: Loop, evaluation: Evaluation, *, before: Evaluation | None) -> None:
    """Write the evaluation and its facts to the store; a second time changes nothing.

    `before`: the evaluation before this one. Old evaluations are deleted when a new day begins.
    """
    store, job = loop.store, evaluation.job
    key = f"delivered {job}"
    if loop.remembered.get(key) == evaluation.epoch:
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
    loop.remembered[key] = evaluation.epoch


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
    why = f"the size was set to {executors(foreign['found'])} where we had set {foreign['ours']}"
    store.direct(Directive(evaluation.job, "hold", WHO, why, since_s=evaluation.at_s))
