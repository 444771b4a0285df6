"""One line for whoever is called at night."""

from __future__ import annotations

import pytest

from profiling_jobs.driver.launch_file import LONGEST, in_short

pytestmark = pytest.mark.fast

WRAPPED = """[STREAM_FAILED] Query [id = a, runId = b] terminated with exception: Job aborted due to stage \
failure: org.apache.spark.api.python.PythonException: [PYTHON_EXCEPTION] An exception \
was thrown from the worker: Traceback (most recent call last):
  File "worker.py", line 3602, in main
    process()
  File "job.py", line 3, in shout
    raise ValueError("this record is bad")
ValueError: this record is bad
 SQLSTATE: 38000
\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handlePythonException(PythonRunner.scala:665)
"""


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (RuntimeError(WRAPPED), "ValueError: this record is bad"),
        (
            RuntimeError("[STREAM_FAILED] Query [id = a] ended: disk full\n\tat org.apache"),
            "RuntimeError: [STREAM_FAILED] Query [id = a] ended: disk full",
        ),
        (ZeroDivisionError("division by zero"), "ZeroDivisionError: division by zero"),
        (KeyboardInterrupt(), "KeyboardInterrupt"),
        (ValueError("\n\n  indented\nmore"), "ValueError: indented"),
    ],
)
def test_the_line_that_says_most(error: BaseException, line: str) -> None:
    assert in_short(error) == line


def test_it_is_never_long() -> None:
    assert len(in_short(ValueError("x" * 10_000))) == LONGEST
