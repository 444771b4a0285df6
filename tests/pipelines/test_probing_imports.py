"""What the processes carry that take part in a probe on this machine."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
COMMAND = (
    *"pipelines.environments.local.environment".split(),
    "profiling_jobs.experiments.profiling",
    *"pipelines.environments.replay pipelines.environments.local.deployments".split(),
    *"pipelines.environments.metrics pipelines.environments.local.executors".split(),
    *"pipelines.integrations.kafka_broker pipelines.integrations.stores.sqlite".split(),
)
PYDANTIC = {"pydantic", "pydantic_core", "annotated_types", "typing_extensions", "typing_inspection"}
LOADED = """
import sys, sysconfig
site = sysconfig.get_paths()["purelib"]
files = {name: getattr(module, "__file__", None) or "" for name, module in list(sys.modules.items())}
found = {name.split(".")[0] for name, file in files.items() if file.startswith(site)}
print(json.dumps([name for name in found if not name.startswith("_")]))
"""


@pytest.mark.parametrize(
    ("modules", "packages"),
    [
        # Arrow, with which a replay reads its records, would take 16 MB of a process that reads none.
        pytest.param(COMMAND, {"numpy", "psutil", *PYDANTIC}, id="the command"),
        pytest.param(
            ["profiling_jobs.replay.driver"], {"numpy", "pyarrow", "cloudpickle"}, id="the driver of a replay"
        ),
        pytest.param(["profiling_jobs.runner"], set(), id="the wrapper of a job's driver"),
    ],
)
def test_a_process_of_a_probe_starts_with_what_it_needs(modules, packages):
    """PySpark and the client of Kafka come with the first call that needs them."""
    done = subprocess.run(
        [sys.executable, "-c", f"import json, {', '.join(modules)}\n{LOADED}"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert set(json.loads(done.stdout)) <= packages
