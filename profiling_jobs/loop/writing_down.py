"""What does one tick write down of what it saw, decided and ordered?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from models.control import Settings, State, lost_our_size
from models.control.deciding import PredictsCapacity
from models.observation import Observation
from models.optimise.engine import sustained
from models.quantities import Alarm, Hold, Instruction, Interval, Learn, Scale, Unknown
from models.wording import executors

from .evaluation_record import Evaluation, fact_to_json, short
from .foreseeing import Foreseen
from .ground import InCharge
from .live_state import Memory
from .online import LiveCapacity, said_live


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
