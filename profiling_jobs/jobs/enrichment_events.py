"""The orders that `enrichment` looks up: numbered ones, of customers that return or mostly of one."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from . import json_events
from .json_events import RATE_RPS

CUSTOMERS = 10_000
HOT_SHARE = 0.8  # judgement: four of five records of one customer, as a flash sale does


def events(
    *, seed: int, count: int, start_s: float, hot_keys: bool = False, rate_rps: float = RATE_RPS
) -> pa.Table:
    """Orders, keyed by customer."""
    random = np.random.default_rng(seed)
    arrived = json_events.arrivals_ms(count=count, start_s=start_s, rate_rps=rate_rps)
    customers = random.integers(CUSTOMERS, size=count)
    if hot_keys:
        customers[random.random(count) < HOT_SHARE] = 0
    cents = random.integers(100, 100_000, size=count)
    spelt = pa.array([f"customer-{number:05d}" for number in range(CUSTOMERS)]).take(pa.array(customers))
    numbers, whose, cost, at = (
        json_events.as_text(of) for of in (np.arange(count), customers, cents, arrived)
    )
    order, customer = f'{{"order": "{seed}-', '", "customer": '
    values = pc.binary_join_element_wise(
        *(order, numbers, customer, whose, ', "cents": ', cost, ', "at_ms": ', at, "}"), ""
    )
    return json_events.table(spelt, values, arrived)
