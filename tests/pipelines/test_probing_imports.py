"""What the process carries from which a copy is probed on this machine."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
PROBING = (
    *"pipelines.environments.local.environment pipelines.environments.local.replays".split(),
    "profiling_jobs.experiments.profiling",
    *"pipelines.environments.local.replay pipelines.environments.local.deployments".split(),
    *"pipelines.environments.local.metrics pipelines.environments.local.executors".split(),
    *"pipelines.integrations.kafka_broker pipelines.integrations.sqlite_store".split(),
)
HEAVY = ("pyarrow", "pandas", "pyspark", "dagster", "mlflow", "scipy")


def test_a_probe_is_commanded_without_what_only_its_source_needs() -> None:
    """Arrow, with which a replay reads its records, would take 16 MB of a process that reads none."""
    code = f"import json, sys, {', '.join(PROBING)}; "
    code += f"print(json.dumps([name for name in {HEAVY} if name in sys.modules]))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == []
