"""The trigger interval, the largest batch and the windows of a streaming query, as its program spells them.

Interval and batch are compared with `trigger_s` and `max_offsets_per_trigger` of its job: predictions step
batches, and would step other ones.
"""

from __future__ import annotations

import ast
import re

UNITS_S = {"millisecond": 1e-3, "second": 1.0, "minute": 60.0, "hour": 3600.0}
PART = re.compile(r"([+-]?\d+(?:\.\d+)?)\s*(millisecond|second|minute|hour)s?\s*", re.IGNORECASE)


def interval_s(text: str) -> float | None:
    """Seconds of an interval in Spark's words, as "1 minute 30 seconds"; None for other spellings."""
    rest = re.sub(r"^\s*interval\s+", "", text, flags=re.IGNORECASE).strip()
    parts = list(PART.finditer(rest))
    if not parts or "".join(part.group() for part in parts) != rest:
        return None
    return sum(float(part[1]) * UNITS_S[part[2].lower()] for part in parts)


def spelt_in(program: str) -> tuple[float, ...]:
    """The intervals of every `trigger(processingTime="…")` of a Python program that are spelt out there."""
    texts = [
        word.value.value
        for call in _calls(program, "trigger")
        for word in call.keywords
        if word.arg == "processingTime" and isinstance(word.value, ast.Constant)
    ]
    found = [interval_s(text) for text in texts if isinstance(text, str)]
    return tuple(seconds for seconds in found if seconds is not None)


LIMIT = "maxoffsetspertrigger"


def limits_in(program: str) -> tuple[int | None, ...]:
    """Every `maxOffsetsPerTrigger` that a Python program sets; None where it is not spelt out."""
    found = []
    for call in _calls(program, "option"):
        if [_text(name).lower() for name in call.args[:1]] == [LIMIT]:
            found += call.args[1:2]
    for call in _calls(program, "options"):
        found += [word.value for word in call.keywords if (word.arg or "").lower() == LIMIT]
    numbers = [one.value if isinstance(one, ast.Constant) else None for one in found]
    return tuple(int(str(each)) if str(each).isdecimal() else None for each in numbers)


def has_watermark(program: str) -> bool:
    """Whether a Python program drops events that are late by their own time."""
    return bool(_calls(program, "withWatermark"))


def other_limit(declared: int | None, found: int | None) -> str:
    """What is wrong with `max_offsets_per_trigger` where a program reads with this limit; empty: nothing."""
    if declared == found:
        return ""
    says = "is not set" if declared is None else f"is {declared}"
    if found is None:
        return (
            f"{says}, but the program does not limit its batches: remove the key, or read with "
            f'.option("maxOffsetsPerTrigger", {declared})'
        )
    return f"{says}, but the program reads at most {found} records of each input per batch: set it to {found}"


def longest_window(program: str) -> tuple[float, str] | None:
    """Seconds and time column of the longest `window("column", "…")` that is spelt out; None without one."""
    found = []
    for call in _calls(program, "window"):
        column, length = [*map(_text, call.args[:2]), "", ""][:2]
        if column and (seconds := interval_s(length)) is not None:
            found.append((seconds, column))
    return max(found, default=None)


def _calls(program: str, name: str) -> list[ast.Call]:
    """The calls of functions and methods of this name."""
    try:
        nodes = list(ast.walk(ast.parse(program)))
    except (SyntaxError, ValueError):
        return []
    calls = [node for node in nodes if isinstance(node, ast.Call)]
    return [one for one in calls if getattr(one.func, "attr", getattr(one.func, "id", "")) == name]


def _text(node: ast.expr) -> str:
    """A text, or the name of a column: `"at"`, `col("at")`."""
    if isinstance(node, ast.Call) and node.args:
        return _text(node.args[0])
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def mismatch(declared_s: float, found_s: float) -> str:
    """What is wrong with `trigger_s` where a query has this interval; empty where nothing is."""
    if abs(declared_s - found_s) < 0.0005:  # Spark counts whole milliseconds
        return ""
    has = f"is triggered every {found_s:g} s" if found_s else "has no trigger interval"
    return f"is {declared_s:g}, but the query {has}: set it to {found_s:g}"
