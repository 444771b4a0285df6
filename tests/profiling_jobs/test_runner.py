"""What a job's driver carries beside the job itself."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
HEAVY = ("numpy", "pyarrow", "pandas", "kafka", "pyspark", "dagster")


def test_the_wrapper_brings_no_library_that_the_job_does_not_ask_for() -> None:
    """numpy and Arrow would take 20 MB of every driver; Kafka's client comes with the first commit."""
    code = "import json, sys, profiling_jobs.runner; "
    code += f"print(json.dumps([name for name in {HEAVY} if name in sys.modules]))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == []
