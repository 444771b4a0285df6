"""A task as a process of this machine: a replay or a recording, with executors of its own inside."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from models.errors import Unsafe
from profiling_jobs.brokers import Brokers

from ...integrations.spark import LOGGING, LocalSpark
from ...integrations.spark_conf import SHUT
from ...processes.owner import Owner
from ...processes.processes import Process
from ...settings.schema import SparkSettings

PROJECT = Path(__file__).parents[3]


class LocalTask:
    """One task, found again by its role. A `Task` (pipelines/environments/replay.py)."""

    def __init__(self, owner: Owner, role: str, settings: SparkSettings | None = None) -> None:
        self._owner, self.role = owner, role
        self.folder = owner.folder
        self._spark = LocalSpark(owner, settings)
        self._process: Process | None = None
        self._before = 0

    @property
    def process(self) -> Process | None:
        """The process, if it runs."""
        return next(iter(self._owner.running(self.role)), None)

    @property
    def alive(self) -> bool:
        """Whether it runs."""
        return self.process is not None

    @property
    def frozen(self) -> bool:
        """Whether it was stopped by a signal."""
        process = self.process
        return process is not None and process.frozen

    @property
    def log(self) -> str:
        """Its log file."""
        return str(self._owner.log(self.role))

    def conf(self) -> dict[str, str]:
        """What its Spark needs to run here."""
        return {
            "spark.jars": ",".join(map(str, self._spark.connector())),
            **SHUT,
            "spark.ui.enabled": "false",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.memory": f"{self._spark.settings.driver_memory_mb}m",
            # Two busy tasks on a small machine: a parallel collector would only take turns with them. The
            # optimising compiler stays, it saves a quarter of the processor time of each record.
            "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:+ExitOnOutOfMemoryError",
        }

    def environment(self, brokers: Brokers) -> dict[str, str]:
        """What its process needs."""
        conf = self._owner.folder / "local-driver"
        (conf / "local").mkdir(mode=0o700, parents=True, exist_ok=True)
        (conf / "log4j2.properties").write_text(LOGGING)
        return {
            **self._spark.environment(),
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

    def start(self, module: str, file: Path, brokers: Brokers) -> None:
        """Run `python -m module file`."""
        if self.alive:
            raise Unsafe(f"{self.role} runs already: wait for it, or stop it first")
        self._before = self._owner.log_size(self.role)
        command: list[str | Path] = [sys.executable, "-m", module, file]
        self._process = self._owner.start(self.role, command, environment=self.environment(brokers))

    def stop(self) -> None:
        """End it."""
        if (process := self.process) is not None:
            self._owner.stop(process)

    def said(self) -> tuple[int | None, str]:
        """How it ended, and what this run has written to its log."""
        code = self._owner.exit_code(self._process) if self._process else None
        return code, self._owner.written(self.role, since=self._before)
