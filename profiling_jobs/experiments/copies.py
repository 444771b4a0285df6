"""Profiling copies: second runs of a job that the live job does not notice, removed at their end.

A *profiling copy* has a name, topics and a checkpoint of its own, and a source that fills its input. What it
is going to need is written down in the store before it is made, so that after a crash it is stopped and its
topics are deleted (`Copies.clear`, `clear_left_over`). Nothing is deleted that is not written down there. A
name that is in use, by a job or by its checkpoint, is passed over.

A copy that has done its part is given the next size under its running query, where the job may be rescaled
so: no driver and no source have to be started, which is half of what a short probe takes.

Copies wait until the live job has caught up (`wait_until_caught_up`), for they take processors from it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from models.errors import HeadroomError, Misconfigured, NotReady
from models.ports import Broker, Clock, Deployments, Metrics, Plan, Query, Source, Store
from models.quantities import Unknown

from ..plans import FILES, folder_of
from ..telemetry.spark_page import StageTime
from ..telemetry.timeline import Timeline, Watch

DOCUMENT = "copies"
PREFIX = "headroom."
BESIDE = ".files"  # behind the name of a copy's checkpoint: where it writes what is not for a topic
KEPT_S = 3600.0  # judgement: longer than any copy lags; by days it would fill the disks of your brokers
AGAIN = 3  # judgement: a broker that restarts is back by then; each try has its own patience


@dataclass(frozen=True)
class ExperimentContext:
    """Dependencies of experiments: where copies run, and what measures them."""

    deployments: Deployments
    metrics: Metrics
    """Nothing else samples a copy meanwhile."""
    broker: Broker
    store: Store
    clock: Clock
    open_source: Callable[[str, Mapping[str, str]], Source]
    """Copy's name and its input topics (the job's name -> topic) -> a source that runs, at a low rate."""
    checkpoint: Callable[[str], str]
    """Copy's name -> a place for its checkpoint, of its own."""
    forget: Callable[[str], None] = lambda name: None
    """Remove what is left of a stopped copy: its source if that still runs, its record, its checkpoint.
    A copy that never came so far is not an error."""
    stages: Callable[[str], tuple[StageTime, ...]] | None = None
    """Copy's name -> the stages of its newest batches, where they can be read."""
    rescales_live: bool = True
    """Whether a copy may change its size under its running query."""


@dataclass
class Copy:
    """A running copy."""

    plan: Plan
    source: Source
    watch: Watch
    measured: bool = False
    """Whether a probe has been run on it at its size already: it is warm."""
    rescaled: int = 0
    """How often."""
    loaded_from_s: float | None = None
    """Since when it has had more input than it can take, at this size; such a copy need not be warmed up."""


class Copies:
    """The copies of one job, made from one plan."""

    def __init__(
        self, template: Plan, around: ExperimentContext, *, partitions: Mapping[str, int], purpose: str = "p"
    ) -> None:
        """`partitions`: by the job's names for its topics; those of the live topics, or capacity differs."""
        for name in (*template.inputs, *template.outputs):
            if name not in partitions:
                raise Misconfigured(f"job.{template.job}", f"the partitions of '{name}' are not known")
        self._template, self._around, self._partitions = template, around, partitions
        self._purpose = purpose
        self._running: dict[str, Copy] = {}

    @property
    def running(self) -> tuple[Copy, ...]:
        return tuple(self._running.values())

    def sized(self, scale_out: int, spare: Copy | None = None) -> Copy:
        """A copy of this size: the spare one, if need be rescaled; or a new one in its place."""
        if spare is None:
            return self.launch(scale_out)
        if spare.plan.scale_out == scale_out:
            return spare
        if self._around.rescales_live:
            with suppress(HeadroomError):  # a new one has not got its problem
                self._rescale(spare, scale_out)
                return spare
        with suppress(HeadroomError):  # it stays written down, and `clear` comes back to it
            self.stop(spare)
        return self.launch(scale_out)

    def launch(self, scale_out: int) -> Copy:
        """Launch one more copy; undone where a step fails."""
        around, job = self._around, self._template.job
        document = _document(around.store, job)
        number = document["made"] + 1
        # The name of a job that runs, or has a checkpoint: `orders-p1` need not be a copy of `orders`.
        while (
            _launched_as(name := f"{job}-{self._purpose}{number}", around) is not None
            or Path(around.checkpoint(name)).exists()
        ):
            number += 1
        inputs = {own: f"{PREFIX}{name}.{own}" for own in self._template.inputs}
        checkpoint = around.checkpoint(name)
        outputs = {}
        for own, live in self._template.outputs.items():
            folder = f"{checkpoint}{BESIDE}/{own}"
            kept = folder if folder_of(live) == live else f"{FILES}{folder}"
            outputs[own] = f"{PREFIX}{name}.out.{own}" if folder_of(live) is None else kept
        plan = replace(
            self._template,
            name=name,
            role="profile",
            scale_out=scale_out,
            inputs=inputs,
            outputs=outputs,
            checkpoint=checkpoint,
        )
        topics = [*inputs.items(), *((own, to) for own, to in outputs.items() if folder_of(to) is None)]
        document["made"] = number
        document["copies"][name] = [topic for _, topic in topics]
        around.store.save_document(job, DOCUMENT, document)
        try:
            for own, topic in topics:
                around.broker.create(topic, partitions=self._partitions[own], kept_s=KEPT_S)
            around.deployments.launch(plan)  # first: its driver starts while the source does
            source = around.open_source(name, inputs)
        except BaseException:
            with suppress(HeadroomError):  # it stays written down, and `clear` comes back to it
                _discard(job, name, around)
            raise
        copy = self._running[name] = Copy(plan, source, self._watch(plan))
        return copy

    def stop(self, copy: Copy) -> None:
        name = copy.plan.name
        self._running.pop(name, None)
        try:
            copy.source.stop()
        finally:
            _discard(self._template.job, name, self._around)

    def clear(self) -> tuple[str, ...]:
        """Stop every copy that is written down, of this run or of an earlier one; what would not go.

        What would not go stays written down for the next time.
        """
        problems = []
        for copy in self.running:
            try:
                self.stop(copy)
            except HeadroomError as error:
                problems.append(f"{copy.plan.name}: {error}")
        _, left = clear_left_over(self._template.job, self._around)
        return (*problems, *left)

    def _rescale(self, copy: Copy, scale_out: int) -> None:
        copy.rescaled += 1
        self._around.deployments.scale(copy.plan.name, scale_out, epoch=copy.rescaled)
        copy.plan = replace(copy.plan, scale_out=scale_out)
        copy.watch, copy.measured, copy.loaded_from_s = self._watch(copy.plan), False, None

    def _watch(self, plan: Plan) -> Watch:
        around = self._around
        return Watch(
            plan.name, scale_out=plan.scale_out, metrics=around.metrics, deployments=around.deployments
        )


def clear_left_over(job: str, around: ExperimentContext) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Stop every copy of this job that is written down: which went, what would not go."""
    gone, problems = [], []
    for name in _document(around.store, job)["copies"]:
        try:
            _discard(job, name, around)
            gone.append(name)
        except HeadroomError as error:
            problems.append(f"{name}: {error}")
    return tuple(gone), tuple(problems)


def _launched_as(name: str, around: ExperimentContext) -> Query | None:
    try:
        return around.deployments.plan(name)
    except Misconfigured:
        return None


def _discard(job: str, name: str, around: ExperimentContext) -> None:
    document = _document(around.store, job)
    plan = _launched_as(name, around)
    # A deployment of that name which is no copy of this job was there before: its launch was refused then.
    if plan is None or (plan.role, plan.job) == ("profile", job):
        if plan is not None:
            around.deployments.stop(name)
        around.forget(name)
    for topic in document["copies"].get(name, ()):
        _delete(topic, around.broker)
    document["copies"].pop(name, None)
    around.store.save_document(job, DOCUMENT, document)


def _delete(topic: str, broker: Broker) -> None:
    for attempt in range(AGAIN):
        try:
            return broker.delete(topic)
        except NotReady:
            if attempt + 1 == AGAIN:
                raise


def _document(store: Store, job: str) -> dict[str, Any]:
    kept = store.document(job, DOCUMENT) or {"made": 0, "copies": {}}
    return {"schema": 1, "made": int(kept["made"]), "copies": dict(kept["copies"])}


# ---------------------------------------------------------------------------------------- the live job

CALM_S = 15.0  # as long as lag has to stay in its band after a failure
BATCHES_S = 600.0  # judgement: where the usual length of a batch is looked up
LEAST_BAND_S = 10.0  # judgement: samples of a second, and an input that comes in bursts
BAND_BATCHES = 2.5  # two, and a quarter more as in drills
LOOK_S = 1.0
SAY_S = 30.0


def behind_s(timeline: Timeline, *, now_s: float, trigger_s: float, max_lag_s: float) -> float | Unknown:
    """Largest lag of the last seconds, in seconds of input; 0 where it is as small as between two batches."""
    lag = timeline.lag_s(now_s - CALM_S, now_s)
    known = lag[~np.isnan(lag)]
    if not known.size:
        return Unknown("the lag of the live job is not known")
    batch_s = timeline.batch_s(now_s - BATCHES_S, now_s)
    band_s = max(LEAST_BAND_S, BAND_BATCHES * max(trigger_s, batch_s))
    largest = float(known.max())
    return largest if largest > min(band_s, max_lag_s) else 0.0


def wait_until_caught_up(
    name: str,
    reading: Callable[[str], AbstractContextManager[Timeline]],
    *,
    clock: Clock,
    trigger_s: float,
    max_lag_s: float,
    patience_s: float,
    say: Callable[[str], None],
) -> None:
    """Return when the live job has caught up, or its lag cannot be read; NotReady after `patience_s`."""
    began_s, said_s = clock.now_s(), -SAY_S
    while True:
        now_s = clock.now_s()
        with reading(name) as timeline:
            lag_s = behind_s(timeline, now_s=now_s, trigger_s=trigger_s, max_lag_s=max_lag_s)
        if isinstance(lag_s, Unknown) or lag_s == 0.0:
            return
        waited_s = now_s - began_s
        how_far = (
            "behind, although no input arrives" if math.isinf(lag_s) else f"{lag_s:.0f} s of input behind"
        )
        if waited_s >= patience_s:
            raise NotReady(
                f"{name} is {how_far}, and has not caught up within {waited_s:.0f} s: a "
                f"copy would slow it down further. Give it executors, or stop it (`headroom stop {name}`)"
            )
        if waited_s - said_s >= SAY_S:
            said_s = waited_s
            say(f"waiting until {name} has caught up: it is {how_far}")
        clock.sleep(LOOK_S)
