"""The trigger interval and the windows of a streaming query, as its program spells them.

The interval is compared with `trigger_s` of its job.
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
