"""Windows by the job's own clock, over midnight and over a change of the clock; schedules before they run."""

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest
from dagster._utils.schedules import is_valid_cron_string

from models.control import Blackout
from models.errors import Misconfigured
from pipelines.settings import loading, time_windows

pytestmark = pytest.mark.fast

CRON_LINES = (
    *("0 3 * * Sun", "*/15 * * * *", "0 4 1,15 Jan-Mar 1-5", "0 0 * * 7", "5-59/10 2 * * mon,FRI"),
    *("0 4 29 2 *", "0 4 1/30 Feb *"),
)
TOML = '[job.orders]\nbuild = "a:b"\ninputs = {events = "in"}\n'


def job(more=""):
    return loading.parse(TOML + more, environment={}).jobs["orders"]


def at(text, zone="UTC"):
    return datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).timestamp()


@pytest.mark.parametrize(
    ("window", "inside", "outside"),
    [
        ("Mon-Fri 08:00-18:00", "2026-11-18T08:00:00", "2026-11-18T18:00:00"),
        ("Mon-Fri 08:00-18:00", "2026-11-20T17:59:59", "2026-11-21T12:00:00"),
        ("Sat,Sun 00:00-24:00", "2026-11-22T23:59:59", "2026-11-23T00:00:00"),
        ("Fri-Mon 10:00-11:00", "2026-11-23T10:30:00", "2026-11-24T10:30:00"),
        ("daily 22:00-02:00", "2026-11-18T01:59:59", "2026-11-18T02:00:00"),
        ("Fri 22:00-02:00", "2026-11-21T01:00:00", "2026-11-20T01:00:00"),
        ("2026-11-27 00:00-24:00", "2026-11-27T12:00:00", "2026-11-28T00:00:00"),
    ],
)
def test_a_window_holds_from_its_beginning_up_to_its_end(window, inside, outside):
    found = job(f'blackouts = ["{window}"]')
    assert time_windows.blackout(found, at(inside)) == Blackout(f"{window} (UTC)")
    assert time_windows.blackout(found, at(outside)) is None


def test_the_clock_is_the_job_s_own_also_after_it_was_changed():
    found = job('blackouts = ["daily 08:00-09:00"]\ntime_zone = "Europe/Berlin"')
    for day in ("2026-07-01", "2026-12-01"):
        assert time_windows.blackout(found, at(f"{day}T08:30:00", "Europe/Berlin"))
    assert time_windows.blackout(found, datetime(2026, 7, 1, 6, 30, tzinfo=UTC).timestamp())
    assert not time_windows.blackout(found, datetime(2026, 12, 1, 6, 30, tzinfo=UTC).timestamp())


def test_of_two_windows_the_stricter_one_counts():
    found = job('blackouts = ["daily 00:00-24:00 no-scale-in", "Wed 10:00-11:00"]')
    assert time_windows.blackout(found, at("2026-11-18T09:00:00")).scale_out_allowed
    assert not time_windows.blackout(found, at("2026-11-18T10:30:00")).scale_out_allowed


@pytest.mark.parametrize(
    "window",
    ["08:00-18:00", "Monday 08:00-18:00", "Mon 8-18", "Mon 08:00-24:01", "Mon 08:60-09:00", "Mon 08:00-08:00",
     "2026-13-01 08:00-09:00", "Mon-Tue-Wed 08:00-09:00", "Mon 24:00-02:00", "Mon 08:00-09:00 sometimes", ""],
)  # fmt: skip
def test_a_window_that_is_none_is_told_with_an_example(window):
    with pytest.raises(Misconfigured, match=r"job\.orders\.blackouts.*(Mon-Fri 08:00-18:00|not be empty)"):
        job(f'blackouts = ["{window}"]')


@pytest.mark.parametrize("line", CRON_LINES)
def test_a_cron_line(line):
    assert job(f'profile_cron = "{line}"').profile_cron == line
    assert is_valid_cron_string(line), "Dagster takes it, too"


@pytest.mark.parametrize(
    "line", ["0 3 * *", "60 3 * * *", "0 3 * * Someday", "*/0 * * * *", "0 5-3 * * *", "@daily", "0 3 0 * *"]
)
def test_a_cron_line_that_is_none_is_told(line):
    with pytest.raises(Misconfigured, match=r"job\.orders\.drill_cron"):
        job(f'drill_cron = "{line}"')


@pytest.mark.parametrize("line", ["0 4 30 2 *", "0 4 30-31 Feb *", "0 4 31 2,4,6 *", "0 4 31/5 Nov *"])
def test_a_day_that_never_comes_is_told(line):
    with pytest.raises(Misconfigured, match=r"job\.orders\.drill_cron.* never comes: no month .* a day 3"):
        job(f'drill_cron = "{line}"')


def test_a_time_zone_that_nobody_knows_is_told():
    for zone in ("Europe/Nowhere", "../etc/passwd"):
        with pytest.raises(Misconfigured, match=r"job\.orders\.time_zone.*Europe/Berlin"):
            job(f'time_zone = "{zone}"')


@pytest.mark.parametrize(
    ("line", "windows", "never"),
    [
        ("0 4 * * Sat", "Sat,Sun 00:00-24:00", True),
        ("0 4 * * Sat,Mon", "Sat,Sun 00:00-24:00", False),
        ("30 23 * * *", "daily 22:00-02:00 no-scale-in", True),
        ("30 1,3 * * *", "daily 22:00-02:00", False),
        ("0 4 1 * Sat", "Sat,Sun 00:00-24:00", False),
        ("0 4 27 11 *", "2026-11-27 00:00-24:00", False),
    ],
)
def test_a_schedule_that_always_falls_into_a_blackout_is_refused(line, windows, never):
    text = f'drill_cron = "{line}"\nblackouts = ["{windows}"]'
    if never:
        with pytest.raises(Misconfigured, match=r"job\.orders\.drill_cron: .* always falls into a blackout"):
            job(text)
    else:
        assert job(text).drill_cron == line
