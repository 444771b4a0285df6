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


def driver(folder: Path) -> runner.Driver:
    plan = Plan("clicks", "clicks", "live", Function("a:b"), 1, {"in": "in"}, {}, "/checkpoint")
    return runner.Driver(LaunchFile(plan, Brokers("h:1"), folder, 1, folder, {}))


def test_whatever_keeps_executors_from_coming_is_said(tmp_path: Path) -> None:
    def settle(count: int, *, timeout_s: float) -> float:
        raise RuntimeError("An error occurred while calling o12.requestTotalExecutors")

    found = driver(tmp_path)
    found._spark = SimpleNamespace(streams=SimpleNamespace(active=[]))
    found._executors = SimpleNamespace(settle=settle, ids=lambda: (), wanted=1, application_id="app-1")  # type: ignore[assignment]
    found._settle(found._executors)
    assert "o12.requestTotalExecutors" in found.status({})["unsettled"]


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
    stopped = driver(tmp_path)
    stopped._spark = SimpleNamespace(streams=SimpleNamespace(active=[]))

    def run() -> object:
        if broken:
            with pytest.raises(OSError):
                stopped.stop_between_batches({})
        else:
            stopped.stop_between_batches({})
        return stopped._ended("finished", "the program came to its end")

    monkeypatch.setattr(stopped, "_run", run)
    ended = stopped.run()
    assert (ended.how, ended.reason) == ("stopped", reason)
