"""What people write as durations and moments, in a zone with summer time."""

import time
from datetime import UTC, datetime

import pytest

from pipelines.settings import times

pytestmark = pytest.mark.fast

NOW_S = datetime(2026, 11, 18, 13, 30, tzinfo=UTC).timestamp()  # 14:30 in Berlin


@pytest.fixture(autouse=True)
def berlin(monkeypatch):
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def utc(*parts):
    return datetime(*parts, tzinfo=UTC).timestamp()


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("15m", 900),
        ("2h", 7200),
        ("1h30m", 5400),
        (" 1d2h3m4s ", 93_784),
        ("10min", 600),
        ("1 hour 30 minutes", 5400),
        ("2 h", 7200),
        ("600", 600),  # seconds, as in headroom.toml
        ("0.5", 0.5),
    ],
)
def test_durations(text, seconds):
    assert times.duration_s(text) == seconds


@pytest.mark.parametrize(
    "text",
    ["", "0", "h", "1.5h", "-2h", "-2", "30m1h", "2 fortnights", "0s", "0h0m", "400d", "٣h", "1e3s", "nan"],
)
def test_what_is_no_duration(text):
    with pytest.raises(ValueError, match=r"write for example|for ever"):
        times.duration_s(text)


@pytest.mark.parametrize(
    ("text", "toward", "at_s"),
    [
        ("14:20", "past", utc(2026, 11, 18, 13, 20)),
        ("14:40", "past", utc(2026, 11, 17, 13, 40)),
        ("14:40", "future", utc(2026, 11, 18, 13, 40)),
        ("9:00", "future", utc(2026, 11, 19, 8)),
        ("14:30:01", "past", utc(2026, 11, 17, 13, 30, 1)),
        ("2h", "past", NOW_S - 7200),
        ("2026-11-18", "past", utc(2026, 11, 17, 23)),
        ("2026-07-01 12:00", "past", utc(2026, 7, 1, 10)),
        ("2026-11-18T13:20:00Z", "past", utc(2026, 11, 18, 13, 20)),
        ("2026-11-18T08:20:00-05:00", "past", utc(2026, 11, 18, 13, 20)),
        ("2026-10-25T02:30:00+02:00", "past", utc(2026, 10, 25, 0, 30)),
    ],
)
def test_moments(text, toward, at_s):
    assert times.moment_s(text, now_s=NOW_S, toward=toward) == at_s


@pytest.mark.parametrize(
    ("text", "toward", "said"),
    [
        ("yesterday", "past", "not a moment"),
        ("", "past", "not a moment"),
        ("14:61", "past", "not a time of day"),
        ("2026-02-30", "past", "not a moment"),
        ("2026-11-18 15:00", "past", "still to come, it is 2026-11-18 14:30:00 CET"),
        ("2026-11-18 14:00", "future", "is over"),
        ("0001-01-01T00:00:00+14:00", "past", "name a moment from 1971 on"),
        ("9999-12-31", "future", "name a moment from 1971 on"),
        ("2028-01-01", "future", "more than a year away: leave it out to mean for ever"),
        ("2026-03-29 02:30", "past", "does not exist here"),
        ("2026-10-25 02:30", "past", "2026-10-25T02:30:00\\+02:00 or 2026-10-25T02:30:00\\+01:00"),
    ],
)
def test_what_is_no_moment(text, toward, said):
    with pytest.raises(ValueError, match=said):
        times.moment_s(text, now_s=NOW_S, toward=toward)


def test_a_moment_is_shown_with_its_zone():
    assert times.shown(NOW_S) == "2026-11-18 14:30:00 CET"
    assert times.shown(utc(2026, 7, 1, 10)) == "2026-07-01 12:00:00 CEST"
    assert times.moment_s(times.shown(NOW_S)[:19], now_s=NOW_S, toward="past") == NOW_S
