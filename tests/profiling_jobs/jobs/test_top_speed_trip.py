"""One car's readings, however they fall into batches."""

from __future__ import annotations

import numpy as np
import pandas as pd
from hypothesis import given, settings
from hypothesis import strategies as st

from profiling_jobs.jobs.top_speed_windowing import READING, SILENT_S, Trip, follow

LATENESS_MS = 5_000
FAR_MS = 10**9


def readings(*rows: tuple[int, float, float]) -> np.ndarray:
    return np.array(list(rows), READING)


def in_one_go(rows: np.ndarray) -> list:
    trip = Trip()
    trip.take_in(rows)
    return trip.advance(FAR_MS)


def test_fifty_metres_after_the_last_report_the_top_speed_of_ten_seconds_comes_out():
    rows = readings(
        (0, 0.0, 90.0),  # where its metres begin
        (2_000, 49.9, 80.0),
        (3_000, 50.0, 70.0),  # fifty: of 90, 80 and 70
        (9_000, 99.9, 60.0),
        (12_000, 130.0, 50.0),  # eighty: the 90 and the 80 are ten seconds old and more
        (12_001, 179.0, 55.0),
        (99_000, 500.0, 10.0),  # it was silent for more than a minute: its metres begin anew
        (99_500, 550.0, 20.0),
    )

    assert in_one_go(rows) == [
        (90.0, 50.0, 3_000),
        (70.0, 130.0, 12_000),
        (20.0, 550.0, 99_500),
    ]


def test_nothing_is_reported_before_the_watermark_has_passed_it():
    trip = Trip()
    trip.take_in(readings((0, 0.0, 10.0), (1_000, 60.0, 20.0)))

    assert trip.advance(999) == []
    assert trip.wakes_at_ms() == 1_000
    assert trip.advance(1_000) == [(20.0, 60.0, 1_000)]
    assert trip.wakes_at_ms() == 1_000 + SILENT_S * 1000


def test_readings_of_the_same_moment_count_whatever_their_order():
    rows = readings((0, 0.0, 10.0), (1_000, 60.0, 20.0), (1_000, 60.0, 30.0))

    assert in_one_go(rows) == [(30.0, 60.0, 1_000)]


def test_a_reading_older_than_what_was_taken_up_is_too_late():
    trip = Trip()
    trip.take_in(readings((0, 0.0, 10.0), (5_000, 60.0, 20.0)))
    trip.advance(5_000)
    trip.take_in(readings((4_000, 55.0, 200.0), (6_000, 120.0, 30.0)))

    assert trip.advance(6_000) == [(30.0, 120.0, 6_000)]


class Kept:
    """What Spark keeps of a group between batches."""

    def __init__(self) -> None:
        self.value, self.watermark_ms, self.timeout_ms = None, 0, None

    @property
    def exists(self) -> bool:
        return self.value is not None

    @property
    def get(self) -> tuple:
        return self.value

    def update(self, value: tuple) -> None:
        self.value = value

    def remove(self) -> None:
        self.value = self.timeout_ms = None

    def setTimeoutTimestamp(self, at_ms: int) -> None:
        assert at_ms > self.watermark_ms, "Spark refuses this"
        self.timeout_ms = at_ms

    def getCurrentWatermarkMs(self) -> int:
        return self.watermark_ms


def streamed(batches: list[np.ndarray]) -> list[tuple]:
    """As Spark does it: the watermark of a batch follows from the batches before it."""
    state, newest, found = Kept(), 0, []
    for number, rows in enumerate([*batches, readings(), readings()]):
        timed_out = state.timeout_ms is not None and state.watermark_ms > state.timeout_ms
        if rows.size or timed_out:
            frame = pd.DataFrame(rows)
            for answer in follow(("car",), [frame] if rows.size else [], state):
                found += list(
                    answer[["top_speed_kmh", "distance_m", "event_time"]].itertuples(index=False, name=None)
                )
        newest = max(newest, int(rows["at_ms"].max(initial=0)))
        state.watermark_ms = max(state.watermark_ms, newest - LATENESS_MS)
        if number >= len(batches):
            state.watermark_ms = FAR_MS  # other cars move on
    assert not state.exists, "a car that is silent is forgotten"
    return found


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_the_reports_do_not_depend_on_how_readings_fall_into_batches(data):
    count = data.draw(st.integers(1, 60), label="readings")
    random = np.random.default_rng(data.draw(st.integers(0, 10_000), label="seed"))
    rows = np.empty(count, READING)
    rows["at_ms"] = np.cumsum(
        random.choice([0, 1, 300, 2_000, 9_000, 61_000], count, p=[0.1, 0.1, 0.4, 0.3, 0.08, 0.02])
    )
    rows["distance_m"] = np.cumsum(random.uniform(0, 40, count))
    rows["speed_kmh"] = random.integers(0, 120, count)
    delays = random.integers(0, LATENESS_MS, count)
    arrived = rows[np.argsort(rows["at_ms"] + delays, kind="stable")]
    cuts = sorted(data.draw(st.lists(st.integers(0, count), max_size=8), label="cuts"))

    assert streamed(np.split(arrived, cuts)) == in_one_go(rows)
