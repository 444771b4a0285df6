"""The outbox: sends messages through the channels, in one thread.

`put` never waits. Each channel has a bounded queue. An attempt that fails is repeated later, less and less
often, for a quarter of an hour; a channel that fails or hangs delays the others by one attempt at most. What
is wrong with a channel is said once, and said to be over once; what could not be sent is counted.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from models.errors import HeadroomError, Misconfigured, NotReady
from models.quantities import counted, lasting

from .channels import HEARTBEAT, Channel
from .messages import Message

MOST_WAITING = 200  # judgement: three hours of messages at the default limit
GIVE_UP_S = 900.0  # judgement: what is older than a quarter of an hour is seen elsewhere by then
AGAIN_S = 5.0  # judgement: before the second attempt; each further one waits twice as long …
LONGEST_S = 120.0  # … up to this
SLACK_S = 2.0  # that a channel has to end an attempt by itself
CLOSE_S = 5.0  # judgement: what the end of the process is delayed by at most


@dataclass
class _Queue:
    """One channel and what waits for it."""

    name: str
    channel: Channel
    waiting: deque[tuple[float, Message]] = field(default_factory=deque)
    """When it was put, and the message."""
    due_s: float = 0.0
    failures: int = 0
    """In a row."""
    problem: str = ""
    """What was said of it; empty while it works."""
    lost: int = 0
    """Since then."""
    attempt: threading.Thread | None = None
    """One that has not ended in time."""


class Outbox:
    """Messages on their way. As a context it sends until it is left, and then what is left within CLOSE_S."""

    def __init__(
        self,
        channels: Mapping[str, Channel],
        *,
        timeout_s: float,
        say: Callable[[str], None],
    ) -> None:
        self._queues = {name: _Queue(name, channel) for name, channel in channels.items()}
        self._timeout_s, self._say = timeout_s, say
        self._changed = threading.Condition()
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="headroom-notify", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join(CLOSE_S)
        with self._changed:
            left = {name: len(one.waiting) + one.lost for name, one in self._queues.items()}
        for name, number in left.items():
            if number and name != HEARTBEAT:
                self._say(f"notify: {name}: {counted(number, 'message')} could not be sent")

    def put(self, message: Message) -> None:
        """Send it to people by every channel."""
        with self._changed:
            for name, queue in self._queues.items():
                if name != HEARTBEAT:
                    self._append(queue, message)

    def beat(self, at_s: float) -> None:
        """Ping the dead man's switch, if there is one. A ping that was not sent yet is left out."""
        with self._changed:
            if (queue := self._queues.get(HEARTBEAT)) is not None:
                queue.waiting.clear()
                self._append(queue, Message("loop", "", "every job was evaluated", at_s))

    def _append(self, queue: _Queue, message: Message) -> None:
        if len(queue.waiting) >= MOST_WAITING:
            del queue.waiting[1]  # the first may be under way
            queue.lost += 1
        queue.waiting.append((time.monotonic(), message))
        self._changed.notify()

    def _run(self) -> None:
        while (queue := self._next()) is not None:
            with self._changed:
                if not queue.waiting:
                    continue
                entry = queue.waiting[0]
            problem = self._attempted(queue, entry[1])
            with self._changed:
                said = self._ended(queue, entry, problem)
            if said:
                self._say(f"notify: {said}")

    def _next(self) -> _Queue | None:
        """Wait for a channel whose message is due; None at the end."""
        with self._changed:
            while True:
                now_s = time.monotonic()
                filled = [queue for queue in self._queues.values() if queue.waiting]
                queue = min(filled, key=lambda one: one.due_s, default=None)
                if queue is not None and queue.due_s <= now_s:
                    return queue
                if self._closing:
                    return None
                self._changed.wait(None if queue is None else queue.due_s - now_s)

    def _attempted(self, queue: _Queue, message: Message) -> HeadroomError | None:
        """Why it could not be sent; None where it was."""
        if queue.attempt is not None and queue.attempt.is_alive():
            return NotReady(f"{queue.channel.where} still holds the attempt before")
        found, queue.attempt = attempted(queue.channel, message, timeout_s=self._timeout_s)
        return found

    def _ended(self, queue: _Queue, entry: tuple[float, Message], problem: HeadroomError | None) -> str:
        """What is to be said after an attempt."""
        there = bool(queue.waiting) and queue.waiting[0] is entry  # or a newer one has taken its place
        now_s = time.monotonic()
        if problem is None:
            if there:
                queue.waiting.popleft()
            said = ["works again"] if queue.problem else []
            if queue.lost and queue.name != HEARTBEAT:
                said.append(f"{counted(queue.lost, 'message')} could not be sent")
            queue.failures, queue.due_s, queue.problem, queue.lost = 0, now_s, "", 0
            return f"{queue.name}: {'; '.join(said)}" if said else ""
        refused = isinstance(problem, Misconfigured)
        queue.failures += 1
        pause_s = min(LONGEST_S, AGAIN_S * 2.0 ** min(queue.failures - 1, 10))  # 2.0 ** 1024 is no number
        queue.due_s = now_s if refused else now_s + pause_s
        if there and (refused or now_s - entry[0] > GIVE_UP_S):
            queue.waiting.popleft()
            queue.lost += 1
        if queue.problem:
            return ""
        queue.problem = str(problem)
        then = "" if refused else f"; each message is tried again for {lasting(GIVE_UP_S)}"
        return f"{queue.name}: {problem}{then}"


def attempted(
    channel: Channel, message: Message, *, timeout_s: float
) -> tuple[HeadroomError | None, threading.Thread | None]:
    """Send within `timeout_s`: why that failed, or None; and the thread, which may be at it still.

    A name server, or a receiver that sends byte by byte, holds a call for longer than its own time-outs.
    """
    outcome: list[HeadroomError | None] = []

    def work() -> None:
        try:
            channel.send(message)
            outcome.append(None)
        except HeadroomError as error:
            outcome.append(error)
        except Exception as error:  # noqa: BLE001 - one message must not end all others; its text may be secret
            outcome.append(NotReady(f"{channel.where} could not be told: {type(error).__name__}"))

    thread = threading.Thread(target=work, name="headroom-notify-attempt", daemon=True)
    try:
        thread.start()
    except RuntimeError:  # the machine has none left
        return NotReady("no thread could be started for it"), None
    thread.join(timeout_s + SLACK_S)
    late = NotReady(f"{channel.where} has not answered within {timeout_s:g} s")
    return (outcome[0] if outcome else late), thread
