"""How do Dagster runs and commands ask the one process that owns the jobs?

The owner (`headroom serve`, `headroom demo`) has the world open, watches every job once a second and sits at
a desk. Whoever comes asks for an evaluation, which is answered at once, or gives an *order*, which may take
hours: it is carried out in the owner, survives whoever gave it, and is asked after by its id. All that goes
over the desk is plain JSON. In the owner's own process the desk is `desk_here.HereDesk`, elsewhere
`desk_line.DeskClient`; both pass the same suite.

    result = carried_out(desk, "drill", "orders", kinds=["driver_kill"], rates_rps=[30_000], say=print)
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from models.errors import HeadroomError, Misconfigured, NotReady, Unsafe

Json = Mapping[str, Any]
Say = Callable[[str], None]

ORDERS: Mapping[str, Mapping[str, str]] = {
    "launch": {},
    "stop": {},
    "apply": {"epoch": "whole", "to": "whole?"},
    "record": {"seconds": "number", "max_bytes": "whole?"},
    "profile": {"scale_outs": "wholes?", "budget_executor_s": "number?"},
    "probe": {"scale_out": "whole", "rate_rps": "number"},
    "drill": {
        "kinds": "texts?",
        "scale_outs": "wholes?",
        "rates_rps": "numbers?",
        "repeats": "whole?",
        "budget_executor_s": "number?",
        "live": "yes?",
        "by_itself": "yes?",
    },
}
"""Order -> what belongs to it, and of which sort; `?`: may be left out."""

LISTS = {"wholes": "whole numbers", "numbers": "numbers", "texts": "words"}
POLL_S = 0.25  # judgement: an order takes seconds at least
PATIENCE_S = 60.0  # judgement: an order of hours is worth it; a machine is seldom that busy for longer


class Late(NotReady):
    """The owner lives and has not answered: it may be busy, and what it was asked about goes on."""


class Desk(Protocol):
    """What the owner does for others.

    A job that is not in headroom.toml is Misconfigured, but for the order to stop one that was launched once.
    """

    def evaluate(self, job: str) -> Json:
        """The evaluation of this interval (control_loop.evaluation_record), made now or before."""

    def begin(self, what: str, job: str, /, **details: Any) -> str:
        """Give an order of `ORDERS`; its id. NotReady while another one is in its way."""

    def order(self, id: str, *, since: int = 0) -> Json:
        """How is it going?

        `id`, `what`, `job`, `details`, `began_s`, `ended_s` (null while it runs), `state` ("running", "done",
        "failed", "cancelled"), `share` (0…1, or null), `stage` (what it is at), `lines` (those after the
        first `since`), `next` (to be given as `since`), `facts` (everything measured so far, each with its
        `fact`: "probe", "drill"), `result` (null until it is done), `error` (null, or `kind`, `message`,
        `setting`).
        An id that nobody knows is NotReady: the owner was started anew.
        """

    def cancel(self, id: str) -> None:
        """Give it up: it puts away what it has begun. One that has ended stays as it is."""

    def status(self) -> Json:
        """`kind` of deployment, `since_s`, `now_s` (a simulated clock may be elsewhere), `folder`,
        `jobs` (name -> `state`, `declared_scale_out`, `executors_alive`, `run_id`, `reason`, `mode`),
        `orders` (as `order` says it, without lines and facts; the oldest first)."""


def carried_out(
    desk: Desk,
    what: str,
    job: str,
    /,
    *,
    say: Say = lambda line: None,
    seen: Callable[[Json], None] = lambda order: None,
    sleep: Callable[[float], None] = time.sleep,
    **details: Any,
) -> Json:
    """Give an order, wait for its end, and return its result, or raise what went wrong.

    `say` gets its lines, `seen` the order at every look. Whoever is interrupted while he waits cancels the
    order; an owner that answers late, or another error, does not.
    """
    return awaited(desk, desk.begin(what, job, **details), say=say, seen=seen, sleep=sleep)


def awaited(
    desk: Desk,
    id: str,
    *,
    say: Say = lambda line: None,
    seen: Callable[[Json], None] = lambda order: None,
    sleep: Callable[[float], None] = time.sleep,
) -> Json:
    """The same for an order that was given before."""
    lines = 0
    try:
        while True:
            now = _looked_at(desk, id, since=lines, sleep=sleep)
            lines = now["next"]
            for line in now["lines"]:
                say(line)
            seen(now)
            if now["state"] != "running":
                break
            sleep(POLL_S)
    except Exception:  # the order may have taken hours, and is no worse for it
        raise
    except BaseException:  # Ctrl-C, SIGTERM, or Dagster's word for them
        _give_up(desk, id)
        raise
    if now["state"] == "done":
        result: Json = now["result"]
        return result
    raise error_of(now)


def error_of(order: Json) -> HeadroomError:
    """What went wrong with an order that was not done."""
    error = order["error"] or {}
    message = str(error.get("message", f"{order['what']} of {order['job']} was {order['state']}"))
    if error.get("kind") == "Misconfigured":
        return Misconfigured(str(error.get("setting", "")), message)
    return Unsafe(message) if error.get("kind") == "Unsafe" else NotReady(message)


def described(error: BaseException) -> dict[str, str]:
    """An error as an order has it."""
    if isinstance(error, Misconfigured):
        problem = str(error).removeprefix(f"{error.setting}: ")
        return {"kind": "Misconfigured", "setting": error.setting, "message": problem}
    if isinstance(error, HeadroomError):
        return {"kind": "Unsafe" if isinstance(error, Unsafe) else "NotReady", "message": str(error)}
    return {"kind": "NotReady", "message": f"{type(error).__name__}: {error}"}


def checked(what: str, details: Json) -> dict[str, Any]:
    """The details of an order, or Misconfigured: what belongs to it and what is accepted."""
    if what not in ORDERS:
        raise Misconfigured("order", f"'{what}' is none; there is {', '.join(ORDERS)}")
    wanted = ORDERS[what]
    for name in details:
        if name not in wanted:
            there = ", ".join(wanted) or "nothing"
            raise Misconfigured(f"{what}.{name}", f"does not belong to this order; there is {there}")
    found: dict[str, Any] = {}
    for name, sort in wanted.items():
        value = details.get(name)
        if value is None:
            if not sort.endswith("?"):
                raise Misconfigured(f"{what}.{name}", "is missing")
        else:
            found[name] = _checked(f"{what}.{name}", value, sort.removesuffix("?"))
    return found


def _checked(name: str, value: Any, sort: str) -> Any:
    if sort in LISTS:
        if not isinstance(value, list | tuple) or not value:
            raise Misconfigured(name, f"must be a list of {LISTS[sort]}, got {value!r}")
        return [_checked(name, one, sort.removesuffix("s")) for one in value]
    if sort == "yes":
        if not isinstance(value, bool):
            raise Misconfigured(name, f"must be true or false, got {value!r}")
        return value
    if sort == "text":
        if not isinstance(value, str) or not value:
            raise Misconfigured(name, f"must be a word, got {value!r}")
        return value
    accepted = int if sort == "whole" else (int, float)
    least = "0 or more" if sort == "whole" else "above 0"
    if isinstance(value, bool) or not isinstance(value, accepted) or value < 0 or value != value:
        raise Misconfigured(
            name, f"must be a {'whole ' if sort == 'whole' else ''}number, {least}, got {value!r}"
        )
    if sort == "number" and not 0 < value < float("inf"):
        raise Misconfigured(name, f"must be a number, {least}, got {value!r}")
    return value


def _looked_at(desk: Desk, id: str, *, since: int, sleep: Callable[[float], None]) -> Json:
    """How it is going; an owner that is busy is asked again for a while."""
    until_s = time.monotonic() + PATIENCE_S
    while True:
        try:
            return desk.order(id, since=since)
        except Late as late:
            if time.monotonic() > until_s:
                raise NotReady(f"{late}; order {id} may go on: give it again to wait for its end") from late
        sleep(POLL_S)


def _give_up(desk: Desk, id: str) -> None:
    try:
        desk.cancel(id)
    except HeadroomError:  # the owner has gone, and its orders with it
        return
