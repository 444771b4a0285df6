"""A Python of its own, to see what a program loads."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

HEAVY = {"sklearn", "pmdarima", "statsmodels", "scipy", "pandas", "mlflow", "dagster", "pyspark"}


def printed(program: str, *arguments: object) -> Any:
    """What the program prints, which is JSON; it runs from the checkout."""
    done = subprocess.run(
        [sys.executable, "-c", program, *map(str, arguments)],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
