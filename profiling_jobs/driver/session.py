"""Our Spark settings for a program that makes its own session.

`SparkSession.builder.getOrCreate()` stays the program's own call. What the deployment has set is in a
properties file that Spark reads first, and is taken out of the builder where the program sets it too;
everything else the program sets is kept. The first session it makes is handed to us before the program sees
it.
"""

from __future__ import annotations

import os
import secrets
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

from models.errors import Misconfigured
from models.ports import Script

from .launch_file import LaunchFile, write_text


def conf(launch: LaunchFile) -> dict[str, str]:
    """The settings that override the program's. In a pod `$NAME` is filled in from its environment."""
    found = dict(launch.conf)
    if launch.control_port is not None:
        os.environ["RUN"] = secrets.token_hex(3)
        found = {key: os.path.expandvars(value) for key, value in found.items()}
    if launch.plan.state_partitions is not None:
        found["spark.sql.shuffle.partitions"] = str(launch.plan.state_partitions)
    # Otherwise the number of tasks of a stateless job differs from batch to batch.
    found.setdefault("spark.sql.adaptive.streaming.stateless.enabled", "false")
    found.setdefault("spark.executorEnv.PYTHONPATH", os.pathsep.join(map(str, search_path(launch))))
    return found


def search_path(launch: LaunchFile) -> list[Path]:
    """Where modules of the program are looked for, by the driver and by its executors."""
    if isinstance(launch.plan.program, Script):
        return [script(launch).parent, launch.project]
    return [launch.project]


def script(launch: LaunchFile) -> Path:
    """The program's file."""
    program = launch.plan.program
    path = launch.project / (program.path if isinstance(program, Script) else "")
    if not path.is_file():
        raise Misconfigured(f"job.{launch.plan.job}.script", f"there is no file {path}")
    return path


def put_in_place(launch: LaunchFile, *, attach: Callable[[Any], None], say: Callable[[str], None]) -> None:
    """Give every Spark session of this process our settings, from now on. `attach` is given each of them."""
    from pyspark.sql import SparkSession

    ours = conf(launch)
    file = launch.folder / "spark.conf"
    escaped = {key: value.replace("\\", "\\\\").replace("\n", "\\n") for key, value in ours.items()}
    write_text(file, "".join(f"{key}={value}\n" for key, value in escaped.items()))
    # A file, not the command line, which everybody on the machine can read. The cluster's secret is in its
    # own defaults, which a properties file would otherwise replace.
    submit = f"--load-spark-defaults --properties-file {shlex.quote(str(file))} pyspark-shell"
    os.environ["PYSPARK_SUBMIT_ARGS"] = submit
    builder = SparkSession.Builder
    original = builder.getOrCreate

    def get_or_create(self: Any) -> Any:
        for key in sorted(set(self._options) & set(ours)):
            self._options.pop(key)
            say(f"{key} is set by the program and by Headroom, which wins")
        session = original(self)
        master = session.sparkContext.master
        if master != ours.get("spark.master", master):
            raise Misconfigured(
                f"job.{launch.plan.job}.script",
                f"makes its own SparkContext on {master}: use SparkSession.builder.getOrCreate()",
            )
        attach(session)
        return session

    builder.getOrCreate = get_or_create  # type: ignore[method-assign]
