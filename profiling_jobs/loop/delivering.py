"""How does what an evaluation has found reach the store, also when somebody dies in between?

After the control state is saved the evaluation is recorded, its facts are kept for the models, and a foreign
edit leaves a `hold` that people see and end. All of it may be told again: it is the same then.
"""

from __future__ import annotations

from models.quantities import Measurement, RecoveryEvent
from models.wording import executors

from ..ports import Directive, Store
from .evaluation_record import Evaluation
from .ground import Loop

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
