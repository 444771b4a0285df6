"""How does a run ask the process that owns the jobs, and what does its page show meanwhile?

Runs own nothing that lives longer than they do: they give an *order* and wait for its end. Its lines go into
the run's log, its id into the run's tags, so that whoever puts things right after a failure knows it. A run
that is terminated cancels its order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import dagster as dg

from models.errors import HeadroomError, NotReady

Json = Mapping[str, Any]
ORDER_TAG = "headroom/order"


class Desk(Protocol):
    """The owner's desk, as assets and sensors use it."""

    def evaluate(self, job: str) -> Json:
        """The evaluation of this interval (control_loop.evaluation_record), made now or before."""

    def status(self) -> Json:
        """What runs, and which orders there are."""

    def cancel(self, id: str) -> None:
        """Give an order up; one that has ended stays as it is."""

    def carried_out(
        self,
        what: str,
        job: str,
        /,
        *,
        say: Callable[[str], None],
        seen: Callable[[Json], None],
        **details: Any,
    ) -> Json:
        """Give an order, wait for its end, and return its result, or raise what went wrong."""


def ordered(
    context: dg.OpExecutionContext | dg.AssetExecutionContext,
    desk: Desk,
    what: str,
    job: str,
    *,
    seen: Callable[[Json], None] = lambda order: None,
    **details: Any,
) -> Json:
    """The result of an order, with its lines in the log of this run."""
    tagged: list[str] = []

    def look(order: Json) -> None:
        if not tagged:
            tagged.append(str(order["id"]))
            if context.instance.get_run_by_id(context.run.run_id):  # not in a test without one
                context.instance.add_run_tags(context.run.run_id, {ORDER_TAG: tagged[0]})
        seen(order)

    return asked(
        lambda: desk.carried_out(
            what,
            job,
            say=context.log.info,
            seen=look,
            **{name: value for name, value in details.items() if value is not None},
        )
    )


def asked(question: Callable[[], Json]) -> Json:
    """The answer; what is said to a person comes as a failure of one sentence, not as a traceback."""
    try:
        return question()
    except HeadroomError as error:
        # Only what may succeed at the next attempt is worth one.
        raise dg.Failure(description=str(error), allow_retries=isinstance(error, NotReady)) from error
