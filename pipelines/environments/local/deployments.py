"""The `Deployments` of this machine: drivers and executors as processes, found again after a restart.

Each deployment is a driver process (profiling_jobs/runner.py) with executors on the local Spark, and a
record in the folder. A new object on the same folder finds the same deployments. As a
context (or with `watch`) it also starts drivers again that die.
"""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Container, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from models.errors import HeadroomError, Misconfigured, NotReady, Unsafe
from models.ports import Plan, Rescaled, Status
from models.quantities import Unknown, executors
from profiling_jobs import plans
from profiling_jobs.brokers import Brokers
from profiling_jobs.driver import before_start

from ...integrations.spark import ExecutorProcess, LocalSpark
from ...processes.owner import Owner
from ...processes.processes import Process
from ...settings import spark_timeouts
from ...settings.schema import SparkSettings
from .driver_watch import DriverWatch
from .drivers import LocalDrivers
from .records import Record, Records

POLL_S = 0.2
DYING_S = 1.0  # judgement: between a broken connection and the end of its process
# The declared size is what the record says: a launch and a change write it, only we have the key of the
# driver's channel, and executors that are killed leave it as it is. There are no foreign sizes here.
OURS = True
ANSWER_S = 2.0  # judgement: milliseconds, on a very busy machine a second


@dataclass(frozen=True)
class LeftOver:
    """What is left of a job that was stopped."""

    plan: Plan
    runs: bool
    wanted: bool
    """Whether it would have been started again."""


class LocalDeployments:
    """Jobs as processes of this machine. An adapter of the port `Deployments`."""

    def __init__(
        self,
        owner: Owner,
        spark: LocalSpark,
        brokers: Brokers,
        *,
        settings: SparkSettings | None = None,
        project: Path | None = None,
    ) -> None:
        self._settings = settings or SparkSettings()
        self._records = Records(owner.folder / "deployments")
        self._drivers = LocalDrivers(
            owner,
            spark,
            brokers,
            self._records,
            settings=self._settings,
            project=(project or owner.folder.parent).resolve(),
        )
        self._watch = DriverWatch(self._drivers, self._records, silence_s=self._silence_s)
        self._busy: set[str] = set()
        self._coming: dict[str, int] = {}
        """Sizes that are being changed to, and not declared yet."""
        self._entering = threading.Lock()
        self._left_alone: set[str] = set()
        """Not started again as long as this object is there."""

    # ---------------------------------------------------------------------------------------- the port

    def launch(self, plan: Plan) -> None:
        """Start a job. Returns once its driver is started: `status` says how it gets on."""
        plans.check(plan)
        # Alone: a stop that is under way would end the new driver, too.
        with self._alone(plan.name), self._records.changing:
            record = self._records.find(plan.name) or Record(plan, wanted="stopped")
            if record.wanted == "running":
                raise Unsafe(f"{plan.name} was launched already: scale it, or stop it first")
            self._records.check_neighbours(plan)
            self._check_slots(plan.name, plan.scale_out)
            before_start.check_checkpoint(plan)
            self._drivers.start(Record(plan, epoch=record.epoch, incarnation=record.incarnation))

    def scale(
        self, name: str, scale_out: int, *, epoch: int, path: Literal["live", "restart"] = "live"
    ) -> Rescaled:
        """Change the number of executors: under the running query, or by a restart from the checkpoint."""
        with self._alone(name):  # else an older epoch, looked at before a newer one came, would win
            record = self._records.known(name)
            if epoch < record.epoch:
                raise Unsafe(
                    f"{name}: epoch {epoch} is older than {record.epoch}, which was carried out already"
                )
            if scale_out < 1:
                raise Misconfigured(
                    f"job.{record.plan.job}.scale_out", f"must be at least 1, got {scale_out}"
                )
            with self._records.changing:
                self._check_slots(name, scale_out)
                self._coming[name] = scale_out
            if (status := self.status(name)).state in ("stopped", "failed"):
                raise NotReady(f"{name} does not run ({status.reason}): launch it first")
            begun = time.monotonic()
            took = self._scale_live if path == "live" else self._restart
            return Rescaled(
                took(record, scale_out, epoch), record.plan.scale_out, scale_out, time.monotonic() - begun
            )

    def stop(self, name: str) -> None:
        """End it between two batches; one that takes more than a minute is cut short. Its record stays."""
        record = self._records.known(name)
        if record.wanted == "stopped" and not self._drivers.processes(name):
            return
        with self._alone(name):
            self._records.change(name, wanted="stopped", failed=False, reason="stopped")
            said = self._drivers.end(record)
            self._records.change(name, reason=f"stopped {said['stopped']}")

    def status(self, name: str) -> Status:
        """State of a deployment now, also while its driver is dead."""
        record = self._records.known(name)
        process = self._drivers.process(name)
        if record.failed:
            return _still(record, "failed", record.reason)
        if process is None:
            return self._without_driver(record)
        if record.wanted == "stopped":
            return _still(record, "stopped", "its driver is about to end")
        coming: Literal["starting", "restarting"] = "restarting" if record.progressed else "starting"
        declared = record.plan.scale_out
        try:
            said = self._drivers.client(record).status(timeout_s=ANSWER_S)
        except NotReady as error:
            unknown = Unknown(str(error))
            silent = self._drivers.listening(record) is not None
            return Status("running" if silent else coming, declared, unknown, unknown, str(error), OURS)
        executors = len(said["executors"])
        if not said["queries"]:
            none = Unknown("no query has started yet")
            return Status(coming, declared, executors, none, record.reason, OURS)
        return Status("running", declared, executors, said["queries"][0]["run_id"], said["unsettled"], OURS)

    def names(self) -> tuple[str, ...]:
        """Those that run, or should; those that were stopped are left out, and dead ones that stay so."""
        resting = self._resting()
        return tuple(
            record.name
            for record in self._records.all()
            if record.wanted == "running" and record.name not in resting
        )

    # ----------------------------------------------------------------------------------- beyond the port

    def watch(self) -> None:
        """Restart drivers that die, from now on. For the folder's owner."""
        self._watch.start()

    def close(self) -> None:
        """Stop watching. Running processes go on."""
        self._watch.close()

    def __enter__(self) -> LocalDeployments:
        self.watch()
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def leave_the_dead(self) -> None:
        """Start nothing that does not run now. For a command that comes and goes, before it watches."""
        for record in self._records.all():
            if record.wanted == "running" and self._drivers.process(record.name) is None:
                self._leave_alone(record.name)

    def stand_down(self, jobs: Container[str]) -> tuple[LeftOver, ...]:
        """Start nothing again that belongs to none of these jobs, and say what there is of it.

        What runs goes on running: it may be a live job. Before it is watched.
        """
        found = []
        for record in self._records.all():
            if record.plan.job in jobs:
                continue
            runs = self._drivers.process(record.name) is not None
            if runs:
                self._leave_alone(record.name)
            elif record.wanted == "running":
                reason = "its job is not in headroom.toml any more"
                self._records.change(record.name, wanted="stopped", failed=False, reason=reason)
            found.append(LeftOver(record.plan, runs, record.wanted == "running"))
        return tuple(found)

    def revive(self, name: str) -> None:
        """Start its driver again if it is dead and should run, watched or not."""
        self._watch.tend(name)

    def forget(self, name: str) -> None:
        """Stop a deployment, and delete everything of it but its checkpoint."""
        self.stop(name)
        with self._records.changing:  # who is writing to the record would bring the folder back
            shutil.rmtree(self._records.folder(name))

    def folder(self, name: str) -> Path:
        """Folder in which its driver writes `progress.jsonl` and other files."""
        return self._records.folder(name)

    def plan(self, name: str) -> Plan:
        """Plan of a deployment; `scale_out` is the declared one."""
        return self._records.known(name).plan

    def driver(self, name: str) -> tuple[Process, ...]:
        """All living processes of its driver: Python and JVM."""
        return self._drivers.processes(name)

    def executors(self, name: str) -> tuple[ExecutorProcess, ...]:
        """The living executors of its newest run: number, application and process."""
        return self._drivers.executors(name)

    def said(self, name: str) -> dict[str, Any]:
        """What its driver says: state, incarnation, batches, application_id, executors, wanted, queries."""
        return self._drivers.client(self._records.known(name)).status()

    # ------------------------------------------------------------------------------------------ the paths

    def _scale_live(self, record: Record, scale_out: int, epoch: int) -> Literal["live", "restart"]:
        client = self._drivers.client(record)
        try:
            client.status()  # one that is silent now would be waited for in vain
        except NotReady as error:
            raise NotReady(f"{record.name}: {error}") from error
        # Declared before it is done: a driver that dies meanwhile comes back with the new size.
        self._records.change(record.name, scale_out=scale_out, epoch=epoch)
        try:
            client.scale(scale_out, timeout_s=self._settings.scale_timeout_s)
            return "live"
        except HeadroomError:
            if self._watch.running and not self._is_alive(record):
                self._await_executors(record.name, scale_out)
                return "restart"
            self._records.change(record.name, scale_out=record.plan.scale_out)
            raise

    def _restart(self, record: Record, scale_out: int, epoch: int) -> Literal["restart"]:
        if (record.epoch, record.plan.scale_out) != (epoch, scale_out):  # else it is a retry, and begun
            self._watch.spare(record.name)
            try:
                self._drivers.end(record)
                with self._records.changing:
                    self._drivers.start(self._records.change(record.name, scale_out=scale_out, epoch=epoch))
            finally:
                self._watch.spare(record.name, False)
        self._await_executors(record.name, scale_out)
        return "restart"

    def _await_executors(self, name: str, scale_out: int) -> None:
        until = time.monotonic() + self._settings.scale_timeout_s
        while (status := self.status(name)).state != "running" or status.executors_alive != scale_out:
            if status.state in ("failed", "stopped"):
                raise NotReady(f"{name} did not come back: {status.reason}")
            if time.monotonic() > until:
                raise NotReady(
                    f"{name} restarted, but {status.executors_alive} of {executors(scale_out)} registered "
                    f"within {self._settings.scale_timeout_s:.0f} s: see {self._drivers.log(name)}"
                )
            time.sleep(POLL_S)

    def _leave_alone(self, name: str) -> None:
        self._left_alone.add(name)
        self._watch.spare(name)

    def _resting(self) -> frozenset[str]:
        """Those that do not run, and are not started again here."""
        return frozenset(name for name in self._left_alone if self._drivers.process(name) is None)

    def _silence_s(self, record: Record) -> float:
        return spark_timeouts.silence_s(self._settings, {**self._settings.conf, **record.plan.conf})

    def _is_alive(self, record: Record) -> bool:
        process = self._drivers.process(record.name)
        if process is None or process.wait(DYING_S):
            return False
        return self._records.known(record.name).incarnation == record.incarnation

    def _without_driver(self, record: Record) -> Status:
        if record.wanted == "stopped":
            return _still(record, "stopped", record.reason)
        if record.name in self._left_alone:
            return _still(record, "stopped", "it is not kept running: start `headroom serve`")
        ended = self._drivers.ended(record)
        if ended is not None and ended.how == "finished":
            return _still(record, "stopped", ended.reason)
        reason = ended.reason if ended else f"the driver was killed: see {self._drivers.log(record.name)}"
        return _still(record, "failed" if self._watch.hopeless(record) else "restarting", reason)

    def _check_slots(self, name: str, scale_out: int) -> None:
        self._records.check_slots(
            name, scale_out, slots=self._settings.slots, coming=self._coming, resting=self._resting()
        )

    @contextmanager
    def _alone(self, name: str) -> Iterator[None]:
        with self._entering:
            if name in self._busy:
                raise NotReady(f"{name} is being changed already: try again")
            self._busy.add(name)
        try:
            yield
        finally:
            self._coming.pop(name, None)
            self._busy.discard(name)


def _still(record: Record, state: Literal["failed", "stopped", "restarting"], reason: str) -> Status:
    return Status(state, record.plan.scale_out, 0, Unknown(f"{record.name} does not run"), reason, OURS)
