"""How are numbers, spans and failures said to a person who was asleep a minute ago?

Rates in whole records/s with thousands apart, never "36k"; durations in at most two units; failures as what
happens, not as they are spelled in settings. What could not be told says why.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

UNITS = (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1))
KINDS = {
    "executor_kill": "the loss of an executor",
    "executor_freeze": "a frozen executor",
    "driver_kill": "the loss of the driver",
    "driver_freeze": "a frozen driver",
    "broker_restart": "a restart of the broker",
    "node_loss": "the loss of a node",
    "straggler": "a slow executor",
    "pod_failure": "the loss of a pod",
    "network_partition": "a network that is cut",
    "network_delay": "a slow network",
    "network_loss": "a lossy network",
    "cpu_stress": "a busy processor",
    "memory_stress": "scarce memory",
    "live_out": "adding executors while it runs",
    "live_in": "removing executors while it runs",
    "restart_out": "a restart with more executors",
    "restart_in": "a restart with fewer executors",
    "standstill": "a standstill",
}


def lasting(seconds: float) -> str:
    """`4 s`, `4 min 30 s`, `2 h 5 min`, `3 d 4 h`: two units at most."""
    left = round(seconds)
    if left < 1:
        return f"{seconds:.1f} s" if seconds >= 0.05 else "0 s"
    parts: list[str] = []
    for name, size in UNITS:
        count, left = divmod(left, size)
        if count:
            parts.append(f"{count} {name}")
        elif parts:
            break
    return " ".join(parts[:2])


def brief_s(seconds: float) -> str:
    """Seconds as people compare them with a target: `0.4`, `7.2`, `74`."""
    return f"{seconds:.1f}" if abs(seconds) < 9.95 else f"{seconds:,.0f}"


def count(value: float) -> str:
    """`1,180`; small ones keep a digit: `4.2`."""
    return f"{value:,.0f}" if abs(value) >= 10 or value == int(value) else f"{value:.1f}"


def percent(share: float) -> str:
    """Never rounded up to what was promised."""
    return f"{math.floor(share * 1000 + 1e-9) / 10:g} %"


def capital(text: str) -> str:
    """The beginning of a sentence."""
    return text[:1].upper() + text[1:]


def kind(name: str) -> str:
    """What happens in a failure of this kind."""
    return KINDS.get(name, name.replace("_", " "))


def is_known(value: Any) -> bool:
    """Is it neither missing nor unknown? Of the values of a stored document."""
    return value is not None and not (isinstance(value, Mapping) and "unknown" in value)


def why_unknown(value: Any) -> str:
    """Why a value of a stored document could not be told."""
    return str(value["unknown"]) if isinstance(value, Mapping) and "unknown" in value else "it was not told"


def told(value: Any, words: Callable[[Any], str]) -> str:
    """The value in words, or that it is unknown and why."""
    return words(value) if is_known(value) else f"unknown: {why_unknown(value)}"


def between(value: Mapping[str, Any], words: Callable[[float], str]) -> str:
    """`3,860 – 4,110`; an open end is said to be so."""
    low, high = value["low"], value["high"]
    if low is None:
        return "longer than was looked at"
    if high is None:
        return f"{words(low)} – longer than was looked at"
    return words(low) if words(low) == words(high) else f"{words(low)} – {words(high)}"
