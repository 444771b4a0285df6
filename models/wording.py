"""How many of something is that, in words, and what do they do?

>>> executors(1), executors(4), executors(1, "sustain"), counted(2, "drill")
('1 executor', '4 executors', '1 executor sustains', '2 drills')
"""

from __future__ import annotations

ONE = {"are": "is", "were": "was", "do": "does", "have": "has"}


def counted(number: int, noun: str) -> str:
    """`1 drill`, `4 drills`, `1,200 records`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def executors(number: int, do: str = "") -> str:
    """`1 executor`, `4 executors`; with what they do `1 executor is`, `4 executors are`."""
    does = ONE.get(do, f"{do}s") if number == 1 else do
    return f"{counted(number, 'executor')} {does}" if do else counted(number, "executor")
