"""The `Failures` of this machine: signals to drivers and executors, each of which is cleared.

Signals to processes of ours: SIGKILL and SIGSTOP of an executor or a driver, each with everything it has
started, and an orderly restart of the embedded broker. What is going to be done is written to
`failures/ID.json` before it is done, with the boot, the pids and their start times; so after a crash of ours
the next object on the folder finds it, and wakes or restarts what it must (`clear_all`, or entering it as a
context). What is frozen is not left so until then: a watchdog, started before, wakes it when we die.

Only one executor is hit, the oldest: it is warmed up, and stands for all.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
import uuid
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from models.errors import HeadroomError, Misconfigured, NotReady
from models.ports import Injection
from models.quantities import FAILURE_KINDS
from profiling_jobs.driver.launch_file import read_json, write_json
from profiling_jobs.experiments.drill import clear_each

from ...integrations.embedded_kafka import EmbeddedBroker
from ...processes.owner import Owner
from ...processes.processes import Process, descendants
from ...processes.records import boot_id
from . import watchdog
from .deployments import LocalDeployments

KINDS = ("executor_kill", "executor_freeze", "driver_kill", "driver_freeze")
RESTARTING = "the broker is being restarted already: try again once it answers"
FROZEN_S = 3600.0  # judgement: no drill waits for so long
EFFECT_S = 5.0  # judgement: the kernel stops and ends processes within milliseconds


@dataclass(frozen=True)
class Cause:
    """One failure as it is written down."""

    injection: Injection
    victims: tuple[Process, ...]

    def write(self, folder: Path) -> None:
        """Durable when it returns."""
        folder.mkdir(mode=0o700, exist_ok=True)
        pairs = [[one.pid, one.started_ticks] for one in self.victims]
        write_json(
            folder / f"{self.injection.id}.json",
            {"schema": 1, "injection": asdict(self.injection), "boot": boot_id(), "victims": pairs},
        )

    @classmethod
    def read(cls, path: Path) -> Cause | None:
        """None when there is nothing to read. After a reboot its victims are gone, whoever has their pids."""
        data: dict[str, Any] | None = read_json(path)
        if data is None:
            return None
        pairs = data["victims"] if data.get("boot", "") in ("", boot_id()) else []
        return cls(Injection(**data["injection"]), tuple(Process(*pair) for pair in pairs))


class LocalFailures:
    """Failures of jobs on this machine. An adapter of the port `Failures`."""

    def __init__(
        self,
        owner: Owner,
        deployments: LocalDeployments,
        *,
        broker: EmbeddedBroker | None = None,
    ) -> None:
        self._owner = owner
        self._folder = owner.folder / "failures"
        self._deployments = deployments
        self._broker = broker
        self._restarts: list[threading.Thread] = []
        self.restarting = threading.Lock()
        """Held while the broker is restarted: two at once would start two."""
        self._in_hand: set[str] = set()
        self._watchdogs: dict[str, Process] = {}

    def kinds(self) -> frozenset[str]:
        """Kinds that can be caused here: `broker_restart` only with the embedded Kafka."""
        return frozenset((*KINDS, *(("broker_restart",) if self._broker else ())))

    def inject(self, deployment: str, kind: str) -> Injection:
        """Cause a failure, and return as soon as it has happened."""
        self._deployments.plan(deployment)
        if kind not in self.kinds():
            what = "cannot be caused here" if kind in FAILURE_KINDS else "is no kind of failure"
            raise Misconfigured("kind", f"'{kind}' {what}; there is {', '.join(sorted(self.kinds()))}")
        status = self._deployments.status(deployment)
        if status.state != "running" or not isinstance(status.executors_alive, int):
            raise NotReady(f"{deployment} does not run: {status.reason or status.state}")
        victim, processes = self._choose(deployment, kind)
        injection = Injection(uuid.uuid4().hex[:12], deployment, kind, victim, time.time())
        self._in_hand.add(injection.id)  # first: what is written down and not in hand is cleared
        try:
            Cause(injection, processes).write(self._folder)
            injection = replace(injection, at_s=time.time())
            if kind.endswith("_freeze"):
                self._watchdogs[injection.id] = self._guarded(deployment, processes)
            self._do(kind, processes)
            Cause(injection, processes).write(self._folder)
        except BaseException:
            self._in_hand.discard(injection.id)
            raise
        return injection

    def clear(self, injection_id: str) -> None:
        """Wake what is frozen, start what must run."""
        self._in_hand.discard(injection_id)  # also where it fails: the next one tries again
        path = self._folder / f"{injection_id}.json"
        cause = Cause.read(path) if injection_id.isalnum() else None
        if cause is None:
            return
        if cause.injection.kind == "broker_restart":
            self._await_broker()
        elif cause.injection.kind.endswith("_freeze"):
            for process in reversed(cause.victims):
                process.signal(signal.SIGCONT)
            if (watchdog := self._watchdogs.pop(injection_id, None)) is not None:
                self._owner.stop(watchdog, kill=True)
        if cause.injection.kind.startswith("driver_"):
            with suppress(Misconfigured):  # it was forgotten meanwhile
                self._deployments.revive(cause.injection.deployment)
        path.unlink(missing_ok=True)

    def active(self) -> tuple[Injection, ...]:
        """Failures that were not cleared, also those of an earlier owner of the folder, oldest first."""
        found = [cause for path in self._folder.glob("*.json") if (cause := Cause.read(path))]
        return tuple(sorted((one.injection for one in found), key=lambda injection: injection.at_s))

    def left_over(self) -> tuple[Injection, ...]:
        """Active failures that no thread of this process is working on."""
        return tuple(one for one in self.active() if one.id not in self._in_hand)

    def clear_all(self) -> tuple[Injection, ...]:
        """Clear what is left, and say what that was."""
        left = self.active()
        clear_each(left, self.clear)
        return left

    def __enter__(self) -> LocalFailures:
        with suppress(HeadroomError):  # it stays written down: the next drill says what is wrong
            self.clear_all()
        return self

    def __exit__(self, *raised: object) -> None:
        self.clear_all()

    def _choose(self, deployment: str, kind: str) -> tuple[str, tuple[Process, ...]]:
        if kind == "broker_restart":
            if self.restarting.locked():
                raise NotReady(RESTARTING)
            return "broker", ()
        if kind.startswith("driver_"):
            processes = self._deployments.driver(deployment)
            if not processes:
                raise NotReady(f"the driver of {deployment} has just ended: try again")
            return f"driver ({_pids(processes)})", processes
        registered = set(self._deployments.said(deployment)["executors"])
        for executor in self._deployments.executors(deployment):
            if executor.executor_id in registered and not executor.process.frozen:
                processes = (executor.process, *descendants([executor.process]))
                return f"executor {executor.executor_id} ({_pids(processes)})", processes
        raise NotReady(f"{deployment} has no executor registered: try again")

    def _guarded(self, deployment: str, victims: tuple[Process, ...]) -> Process:
        """Start the watchdog that wakes these processes if the owner ends, or after an hour.

        A process that has ended needs none.
        """
        with ExitStack() as handles:

            def handle(pid: int) -> int:
                found = os.pidfd_open(pid)
                handles.callback(os.close, found)
                return found

            try:
                opened = [handle(os.getpid())]
                for victim in victims:
                    with suppress(ProcessLookupError):  # it has just ended
                        found = handle(victim.pid)
                        if victim.alive:  # else the handle may be another's
                            opened.append(found)
            except OSError as error:  # without a handle on each nothing is frozen
                raise NotReady(f"{deployment}: its processes cannot be watched: {error}") from error
            if len(opened) == 1:
                raise NotReady(f"{deployment}: its processes are just ending: try again")
            command = [sys.executable, "-I", "-S", watchdog.__file__, str(FROZEN_S), *map(str, opened)]
            return self._owner.start(f"watchdog.{deployment}", command, keep_open=opened)

    def _do(self, kind: str, processes: tuple[Process, ...]) -> None:
        if kind == "broker_restart":
            assert self._broker is not None
            if not self.restarting.acquire(blocking=False):
                raise NotReady(RESTARTING)
            restart = threading.Thread(target=self._start_broker, name="headroom-broker-restart", daemon=True)
            try:
                self._broker.stop()
                restart.start()
            except BaseException:  # no thread left, perhaps: the watch starts the broker again
                self.restarting.release()
                raise
            self._restarts.append(restart)
            return
        kill = kind.endswith("_kill")
        for process in processes:
            process.signal(signal.SIGKILL if kill else signal.SIGSTOP)
        until = time.monotonic() + EFFECT_S
        while not all(not one.alive or (one.frozen and not kill) for one in processes):
            if time.monotonic() > until:
                raise NotReady(f"not every process of the victim is {'dead' if kill else 'frozen'}: clear it")
            time.sleep(0.005)

    def _start_broker(self) -> None:
        try:
            with suppress(HeadroomError):  # then `clear` starts it, and says what is wrong
                assert self._broker is not None
                self._broker.start(keep_ports=True)
        finally:
            self.restarting.release()

    def _await_broker(self) -> None:
        for restart in self._restarts:
            restart.join()
        self._restarts.clear()
        if self._broker is not None:
            with self.restarting:
                self._broker.ensure(keep_ports=True)  # clients know no others


def _pids(processes: tuple[Process, ...]) -> str:
    return ", ".join(f"process {one.pid}" for one in processes[:1]) + (
        f" and {len(processes) - 1} of its children" if len(processes) > 1 else ""
    )
