"""Cost of importing the models and the definitions, which every tick and every run pays.

Nothing heavy may come along. The definitions are compared with Dagster in the same run; both by the
processor's time, too, which does not depend on what else this machine does.
"""

from __future__ import annotations

import os
import pkgutil
import statistics
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import models

from . import Figure

HERE = Path(__file__).parent.parent
REPEATS = 5


def seconds(statement: str, *, clock: str = "perf_counter") -> float:
    """Median time of the import in a fresh interpreter, without the interpreter's own start.

    Compiled files may be kept, whatever the environment says: an installation keeps them, too.
    """
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    program = f"import time; begun = time.{clock}(); {statement}; print(time.{clock}() - begun)"
    taken = []
    for _ in range(REPEATS):
        done = subprocess.run(
            [sys.executable, "-c", program],
            cwd=HERE,
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
        taken.append(float(done.stdout))
    return statistics.median(taken)


def measure() -> Iterable[Figure]:
    names = [module.name for module in pkgutil.walk_packages(models.__path__, "models.")]
    yield Figure("import numpy alone", seconds("import numpy"), "s")
    yield Figure("import models", seconds("import models"), "s", at_most=0.3)
    for name in names:
        if name.count(".") == 1:
            yield Figure(f"import {name}", seconds(f"import {name}"), "s", at_most=0.3)
    yield Figure("import every module of models", seconds("import " + ", ".join(names)), "s", at_most=0.3)
    for clock, what in (("perf_counter", ""), ("process_time", ", processor time")):
        alone = seconds("import dagster", clock=clock)
        ours = seconds("import pipelines.definitions", clock=clock)
        yield Figure(f"import dagster alone{what}", alone, "s")
        yield Figure(f"import pipelines.definitions{what}", ours, "s", at_most=1.5)
        yield Figure(f"the same over importing dagster{what}", ours / alone, "x", at_most=1.6)
