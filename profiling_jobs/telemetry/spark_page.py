"""The work of the executors, from the driver's own page, and a first guess of capacity from its stages.

The page serves JSON (`/api/v1/applications/APP`). Per executor and stage: seconds of finished tasks and
records read; per running task: its age. Stages are numbered without gaps; those that have ended are read once
and added up. A driver that is dead, frozen or still starting is NotReady.

Each stage of a batch is an operator: it takes records from the one before (weight = its records per record of
the sources) and one slot works off r of them per second of task time. How many slots each gets, and the rate
then, is what bounded inverse DS2 answers. Fewer slots than stages take turns: 1 / Σ (w / r) per slot. A first
guess only: planning, shuffles and waves of tasks are not in it, so it lies above the truth.
"""

from __future__ import annotations

import http.client
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit

from models.errors import NotReady
from models.observation import ExecutorLoss
from models.planning import bounded_inverse_ds2
from models.quantities import Unknown

ANSWER_S = 3.0  # judgement: 5–30 ms on an idle machine
MOST_STAGES = 500  # judgement: 3 ms each; a job of the smallest batches (50 ms) ends so many in 25 s
GONE = (http.client.RemoteDisconnected, BrokenPipeError, ConnectionResetError)
TIMED_OUT = re.compile(r"heartbeat timed out after (\d+) ms")
NO_REASON = Unknown("Spark says no reason")
RUNNING = "details=true&taskStatus=RUNNING"


@dataclass(frozen=True)
class Work:
    """One executor, counted from when we first looked at the application."""

    slots: int
    started_at_s: float
    tasks: int
    """Finished since the executor started."""
    task_s: float
    records: int


class SparkPage:
    """The page of one application. Not for several threads at once."""

    def __init__(self, url: str, application_id: str) -> None:
        parts = urlsplit(url)
        self.url = url
        self._connection = http.client.HTTPConnection(
            parts.hostname or "", parts.port or 80, timeout=ANSWER_S
        )
        self._path = f"/api/v1/applications/{application_id}"
        self.application_id = application_id
        self._ended: dict[str, tuple[float, int]] = {}
        self._next: int | None = None
        self.losses: Mapping[str, ExecutorLoss] = {}
        """Executors that the driver has lost, as APPLICATION/NUMBER; as of the newest reading."""

    def close(self) -> None:
        self._connection.close()

    def read(self) -> Mapping[str, Work]:
        """Every registered executor by its number."""
        active = {
            int(stage["stageId"]): stage for stage in self.get(f"/stages?status=active&{RUNNING}") or ()
        }
        for stage in self._since(active):
            self._add(self._ended, stage)
        work = dict(self._ended)
        for stage in active.values():
            self._add(work, stage)
        executors = [one for one in self.get("/allexecutors") or () if one["id"] != "driver"]
        self.losses = {
            f"{self.application_id}/{one['id']}": _loss(one) for one in executors if one.get("removeTime")
        }
        return {
            str(one["id"]): Work(
                slots=int(one["totalCores"]),
                started_at_s=_epoch_s(one["addTime"]),
                tasks=int(one["completedTasks"]),
                task_s=work.get(str(one["id"]), (0.0, 0))[0],
                records=work.get(str(one["id"]), (0.0, 0))[1],
            )
            for one in executors
            if one["isActive"]
        }

    def _since(self, active: Mapping[int, Any]) -> Iterator[dict[str, Any]]:
        """The stages that have ended since the last time."""
        if self._next is None:
            known = active or [int(one["stageId"]) for one in self.get("/stages?status=complete") or ()]
            self._next = min(active) if active else 1 + max(known, default=-1)
        for _ in range(MOST_STAGES):
            if self._next in active:
                return
            attempts = self.get(f"/stages/{self._next}?{RUNNING}")
            if attempts is None and not (active and self._next < min(active)):
                return  # not there yet
            if any(one["status"] in ("ACTIVE", "PENDING") for one in attempts or ()):
                return
            yield from attempts or ()
            self._next += 1
        self._next = None
        raise NotReady(f"the job runs more than {MOST_STAGES} stages between two readings: read more often")

    def _add(self, work: dict[str, tuple[float, int]], stage: Mapping[str, Any]) -> None:
        for executor, done in (stage.get("executorSummary") or {}).items():
            seconds, records = work.get(executor, (0.0, 0))
            work[executor] = seconds + done["taskTime"] / 1000.0, records + int(done["inputRecords"])
        for task in (stage.get("tasks") or {}).values():
            if task["status"] == "RUNNING":
                seconds, records = work.get(task["executorId"], (0.0, 0))
                work[task["executorId"]] = seconds + task.get("duration", 0) / 1000.0, records

    def get(self, path: str) -> Any:
        """The answer; None for what is not there."""
        try:
            answer, body = self._ask(path)
            if answer.status == 404:
                return None
            if answer.status != 200:
                raise NotReady(f"the driver's page answered {answer.status}: try again")
            return json.loads(body)
        except (OSError, http.client.HTTPException, ValueError) as error:
            self._connection.close()
            raise NotReady(f"the driver's page does not answer ({type(error).__name__} {error})") from error

    def _ask(self, path: str) -> tuple[http.client.HTTPResponse, bytes]:
        try:
            return self._once(path)
        except GONE:  # the driver ends a connection that was quiet for some seconds
            self._connection.close()
            return self._once(path)

    def _once(self, path: str) -> tuple[http.client.HTTPResponse, bytes]:
        self._connection.request("GET", self._path + path)
        answer = self._connection.getresponse()
        return answer, answer.read()


def _loss(executor: Mapping[str, Any]) -> ExecutorLoss:
    reason = str(executor.get("removeReason", ""))
    silent = TIMED_OUT.search(reason)
    silent_s = int(silent[1]) / 1000.0 if silent else 0.0
    return ExecutorLoss(_epoch_s(executor["removeTime"]), silent_s if reason else NO_REASON)


def _epoch_s(text: str) -> float:
    """2026-11-18T11:51:34.231GMT"""
    return datetime.strptime(text, "%Y-%m-%dT%H:%M:%S.%fGMT").replace(tzinfo=UTC).timestamp()


NEWEST_JOBS = 20  # judgement: what is older was still warming up


@dataclass(frozen=True)
class StageTime:
    """One stage of the batches, added up over several of them."""

    records: int
    task_s: float


def guesses(
    stages: Sequence[StageTime], sizes: Iterable[int], *, one_rps: float | Unknown
) -> Mapping[int, float] | Unknown:
    """The rate that each number of slots would carry. `one_rps`: what a single one was seen to process.

    Tasks take time for more than their records, state above all, so that the stages of small batches show far
    too low rates; how these rise with the slots they show all the same.
    """
    useful = [stage for stage in stages if stage.records > 0 and stage.task_s > 0.0]
    if not useful or stages[0].records == 0:
        return Unknown("the stages of the single-slot run have not read any records")
    rates = [stage.records / stage.task_s for stage in useful]
    weights = [stage.records / useful[0].records for stage in useful]
    taking_turns = 1.0 / sum(weight / rate for weight, rate in zip(weights, rates, strict=True))
    scale = 1.0 if isinstance(one_rps, Unknown) else one_rps / taking_turns
    found: dict[int, float] = {}
    for size in sizes:
        answer = bounded_inverse_ds2(rates_per_task=rates, weights=weights, slots=size)
        found[size] = scale * (size * taking_turns if isinstance(answer, Unknown) else answer[1])
    return found


def read(page: str, application_id: str) -> tuple[StageTime, ...]:
    """The stages of the newest batches of an application, from its driver's page."""
    driver = SparkPage(page, application_id)
    try:
        jobs, complete = driver.get("/jobs?status=succeeded"), driver.get("/stages?status=complete")
    finally:
        driver.close()
    stages = {int(one["stageId"]): one for one in complete or ()}
    newest = sorted(jobs or (), key=lambda job: -int(job["jobId"]))[:NEWEST_JOBS]
    added: list[list[float]] = []
    for job in newest:
        done = [stages[number] for number in sorted(job["stageIds"]) if number in stages]
        if not done or not done[0]["inputRecords"]:
            continue  # not a batch, or one of which the page has forgotten a part
        for place, stage in enumerate(done):
            if place == len(added):
                added.append([0.0, 0.0])
            added[place][0] += stage["inputRecords"] + stage["shuffleReadRecords"]
            added[place][1] += stage["executorRunTime"] / 1000.0
    return tuple(StageTime(int(records), task_s) for records, task_s in added)
