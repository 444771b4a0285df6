"""What should happen to this job now, and where is it written down?

One evaluation of one job, once per interval whoever asks: look, foresee, hear what people say, step control,
save what is remembered by compare-and-set, tell the store. It changes nothing but the store; what has to be
done is in `Evaluation.apply` and is carried out by `profiling_jobs.loop.applying`.

What cannot be read or computed becomes a hold with its reason; an error is raised only where going on could
do harm (a newer version's control state) or where the store itself does not answer.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from models import control
from models.control import Settings, State
from models.control.deciding import Decider, Decision, Models, Situation
from models.control.seeing import NEEDED
from models.control.step import NO_DIGITS
from models.observation import Observation
from models.quantities import Instruction, Scale, Unknown

from ..errors import HeadroomError, NotReady
from . import directing
from .applying import pending
from .changes import Order, outcome
from .delivering import deliver
from .evaluation_record import Evaluation
from .following import followed, still_ordered
from .foreseeing import foresee
from .ground import InCharge, Loop
from .live_state import Memory, next_epoch, recall, save
from .looking import look, nothing
from .online import LiveCapacity, learnt_online
from .writing_down import written_down

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
    said = directing.directives(job, loop=loop, memory=memory, now_s=now_s)
    size = seen.observation.scale_out
    settings = _with_models(settings, charge, memory)
    state = memory.control.with_settings(settings)
    state, order, worries, trouble = followed(state, order=memory.order, outcome=ours, said=said, now_s=now_s)
    said = directing.marked(said, scale_out=size, state=state, ours=ours, status=seen.status)
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
        orders=directing.told(said, now_s=now_s),
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
