"""Blackout windows and cron lines.

A blackout window is `DAYS HH:MM-HH:MM` in the job's `time_zone`: DAYS is `daily`, days of the
week (`Mon-Fri`, `Sat,Sun`) or a date (`2026-11-27`). One that ends before it begins ends the next day, and
`24:00` is the end of a day. In it nothing changes, no profile and no live drill is begun, and those under way
end where it begins; with `no-scale-in` behind it, the job may still grow. A schedule is a cron line of five
fields in the same time zone.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

from .schema import JobSettings

if TYPE_CHECKING:
    from models.control import Blackout

DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
MONTHS = tuple("Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split())
LONGEST = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)  # days, in a leap year
WINDOW = re.compile(r"(\S+)\s+(\d{2}):(\d{2})-(\d{2}):(\d{2})(?:\s+(no-scale-in))?")
EXAMPLE = "`Mon-Fri 08:00-18:00`, `daily 22:00-02:00 no-scale-in` or `2026-11-27 00:00-24:00`"
DAY_S = 86_400
CRON: tuple[tuple[str, int, int, tuple[str, ...]], ...] = (
    ("minute", 0, 59, ()),
    ("hour", 0, 23, ()),
    ("day", 1, 31, ()),
    ("month", 1, 12, MONTHS),
    ("day of the week", 0, 7, (DAYS[-1], *DAYS[:-1])),
)


@dataclass(frozen=True)
class Window:
    """A stretch of some days, in seconds after midnight; `until_s` may lie in the next day."""

    text: str
    days: frozenset[int] | date
    """Of the week, Monday is 0; or one date."""
    from_s: int
    until_s: int
    scale_out_allowed: bool

    def holds(self, at: datetime) -> bool:
        """Whether this moment, in the job's time zone, lies within."""
        second = at.hour * 3600 + at.minute * 60 + at.second
        today, before = at.date(), at.date() - timedelta(days=1)
        return (self._on(today) and self.from_s <= second < self.until_s) or (
            self._on(before) and self.from_s <= second + DAY_S < self.until_s
        )

    def _on(self, day: date) -> bool:
        return day == self.days if isinstance(self.days, date) else day.weekday() in self.days


def window(text: str) -> Window:
    """The window of a text; ValueError with what is accepted."""
    found = WINDOW.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"{text!r} is not a window; write {EXAMPLE}")
    days, *times, gentle = found.groups()
    begin_h, begin_m, end_h, end_m = (int(one) for one in times)
    from_s, until_s = begin_h * 3600 + begin_m * 60, end_h * 3600 + end_m * 60
    if max(begin_m, end_m) > 59 or from_s >= DAY_S or until_s > DAY_S or from_s == until_s:
        raise ValueError(f"{text!r} has wrong times; write {EXAMPLE}")
    if until_s < from_s:
        until_s += DAY_S
    return Window(text.strip(), _days(days, text), from_s, until_s, gentle is not None)


def blackout(job: JobSettings, now_s: float) -> Blackout | None:
    """The blackout at this moment; of several windows the strictest."""
    from models.control import Blackout  # all of numpy, which reading the settings does not need

    at = datetime.fromtimestamp(now_s, ZoneInfo(job.time_zone))
    held = [one for one in map(window, job.blackouts) if one.holds(at)]
    strictest = min(held, key=lambda one: one.scale_out_allowed, default=None)
    if strictest is None:
        return None
    return Blackout(f"{strictest.text} ({job.time_zone})", strictest.scale_out_allowed)


def mistakes(job: JobSettings) -> Mapping[str, str]:
    """Key -> what is wrong with it."""
    found: dict[str, str] = {}
    for text in job.blackouts:
        try:
            window(text)
        except ValueError as wrong:
            found["blackouts"] = str(wrong)
    try:
        ZoneInfo(job.time_zone)
    except (ValueError, OSError, LookupError):
        found["time_zone"] = f"{job.time_zone!r} is not a known time zone; for example Europe/Berlin"
    for key in ("profile_cron", "drill_cron"):
        line = getattr(job, key)
        if line is None:
            continue
        if problem := cron_problem(line):
            found[key] = problem
        elif "blackouts" not in found and _always_blacked_out(line, job.blackouts):
            found[key] = (
                f"{line!r} always falls into a blackout, in which nothing is begun: choose another time than "
                f"{', '.join(job.blackouts)}"
            )
    return found


def _always_blacked_out(line: str, blackouts: Sequence[str]) -> bool:
    """Whether every time that a cron line means lies in a weekly window; a date comes only once."""
    weekly = [one for one in map(window, blackouts) if not isinstance(one.days, date)]
    minutes, hours, days, _, weekdays = _cron_sets(line)
    # Cron takes either of day and day of the week where both are given, and a date falls on any weekday.
    fixed = len(days) == 31 and {(day - 1) % 7 for day in weekdays}
    monday = datetime(2024, 1, 1)
    times = (
        monday + timedelta(days=day, hours=hour, minutes=minute)
        for day in fixed or range(7)
        for hour in hours
        for minute in minutes
    )
    return bool(weekly) and all(any(one.holds(at) for one in weekly) for at in times)


def cron_problem(line: str) -> str:
    """What is wrong with a cron line; empty if nothing is."""
    try:
        _, _, days, months, _ = _cron_sets(line)
    except ValueError as wrong:
        return str(wrong)
    if min(days) > max(LONGEST[month - 1] for month in months):
        return f"{line!r} never comes: no month of it has a day {min(days)}"
    return ""


def _cron_sets(line: str) -> list[frozenset[int]]:
    """The numbers of each field, in the order of CRON; ValueError with what is accepted."""
    parts = line.split()
    if len(parts) != len(CRON):
        raise ValueError(
            f"{line!r} has {len(parts)} fields; five are wanted, `0 3 * * Sun` is Sundays at three"
        )
    found = []
    for part, (name, low, high, names) in zip(parts, CRON, strict=True):
        numbers = [_cron_field(one, low, high, names) for one in part.split(",")]
        for one, meant in zip(part.split(","), numbers, strict=True):
            if not meant:
                raise ValueError(f"{one!r} in {line!r} is not a {name}: write {low} to {high}, *, A-B or */N")
        found.append(frozenset().union(*numbers))
    return found


def _cron_field(text: str, low: int, high: int, names: tuple[str, ...]) -> frozenset[int]:
    """The numbers of one part of a field; empty if it is wrong."""
    span, slash, every = text.partition("/")
    if slash and not (every.isdecimal() and int(every) > 0):
        return frozenset()
    ends = [low, high] if span == "*" else [_cron_number(one, low, names) for one in span.split("-")]
    if len(ends) > 2 or ends != sorted(ends) or not (low <= ends[0] and ends[-1] <= high):
        return frozenset()
    last = high if slash and len(ends) == 1 else ends[-1]
    return frozenset(range(ends[0], last + 1, int(every) if slash else 1))


def _cron_number(text: str, low: int, names: tuple[str, ...]) -> int:
    lower = [name.lower() for name in names]
    if text.lower() in lower:
        return low + lower.index(text.lower())
    return int(text) if text.isdecimal() else -1


def _days(text: str, whole: str) -> frozenset[int] | date:
    if text == "daily":
        return frozenset(range(7))
    if text[0].isdigit():
        try:
            return date.fromisoformat(text)
        except ValueError:
            raise ValueError(f"{text!r} in {whole!r} is not a date; write {EXAMPLE}") from None
    found: set[int] = set()
    for part in text.split(","):
        ends = part.split("-")
        if len(ends) > 2 or not all(end in DAYS for end in ends):
            raise ValueError(f"{part!r} in {whole!r} is not a day: {', '.join(DAYS)}; write {EXAMPLE}")
        first, last = DAYS.index(ends[0]), DAYS.index(ends[-1])
        found |= {day % 7 for day in range(first, last + 1 + 7 * (last < first))}
    return frozenset(found)
