"""How do Arrow and Spark get by without pandas, which they only ask whether it is there?

Importing it takes 30 MB of every process. `pyarrow.array` does so when it is first called, to see whether
what it was given is pandas' own. `DataFrame.mapInArrow` does so to compare its version, and imports Arrow,
another 16 MB, to see whether the schema has types of Arrow's; the batches themselves go from the JVM to its
workers, past the driver. Neither needs the answers here. Whoever wants pandas imports it as ever: nothing is
hidden for longer than the question takes.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

Batches = Callable[["Iterator[pa.RecordBatch]"], "Iterator[pa.RecordBatch]"]

QUESTIONS = (  # where PySpark 4.2 asks them
    ("pyspark.sql.pandas.functions", "require_minimum_pandas_version"),
    ("pyspark.sql.pandas.functions", "require_minimum_pyarrow_version"),
    ("pyspark.sql.udf", "to_arrow_type"),
)


@cache
def answer_arrow() -> None:
    """Let pyarrow ask, and hear that there is none. It asks once in a process; `to_pandas` asks again.

    Not where somebody else's code makes Arrow arrays of pandas' series: they would pass for lists.
    """
    import pyarrow as pa

    if "pandas" not in sys.modules:
        with _hidden():
            pa.array([])


def map_in_arrow(frame: DataFrame, function: Batches, schema: str) -> DataFrame:
    """`frame.mapInArrow(function, schema)`, whose types are known to be Arrow's too."""
    asked = [(importlib.import_module(module), question) for module, question in QUESTIONS]
    before = [getattr(*one) for one in asked]
    for one in asked:
        setattr(*one, _ask_nobody)
    try:
        return frame.mapInArrow(function, schema)
    finally:
        for one, asks in zip(asked, before, strict=True):
            setattr(*one, asks)


def _ask_nobody(*given: object, **named: object) -> None:
    pass


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
