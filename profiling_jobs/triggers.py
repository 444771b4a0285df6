"""The trigger interval of a streaming query, as its program spells it, against `trigger_s` of its job."""

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
    try:
        calls = [node for node in ast.walk(ast.parse(program)) if isinstance(node, ast.Call)]
    except (SyntaxError, ValueError):
        return ()
    texts = [
        word.value.value
        for call in calls
        if isinstance(call.func, ast.Attribute) and call.func.attr == "trigger"
        for word in call.keywords
        if word.arg == "processingTime" and isinstance(word.value, ast.Constant)
    ]
    found = [interval_s(text) for text in texts if isinstance(text, str)]
    return tuple(seconds for seconds in found if seconds is not None)


def mismatch(declared_s: float, found_s: float) -> str:
    """What is wrong with `trigger_s` where a query has this interval; empty where nothing is."""
    if abs(declared_s - found_s) < 0.0005:  # Spark counts whole milliseconds
        return ""
    has = f"is triggered every {found_s:g} s" if found_s else "has no trigger interval"
    return f"is {declared_s:g}, but the query {has}: set it to {found_s:g}"
