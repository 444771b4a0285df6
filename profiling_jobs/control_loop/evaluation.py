"""Evaluate a job: collect → forecast → follow → step → record, once per interval.

`evaluate` changes nothing but the store. What has to be done is in `Evaluation.apply`, and is carried out by
`profiling_jobs.control_loop.applying`. The state is saved by compare-and-set before anything else is written:
of two processes that evaluate the same interval one wins, and the other returns the winner's evaluation.

What cannot be read or computed becomes a hold with its reason; an error is raised only where going on could
do harm (a newer version's control state) or where the store itself does not answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from models import control
from models.capacity import OnlineCapacity
from models.capacity.online import LiveCapacity, said_live
from models.control import Directives, Settings, State, lost_our_size
from models.control.state import ALARM_EVERY_S, Incident, Models, PredictsCapacity
from models.control.step import BROKEN, trouble_key
from models.errors import NotReady
from models.observation import Observation
from models.optimise.question import sustained
from models.quantities import (
    Alarm,
    Hold,
    Instruction,
    Interval,
    Learn,
    RecoveryEvent,
    Scale,
    Unknown,
    executors,
)

from .applying import follow, pending
from .context import InCharge, Loop
from .forecasting import Foreseen, foresee
from .memory import Anchor, Evaluation, Memory, Tick, deliver, fact_to_json, next_epoch, save
from .observe import Observed, nothing, observe

__all__ = ["evaluate", "Evaluation"]

NO_CAPACITY = Unknown("there is no capacity model in charge")
NO_SIZE = Unknown("the declared size was not read")


def evaluate(job: str, *, settings: Settings, loop: Loop, now_s: float) -> Evaluation:
    """The evaluation of this interval: the one that is recorded already, or a new one.

    `settings` come without models: those in charge are taken from `loop`.
    """
    tick = Tick.of(job, settings, loop, now_s=now_s)
    recorded = _recorded(tick)
    if recorded is not None:
        return recorded
    after = _evaluated(tick)
    assert after.evaluation is not None
    if save(loop.store, job, after, expected_epoch=tick.memory.epoch):
        deliver(loop, after.evaluation, before=tick.memory.evaluation)
        return after.evaluation
    recorded = _recorded(Tick.of(job, settings, loop, now_s=now_s))
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
    # what a person has to look at, as far as the loop itself knows
    problems = [why for why in (*followed.alarms, tick.memory.trouble, seen.down) if why]
    alarms, alarmed_at_s = _not_again(problems, tick)
    after = Memory(
        control=state,
        epoch=epoch,
        rates=seen.rates,
        scoring=load.scoring,
        online=learnt_online(tick.memory.online, seen.observation, before=tick.memory.control, after=state),
        anchor=tick.memory.anchor if isinstance(seen.newest, Unknown) else Anchor.of(seen.newest.sample),
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
        trouble=[
            *problems,
            *followed.trouble,
            *seen.trouble,
            *_not_learnt(followed.state.recovering, state.recovering, instructions),
        ],
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
    if isinstance(champions, Unknown):
        return replace(settings, models=Models(capacity=champions))
    capacity = champions.models.capacity
    if not isinstance(capacity, Unknown):
        capacity = LiveCapacity(capacity, memory.online)
    models = replace(champions.models, capacity=capacity)
    return replace(settings, models=models, seed=champions.seed)


def _stepped(state: State, seen: Observation, now_s: float) -> tuple[State, list[Instruction]]:
    try:
        return control.step(state, seen, now_s)
    except BROKEN as broken:
        why = f"what was read makes no sense ({type(broken).__name__}: {broken})"
        return control.step(state, nothing(now_s, Unknown(why)), now_s)


def _not_learnt(
    before: Incident | None, after: Incident | None, instructions: Sequence[Instruction]
) -> list[str]:
    """That a recovery is over which taught nothing, and why."""
    if before is None or after is not None or before.given_up:
        return []
    if any(isinstance(each, Learn) and isinstance(each.fact, RecoveryEvent) for each in instructions):
        return []
    why = before.spoilt or "when it worked again could not be seen"
    return [f"nothing was learnt from {before.kind}: {why}"]


def _not_again(problems: Sequence[str], tick: Tick) -> tuple[list[str], dict[str, float]]:
    """Those that were not raised within ALARM_EVERY_S, and when each was raised last."""
    now_s = tick.now_s
    raised = {key: at_s for key, at_s in tick.memory.alarmed_at_s.items() if now_s - at_s < ALARM_EVERY_S}
    new = []
    for problem in problems:
        key = trouble_key(problem)
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
            "ends": first.ends if isinstance(first, Hold) else None,
            "again_at_s": first.again_at_s if isinstance(first, Hold) else None,
        },
        apply=pending(state, tick),
        alarms=[each.reason for each in instructions if isinstance(each, Alarm)],
        learnt=[fact_to_json(each.fact) for each in instructions if isinstance(each, Learn)],
        observation=_observed(o),
        lag_s=_lag_s(state, o),
        decision=vars(decided) if asked else {"unknown": first.reason},
        recoveries=_recoveries(settings, replace(o, forecast=load.forecast)),
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
        recovering=None if incident is None else _named(incident, "kind", "failed_at_s", "why", "spoilt"),
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


def _recoveries(settings: Settings, seen: Observation) -> dict[str, Any]:
    try:
        return dict(control.predicted(settings, seen))
    except BROKEN as broken:
        why = Unknown(f"what was read makes no sense ({type(broken).__name__}: {broken})")
        return dict.fromkeys(settings.failure_kinds, why)


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


MOST_SHARE = 1.05  # as models.capacity.online: more is sampling jitter no longer


def learnt_online(
    online: OnlineCapacity, seen: Observation, *, before: State, after: State
) -> OnlineCapacity:
    """The online capacity with this tick, if anything can be learnt from it."""
    cpu, rates, size = seen.cpu, seen.worker_rps, seen.scale_out
    if isinstance(cpu, Unknown) or isinstance(rates, Unknown) or isinstance(size, Unknown):
        return online
    if after.recovering is not None or after.change is not None or after.observed_at_s != seen.at_s:
        return online
    if seen.at_s - after.settled_at_s < after.settings.settled_after_s or seen.executors_alive != size:
        return online
    workers = sorted(set(cpu) & set(rates))
    if len(workers) != size or not all(0.0 <= cpu[w] <= MOST_SHARE for w in workers):
        return online
    step_s = seen.at_s - before.observed_at_s
    if not 0.0 < step_s <= after.settings.longest_gap_s:
        step_s = after.settings.interval_s
    return online.update({w: cpu[w] for w in workers}, {w: rates[w] for w in workers}, step_s=step_s)
