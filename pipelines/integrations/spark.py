"""A real Spark standalone cluster on this machine, from the pip package alone.

A standalone master and one worker, on loopback and free ports. The worker may declare more slots than there
are processors: a job that waits scales beyond them, and one executor has one slot. Several jobs share the
cluster; an executor that dies is replaced, however often. `job_conf` is what every job needs to run there,
`environment` what its driver process needs.

What ended executors have left on the disk is deleted.

The worker gives every executor a folder, `work/APPLICATION/NUMBER`, into which it copies the jars of its job:
some 10 MB each. Spark clears it once the job has ended, which a live job never does. Of an executor that has
gone only its logs are worth anything, and those as long as Spark keeps the logs of a job that has ended.
"""

from __future__ import annotations

import http.client
import importlib.util
import json
import os
import re
import secrets
import shutil
import sys
import time
from collections.abc import Iterator, Mapping, Set
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from models.errors import Misconfigured, NotReady, Unsafe
from models.quantities import executors
from profiling_jobs.driver.launch_file import write_text

from ..processes.owner import Owner
from ..processes.processes import Process, marked
from ..settings.schema import SparkSettings
from . import jars, java, ports
from .spark_conf import SHUT, job_conf

LOGS = ("stdout", "stderr")
TEMPORARY = "tmp"
SECRET_CHARACTERS = 32  # judgement: ours have 64
NEW_S = 60.0  # judgement: the worker makes the folder some moments before the process can be seen
LOGS_KEPT_S = 3600  # judgement: as the worker is configured for the folders of jobs that have ended
SECRET = "spark.authenticate.secret"
MASTER = "spark-master"
WORKER = "spark-worker"
BACKEND = "org.apache.spark.executor.CoarseGrainedExecutorBackend"
ATTEMPTS = 5  # judgement: twice in a row another program is quicker on a random port
READY_S = 120.0  # judgement: 3 s each on an idle machine, 10 s at a load of 16 on two cores
MEMORY_SHARE = 0.8  # judgement: the rest is for the broker, the drivers and the page cache
LIGHT = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:+ExitOnOutOfMemoryError"  # as for the broker

LOGGING = """\
status=error
appender.console.type=Console
appender.console.name=console
appender.console.target=SYSTEM_ERR
appender.console.layout.type=PatternLayout
appender.console.layout.pattern=%d{ISO8601} %p %c{1}: %m%n%ex
rootLogger.level=warn
rootLogger.appenderRef.console.ref=console
logger.native.name=org.apache.hadoop.util.NativeCodeLoader
logger.native.level=error
"""


@dataclass(frozen=True)
class ExecutorProcess:
    """One executor of a job, as a process."""

    process: Process
    executor_id: str
    application_id: str


class LocalSpark:
    """A standalone cluster of ours, one per owner."""

    def __init__(self, owner: Owner, settings: SparkSettings | None = None) -> None:
        self._owner = owner
        self.settings = settings or SparkSettings()
        self.folder = owner.folder / "spark"

    @property
    def url(self) -> str:
        """The master's address, also while it is down."""
        kept = ports.kept(self.folder)
        if kept is None:
            raise NotReady("the local Spark was never started")
        return f"spark://{ports.HOST}:{kept[0]}"

    def ensure(self) -> None:
        """A master and a worker that can take jobs: those that run, and new ones for those that do not.

        Jobs survive the loss of the worker: a new one gives them executors again. They do not survive the
        loss of the master: their drivers have to be started again.
        """
        self._check_memory()
        for name in ("conf", "work", "local", TEMPORARY):
            (self.folder / name).mkdir(mode=0o700, parents=True, exist_ok=True)
        (self.folder / "conf" / "log4j2.properties").write_text(LOGGING)
        self._keep_secret()
        if not self._owner.running(MASTER):
            for worker in self._owner.running(WORKER):  # its master is gone, and so are its jobs
                self._owner.stop(worker)
            self._start_master()
        if not self._owner.running(WORKER):
            self._start_worker()

    def lost(self) -> tuple[str, ...]:
        """Which of the two do not run; by their processes: a busy one must not pass for dead."""
        return tuple(role for role in (MASTER, WORKER) if not self._owner.running(role))

    def environment(self) -> dict[str, str]:
        """What a driver, the master and the worker need in their environment."""
        temporary = self.folder / TEMPORARY
        temporary.mkdir(mode=0o700, parents=True, exist_ok=True)
        return {
            "JAVA_HOME": str(java.find().home),
            "SPARK_HOME": str(_home()),
            "SPARK_CONF_DIR": str(self.folder / "conf"),
            "SPARK_LOCAL_IP": ports.HOST,
            "SPARK_LOCAL_DIRS": str(self.folder / "local"),
            "SPARK_LAUNCHER_OPTS": LIGHT,
            # For executors, too, which the worker starts. Native libraries are unpacked there, and a process
            # that is killed leaves them.
            "JAVA_TOOL_OPTIONS": f'"-Djava.io.tmpdir={temporary}"',
            "PYSPARK_PYTHON": sys.executable,
            "PYSPARK_DRIVER_PYTHON": sys.executable,
        }

    def job_conf(self, name: str, *, conf: Mapping[str, str] | None = None) -> dict[str, str]:
        """The Spark configuration of the job `name` on this cluster; `conf` is the job's own."""
        marks = self._owner.marks(f"executor.{name}")
        return job_conf(
            name,
            settings=self.settings,
            place={
                "spark.master": self.url,
                "spark.driver.host": ports.HOST,
                "spark.driver.bindAddress": ports.HOST,
                "spark.executor.logs.rolling.strategy": "size",
                "spark.executor.logs.rolling.maxSize": "10485760",
                "spark.executor.logs.rolling.maxRetainedFiles": "2",
                "spark.ui.port": "0",
                **{f"spark.executorEnv.{key}": value for key, value in marks.items()},
            },
            connector=self.connector(),
            conf=conf or {},
        )

    def executors(self, name: str) -> tuple[ExecutorProcess, ...]:
        """The living executors of the job `name`, by their number."""
        found = (one for one in self.all_executors() if one.process.role == f"executor.{name}")
        return tuple(sorted(found, key=lambda one: (len(one.executor_id), one.executor_id)))

    def tidy(self) -> None:
        """Free the disk of what executors have left that no longer live."""
        living = {(one.application_id, one.executor_id) for one in self.all_executors()}
        clear(self.folder / "work", living=living, now_s=time.time())
        clear_libraries(self.folder / TEMPORARY, now_s=time.time())

    def all_executors(self) -> Iterator[ExecutorProcess]:
        """The living executors of every job."""
        for process in marked(self._owner.id):
            words = process.command
            if BACKEND in words:
                yield ExecutorProcess(process, _option(words, "--executor-id"), _option(words, "--app-id"))

    def _keep_secret(self) -> None:
        """Loopback is shared with every user of the machine: without it each could run code in our name.

        In a file because command lines are public; master, worker and drivers all read it from there. What is
        read is looked at each time: without a secret Spark would say nothing.
        """
        path = self.folder / "conf" / "spark-defaults.conf"
        if not path.exists():
            write_text(path, f"spark.authenticate true\n{SECRET} {secrets.token_hex(32)}\n")
        if len(_property(path.read_text(), SECRET)) < SECRET_CHARACTERS:
            raise Unsafe(
                f"{path} has no {SECRET} of {SECRET_CHARACTERS} characters or more, so that every user of "
                "this machine could run code as you: end all with `headroom cleanup`, delete the file, and "
                "start again; a new one is made"
            )

    def connector(self) -> tuple[Path, ...]:
        """The jars with which Spark reads and writes Kafka."""
        own = self.settings.jars_ivy_settings
        return jars.fetch(
            "connector",
            settings=Path(own) if own else None,
            marks=self._owner.marks("spark-jars"),
        )

    def _start_master(self) -> None:
        for attempt in range(ATTEMPTS):
            kept = ports.kept(self.folder)
            if kept and attempt == 0 and ports.wait_until_free(kept, timeout_s=5.0):
                chosen = kept
            else:
                first, second = ports.free_ports(2)
                chosen = (first, second)
            ports.keep(self.folder, chosen)
            process = self._spawn(
                MASTER,
                "org.apache.spark.deploy.master.Master",
                *("--host", ports.HOST, "--port", str(chosen[0]), "--webui-port", str(chosen[1])),
                options={
                    # Otherwise it also listens on port 6066, where a second cluster of this machine does.
                    "spark.master.rest.enabled": "false",
                    # Otherwise every user of this machine could have it send the worker away.
                    "spark.master.ui.decommission.allow.mode": "DENY",
                    # Otherwise an application is removed after ten failed executors.
                    "spark.deploy.maxExecutorRetries": "-1",
                    "spark.deploy.retainedApplications": "20",
                },
            )
            if self._wait(process, lambda: self._ask() is not None):
                return
        raise NotReady(f"the Spark master did not start: see {self._owner.log(MASTER)}")

    def _start_worker(self) -> None:
        slots = self.settings.slots
        self._clear_local()
        for _ in range(ATTEMPTS):
            port, page = ports.free_ports(2)
            process = self._spawn(
                WORKER,
                "org.apache.spark.deploy.worker.Worker",
                *("--host", ports.HOST, "--port", str(port), "--webui-port", str(page)),
                *("--cores", str(slots), "--memory", f"{slots * self.settings.executor_memory_mb}m"),
                *("--work-dir", str(self.folder / "work"), self.url),
                options={
                    "spark.worker.cleanup.enabled": "true",
                    "spark.worker.cleanup.interval": "300",
                    "spark.worker.cleanup.appDataTtl": str(LOGS_KEPT_S),
                },
            )
            if self._wait(process, lambda port=port: self._registered(port)):
                return
        raise NotReady(f"the Spark worker did not start: see {self._owner.log(WORKER)}")

    def _clear_local(self) -> None:
        """What workers have left that were killed. Executors that still live keep their files in there."""
        if not any(one.role.startswith(("driver.", "executor.")) for one in marked(self._owner.id)):
            for name in ("local", TEMPORARY):
                shutil.rmtree(self.folder / name, ignore_errors=True)
                (self.folder / name).mkdir(mode=0o700, exist_ok=True)

    def _spawn(self, role: str, main: str, *arguments: str, options: Mapping[str, str]) -> Process:
        # A port that is taken must be an error, or the daemon would listen on another one.
        given = {"spark.port.maxRetries": "0", **SHUT, **options}
        return self._owner.start(
            role,
            [_home() / "bin" / "spark-class", main, *arguments],
            environment={
                **self.environment(),
                "SPARK_DAEMON_MEMORY": "256m",
                "SPARK_DAEMON_JAVA_OPTS": " ".join([LIGHT, *(f"-D{key}={given[key]}" for key in given)]),
            },
        )

    def _wait(self, process: Process, ready: Any) -> bool:
        """Wait until it is ready; False when it ended instead, as with a port that was taken."""
        until = time.monotonic() + READY_S
        while time.monotonic() < until:
            if ready():
                return True
            if not process.alive:
                self._owner.stop(process)
                return False
            time.sleep(0.1)
        self._owner.stop(process)
        log = self._owner.log(process.role)
        raise NotReady(f"{process.role} did not answer within {READY_S:.0f} s: see {log}")

    def _registered(self, port: int) -> bool:
        state = self._ask()
        workers = state["workers"] if state else ()
        return any(one["port"] == port and one["state"] == "ALIVE" for one in workers)

    def _ask(self) -> dict[str, Any] | None:
        """The master's state in its own words; None when it does not answer."""
        kept = ports.kept(self.folder)
        if kept is None:
            return None
        page = http.client.HTTPConnection(ports.HOST, kept[1], timeout=5.0)
        try:
            page.request("GET", "/json/")
            state: dict[str, Any] = json.loads(page.getresponse().read())
            return state if state.get("url") == self.url and state.get("status") == "ALIVE" else None
        except (OSError, http.client.HTTPException, ValueError):
            return None
        finally:
            page.close()

    def _check_memory(self) -> None:
        slots, each = self.settings.slots, self.settings.executor_memory_mb
        there = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2**20
        if slots * each > MEMORY_SHARE * there:
            raise Misconfigured(
                "spark.slots",
                f"{executors(slots)} of {each} MB are more than {MEMORY_SHARE:.0%} of this machine's "
                f"{there} MB: lower spark.slots or spark.executor_memory_mb",
            )


def clear(work: Path, *, living: Set[tuple[str, str]], now_s: float) -> None:
    """Remove what is left of every executor (application and number) that is not among the living."""
    for folder in work.glob("app-*/*"):
        if (folder.parent.name, folder.name) not in living:
            with suppress(FileNotFoundError, NotADirectoryError):  # the worker clears, too
                _clear(folder, now_s)


def clear_libraries(folder: Path, *, now_s: float) -> None:
    """Remove unpacked libraries, and the empty `.so.lck` beside each of LZ4's.

    Who has loaded one keeps it, as the kernel does with every open file.
    """
    for library in folder.glob("*.so*"):
        with suppress(FileNotFoundError):
            if now_s - library.stat().st_mtime > NEW_S:
                library.unlink()


def _clear(folder: Path, now_s: float) -> None:
    if now_s - folder.stat().st_mtime < NEW_S:
        return
    for left in folder.iterdir():
        if left.name in LOGS and now_s - left.stat().st_mtime < LOGS_KEPT_S:
            continue
        if left.is_dir() and not left.is_symlink():
            shutil.rmtree(left, ignore_errors=True)
        else:
            left.unlink(missing_ok=True)
    if not any(folder.iterdir()):
        folder.rmdir()


def _property(text: str, key: str) -> str:
    """A value in a file of Java's properties, as ours are written; the last one counts."""
    pairs = (re.split(r"[\s=:]+", line.strip(), maxsplit=1) for line in text.splitlines())
    return dict(pair for pair in pairs if len(pair) == 2).get(key, "")


def _option(words: tuple[str, ...], name: str) -> str:
    with suppress(ValueError, IndexError):
        return words[words.index(name) + 1]
    return ""


def _home() -> Path:
    found = importlib.util.find_spec("pyspark")
    if found is None or found.origin is None:
        raise Misconfigured("pyspark", "is not installed: run `make install`")
    return Path(found.origin).parent
