"""Order queue: each order runs in a thread of its own, reports its progress, and can be cancelled.

A handler reports lines and facts through its `Order`, and sleeps on an `OrderClock`: once the order is
cancelled, the next sleep raises `Cancelled`, once, so that what then cleans up may still sleep. While an
order runs, others with the same `excludes` are refused; no more than MOST run at a time.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from models.errors import NotReady, error_to_json
from models.ports import Clock
from profiling_jobs.orders import Details

from ..environments.base import Environment

MOST = 8  # judgement: each may hold a source, a driver and executors
KEPT = 200  # orders that have ended; judgement: a day of drills and probes
KEPT_LINES = 5000  # judgement
SLICE_S = 1.0  # a cancelled order is asked at least so often
JOIN_S = 60.0  # judgement: as long as a driver may take to stop between batches


class Cancelled(BaseException):
    """The order was cancelled. Not an Exception, so that no handler of errors catches it."""


class Interrupted(BaseException):
    """The order has to end early, with the reason; what it has found is kept. Not an Exception either."""


class Order:
    """One order: reported to by its thread, read and cancelled by others."""

    def __init__(self, id: str, what: str, job: str, details: Details, excludes: str) -> None:
        self.id, self.what, self.job, self.details, self.excludes = id, what, job, details, excludes
        self.began_s = time.time()
        self.ended_s: float | None = None
        self.state = "running"
        self.error: dict[str, str] | None = None
        self.result: Mapping[str, Any] | None = None
        self._share: float | None = None
        self._stage = ""
        self._lines: list[str] = []
        self._dropped = 0
        self._facts: list[Mapping[str, Any]] = []
        self._cancelling = threading.Event()
        self._raised = False
        self._turn = threading.Lock()

    # ------------------------------------------------------------------------------ for its own thread

    def say(self, line: str, *, share: float | None = None) -> None:
        """Report one line, and how far the order is."""
        with self._turn:
            self._lines.append(line)
            if len(self._lines) > KEPT_LINES:
                self._lines.pop(0)
                self._dropped += 1
            self._stage = line
            self._share = self._share if share is None else min(1.0, max(self._share or 0.0, share))

    def at(self, share: float) -> None:
        """Report how far the order is, without a line."""
        with self._turn:
            self._share = share

    def found(self, fact: Mapping[str, Any]) -> None:
        """Report something that was measured and is in the store."""
        with self._turn:
            self._facts.append(dict(fact))

    def check(self) -> None:
        """Raise `Cancelled` if it was cancelled; once."""
        if self.cancelled and not self._raised:
            self._raised = True
            raise Cancelled

    # ------------------------------------------------------------------------------- for other threads

    def cancel(self) -> None:
        self._cancelling.set()

    @property
    def cancelled(self) -> bool:
        return self._cancelling.is_set()

    def to_json(self, *, since: int | None = None) -> dict[str, Any]:
        """As `Server.order` describes it; without `since` neither lines, facts nor result."""
        with self._turn:
            named = ("id", "what", "job", "began_s", "ended_s", "state", "error")
            data: dict[str, Any] = {name: getattr(self, name) for name in named}
            data |= {"details": self.details.model_dump(exclude_unset=True)}
            data |= {"share": self._share, "stage": self._stage}
            if since is not None:
                data["lines"] = self._lines[max(0, since - self._dropped) :]
                data["next"] = self._dropped + len(self._lines)
                data["facts"] = list(self._facts)
                data["result"] = self.result
            return data

    def end(self, state: str, *, result: Mapping[str, Any] | None = None, error: Any = None) -> None:
        with self._turn:
            self.state, self.result, self.error = state, result, error
            self.ended_s = time.time()
            if state == "done":
                self._share = 1.0


class OrderClock:
    """The environment's clock; its sleep ends in `Cancelled` when the order was cancelled.

    Or in `Interrupted`, once, when `ends` gives a reason.
    """

    def __init__(
        self, clock: Clock, order: Order, *, ends: Callable[[float], str] = lambda now_s: ""
    ) -> None:
        self._clock, self._order, self._ends = clock, order, ends
        self._raised = False

    def now_s(self) -> float:
        return self._clock.now_s()

    def sleep(self, seconds: float) -> None:
        self._check()
        while seconds > SLICE_S:
            self._clock.sleep(SLICE_S)
            seconds -= SLICE_S
            self._check()
        self._clock.sleep(max(0.0, seconds))
        self._check()

    def _check(self) -> None:
        self._order.check()
        if not self._raised and (why := self._ends(self._clock.now_s())):
            self._raised = True
            raise Interrupted(why)


class OrderQueue:
    """All orders of one server."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self._orders: dict[str, Order] = {}
        self._threads: dict[str, threading.Thread] = {}
        self._turn = threading.Lock()
        self._made = 0
        self._closed = False
        self._mark = secrets.token_hex(3)

    def begin(
        self,
        what: str,
        job: str,
        details: Details,
        handle: Callable[[Order, Any], Mapping[str, Any]],
        *,
        excludes: str,
    ) -> str:
        """Run the order in a thread from now on; its id. NotReady while one with the same `excludes` runs.

        The same order given again while it runs is that order: two runs that find the same change due, or one
        that is tried again, wait for one end.
        """
        with self._turn:
            if self._closed:
                raise NotReady("the server is stopping and begins nothing new")
            running = [order for order in self._orders.values() if order.state == "running"]
            for other in running:
                same = (other.what, other.job, other.details) == (what, job, details)
                if same and not other.cancelled:
                    return other.id
                if other.excludes == excludes:
                    raise NotReady(
                        f"{other.what} of {other.job} is under way (order {other.id}): wait for its end, "
                        "or cancel it"
                    )
            if len(running) >= MOST:
                raise NotReady(f"{MOST} orders are under way: wait until one of them has ended")
            self._made += 1
            id = f"{what}-{job}-{self._mark}-{self._made}"
            order = self._orders[id] = Order(id, what, job, details, excludes)
            begun = threading.Event()
            thread = threading.Thread(target=self._run, args=(order, handle, begun), name=f"headroom-{id}")
            thread.daemon = True
            self._threads[id] = thread
            ended = [id for id, order in self._orders.items() if order.state != "running"]
            for old in ended[: max(0, len(ended) - KEPT)]:
                del self._orders[old]
        thread.start()
        begun.wait()  # before simulated time goes on without it
        return id

    def get(self, id: str) -> Order:
        with self._turn:
            if id not in self._orders:
                raise NotReady(f"order {id} is unknown: the server was restarted, give the order again")
            return self._orders[id]

    def all(self) -> tuple[Order, ...]:
        """All orders, the oldest first."""
        with self._turn:
            return tuple(self._orders.values())

    def close(self, *, timeout_s: float = JOIN_S) -> tuple[str, ...]:
        """Cancel everything and wait for it; the orders that did not end in time."""
        with self._turn:
            self._closed = True
            threads = dict(self._threads)
            for order in self._orders.values():
                order.cancel()
        until = time.monotonic() + timeout_s
        for thread in threads.values():
            thread.join(max(0.0, until - time.monotonic()))
        return tuple(id for id, thread in threads.items() if thread.is_alive())

    def _run(
        self, order: Order, handle: Callable[[Order, Any], Mapping[str, Any]], begun: threading.Event
    ) -> None:
        with self._environment.hurried(), self._environment.taking_part():
            begun.set()
            try:
                order.check()
                order.end("done", result=handle(order, order.details))
            except Cancelled:
                order.end("cancelled", error={"kind": "NotReady", "message": f"{order.what} was cancelled"})
            except BaseException as error:  # noqa: BLE001 - reported to the client, instead of ending unseen
                order.end("failed", error=error_to_json(error))
        with self._turn:
            self._threads.pop(order.id, None)
