"""Files that a tick, a profile, a drill and a refit run through, and the jumps between these files.

On the simulated deployment a job is launched, profiled, drilled, fitted and evaluated twice in one process.
The first round only warms up, so that every module is imported; in the second round the walks are traced
with `sys.setprofile`.

    tick      one evaluation of a job whose load has risen, with all four models
    profile   one search for the capacity, as the server carries out the order
    drill     one failure on a copy of the job, predicted by the models in charge
    refit     one refit of the capacity model: fitted, drawn, checked, registered, promoted

    file      a file of models, profiling_jobs, assets or pipelines in which at least one function ran
    jump      a distinct pair (file of the caller, file of the called function); the caller is the nearest
              frame of our own files, and a pair counts once, however often it is taken
    depth     the most frames of our own files on the stack at once; the first is the traced call itself

Module bodies, class bodies and code that dataclasses generate do not count. A profile and a drill run in a
thread of their own; only that thread is traced, not the sampler beside it.

    python -m bench walks                  # figures and targets
    python -m bench.walks --list [NAME …]  # the files of these walks, and which files each of them calls
"""

from __future__ import annotations

import argparse
import inspect
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

from assets.model import DRAWN
from models.ports import ModelVersion
from models.quantities import Unknown
from pipelines.demo.scenes import JOB, SIMULATED
from pipelines.environments.base import Environment, opened
from pipelines.orchestration import resources
from pipelines.server.in_process import InProcessServer
from pipelines.settings import loading
from pipelines.settings.schema import Settings
from profiling_jobs.control_loop.evaluation import evaluate
from profiling_jobs.training.champions import Document
from profiling_jobs.training.promoting import TrainingContext, refit

from . import Figure

ROOT = f"{Path(__file__).parent.parent}/"
PACKAGES = ("models/", "profiling_jobs/", "assets/", "pipelines/")
TARGETS: Mapping[str, tuple[float, float | None]] = {
    "tick": (35, 80),
    "profile": (40, None),
    "drill": (40, None),
    "refit": (28, None),
}
"""Walk -> most files, most jumps."""
BEFORE_RPS, AFTER_RPS = 500.0, 1000.0
INTERVAL_S = 30.0
POLL_S = 0.02


@dataclass
class Walk:
    """What was called in one thread while it was traced."""

    calls: Counter[str] = field(default_factory=Counter)
    """File -> calls of its functions."""
    jumps: Counter[tuple[str, str]] = field(default_factory=Counter)
    """(Calling file, called file) -> calls."""
    depth: int = 0
    _stack: list[FrameType] = field(default_factory=list)

    def seen(self, frame: FrameType, event: str, argument: Any) -> None:
        """For `sys.setprofile`."""
        if event == "call" and (file := own_file(frame)):
            self.calls[file] += 1
            if self._stack and (caller := own_file(self._stack[-1])) != file:
                self.jumps[caller, file] += 1
            self._stack.append(frame)
            self.depth = max(self.depth, len(self._stack))
        elif event == "return" and self._stack and self._stack[-1] is frame:
            self._stack.pop()


def own_file(frame: FrameType) -> str:
    """Its path from the root; empty where it is not ours, or the body of a module or class."""
    file = frame.f_code.co_filename
    if not file.startswith(ROOT) or not frame.f_code.co_flags & inspect.CO_OPTIMIZED:
        return ""
    file = file[len(ROOT) :]
    return file if file.startswith(PACKAGES) else ""


class MemoryRegistry:
    """Model versions in memory."""

    def __init__(self) -> None:
        self._kept: dict[str, list[ModelVersion]] = {}
        self._aliases: dict[str, dict[str, int]] = {}

    def register(
        self, name: str, document: Document, *, tags: Mapping[str, str], **pages: Any
    ) -> ModelVersion:
        kept = self._kept.setdefault(name, [])
        kept.append(ModelVersion(name, len(kept) + 1, document, dict(tags)))
        self._aliases.setdefault(name, {})["challenger"] = len(kept)
        return kept[-1]

    def promote(self, name: str, version: int, *, alias: str = "champion") -> None:
        self._aliases[name][alias] = version

    def load(
        self, name: str, *, alias: str = "champion", version: int | None = None
    ) -> ModelVersion | Unknown:
        number = version or self._aliases.get(name, {}).get(alias)
        return Unknown(f"{name} has no {alias}") if number is None else self._kept[name][number - 1]

    def versions(self, name: str) -> tuple[int, ...]:
        return tuple(range(1, len(self._kept.get(name, [])) + 1))

    def aliases(self, name: str) -> Mapping[str, int]:
        return self._aliases.get(name, {})


@dataclass
class Round:
    """One job from its launch to a decision."""

    environment: Environment
    server: InProcessServer
    settings: Settings
    folder: Path
    walks: dict[str, Walk] = field(default_factory=lambda: {name: Walk() for name in TARGETS})

    def run(self) -> None:
        job = self.settings.jobs[JOB]
        self.order("launch")
        source = self.environment.open_source(JOB, job, f"{JOB}-input", dict(job.inputs))
        source.set_rate(BEFORE_RPS)
        self.ticks(20)
        self.order("record", seconds=120.0)
        self.order("profile", walk=self.walks["profile"])
        drill = {"scale_outs": [2], "rates_rps": [BEFORE_RPS]}
        self.order("drill", **drill)
        purpose = resources.purpose(JOB, job)
        room = TrainingContext(self.environment.store, MemoryRegistry(), self.folder)
        for kind in ("capacity", "workload", "latency", "recovery"):
            with traced(self.walks["refit"] if kind == "capacity" else Walk()):
                made = refit(kind, purpose, room, draw=DRAWN[kind])
            assert made.promoted, made.said
        self.order("drill", walk=self.walks["drill"], **drill)
        self.ticks(2)
        source.set_rate(AFTER_RPS)
        now_s = self.next_interval()
        settings, loop = self.server.context.control_settings(JOB), self.server.context.loop
        with self.environment.taking_part(), traced(self.walks["tick"]):
            found = evaluate(JOB, settings=settings, loop=loop, now_s=now_s)
        assert "verdicts" in found.decision, found.reason
        source.stop()

    def next_interval(self) -> float:
        with self.environment.taking_part():
            self.environment.clock.sleep(INTERVAL_S)
            return self.environment.clock.now_s()

    def ticks(self, count: int) -> None:
        for _ in range(count):
            self.next_interval()
            self.server.evaluate(JOB)

    def order(self, what: str, *, walk: Walk | None = None, **details: Any) -> None:
        if walk is not None:
            threading.setprofile(lambda *event: sys.setprofile(walk.seen))  # type: ignore[union-attr]
        try:
            id = self.server.begin(what, JOB, **details)
        finally:
            threading.setprofile(None)  # type: ignore[arg-type]
        while (now := self.server.order(id))["state"] == "running":
            time.sleep(POLL_S)
        assert now["state"] == "done", now["error"]


@contextmanager
def traced(walk: Walk) -> Iterator[None]:
    sys.setprofile(walk.seen)
    try:
        yield
    finally:
        sys.setprofile(None)


def walks() -> Mapping[str, Walk]:
    settings = loading.parse(SIMULATED, environment={})
    for _ in range(2):  # the first one only warms up
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            with (
                opened(settings, folder) as environment,
                InProcessServer(environment, settings, folder) as server,
            ):
                one = Round(environment, server, settings, folder)
                one.run()
    return one.walks


def measure() -> Iterable[Figure]:
    for name, walk in walks().items():
        most_files, most_jumps = TARGETS[name]
        yield Figure(f"walks: {name}, files", len(walk.calls), "files", at_most=most_files)
        yield Figure(f"walks: {name}, jumps between files", len(walk.jumps), "jumps", at_most=most_jumps)
        yield Figure(f"walks: {name}, depth", walk.depth, "frames")


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.walks", description="trace walks through the files"
    )
    parser.add_argument("name", nargs="*", help=f"which ones (default all): {', '.join(TARGETS)}")
    parser.add_argument("--list", action="store_true", help="also every file, and which files it calls")
    arguments = parser.parse_args()
    for name, walk in walks().items():
        if arguments.name and name not in arguments.name:
            continue
        print(f"{name}: {len(walk.calls)} files, {len(walk.jumps)} jumps, {walk.depth} deep")
        for file in sorted(walk.calls) if arguments.list else ():
            called = ", ".join(sorted(to for by, to in walk.jumps if by == file))
            print(f"  {file} ({walk.calls[file]} calls) -> {called or '—'}")


if __name__ == "__main__":
    main()
