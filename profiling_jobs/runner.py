"""The driver: runs a user's program as a job that can be watched, rescaled and stopped between batches.

`python -m profiling_jobs.runner DEPLOYMENT/driver.json [FOLDER]` runs the program in its own interpreter: a
script with runpy, unchanged, or a function `build(spark, topics)`. Before that our Spark settings are put
where the program's own `SparkSession.builder.getOrCreate()` finds them, and every streaming read and write is
checked. With the session it asks for the executors and listens to the batches. The control channel answers
all the while. How it ended is written last; a driver that was killed leaves nothing.
"""

from __future__ import annotations

import faulthandler
import importlib
import json
import os
import runpy
import signal
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from models import codec
from models.errors import HeadroomError, Misconfigured, NotReady
from models.ports import Function, Script

from . import plans
from .driver import before_start, kafka_login, older_pods, progress, session, sink_guard, stopping
from .driver.channel import Address, ControlServer
from .driver.executors import Executors
from .driver.launch_file import SOCKET, Ended, How, LaunchFile, Listening, in_short, say
from .driver.progress import QueryEnds
from .telemetry.offsets import GroupCommits
from .topics import Topics

LAST_WORDS = Path("/dev/termination-log")
"""Kubernetes keeps what a container writes there."""
ANSWER_S = 0.5  # judgement: the answer to the call that stops us must get out
LEAVE_S = 10.0  # judgement: how long a script may go on after its queries were stopped
STOP_S = 60.0  # judgement: a batch that takes longer is cut short
COMMIT_S = 5.0  # judgement: how long the last offsets may take to reach the broker


class Driver:
    """One run of a program."""

    def __init__(self, launch: LaunchFile) -> None:
        self.launch = launch
        self._plan = launch.plan
        self._events = progress.ProgressFile(launch.folder / "progress.jsonl", incarnation=launch.incarnation)
        self._group = GroupCommits(launch.brokers, group=launch.plan.group, say=say)
        self._query_ends = QueryEnds(self._group.give)
        self._attaching = threading.Lock()
        self._spark: Any = None
        self._executors: Executors | None = None
        self._unsettled = ""
        self._batches = 0
        self._guard = ""
        self._stop_asked = False
        self._stop_done = threading.Event()
        self._stopped: stopping.Stopped | None = None

    # ------------------------------------------------------------------ the control channel's three calls

    def status(self, request: Mapping[str, Any]) -> dict[str, Any]:
        known: dict[str, Any] = {
            "incarnation": self.launch.incarnation,
            "batches": self._batches,
            "guard": self._guard,
        }
        spark, executors = self._spark, self._executors
        if spark is None or executors is None:
            return {**known, "state": "starting", "executors": [], "queries": []}
        queries = [
            {"id": str(one.id), "run_id": str(one.runId), "name": one.name}
            for one in sorted(spark.streams.active, key=lambda one: str(one.id))
        ]
        ids = executors.ids()
        return {
            **known,
            "state": "running" if queries else "starting",
            "application_id": executors.application_id,
            "executors": list(ids),
            "wanted": executors.wanted,
            "unsettled": self._unsettled if len(ids) != executors.wanted else "",
            "queries": queries,
        }

    def scale(self, request: Mapping[str, Any]) -> dict[str, Any]:
        executors = self._executors
        if executors is None:
            raise NotReady("the driver has no Spark session yet: try again")
        took_s = executors.settle(int(request["scale_out"]), timeout_s=float(request["timeout_s"]))
        return {"took_s": took_s, "executors": list(executors.ids())}

    def stop_between_batches(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """End the queries; the program then comes to its end by itself, or is ended."""
        if self._spark is None:
            raise NotReady("the driver has no Spark session yet: try again")
        timeout_s = float(request.get("timeout_s", STOP_S))
        self._stop_asked = True
        self._query_ends.stopping()
        queries = self._spark.streams.active
        self._stopped = stopping.stop(queries, spark=self._spark, timeout_s=timeout_s)
        self._stop_done.set()
        threading.Thread(target=self._leave_soon, name="headroom-leave", daemon=True).start()
        return {"stopped": self._stopped}

    def end_soon(self, number: int, frame: Any) -> None:
        """SIGTERM to the pod: end between two batches, as far as the time it is given allows."""
        if self._spark is None:
            self._finish(self._ended("stopped", "before its query had started"))
        threading.Thread(target=self.stop_between_batches, args=({},), name="headroom-stop").start()

    # ------------------------------------------------------------------------------------------- the run

    def run(self) -> Ended:
        ended = self._run()
        if not self._stop_asked:
            return ended
        if self._stop_done.wait(STOP_S):
            time.sleep(ANSWER_S)
            return self._ended("stopped", str(self._stopped))
        return self._ended("stopped", f"while it was being stopped: {ended.reason}")

    def _run(self) -> Ended:
        try:
            self._prepare()
            self._run_program()
            self._await_queries()
        except NotReady as error:
            return self._ended("not ready", str(error))
        except HeadroomError as error:
            return self._ended("refused", str(error))
        except SystemExit as exit:
            if exit.code not in (None, 0):
                return self._ended("threw", self._why(f"the script left with {exit.code!r}"))
        except BaseException as error:  # noqa: BLE001 - anything that a program throws is its end
            return self._ended(_how(error), self._why(in_short(error)))
        return self._ended("finished", "the program came to its end")

    def _prepare(self) -> None:
        if self.launch.control_port is not None:
            older_pods.await_end(os.environ["DRIVER_PODS"], os.environ["POD_NAME"], say=say)
        before_start.check_topics(self._plan, self.launch.brokers)
        before_start.check_checkpoint(self._plan)
        scratch = str(self.launch.folder / "scratch")
        sink_guard.install(sink_guard.Limits(self._plan, self.launch.brokers.bootstrap, scratch))
        kafka_login.install(self.launch.brokers)
        if self._plan.role == "profile":
            self._guard = sink_guard.described(self._plan)
            say(f"profiling copy {self._plan.name}: {self._guard}")
        self._group.start()
        session.put_in_place(self.launch, attach=self._attach, say=say)

    def _attach(self, spark: Any) -> None:
        with self._attaching:
            if self._spark is not None:
                return
            executors = Executors(spark, slots=self.launch.slots)
            executors.claim(self._plan.scale_out)
            spark.streams.addListener(progress.listener(self._events, self._query_ends, self._on_batch))
            self._events.write("session", application_id=executors.application_id)
            self._executors, self._spark = executors, spark
            threading.Thread(
                target=self._settle, args=(executors,), name="headroom-settle", daemon=True
            ).start()

    def _settle(self, executors: Executors) -> None:
        try:
            took_s = executors.settle(self._plan.scale_out, timeout_s=self.launch.scale_timeout_s)
            self._events.write("settled", executors=self._plan.scale_out, took_s=took_s)
        except Exception as error:  # noqa: BLE001 - whatever Spark throws: else nobody knows why some are missing
            self._unsettled = str(error) if isinstance(error, HeadroomError) else in_short(error)
            say(self._unsettled)

    def _on_batch(self, report: Mapping[str, Any]) -> None:
        if "addBatch" in (report.get("durationMs") or {}):  # others only looked for data
            self._batches += 1

    def _run_program(self) -> None:
        sys.path[:0] = map(str, session.search_path(self.launch))
        if isinstance(self._plan.program, Script):
            script = session.script(self.launch)
            sys.argv = [str(script), *plans.arguments(self._plan, brokers=self.launch.brokers.bootstrap)]
            runpy.run_path(str(script), run_name="__main__")
        else:
            self._run_function(self._plan.program)

    def _run_function(self, program: Function) -> None:
        from pyspark.sql import SparkSession

        key, (module, _, name) = f"job.{self._plan.job}.build", program.name.partition(":")
        try:
            build = getattr(importlib.import_module(module), name)
        except ModuleNotFoundError as error:
            raise Misconfigured(key, f"'{program.name}' cannot be imported: {error}") from error
        except AttributeError as error:
            raise Misconfigured(key, f"there is no '{name}' in {module}") from error
        spark = SparkSession.builder.getOrCreate()
        writer = build(spark, Topics(spark, self._plan, self.launch.brokers))
        if not hasattr(writer, "start"):
            raise Misconfigured(key, f"'{program.name}' gave {type(writer).__name__}, not a DataStreamWriter")
        writer.start()

    def _await_queries(self) -> None:
        """A script need not wait for what it has started; the first query that fails fails the job."""
        while self._spark is not None:
            try:
                if self._spark.streams.awaitAnyTermination(1):
                    self._spark.streams.resetTerminated()
            except AttributeError:  # the script has stopped its session
                return
            if not self._spark.streams.active:
                return

    def _leave_soon(self) -> None:
        time.sleep(LEAVE_S)
        self._finish(self._ended("stopped", str(self._stopped)))

    def _ended(self, how: How, reason: str) -> Ended:
        return Ended(self.launch.incarnation, how, reason, self._batches)

    def _finish(self, ended: Ended) -> None:
        """Record how the run ended, and exit, also when threads of the program are left."""
        self._group.close(timeout_s=COMMIT_S)
        ended.write(self.launch.folder)
        if self.launch.control_port is not None:
            with suppress(OSError):
                LAST_WORDS.write_text(json.dumps(codec.to_json(ended)))
        say(f"{ended.how}: {ended.reason}")
        sys.stdout.flush()
        os._exit(0 if ended.how in ("finished", "stopped") else 1)

    def _why(self, problem: str) -> str:
        setting = "script" if isinstance(self._plan.program, Script) else "build"
        when = f"after {self._batches} batches" if self._batches else "before its first batch was finished"
        return f"job.{self._plan.job}.{setting}: the job failed {when}: {problem}"


def _how(error: BaseException) -> How:
    """Whether the program threw by itself, or one of its queries failed under it."""
    from pyspark.errors import StreamingQueryException

    return "query failed" if isinstance(error, StreamingQueryException) else "threw"


def main(arguments: list[str]) -> None:
    """Run the launch file that is named."""
    faulthandler.register(signal.SIGUSR1)  # writes to the log where it hangs
    path, *folder = map(Path, arguments)
    launch = LaunchFile.read(path, folder=next(iter(folder), None))
    launch.folder.mkdir(parents=True, exist_ok=True)
    driver = Driver(launch)
    calls = {
        "status": driver.status,
        "scale": driver.scale,
        "stop_between_batches": driver.stop_between_batches,
    }
    token = (path.parent / "token").read_text().strip()
    address: Address = launch.folder / SOCKET
    if launch.control_port is not None:
        address = os.environ["POD_IP"], launch.control_port
        signal.signal(signal.SIGTERM, driver.end_soon)
    ControlServer(calls, token=token, address=address).start()
    Listening(launch.incarnation, launch.control_port).write(launch.folder)
    driver._finish(driver.run())


if __name__ == "__main__":
    main(sys.argv[1:])
