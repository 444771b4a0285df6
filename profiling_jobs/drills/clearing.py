"""How are failures put right again, whatever is the matter with one of them?

An executor that is frozen must not stay so because the broker does not start: every failure is tried, and
what went wrong is raised after the last one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ..errors import HeadroomError
from ..ports import Failures, Injection


def clear_each(injections: Iterable[Injection], clear: Callable[[str], None]) -> None:
    """All of them; the first problem is raised when all were tried."""
    problems: list[HeadroomError] = []
    for injection in injections:
        try:
            clear(injection.id)
        except HeadroomError as error:
            problems.append(error)
    if problems:
        raise problems[0]


def clear_left_over(failures: Failures) -> tuple[Injection, ...]:
    """Clear what a crash of ours has left; what another drill has in hand is its own to clear."""
    left = failures.left_over()
    clear_each(left, failures.clear)
    return left
