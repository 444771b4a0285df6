"""Which scale-outs are worth asking about?

Slots take tasks in waves: with `tasks` partitions, s executors need w(s) = ⌈tasks / s⌉ waves, and a size with
as many waves as a smaller one is not faster, only dearer. So the candidates are the smallest size of each w.
"""

from __future__ import annotations

from ..arguments import whole
from ..quantities import Misuse


def aligned_scale_outs(low: int, high: int, *, tasks: int | None = None) -> tuple[int, ...]:
    """The sizes from `low` to `high` at which the number of waves changes, and both bounds."""
    first, last = whole("low", low), whole("high", high)
    if last < first:
        raise Misuse("high", f"must be >= low, got {last} < {first}")
    sizes = range(first, last + 1)
    if tasks is None:
        return tuple(sizes)
    count = whole("tasks", tasks)
    return tuple(s for s in sizes if s in (first, last) or -(-count // s) < -(-count // (s - 1)))
