"""What a job's driver carries beside the job itself."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
from fresh_python import printed

from models.ports import Function, Plan
from profiling_jobs import runner
from profiling_jobs.brokers import Brokers
from profiling_jobs.driver.launch_file import LaunchFile

HEAVY = ("numpy", "pyarrow", "pandas", "kafka", "pyspark", "dagster")


def test_the_wrapper_brings_no_library_that_the_job_does_not_ask_for() -> None:
    """numpy and Arrow would take 20 MB of every driver; Kafka's client comes with the first commit."""
    code = "import json, sys, profiling_jobs.runner; "
    assert printed(code + f"print(json.dumps([name for name in {HEAVY} if name in sys.modules]))") == []


@pytest.mark.parametrize(
    ("broken", "reason"),
    [(False, "between batches"), (True, "while it was being stopped: the program came to its end")],
)
def test_a_program_that_ends_because_it_is_asked_to_was_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: bool, reason: str
) -> None:
    """One that is said to have finished would never be started again."""

    def stop(*given: object, **settings: object) -> str:
        if broken:
            raise OSError("the JVM has gone")
        return "between batches"

    monkeypatch.setattr(runner, "STOP_S", 0.0)
    monkeypatch.setattr(runner, "ANSWER_S", 0.0)
    monkeypatch.setattr(runner, "LEAVE_S", 3600.0)
    monkeypatch.setattr(runner.stopping, "stop", stop)
    plan = Plan("clicks", "clicks", "live", Function("a:b"), 1, {"in": "in"}, {}, "/checkpoint")
    driver = runner.Driver(LaunchFile(plan, Brokers("h:1"), tmp_path, 1, tmp_path, {}))
    driver._spark = SimpleNamespace(streams=SimpleNamespace(active=[]))

    def run() -> object:
        if broken:
            with pytest.raises(OSError):
                driver.stop_between_batches({})
        else:
            driver.stop_between_batches({})
        return driver._ended("finished", "the program came to its end")

    monkeypatch.setattr(driver, "_run", run)
    ended = driver.run()
    assert (ended.how, ended.reason) == ("stopped", reason)
