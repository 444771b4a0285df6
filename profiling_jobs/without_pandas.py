"""How does Arrow get by without pandas, which it only asks whether it is there?

Importing it takes 30 MB of a process. `pyarrow.array` does so when it is first called, to see whether what it
was given is pandas' own; the tasks of a replay never give it that. Whoever wants pandas imports it as ever:
nothing is hidden for longer than the question takes. (A driver has it anyway: PySpark imports it before the
first session is there.)
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache


@cache
def answer_arrow() -> None:
    """Let pyarrow ask, and hear that there is none. It asks once in a process; `to_pandas` asks again.

    Not where somebody else's code makes Arrow arrays of pandas' series: they would pass for lists.
    """
    import pyarrow as pa

    if "pandas" not in sys.modules:
        with _hidden():
            pa.array([])


class _NotThere:
    """A finder of modules that says of pandas what one says of a package that is not installed."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> None:
        if name == "pandas":
            raise ModuleNotFoundError(f"No module named '{name}'", name=name)


@contextmanager
def _hidden() -> Iterator[None]:
    finder = _NotThere()
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
