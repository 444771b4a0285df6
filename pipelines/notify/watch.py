"""The watch: looks every few seconds at what has happened, and puts what is to be told into the outbox.

    store     evaluations that were written down since the last look: alarms, changes, broken promises
    orders    drills that have ended
    server    when each job was evaluated last: a loop that stands still, pings of the dead man's switch

It looks by itself, in a thread of its own, so nothing that it or a receiver does delays an evaluation. How
far it has looked, and which messages it has passed on, is a document of each job in the store: after a
restart it goes on from there, and an alarm that was told before is a repetition.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from models.errors import HeadroomError
from models.quantities import Json
from profiling_jobs.control_loop.memory import Evaluation
from profiling_jobs.periodic import Periodic

from ..orchestration.pages import WAIT_S, longest_silence_s
from ..server.in_process import Evaluated, InProcessServer
from ..settings.schema import NotifySettings
from . import messages
from .channels import Channel
from .messages import STILL, Counted, Message
from .outbox import Outbox

LOOK_S = 2.0  # judgement: a message may come some seconds after what it tells
OLD_S = 3600.0  # judgement: what happened before Headroom was away for longer is no news
MOST = 100  # evaluations of one look; judgement: a look late by more than that tells the newest
KEPT_KEYS = 100  # of a job; judgement: there are some twenty alarms
HOUR_S = 3600.0
DOCUMENT = "notified"
LOOP = "*"
"""In place of a job, for what is about all of them; no job can have this name."""


@dataclass
class _Told:
    """What was told of one job."""

    until_s: float = 0.0
    """Evaluations up to this one were looked at."""
    keys: dict[str, Counted] = field(default_factory=dict)
    before: Evaluation | None = None
    """The newest evaluation that was looked at. Not kept: it is in the store."""

    def to_json(self) -> dict[str, Any]:
        newest = sorted(self.keys.items(), key=lambda item: item[1].at_s)[-KEPT_KEYS:]
        return {
            "schema": 1,
            "until_s": self.until_s,
            "keys": {key: [one.at_s, one.more] for key, one in newest},
        }

    @classmethod
    def from_json(cls, document: Json | None) -> _Told:
        """What was kept; nothing where it is missing or from another version."""
        if document is None or document.get("schema") != 1:
            return cls()
        return cls(document["until_s"], {key: Counted(*one) for key, one in document["keys"].items()})


class Watch:
    """Looks at one server; `look` is one round, to be called every LOOK_S."""

    def __init__(
        self,
        settings: NotifySettings,
        server: InProcessServer,
        outbox: Outbox,
        *,
        secrets: Sequence[str] = (),
        evaluates: Callable[[], bool] = lambda: True,
        say: Callable[[str], None] = lambda line: None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """`secrets`: what no message may show. `evaluates`: whether something is to ask for evaluations."""
        self._settings, self._server, self._outbox = settings, server, outbox
        self._secrets, self._evaluates, self._say, self._monotonic = secrets, evaluates, say, monotonic
        self._store = server.context.environment.store
        self._told: dict[str, _Told] = {}
        self._looked_at_s: dict[str, float] = {}
        """Job -> when the evaluation was made that was the newest at the last look."""
        self._drills: set[str] = set()
        """Those that have ended and were looked at."""
        self._sent_s: deque[float] = deque()
        """When messages were passed on within the last hour."""
        self._held_back = 0
        self._awaited_s = math.inf
        """Since when evaluations are to come."""
        self._round_s = -math.inf
        """The newest evaluation of the newest round in which every job was evaluated."""
        self._store_silent = False

    def look(self) -> None:
        self._ping()
        self._look_at_loop()
        try:
            for job in self._server.context.settings.jobs:
                newest_s = self._server.evaluated.get(job, Evaluated()).at_s
                if self._looked_at_s.get(job) != newest_s:
                    self._look_at_job(job)
                    self._store_silent = False
                self._looked_at_s[job] = newest_s
        except HeadroomError as error:
            self._store_failed(error)
        self._look_at_drills()

    # ------------------------------------------------------------------------------------- what it looks at

    def _evaluated_at_s(self) -> dict[str, float]:
        evaluated = self._server.evaluated
        return {
            name: evaluated[name].at_s for name in self._server.context.settings.jobs if name in evaluated
        }

    def _ping(self) -> None:
        """After each round in which every job was evaluated."""
        at_s = self._evaluated_at_s().values()
        if at_s and min(at_s) > self._round_s:
            self._round_s = max(at_s)
            self._outbox.beat(self._now_s())

    def _look_at_loop(self) -> None:
        """Tell of jobs that are not evaluated any more, and when all are again."""
        if not self._evaluates() or "loop" not in self._settings.events:
            return
        now_s, at_s, jobs = self._monotonic(), self._evaluated_at_s(), self._server.context.settings.jobs
        self._awaited_s = min(self._awaited_s, now_s)
        silent: dict[str, str] = {}
        since_s = now_s
        for name, newest_s in at_s.items():
            # Dagster, which asks for evaluations, needs its time to start.
            due_s = max(newest_s, self._awaited_s + (WAIT_S if newest_s < self._awaited_s else 0.0))
            if now_s - due_s > longest_silence_s(jobs[name].evaluation_interval_s, restarts=0):
                silent[name] = self._server.problem or self._server.evaluated[name].problem
                since_s = min(since_s, max(newest_s, self._awaited_s))
        keys, told_at_s = self._told_of(LOOP).keys, self._now_s()
        last = keys.get(STILL)
        if silent:
            if last is None or not 0.0 <= told_at_s - last.at_s < self._settings.repeat_after_s:
                found = messages.of_silence(silent, silent_s=now_s - since_s, at_s=told_at_s)
                self._tell_and_keep(LOOP, [found])
        elif last is not None and min(at_s.values(), default=-math.inf) > -math.inf:
            del keys[STILL]  # the next time is news again
            self._tell_and_keep(LOOP, [messages.of_return(at_s=told_at_s)])

    def _look_at_job(self, job: str) -> None:
        """Tell what is in its evaluations since the last look."""
        told = self._told_of(job)
        rows = self._store.evaluations(job, since_s=math.nextafter(told.until_s, math.inf), limit=MOST)
        if not rows:
            return
        found: list[Message] = []
        for at_s, document in rows:
            evaluation = Evaluation.if_readable(document)
            if evaluation is not None and self._now_s() - at_s <= OLD_S:
                found += _messages(evaluation, before=told.before)
            told.until_s, told.before = at_s, evaluation
        self._tell_and_keep(job, found)

    def _look_at_drills(self) -> None:
        """Tell of drills that have failed; one that ran when the server ended was cancelled."""
        ended = {
            order.id: order
            for order in self._server.orders()
            if order.what == "drill" and order.state != "running"
        }
        for id, order in ended.items():
            if id in self._drills:
                continue
            if (found := messages.of_drill(order.to_json(since=0), at_s=self._now_s())) is not None:
                self._tell(found, {})
        self._drills = set(ended)

    # ---------------------------------------------------------------------------------------- what it tells

    def _tell_and_keep(self, job: str, found: Sequence[Message]) -> None:
        """Pass the messages on, then keep how far it was looked: what is cut off in between is told twice."""
        told = self._told_of(job)
        for message in found:
            self._tell(message, told.keys)
        try:
            self._store.save_document(job, DOCUMENT, told.to_json())
        except HeadroomError as error:
            self._store_failed(error)

    def _tell(self, message: Message, keys: dict[str, Counted]) -> None:
        """Pass a message on, unless it is not wanted, one too many within an hour, or a repetition."""
        if message.event not in self._settings.events:
            return
        now_s = self._monotonic()
        while self._sent_s and now_s - self._sent_s[0] >= HOUR_S:
            self._sent_s.popleft()
        if len(self._sent_s) >= self._settings.most_per_hour and message.event != "loop":
            self._held_back += 1
            return
        passed = messages.not_again(message, keys, repeat_after_s=self._settings.repeat_after_s)
        if passed is None:
            return
        self._sent_s.append(now_s)
        passed, self._held_back = replace(passed, held_back=self._held_back), 0
        self._outbox.put(messages.scrubbed(passed, self._secrets))

    def _told_of(self, job: str) -> _Told:
        """What was told of it. The first time of all, everything up to now counts as told."""
        if job not in self._told:
            try:
                self._told[job] = self._kept(job)
            except HeadroomError as error:
                if job != LOOP:
                    raise
                self._store_failed(error)  # which may be why nothing is evaluated: that is told without it
                self._told[job] = _Told()
        return self._told[job]

    def _kept(self, job: str) -> _Told:
        told = _Told.from_json(self._store.document(job, DOCUMENT))
        for at_s, document in self._store.evaluations(job, until_s=told.until_s or math.inf, limit=1):
            told.until_s, told.before = at_s, Evaluation.if_readable(document)
        return told

    def _store_failed(self, error: HeadroomError) -> None:
        if not self._store_silent:
            self._say(f"notify: the store does not answer, which is tried again: {error}")
        self._store_silent = True

    def _now_s(self) -> float:
        return self._server.context.environment.clock.now_s()


def _messages(evaluation: Evaluation, *, before: Evaluation | None) -> Sequence[Message]:
    """What is told of it; nothing where another version has written other things into it."""
    try:
        return tuple(messages.of_evaluation(evaluation, before=before))
    except (KeyError, TypeError, ValueError):
        return ()


@contextmanager
def notifying(
    settings: NotifySettings,
    channels: Mapping[str, Channel],
    server: InProcessServer,
    *,
    secrets: Sequence[str],
    evaluates: Callable[[], bool],
    say: Callable[[str], None],
) -> Iterator[None]:
    """Tell what happens for as long as this is open. Nothing is started where there is no channel."""
    if not channels:
        yield
        return
    with Outbox(channels, timeout_s=settings.timeout_s, say=say) as outbox:
        watch = Watch(settings, server, outbox, secrets=secrets, evaluates=evaluates, say=say)
        with Periodic(watch.look, every_s=LOOK_S, name="notify-watch"):
            yield
