"""Orders: requests to the server that runs the jobs, and how a client waits for their end.

The server (`headroom serve`, `headroom demo`) keeps the environment open and samples every job once a second.
`evaluate` is answered at once. An order may take hours: it runs in the server, survives its client, and is
looked up by its id. Everything that is passed is plain JSON. `pipelines.server.in_process` and
`pipelines.server.client` implement the protocol, and pass the same tests.

    result = run_order(server, "drill", "orders", kinds=["driver_kill"], rates_rps=[30_000], say=print)
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Annotated, Any, Protocol

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from models.errors import HeadroomError, Misconfigured, NotReady, error_from_json

Json = Mapping[str, Any]
Say = Callable[[str], None]
Seen = Callable[[Json], None]

POLL_S = 0.25  # judgement: an order takes seconds at least
PATIENCE_S = 60.0  # judgement: an order of hours is worth it; a machine is seldom that busy for longer

Count = Annotated[int, Field(ge=1)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Counts = Annotated[list[Count], Field(min_length=1)]
Rates = Annotated[list[Positive], Field(min_length=1)]


class Details(BaseModel):
    """What an order takes beside the job."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class Launch(Details):
    """Start the job."""


class Stop(Details):
    """Stop the job between two batches."""


class Apply(Details):
    """Carry out the change of size that the evaluation of this epoch has ordered."""

    epoch: Annotated[int, Field(ge=0)]
    to: Annotated[int, Field(ge=0)] | None = None


class Record(Details):
    """Record the live input."""

    seconds: Annotated[float, Field(ge=1, allow_inf_nan=False)] | None = None
    max_bytes: Count | None = None


class Profile(Details):
    """Search the capacity on copies of the job."""

    scale_outs: Counts | None = None
    budget_executor_s: Positive | None = None


class Probe(Details):
    """Measure one point on a copy."""

    scale_out: Count
    rate_rps: Positive


class Drill(Details):
    """Inject failures, on a copy or on the live job."""

    kinds: Annotated[list[str], Field(min_length=1)] | None = None
    scale_outs: Counts | None = None
    rates_rps: Rates | None = None
    repeats: Count = 1
    budget_executor_s: Positive | None = None
    live: bool = False
    by_itself: bool = False
    """Ordered by a schedule: not begun in a blackout window, on a copy either."""


ORDERS: Mapping[str, type[Details]] = {
    "launch": Launch,
    "stop": Stop,
    "apply": Apply,
    "record": Record,
    "profile": Profile,
    "probe": Probe,
    "drill": Drill,
}


class ServerBusy(NotReady):
    """The server lives and has not answered in time; what it was asked about goes on."""


class Server(Protocol):
    """Protocol of the server.

    A job that is not in headroom.toml is Misconfigured, except for the order to stop one that was launched.
    """

    def evaluate(self, job: str) -> Json:
        """The evaluation of this interval, made now or before: `control_loop.memory`."""

    def begin(self, what: str, job: str, /, **details: Any) -> str:
        """Give an order of `ORDERS`; its id. NotReady while another order is in its way."""

    def order(self, id: str, *, since: int = 0) -> Json:
        """The state of an order.

        `id`, `what`, `job`, `details`, `began_s`, `ended_s` (null while it runs), `state` ("running", "done",
        "failed", "cancelled"), `share` (0…1, or null), `stage` (its newest line), `lines` (those after the
        first `since`), `next` (the `since` to ask with next), `facts` (everything measured so far, each with
        its `fact`: "probe", "drill"), `result` (null until it is done), `error` (null, or `kind`, `message`,
        `setting`).
        An unknown id is NotReady: the server was restarted.
        """

    def cancel(self, id: str) -> None:
        """Cancel an order: it removes what it has started. One that has ended stays as it is."""

    def status(self) -> Json:
        """`kind` of deployment, `since_s`, `now_s` (a simulated clock differs from ours), `folder`,
        `jobs` (name -> `state`, `declared_scale_out`, `executors_alive`, `run_id`, `reason`, `mode`),
        `orders` (as in `order`, without lines, facts and results; the oldest first)."""

    def metrics(self) -> str:
        """The metrics of every job, in the text format of Prometheus."""


def parsed(what: str, details: Json) -> Details:
    """The details of an order; Misconfigured names the wrong one and what is accepted."""
    if what not in ORDERS:
        raise Misconfigured("order", f"unknown order '{what}'; expected {', '.join(ORDERS)}")
    kind = ORDERS[what]
    try:
        return kind.model_validate({name: value for name, value in details.items() if value is not None})
    except ValidationError as wrong:
        first = wrong.errors()[0]
        name = f"{what}.{first['loc'][0]}"
        if first["type"] == "missing":
            raise Misconfigured(name, "is missing") from None
        if first["type"] == "extra_forbidden":
            accepted = ", ".join(kind.model_fields) or "none"
            raise Misconfigured(name, f"unknown detail of this order; expected {accepted}") from None
        problem = first["msg"].replace("Input should be", "must be").replace("List should", "must")
        raise Misconfigured(name, f"{problem}, got {first['input']!r}") from None


def run_order(
    server: Server,
    what: str,
    job: str,
    /,
    *,
    say: Say = lambda line: None,
    seen: Seen = lambda order: None,
    sleep: Callable[[float], None] = time.sleep,
    **details: Any,
) -> Json:
    """Give an order, wait for its end, and return its result, or raise what went wrong.

    `say` gets its lines, `seen` its state at every look. Ctrl-C and SIGTERM cancel the order; a server that
    answers late, or another error, does not.
    """
    return wait_for(server, server.begin(what, job, **details), say=say, seen=seen, sleep=sleep)


def wait_for(
    server: Server,
    id: str,
    *,
    say: Say = lambda line: None,
    seen: Seen = lambda order: None,
    sleep: Callable[[float], None] = time.sleep,
) -> Json:
    """The same for an order that was given before."""
    lines, busy_until_s = 0, None
    try:
        while True:
            try:
                now = server.order(id, since=lines)
            except ServerBusy as busy:
                busy_until_s = busy_until_s or time.monotonic() + PATIENCE_S
                if time.monotonic() > busy_until_s:
                    raise NotReady(
                        f"{busy}; order {id} may go on: give it again to wait for its end"
                    ) from busy
                sleep(POLL_S)
                continue
            lines, busy_until_s = now["next"], None
            for line in now["lines"]:
                say(line)
            seen(now)
            if now["state"] != "running":
                break
            sleep(POLL_S)
    except Exception:  # the order may have taken hours, and is none the worse for it
        raise
    except BaseException:  # Ctrl-C, SIGTERM, or Dagster's exceptions for them
        with suppress(HeadroomError):  # the server has ended, and its orders with it
            server.cancel(id)
        raise
    if now["state"] == "done":
        result: Json = now["result"]
        return result
    raise error_from_json(now["error"])
