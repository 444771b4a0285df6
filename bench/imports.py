"""What does importing the models cost? Nothing heavy may come along: every tick and every run pays for it."""

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


def seconds(statement: str) -> float:
    """Median time of the import in a fresh interpreter, without the interpreter's own start.

    Compiled files may be kept, whatever the environment says: an installation keeps them, too.
    """
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    program = f"import time; begun = time.perf_counter(); {statement}; print(time.perf_counter() - begun)"
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
