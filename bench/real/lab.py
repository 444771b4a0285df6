"""The lab of the real measurements: an environment, a few warm copies that they share, and what is known.

A cold start of a copy takes 45 to 70 s of a machine that could measure meanwhile, so a copy stays until
another size, or a part that starts copies itself, needs its room. All steps are the product's own: probes
are `ProbeRun`s, judged by `models.probing.judge`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from models.errors import NotReady
from models.ports import Plan
from models.probing import Probe
from models.quantities import Unknown
from pipelines.environments import base
from pipelines.environments.base import Environment
from pipelines.settings import job_plans, loading
from pipelines.settings.schema import JobSettings, Settings
from profiling_jobs.experiments import drill
from profiling_jobs.experiments.copies import Copies, Copy
from profiling_jobs.experiments.probe import ProbeRun, Rules

from .journal import Journal

ENRICHMENT, SIX, WORD_COUNT, LIVE = "enrichment", "enrichment-six", "word-count", "enrichment-live"
SALES = "sales"
PARTITIONS = 12
COUNTS = {WORD_COUNT: 4}  # a batch of many small tasks would be overhead more than counting
SETTLED_LAG_S = 5.0  # judgement: behind by so little, a job that has recovered is ready for the next rate
SETTLED_S = 20.0  # measured: batches of a new rate come to their length within so long; before, lag rises
PATIENCE_S = 300.0
# The optimising compiler of the JVM works for minutes after a start, and batches get faster meanwhile: with
# the quick one alone a copy is soon as fast as it will ever be.
JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:+ExitOnOutOfMemoryError"
CONF = f"""
[job.NAME.conf]
"spark.sql.adaptive.enabled" = "false"
"spark.sql.adaptive.streaming.stateless.enabled" = "false"
"spark.driver.extraJavaOptions" = "{JVM}"
"spark.executor.extraJavaOptions" = "{JVM}"
"""
TOML = """
[deployment]
kind = "KIND"

[spark]
slots = 8
"""
ENRICHMENT_TOML = f"""
[job.NAME]
build = "profiling_jobs.jobs.enrichment:build"
inputs = {{events = "NAME-orders"}}
outputs = {{results = "NAME-answers"}}
max_offsets_per_trigger = 6000
state_partitions = {PARTITIONS}
events = "generator:enrichment?count=300000"
scale_out = 2
scale_out_max = 6
warm_up_s = 20
probe_s = 40
{CONF}
"""
WORD_COUNT_TOML = f"""
[job.NAME]
build = "profiling_jobs.jobs.word_count:build"
inputs = {{events = "lines"}}
outputs = {{results = "totals"}}
max_offsets_per_trigger = 200000
state_partitions = 4
events = "generator:word-count?count=500000"
warm_up_s = 20
probe_s = 40
{CONF}
"""
LIVE_TOML = """
[job.NAME]
build = "profiling_jobs.jobs.enrichment:build"
inputs = {events = "NAME-orders"}
outputs = {results = "NAME-answers"}
max_offsets_per_trigger = 2000
state_partitions = 12
events = "generator:enrichment?count=300000"
mode = "apply"
recovery_target_s = 120
confidence = 0.9
failure_kinds = ["executor_kill", "executor_freeze", "driver_kill"]
scale_out = 2
scale_out_max = 4
evaluation_interval_s = 10
scale_in_window_s = 300
profile_scale_outs = [1, 2, 4]
profile_guess_rps = 900
"""
"""Named by itself, as `promises` runs it live under Headroom's own control."""
SALES_TOML = f"""
[job.NAME]
script = "{Path(__file__).with_name("sales.py")}"
args = ["{{brokers}}", "{{input_topic}}", "{{output_topic}}", "{{checkpoint}}"]
inputs = {{orders = "NAME-orders"}}
outputs = {{totals = "NAME-totals"}}
trigger_s = 2.0
max_offsets_per_trigger = 2000
topic_partitions = 4
state_partitions = 4
event_time = "kafka-timestamp"
longest_window_s = 10
events = "generator:enrichment?count=300000"
mode = "observe"
recovery_target_s = 60
scale_out = 2
scale_out_max = 3
evaluation_interval_s = 10
{CONF}
"""
"""A job that is not ours: a user's script, of which Headroom knows what is written here."""
Value = TypeVar("Value")
Say = Callable[[str], None]


@dataclass(frozen=True)
class Lengths:
    """How long the parts measure. The defaults are what the figures are stated with."""

    sizes: tuple[int, ...] = (1, 2, 4)
    unseen: int = 6
    probe_s: float = 40.0
    most_probes: int = 2
    bracket: float = 0.03
    sustain_s: float = 300.0
    overload_s: float = 60.0
    """The first look at 120 %; where that decides nothing, `sustain_s`."""
    together: tuple[tuple[int, ...], ...] = ((1, 2), (4,))
    """Sizes that are sustained at the same time."""
    word_count_rps: float = 20_000.0
    """Where its search begins."""
    online_step_s: float = 30.0
    online_shares: tuple[float, ...] = (0.15, 0.45, 0.25, 0.58, 0.35, 0.2, 0.55, 0.4)
    drill_size: int = 2
    drill_shares: tuple[float, ...] = (0.5, 0.6, 0.7)
    rescale_share: float = 0.5
    day_s: float = 1200.0
    """Of `promises`; eight failures."""
    live_rps: float = 500.0
    """Its load while it is recorded, profiled and drilled, and while `learning` makes it fail."""
    sales_rps: float = 300.0


def settings(kind: str = "local") -> Settings:
    """The jobs that are measured, as a user would write them down."""
    tables = {ENRICHMENT: ENRICHMENT_TOML, SIX: ENRICHMENT_TOML, WORD_COUNT: WORD_COUNT_TOML}
    tables |= {LIVE: LIVE_TOML + CONF, SALES: SALES_TOML}
    jobs = [table.replace("NAME", name) for name, table in tables.items()]
    text = "".join((TOML.replace("KIND", kind), *jobs))
    return loading.parse(text, file="bench/real", environment={})


class Lab:
    """An environment, and the copies that run in it."""

    def __init__(
        self,
        here: Environment,
        found: Settings,
        folder: Path,
        *,
        journal: Journal,
        lengths: Lengths,
        say: Say,
    ) -> None:
        self.environment, self.settings, self.folder = here, found, folder
        self.journal, self.lengths, self.say = journal, lengths, say
        self._copies: dict[str, Copies] = {}

    @property
    def now_s(self) -> float:
        return self.environment.clock.now_s()

    def job(self, name: str) -> JobSettings:
        return self.settings.jobs[name]

    def plan(self, name: str) -> Plan:
        return job_plans.live_plan(name, self.job(name), folder=self.folder)

    def rules(self, name: str) -> Rules:
        return job_plans.rules(self.job(name))

    def partitions(self, name: str) -> dict[str, int]:
        plan = self.plan(name)
        return dict.fromkeys((*plan.inputs, *plan.outputs), COUNTS.get(name, PARTITIONS))

    def copies(self, name: str) -> Copies:
        if name not in self._copies:
            around = self.environment.around(name, self.job(name))
            found = Copies(self.plan(name), around, partitions=self.partitions(name), purpose="b")
            self._copies[name] = found
        return self._copies[name]

    def copy(self, name: str, scale_out: int, *, beside: Sequence[int] = ()) -> Copy:
        """The copy of this size that runs, or a new one; others end, but for the sizes `beside`."""
        for other in list(self._copies):
            for one in self._copies[other].running:
                if other != name or one.plan.scale_out not in (scale_out, *beside):
                    self._copies[other].stop(one)
        for one in self.copies(name).running:
            if one.plan.scale_out == scale_out:
                return one
        self.say(f"starting a copy of {name} on {scale_out} executors")
        return self.copies(name).launch(scale_out)

    def drop(self, copy: Copy) -> None:
        self.say(f"stopping {copy.plan.name}")
        self.copies(copy.plan.job).stop(copy)

    def clear(self) -> None:
        """No copy of ours is left, of this run or of one that was killed."""
        drill.clear_left_over(self.environment.failures)
        for name in self.settings.jobs:
            for problem in self.copies(name).clear():
                self.say(f"left behind: {problem}")

    # ------------------------------------------------------------------------------------------- time

    def drive(self, *steps: Generator[None, None, Value], sample_s: float = 1.0) -> list[Value]:
        """Generators side by side, each a step at a time, until all have ended."""
        running, found = dict(enumerate(steps)), {}
        while running:
            for number, one in list(running.items()):
                try:
                    next(one)
                except StopIteration as finished:
                    found[number] = finished.value
                    del running[number]
            if running:
                self.environment.clock.sleep(sample_s)
        return [found[number] for number in sorted(found)]

    def probe(self, copy: Copy, rate_rps: float, *, probe_s: float) -> ProbeRun:
        """The product's own probe, on a copy that is there already."""
        name = copy.plan.job
        probe = Probe(0, copy.plan.scale_out, rate_rps, warm_up_s=self.job(name).warm_up_s, probe_s=probe_s)
        run = ProbeRun(probe, copy, clock=self.environment.clock, rules=self.rules(name))
        copy.measured = True
        return run

    def ready(self, copy: Copy, rate_rps: float) -> None:
        """It runs at this rate, warm and without a backlog."""
        if not copy.measured:
            (problem,) = self.drive(self.probe(copy, rate_rps, probe_s=1.0).ready())
            if problem:
                raise NotReady(f"{copy.plan.name} at {rate_rps:,.0f} records/s: {problem}")
            return
        copy.source.set_rate(rate_rps)
        self.drive(self._settled(copy, rate_rps))

    def watch(self, copy: Copy, seconds: float) -> tuple[float, float]:
        """Let time pass; from when to when."""
        begin = self.now_s
        self.drive(self._looking(copy, until_s=begin + seconds))
        return begin, self.now_s

    def _looking(self, copy: Copy, *, until_s: float) -> Generator[None, None, None]:
        while self.now_s < until_s:
            yield
            copy.watch.look(self.now_s)

    def _settled(self, copy: Copy, rate_rps: float) -> Generator[None, None, None]:
        """All executors are there, and lag has stayed small for a while."""
        began_s = good_s = self.now_s
        while self.now_s - good_s < SETTLED_S:
            yield
            copy.watch.look(self.now_s)
            lag, alive = copy.watch.lag_records, copy.watch.status.executors_alive
            unknown = isinstance(lag, Unknown)
            if alive != copy.plan.scale_out or unknown or lag > SETTLED_LAG_S * rate_rps:
                good_s = self.now_s
            if self.now_s - began_s > PATIENCE_S:
                raise NotReady(f"{copy.plan.name} did not settle at {rate_rps:,.0f} records/s")


@contextmanager
def opened(
    folder: Path, *, lengths: Lengths, say: Say, kind: str = "local", journal: Journal | None = None
) -> Iterator[Lab]:
    """The environment, with nothing left in it of a run that was killed, and nothing left afterwards."""
    found = settings(kind)
    with base.opened(found, folder, say=say) as here:
        lab = Lab(
            here,
            found,
            folder,
            journal=journal or Journal(folder / "pieces.jsonl"),
            lengths=lengths,
            say=say,
        )
        lab.clear()
        try:
            yield lab
        finally:
            lab.clear()


def progress(began_s: float | None = None) -> Say:
    """One line per step, with the seconds since the start."""
    start = time.monotonic() if began_s is None else began_s

    def say(text: str) -> None:
        print(f"{time.monotonic() - start:6.0f} s  {text}", flush=True)

    return say
