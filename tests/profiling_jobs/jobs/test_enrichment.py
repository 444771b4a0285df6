"""Every record of `enrichment` comes out once, with its answer, a millisecond later."""

from __future__ import annotations

import json
import time
from collections import Counter

import pyarrow as pa
import pytest

from profiling_jobs.jobs import enrichment

pytestmark = pytest.mark.fast
START_S = 1_763_000_000.0


def test_events_are_orders_of_customers() -> None:
    first = enrichment.events(seed=1, count=500, start_s=START_S)
    orders = [json.loads(value) for value in first["value"].to_pylist()]
    assert len({order["order"] for order in orders}) == 500
    assert orders[0]["at_ms"] == START_S * 1000
    assert all(
        b"customer-%05d" % one["customer"] == key
        for one, key in zip(orders, first["key"].to_pylist(), strict=True)
    )
    assert 60 <= sum(map(len, first["value"].to_pylist())) / 500 <= 110


def test_hot_keys_are_hot() -> None:
    def share(hot: bool) -> float:
        keys = enrichment.events(seed=3, count=2000, start_s=START_S, hot_keys=hot)["key"].to_pylist()
        return Counter(keys).most_common(1)[0][1] / 2000

    assert share(True) > 0.7
    assert share(False) < 0.01


def test_each_record_waits_and_leaves_with_its_answer() -> None:
    events = enrichment.events(seed=1, count=250, start_s=START_S)
    batch = pa.record_batch(
        [events["key"].combine_chunks(), events["value"].combine_chunks()], ["key", "value"]
    )
    before = time.monotonic()
    out = pa.Table.from_batches(enrichment._look_up(iter([batch])))
    assert time.monotonic() - before >= 0.25
    assert out["key"].to_pylist() == events["key"].to_pylist()
    for key, value, enriched in zip(
        events["key"].to_pylist(), events["value"].to_pylist(), out["value"].to_pylist(), strict=True
    ):
        assert json.loads(enriched) == {**json.loads(value), "region": enrichment.region(key)}
