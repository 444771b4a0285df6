"""Drivers on this machine: start, find again, ask, and end one with everything that belongs to it.

A driver is a Python process and its JVM, both marked `driver.NAME`; its executors are the worker's
children. A driver is started only after every process of the one before is gone: two on one checkpoint
would tear it.
"""

from __future__ import annotations

import math
import secrets
import shutil
import signal
import sys
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from models.errors import HeadroomError, NotReady
from profiling_jobs.brokers import Brokers
from profiling_jobs.driver.channel import ControlClient
from profiling_jobs.driver.launch_file import Ended, LaunchFile, Listening, write_text
from profiling_jobs.telemetry.checkpoint import commit_folders

from ...integrations.spark import MASTER, ExecutorProcess, LocalSpark
from ...processes.owner import Owner
from ...processes.processes import Process, marked
from ...settings.schema import SparkSettings
from .records import Record, Records

# -P: the project may have packages of the same names as ours.
COMMAND = (sys.executable, "-P", "-m", "profiling_jobs.runner")
STOP_S = 60.0  # judgement: a batch that takes longer is cut short
LEAVE_S = 30.0  # judgement: Spark's own end takes 1–2 s
EXECUTORS_LEAVE_S = 15.0  # the worker asks, and kills after 10
KILLED_S = 30.0  # judgement: only a process whose disk hangs outlives its kill for longer than moments
TIDY_EVERY_S = 300.0  # judgement: as often as the worker looks for what it may clear
LOCAL = "local"  # of each driver: what a killed one leaves there could not be told to be its own elsewhere


class LocalDrivers:
    """The drivers of one folder."""

    def __init__(
        self,
        owner: Owner,
        spark: LocalSpark,
        brokers: Brokers,
        records: Records,
        *,
        settings: SparkSettings,
        project: Path,
    ) -> None:
        self._owner = owner
        self._spark = spark
        self._brokers = brokers
        self._records = records
        self._settings = settings
        self._project = project
        self._tidied_s = -math.inf

    def start(self, record: Record) -> Record:
        """The next incarnation; what is remembered of it afterwards."""
        self.end_processes(record.name)
        self._spark.ensure()
        record = self._records.save(replace(record, incarnation=record.incarnation + 1))
        folder = self._records.folder(record.name)
        for own in ("scratch", LOCAL):
            (folder / own).mkdir(mode=0o700, parents=True, exist_ok=True)
        write_text(folder / "token", secrets.token_urlsafe(32))
        orders = LaunchFile(
            plan=record.plan,
            brokers=self._brokers,
            folder=folder,
            incarnation=record.incarnation,
            project=self._project,
            conf=self._spark.job_conf(record.name, conf=record.plan.conf),
            slots=self._settings.slots,
            scale_timeout_s=self._settings.scale_timeout_s,
        )
        self._owner.start(
            _role(record.name),
            [*COMMAND, orders.write()],
            environment={
                **self._spark.environment(),
                **self._brokers.environment(),
                "SPARK_LOCAL_DIRS": str(folder / LOCAL),
            },
            directory=self._project,
        )
        return record

    def mend_cluster(self) -> bool:
        """Start again what has died of the Spark cluster; True when the drivers have lost their master.

        Asked every few seconds. Now and then the disk is freed of what executors have left.
        """
        lost = self._spark.lost()
        if lost:
            self._spark.ensure()
        elif time.monotonic() - self._tidied_s > TIDY_EVERY_S:
            self._tidied_s = time.monotonic()
            with suppress(HeadroomError, OSError):  # it is not waited for
                self._spark.tidy()
        return MASTER in lost

    def process(self, name: str) -> Process | None:
        """The Python process, if it lives."""
        return next(iter(self._owner.running(_role(name))), None)

    def processes(self, name: str) -> tuple[Process, ...]:
        """All of the driver: Python, its JVM, and what else they have started."""
        return tuple(one for one in marked(self._owner.id) if one.role == _role(name))

    def executors(self, name: str) -> tuple[ExecutorProcess, ...]:
        """The living executors of the newest run; older ones may still be on their way out."""
        found = self._spark.executors(name)
        newest = max((one.application_id for one in found), default="")  # the time of its start leads
        return tuple(one for one in found if one.application_id == newest)

    def log(self, name: str) -> Path:
        """Log file of the driver."""
        return self._owner.log(_role(name))

    def client(self, record: Record) -> ControlClient:
        """Client of the driver's control channel."""
        folder = self._records.folder(record.name)
        listening = self.listening(record)
        if listening is None:
            raise NotReady(f"the driver of {record.name} is still starting: try again")
        return ControlClient(listening.address(folder), token=(folder / "token").read_text())

    def listening(self, record: Record) -> Listening | None:
        """Where this incarnation listens, if it does."""
        return Listening.read(self._records.folder(record.name), incarnation=record.incarnation)

    def traces(self, record: Record) -> tuple[int, ...]:
        """Times of files that change with every batch, also where the driver does not answer."""
        reports = self._records.folder(record.name) / "progress.jsonl"
        return tuple(map(_changed_ns, (reports, *commit_folders(record.plan.checkpoint))))

    def ended(self, record: Record) -> Ended | None:
        """How this incarnation ended in its own words; None while it runs, and when it was killed."""
        return Ended.read(self._records.folder(record.name), incarnation=record.incarnation)

    def end(self, record: Record) -> dict[str, Any]:
        """End a driver: between two batches if it answers, else by a kill. Returns how it ended."""
        said: dict[str, Any] = {"stopped": "by a kill"}
        process = self.process(record.name)
        if process is not None:
            with suppress(HeadroomError):
                said = self.client(record).stop_between_batches(timeout_s=STOP_S)
                process.wait(LEAVE_S)
        self.end_processes(record.name)
        self._await_executors(record.name)
        return said

    def end_processes(self, name: str) -> None:
        """Kill every process of the driver, also frozen ones; NotReady where one outlives that."""
        for process in self.processes(name):
            process.signal(signal.SIGKILL)
            if not process.wait(LEAVE_S):
                raise _outlives(process, f"the driver of {name}")
        for process in self._owner.running(_role(name)):
            self._owner.stop(process, kill=True)
        shutil.rmtree(self._records.folder(name) / LOCAL, ignore_errors=True)

    def _await_executors(self, name: str) -> None:
        """Wait until its executors have ended, whose slots are needed; kill frozen and late ones."""
        until = time.monotonic() + EXECUTORS_LEAVE_S
        while left := [one for one in marked(self._owner.id) if one.role == f"executor.{name}"]:
            if time.monotonic() > until + KILLED_S:
                raise _outlives(left[0], f"an executor of {name}")
            for process in left:
                if process.frozen or time.monotonic() > until:
                    process.signal(signal.SIGKILL)
            time.sleep(0.1)


def _outlives(process: Process, what: str) -> NotReady:
    """Such a process is in the middle of a system call: what it writes there could still arrive."""
    return NotReady(f"{what} (process {process.pid}) goes on although it was killed: does a disk hang?")


def _role(name: str) -> str:
    return f"driver.{name}"


def _changed_ns(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0
