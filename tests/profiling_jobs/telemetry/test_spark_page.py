"""Task seconds and records from a driver's page, which is served here."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from models.errors import NotReady
from profiling_jobs.telemetry import spark_page
from profiling_jobs.telemetry.spark_page import SparkPage

pytestmark = pytest.mark.fast


def stage(
    number: int, seconds: float, records: int, *, status: str = "COMPLETE", running: tuple[float, ...] = ()
) -> dict[str, Any]:
    return {
        "stageId": number,
        "status": status,
        "executorSummary": {"0": {"taskTime": 1000 * seconds, "inputRecords": records}},
        "tasks": {
            str(i): {"status": "RUNNING", "executorId": "0", "duration": 1000 * age}
            for i, age in enumerate(running)
        },
    }


class Driver:
    """Serves what Spark serves."""

    def __init__(self) -> None:
        self.stages: dict[int, dict[str, Any]] = {}
        self.executors = [self.executor("0"), self.executor("driver")]
        self.requests = 0

    @staticmethod
    def executor(name: str, *, active: bool = True) -> dict[str, Any]:
        return {
            "id": name,
            "isActive": active,
            "totalCores": 1,
            "completedTasks": 3,
            "addTime": "2026-11-18T11:51:34.250GMT",
            **({} if active else {"removeTime": "2026-11-18T11:53:34.500GMT"}),
        }

    def put(self, *stages: dict[str, Any]) -> None:
        self.stages.update({one["stageId"]: one for one in stages})

    def answer(self, path: str) -> Any:
        self.requests += 1
        path = path.removeprefix("/api/v1/applications/app-1")
        if path == "/allexecutors":
            return self.executors
        if path.startswith("/stages?status="):
            wanted = path.partition("=")[2].partition("&")[0].upper()
            return [one for one in self.stages.values() if one["status"] == wanted]
        one = self.stages.get(int(path.removeprefix("/stages/").partition("?")[0]))
        return None if one is None else [one]


@pytest.fixture
def driver() -> Driver:
    return Driver()


@contextmanager
def served(driver: Driver, *, idle_s: float | None = None) -> Iterator[SparkPage]:
    """The page of this driver; with `idle_s` connections are kept, and ended when quiet for so long."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.0" if idle_s is None else "HTTP/1.1"
        timeout = idle_s

        def do_GET(self) -> None:
            answer = driver.answer(self.path)
            body = json.dumps(answer).encode()
            self.send_response(200 if answer is not None else 404)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *values: Any) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    found = SparkPage(f"http://127.0.0.1:{server.server_address[1]}", "app-1")
    try:
        yield found
    finally:
        found.close()
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.fixture
def page(driver: Driver) -> Iterator[SparkPage]:
    with served(driver) as found:
        yield found


def test_finished_and_running_work_is_counted_and_only_grows(driver: Driver, page: SparkPage) -> None:
    driver.put(stage(7, 5.0, 500), stage(8, 1.0, 50, status="ACTIVE", running=(0.5,)))
    work = page.read()["0"]
    assert (work.slots, work.tasks, work.task_s, work.records) == (1, 3, 1.5, 50)
    assert work.started_at_s == 1795002694.25
    driver.put(stage(8, 2.5, 80), stage(9, 1.0, 10), stage(10, 0.25, 5, status="ACTIVE", running=(1.0,)))
    assert page.read()["0"].task_s == 2.5 + 1.0 + 0.25 + 1.0
    driver.put(stage(10, 2.0, 30))
    work = page.read()["0"]
    assert (work.task_s, work.records) == (5.5, 120)
    assert page.read()["0"] == work


def test_a_quiet_moment_at_the_beginning(driver: Driver, page: SparkPage) -> None:
    assert page.read()["0"].task_s == 0.0
    driver.put(stage(0, 1.0, 10))
    assert page.read()["0"].records == 10
    other = SparkPage(f"http://{page._connection.host}:{page._connection.port}", "app-1")
    assert other.read()["0"].records == 0  # what was before is not ours
    driver.put(stage(1, 1.0, 10))
    assert other.read()["0"].records == 10
    other.close()


def test_stages_that_spark_never_ran_are_stepped_over(driver: Driver, page: SparkPage) -> None:
    driver.put(stage(3, 1.0, 10, status="ACTIVE"))
    page.read()
    driver.put(stage(3, 2.0, 20), stage(6, 1.0, 5, status="ACTIVE"))
    assert page.read()["0"].records == 25
    driver.put(stage(6, 1.0, 8))
    assert page.read()["0"].records == 28


def test_the_driver_and_lost_executors_are_left_out(driver: Driver, page: SparkPage) -> None:
    reasons = {
        "1": "Command exited with code 137",
        "2": "Executor heartbeat timed out after 21334 ms",
        "3": "",
    }
    for number, reason in reasons.items():
        driver.executors.append(Driver.executor(number, active=False) | {"removeReason": reason})
    assert list(page.read()) == ["0"]
    said = {name: (loss.at_s, loss.silent_s) for name, loss in page.losses.items()}
    lost_at_s = 1795002814.5
    assert said == {
        "app-1/1": (lost_at_s, 0.0),
        "app-1/2": (lost_at_s, 21.334),
        "app-1/3": (lost_at_s, spark_page.NO_REASON),
    }


def test_more_stages_than_can_be_read_is_said(
    driver: Driver, page: SparkPage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spark_page, "MOST_STAGES", 3)
    page.read()
    driver.put(*(stage(number, 1.0, 1) for number in range(9)))
    with pytest.raises(NotReady, match="more than 3 stages between two readings"):
        page.read()
    driver.put(stage(9, 1.0, 1))
    before = page.read()["0"].records
    driver.put(stage(10, 1.0, 5))
    assert page.read()["0"].records == before + 5


def test_a_driver_that_is_gone_is_not_ready() -> None:
    page = SparkPage("http://127.0.0.1:1", "app-1")
    with pytest.raises(NotReady, match="does not answer"):
        page.read()


def test_a_connection_that_the_driver_has_ended_is_opened_again(driver: Driver) -> None:
    """Spark's page ends connections that were quiet for some seconds; between two readings they are."""
    driver.put(stage(0, 1.0, 10, status="ACTIVE"))
    with served(driver, idle_s=0.2) as page:
        before = page.read()["0"]
        time.sleep(0.5)
        assert page.read()["0"] == before
