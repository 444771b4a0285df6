"""Durations and moments as people write them (`2h`, `18:00`, `2026-11-18 14:20`), and moments as text.

A moment without a zone is one of the reader's own zone (TZ, else the machine's); one that this zone does not
have, or has twice, is refused. What is shown always names its zone.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import Literal

UNITS = {"d|days?": 86_400, "h|hours?": 3_600, "m|min|minutes?": 60, "s|sec|seconds?": 1}
DURATION = re.compile("".join(rf"(?:([0-9]+)\s*(?:{names})\s*)?" for names in UNITS))
PLAIN = re.compile(r"[0-9]+(\.[0-9]+)?")
LONGEST_S = 366 * 86_400  # judgement: more is a slip of the keyboard
CLOCK = re.compile(r"[0-9]{1,2}:[0-9]{2}(:[0-9]{2})?")
DATE = re.compile(r"\d{4}-\d{2}-\d{2}")
MOMENT = re.compile(r"\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}(:\d{2}(\.\d+)?)?(Z|[+-]\d{2}:\d{2})?")

Toward = Literal["past", "future"]


def duration_s(text: str) -> float:
    """Seconds of `90s`, `15m`, `2h`, `1d`, `1h30m`, `10min`, `2 hours`; a number alone is seconds, as in
    headroom.toml. ValueError says what is accepted.
    """
    parts = DURATION.fullmatch(text.strip())
    if PLAIN.fullmatch(text.strip()):
        total = float(text)
    elif parts is None or not any(parts.groups()):
        raise ValueError(f"{text!r} is not a duration: write for example 90s, 15m, 2h, 1d or 1h30m")
    else:
        total = sum(int(part or 0) * each for part, each in zip(parts.groups(), UNITS.values(), strict=True))
    if total == 0:
        raise ValueError(f"{text!r} is zero: write for example 15m")
    if total > LONGEST_S:
        raise ValueError(f"{text!r} is more than a year: leave it out to mean for ever")
    return float(total)


def moment_s(text: str, *, now_s: float, toward: Toward) -> float:
    """Epoch seconds of a moment; ValueError says what is accepted.

    `14:20` is the last one (past) or the next one (future); `2h` is so long ago, or from
    now; `2026-11-18` is its midnight.
    """
    text = text.strip()
    if DURATION.fullmatch(text) and text:
        away_s = duration_s(text)
        return now_s - away_s if toward == "past" else now_s + away_s
    if CLOCK.fullmatch(text):
        return _nearest(text, now_s=now_s, toward=toward)
    if not DATE.fullmatch(text) and not MOMENT.fullmatch(text):
        raise ValueError(
            f"{text!r} is not a moment: write 14:20, 2026-11-18 14:20, 2026-11-18T14:20:00+01:00, "
            f"or 2h for two hours {'ago' if toward == 'past' else 'from now'}"
        )
    try:
        found = datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError as wrong:
        raise ValueError(f"{text!r} is not a moment: {wrong}") from None
    if not 1970 < found.year < 9999:  # at the ends of the calendar no other zone has this moment
        raise ValueError(f"{text!r} is too long ago or too far away: name a moment from 1971 on")
    found_s = found.timestamp() if found.tzinfo else _here(found, text)
    if toward == "future" and found_s <= now_s:
        raise ValueError(f"{text!r} is over, it is {shown(now_s)}: name a moment to come")
    if toward == "future" and found_s - now_s > LONGEST_S:
        raise ValueError(f"{text!r} is more than a year away: leave it out to mean for ever")
    if toward == "past" and found_s > now_s:
        raise ValueError(f"{text!r} is still to come, it is {shown(now_s)}: name a moment that is over")
    return found_s


def shown(at_s: float, *, seconds: bool = True) -> str:
    """`2026-11-18 14:20:00 CET`."""
    return f"{_local(at_s):%Y-%m-%d %H:%M{':%S' if seconds else ''} %Z}"


def clock(at_s: float) -> str:
    """`14:20:00`; for tables that name day and zone elsewhere."""
    return f"{_local(at_s):%H:%M:%S}"


def day(at_s: float) -> str:
    """`Wed 18 Nov 2026`."""
    return f"{_local(at_s):%a %d %b %Y}"


def zone(at_s: float) -> str:
    """`CET`: the zone's name at that moment."""
    return f"{_local(at_s):%Z}"


def _nearest(text: str, *, now_s: float, toward: Toward) -> float:
    """The last or the next time that the clock shows this."""
    hour, minute, *second = (int(part) for part in text.split(":"))
    if hour > 23 or minute > 59 or any(one > 59 for one in second):
        raise ValueError(
            f"{text!r} is not a time of day: hours go from 0 to 23, minutes and seconds from 0 to 59"
        )
    today = datetime.fromtimestamp(now_s).replace(
        hour=hour, minute=minute, second=second[0] if second else 0, microsecond=0
    )
    found_s = _here(today, text)
    if toward == "past" and found_s > now_s:
        return _here(today - timedelta(days=1), text)
    if toward == "future" and found_s <= now_s:
        return _here(today + timedelta(days=1), text)
    return found_s


def _here(naive: datetime, text: str) -> float:
    """A wall-clock moment of the reader's zone."""
    first, second = (naive.replace(fold=fold).timestamp() for fold in (0, 1))
    if datetime.fromtimestamp(first).replace(fold=0) != naive.replace(fold=0):
        raise ValueError(f"{text!r} does not exist here: the clocks went forward over it")
    if first != second:
        raise ValueError(
            f"{text!r} was there twice, the clocks went back: write {_iso(first)} or {_iso(second)}"
        )
    return first


def _iso(at_s: float) -> str:
    return _local(at_s).isoformat(timespec="seconds")


def _local(at_s: float) -> datetime:
    return datetime.fromtimestamp(at_s).astimezone()
