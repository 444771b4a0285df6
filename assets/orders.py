"""Give an order to the server from a Dagster run: its lines go to the run's log, its id to the run's tags.

A run that is terminated cancels its order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import dagster as dg

from models.errors import HeadroomError, NotReady
from profiling_jobs.orders import Json, Server, run_order

ORDER_TAG = "headroom/order"
"""Holds the id of the order, so that the failure sensor can cancel it."""


def ordered(
    context: dg.OpExecutionContext | dg.AssetExecutionContext,
    server: Server,
    what: str,
    job: str,
    *,
    seen: Callable[[Json], None] = lambda order: None,
    **details: Any,
) -> Json:
    """The result of an order. `seen`: gets its state at every look."""
    tagged = False

    def look(order: Json) -> None:
        nonlocal tagged
        if not tagged and context.instance.get_run_by_id(context.run.run_id):  # a test may have no run
            context.instance.add_run_tags(context.run.run_id, {ORDER_TAG: str(order["id"])})
        tagged = True
        seen(order)

    with dagster_failures():
        return run_order(server, what, job, say=context.log.info, seen=look, **details)


@contextmanager
def dagster_failures() -> Iterator[None]:
    """Our errors as Dagster failures of one sentence; what may succeed at the next attempt is retried."""
    try:
        yield
    except HeadroomError as error:
        raise dg.Failure(description=str(error), allow_retries=isinstance(error, NotReady)) from error
