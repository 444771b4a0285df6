"""Recordings and replays on this machine.

Each is a process of its own, with a small Spark in it (`local[N]`): the source of a probe does not take slots
from the job, and dies neither with it nor with the cluster. Both end by themselves, and both are the owner's,
found again by their role.

    source = LocalReplay(owner, name="orders-profile").start(plan)
    source.set_rate(1200.0); …; source.achieved(from_s, to_s); source.stop()
"""

from __future__ import annotations

import os
import shutil
import sys
import time
from dataclasses import replace
from pathlib import Path

from models.errors import Misconfigured, NotReady, Unsafe
from profiling_jobs.brokers import Brokers
from profiling_jobs.recording import driver as recording
from profiling_jobs.recording.recorded import Recorded
from profiling_jobs.recording.request import Request
from profiling_jobs.replay.replay_plan import Achieved, Control, Replay

from ...integrations import jars
from ...integrations import jars as ivy
from ...integrations.spark import LOGGING, LocalSpark
from ...processes.owner import Owner
from ...processes.processes import Process
from ...settings.schema import SparkSettings

START_S = (
    300.0  # judgement: 8 s on an idle machine; two minutes were seen with thirty processes per processor
)
STOP_S = 15.0  # what has been handed over reaches the broker, then Spark ends
PROJECT = Path(__file__).parents[3]


class LocalReplay:
    """One source, at a rate that can be changed while it runs."""

    def __init__(
        self,
        owner: Owner,
        *,
        name: str,
        settings: SparkSettings | None = None,
        progress: ivy.Progress | None = None,
    ) -> None:
        self._owner = owner
        self._role = f"replay.{name}"
        self._spark = _LocalDriver(owner, settings or SparkSettings(), progress)
        self.folder = owner.folder / "replays" / name
        self._control = Control(self.folder)

    @property
    def process(self) -> Process | None:
        """The source, if it runs; also one that an earlier owner of the folder has started."""
        return next(iter(self._owner.running(self._role)), None)

    def start(self, plan: Replay, *, timeout_s: float = START_S) -> LocalReplay:
        """Start it, and return once its schedule has begun. Its folder is ours, whatever the plan says."""
        if self.process is not None:
            raise Unsafe(f"{self._role} runs already: stop it first")
        shutil.rmtree(self.folder, ignore_errors=True)
        plan = replace(plan, folder=self.folder, conf={**self._spark.conf(), **plan.conf})
        process = self._spark.start(self._role, "profiling_jobs.replay.driver", plan.write(), plan.brokers)
        until = time.monotonic() + timeout_s
        while self._control.started_s is None:
            self._check(process)
            if time.monotonic() > until:
                self._owner.stop(process)
                raise NotReady(
                    f"{self._role} did not start within {timeout_s:.0f} s: see {self._owner.log(self._role)}"
                )
            time.sleep(0.05)
        return self

    def set_rate(self, rate_rps: float) -> float:
        """Another rate, from the moment that is returned (epoch seconds)."""
        self._check(self.process)
        return self._control.set_rate(rate_rps)

    def achieved(self, from_s: float, to_s: float) -> Achieved:
        """What was sent between two moments, beside what was commanded. Also after its end."""
        return self._control.achieved(from_s, to_s)

    @property
    def ended(self) -> tuple[str, str] | None:
        """How it ended and why: "finished", "refused", "threw", or "killed"; None while it runs."""
        if self.process is not None:
            return None
        return self._control.ended or ("killed", f"see {self._owner.log(self._role)}")

    def wait(self, timeout_s: float) -> bool:
        """Whether it has come to its end within the time."""
        process = self.process
        return process is None or process.wait(timeout_s)

    def stop(self) -> None:
        """Let it send what is due and end; or end it. Stopping what does not run is not an error."""
        process = self.process
        if process is None:
            return
        if self._control.started_s is not None and not process.frozen:
            self._control.finish()
            process.wait(STOP_S)
        self._owner.stop(process)

    def _check(self, process: Process | None) -> None:
        if process is not None and process.alive:
            return
        how, reason = self._control.ended or ("killed", f"see {self._owner.log(self._role)}")
        if how == "refused":
            setting, _, problem = reason.partition(": ")
            raise Misconfigured(setting, problem)
        raise NotReady(f"{self._role} does not run ({how}): {reason}")


class LocalRecording:
    """One recording of a live topic."""

    def __init__(
        self,
        owner: Owner,
        *,
        name: str,
        settings: SparkSettings | None = None,
        progress: ivy.Progress | None = None,
    ) -> None:
        self._owner = owner
        self._role = f"recording.{name}"
        self._spark = _LocalDriver(owner, settings or SparkSettings(), progress)

    @property
    def process(self) -> Process | None:
        """The recording, while it runs."""
        return next(iter(self._owner.running(self._role)), None)

    def start(self, request: Request, brokers: Brokers, *, files: int = 2) -> Process:
        """Begin, or go on with what lies in its folder."""
        if self.process is not None:
            raise Unsafe(f"{self._role} runs already: wait for it, or stop it first")
        folder = self._owner.folder / "recordings" / f"{self._role}.orders"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        request = replace(request, folder=request.folder.resolve())
        conf = {**self._spark.conf(), "spark.master": f"local[{files}]", "spark.ui.enabled": "false"}
        path = recording.RecordingFile(request, brokers, conf, files).write(folder / "orders.json")
        return self._spark.start(self._role, "profiling_jobs.recording.driver", path, brokers)

    def run(self, request: Request, brokers: Brokers, *, timeout_s: float, files: int = 2) -> Recorded:
        """Record, and wait for the end. What goes wrong is said with the words of the recording."""
        log = self._owner.log(self._role)
        before = log.stat().st_size if log.exists() else 0
        process = self.start(request, brokers, files=files)
        if not process.wait(timeout_s):
            self._owner.stop(process)
            raise NotReady(f"{self._role} was not over after {timeout_s:.0f} s: run it again to go on")
        code = self._owner.exit_code(process)
        self._owner.stop(process)
        if code != 0:
            raise NotReady(self._said(before))
        return Recorded.read(request.folder)

    def stop(self) -> None:
        """End it where it stands; it can go on later."""
        process = self.process
        if process is not None:
            self._owner.stop(process)

    def _said(self, before: int) -> str:
        text = self._owner.log(self._role).read_bytes()[before:].decode(errors="replace")
        said = [line for line in text.splitlines() if line.startswith("headroom: ")]
        return said[-1].removeprefix("headroom: ") if said else f"see {self._owner.log(self._role)}"


class _LocalDriver:
    """A driver process with executors of its own inside."""

    def __init__(self, owner: Owner, settings: SparkSettings, progress: ivy.Progress | None) -> None:
        self._owner, self._settings, self._progress = owner, settings, progress

    def conf(self) -> dict[str, str]:
        own = self._settings.jars_ivy_settings
        found = jars.fetch(
            "connector",
            settings=Path(own) if own else None,
            progress=self._progress,
            marks=self._owner.marks("spark-jars"),
        )
        return {
            "spark.jars": ",".join(str(jar) for jar in found),
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.memory": f"{self._settings.driver_memory_mb}m",
            # Two busy tasks on a small machine: a parallel collector would only take turns with them. The
            # optimising compiler stays, it saves a quarter of the processor time of each record.
            "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:+ExitOnOutOfMemoryError",
        }

    def environment(self, brokers: Brokers) -> dict[str, str]:
        conf = self._owner.folder / "local-driver"
        (conf / "local").mkdir(mode=0o700, parents=True, exist_ok=True)
        (conf / "log4j2.properties").write_text(LOGGING)
        return {
            **LocalSpark(self._owner, self._settings).environment(),
            **brokers.environment(),
            "SPARK_CONF_DIR": str(conf),
            "SPARK_LOCAL_DIRS": str(conf / "local"),
            # Ours first; behind it the user's own, for a function that moves event times.
            "PYTHONPATH": os.pathsep.join((str(PROJECT), str(self._owner.folder.parent.resolve()))),
            # Its usual one keeps 90 MB of what a generator has used for as long as the source runs.
            "ARROW_DEFAULT_MEMORY_POOL": "system",
            # glibc keeps one heap per thread, and what one has freed no other may use.
            "MALLOC_ARENA_MAX": "1",
        }

    def start(self, role: str, module: str, orders: Path, brokers: Brokers) -> Process:
        command: list[str | Path] = [sys.executable, "-m", module, orders]
        return self._owner.start(role, command, environment=self.environment(brokers))
