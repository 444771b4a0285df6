"""How many of something is that, in words?

>>> executors(1), executors(4), counted(1, "drill")
('1 executor', '4 executors', '1 drill')
"""

from __future__ import annotations


def counted(number: int, noun: str) -> str:
    """`1 drill`, `4 drills`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def executors(number: int) -> str:
    """`1 executor`, `4 executors`."""
    return counted(number, "executor")
