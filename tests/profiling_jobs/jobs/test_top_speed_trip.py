"""One car's readings and its reports of every fifty metres."""

from __future__ import annotations

import numpy as np

from profiling_jobs.jobs.top_speed_windowing import READING, SILENT_S, Trip

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
