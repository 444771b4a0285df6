"""Ports: one protocol per outside system.

Each is small enough that the simulated and the real adapter pass the same suite (tests/contracts). Simulated
adapters are in pipelines/environments/simulated, real ones in pipelines/environments and integrations.

Errors are those of models.errors: NotReady (try again), Unsafe (refused), Misconfigured (change it).
A signal that could not be read is `Unknown(reason)`, never zero.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, Protocol

from .observation import ExecutorLoss
from .quantities import Measurement, Misuse, RecoveryEvent, Unknown, number, whole

# ---------------------------------------------------------------- deployments


class Query(Protocol):
    """What must be known of a job to observe it."""

    @property
    def name(self) -> str: ...
    @property
    def job(self) -> str: ...
    @property
    def role(self) -> Literal["live", "profile"]: ...
    @property
    def inputs(self) -> Mapping[str, str]: ...
    @property
    def outputs(self) -> Mapping[str, str]: ...
    @property
    def checkpoint(self) -> str: ...
    @property
    def group(self) -> str:
        """The consumer group that holds the offsets of finished batches."""


@dataclass(frozen=True)
class Script:
    """Any PySpark script, unchanged; `{input_topic}` and the like in `args` are filled in."""

    kind: ClassVar = "script"
    path: str
    args: tuple[str, ...] = ()


@dataclass(frozen=True)
class Function:
    """A function `build(spark, topics) -> DataStreamWriter`, named "package.module:function"."""

    kind: ClassVar = "function"
    name: str


@dataclass(frozen=True)
class Plan:
    """One running copy of a job: the live one, or a profiling copy on scratch topics."""

    schema: ClassVar = 1
    name: str
    """Unique on the deployment, for example `orders` or `orders-profile-e4`."""
    job: str
    role: Literal["live", "profile"]
    program: Script | Function
    scale_out: int
    inputs: Mapping[str, str]
    """The job's name for a topic -> the topic, for example {"events": "orders"}."""
    outputs: Mapping[str, str]
    checkpoint: str
    trigger_s: float = 0.0
    """0: the next batch starts as soon as the last one has ended."""
    max_offsets_per_trigger: int | None = None
    state_partitions: int | None = None
    conf: Mapping[str, str] = field(default_factory=dict)
    side_effects: Literal["checked", "none"] = "checked"
    """Whether a profiling copy's sinks that cannot be judged are refused, or declared to be harmless."""

    @property
    def group(self) -> str:
        """Consumer group, as of every `Query`."""
        return f"headroom.{self.job if self.role == 'live' else self.name}"


NO_MARK = Unknown("the deployment carries no mark of ours that could be read")


@dataclass(frozen=True)
class Status:
    """What a deployment says of itself. `run_id` changes with every restart of the query."""

    state: Literal["starting", "running", "restarting", "stopped", "failed", "stalled", "unknown"]
    """stalled, unknown: only of a job that another system runs."""
    declared_scale_out: int | Unknown
    executors_alive: int | Unknown
    run_id: str | Unknown
    reason: str = ""
    ours: bool | Unknown = NO_MARK
    """Whether we have set the declared size, by a launch or a change.

    Of the declared size alone: killed executors leave it as it is, and are Spark's to replace.
    """
    elsewhere: bool = False
    """Another system starts and stops it."""


@dataclass(frozen=True)
class Rescaled:
    """What a change of the scale-out really was: which path was taken, and what it cost."""

    path: Literal["live", "restart"]
    before: int
    after: int
    took_s: float


class Deployments(Protocol):
    """Where jobs run. A name that is not known is Misconfigured; launching one twice is Unsafe."""

    def launch(self, plan: Plan) -> None: ...
    def scale(
        self, name: str, scale_out: int, *, epoch: int, path: Literal["live", "restart"] = "live"
    ) -> Rescaled:
        """Verified: the executors are registered when it returns. An epoch older than the last is Unsafe.

        Under the running query, or by a restart from the checkpoint. The same size with the same epoch is a
        retry: it waits for what was begun, and stops nothing again.
        """

    def stop(self, name: str) -> None:
        """Between batches where possible. Stopping what does not run is not an error."""

    def status(self, name: str) -> Status: ...
    def plan(self, name: str) -> Query:
        """The plan it was launched with, also after it was stopped: of a live job, or a copy of one."""

    def names(self) -> tuple[str, ...]:
        """Every deployment of this owner."""


# ------------------------------------------------------------------- failures


@dataclass(frozen=True)
class Injection:
    """A failure that was caused on purpose, until it is cleared."""

    id: str
    deployment: str
    kind: str
    """One of models.quantities.FAILURE_KINDS."""
    victim: str
    at_s: float


class Failures(Protocol):
    """Causes and clears failures. Each is recorded first, so that a crash leaves none uncleared."""

    def kinds(self) -> frozenset[str]:
        """The failure kinds that can be caused here."""

    def inject(self, deployment: str, kind: str) -> Injection: ...
    def clear(self, injection_id: str) -> None:
        """Clear a failure: wake what is frozen, restart what must run. Clearing it twice is not an error."""

    def active(self) -> tuple[Injection, ...]:
        """All failures that were not cleared, whatever has become of the processes that they hit."""

    def left_over(self) -> tuple[Injection, ...]:
        """The active ones of an earlier owner, and those not cleared in full."""


# --------------------------------------------------------------------- broker

Partition = tuple[str, int]
Offsets = Mapping[Partition, int]


class Broker(Protocol):
    """The brokers between producers and job. A missing topic is Misconfigured, silence is NotReady."""

    def topics(self) -> Mapping[str, int]:
        """Name -> number of partitions."""

    def create(self, topic: str, *, partitions: int, kept_s: float | None = None) -> None:
        """Creating it again with the same number of partitions is not an error; with another, Unsafe.

        `kept_s`: records that are older may go; without it, when the brokers think right.
        """

    def delete(self, topic: str) -> None:
        """Deleting what is not there is not an error."""

    def starts(self, topics: Sequence[str]) -> Offsets:
        """The first offset that retention has left in each partition."""

    def ends(self, topics: Sequence[str]) -> Offsets: ...
    def offsets_at(self, topic: str, at_s: float) -> Offsets:
        """The first offset whose broker timestamp is not before `at_s`; the end where there is none."""

    def committed(self, group: str, topics: Sequence[str]) -> Offsets:
        """Only the partitions that the group has committed."""

    def commit(self, group: str, offsets: Offsets) -> None: ...


# --------------------------------------------------------------------- source


class Emitted(Protocol):
    """What a source was to send in some time, and what it says it has sent."""

    @property
    def achieved_rps(self) -> float | Unknown: ...
    @property
    def commanded_rps(self) -> float: ...


class Source(Protocol):
    """What sends the records of a profiling copy. It runs when it is handed over."""

    def set_rate(self, rate_rps: float) -> float:
        """Another rate, from the moment that is returned (epoch seconds). NotReady when it has died."""

    def achieved(self, from_s: float, to_s: float) -> Emitted:
        """Between two moments of the past; Unknown until the broker has been asked after the later one."""

    def stop(self) -> None:
        """Stopping what does not run is not an error."""


# -------------------------------------------------------------------- metrics


NOT_PLANNED = Unknown("when the batch was planned is only in a checkpoint that can be read")


@dataclass(frozen=True)
class Commit:
    """A batch that is done: its number, when that was, up to where it has read, and when it was planned."""

    batch: int | Unknown
    """Unknown where only the consumer group says that something is done; `at_s` is then when we saw it."""
    at_s: float
    ends: Offsets
    planned_at_s: float | Unknown = NOT_PLANNED
    """When its offsets were fixed, right after its trigger."""


NOT_ASKED = Unknown("its driver was not asked")


def driver_seen(status: Status) -> Literal["up", "silent", "gone"]:
    """What a deployment's status says of its driver."""
    if not isinstance(status.run_id, Unknown):
        return "up"
    return "silent" if status.state == "running" else "gone"


NOT_TOLD = Unknown("its driver has not said that it is lost")


@dataclass(frozen=True)
class ExecutorSample:
    """One executor since the sample before. One definition for every adapter."""

    executor: str
    state: Literal["warming_up", "running", "lost"]
    cpu: float | Unknown
    """0…1: CPU time of the JVM and its Python workers over the wall time of its slots."""
    busy: float | Unknown
    """0…1: task seconds over slot seconds."""
    records_rps: float | Unknown
    loss: ExecutorLoss | Unknown = NOT_TOLD
    """Of a lost one, as its driver says."""


@dataclass(frozen=True)
class Sample:
    """One job at one moment, from broker offsets and its checkpoint; valid while the driver is dead."""

    at_s: float
    head: Offsets
    committed: Offsets | Unknown
    committed_source: Literal["checkpoint", "group", "neither"]
    log_start: Offsets
    lag_records: float | Unknown
    last_batch: int | Unknown
    last_commit_at_s: float | Unknown
    run_id: str | Unknown
    executors: tuple[ExecutorSample, ...] | Unknown
    latency_p95_ms: float | Unknown
    commits: tuple[Commit, ...] = ()
    """Every batch that was committed since the sample before, oldest first, as far as it is known."""
    driver: Literal["up", "silent", "gone"] | Unknown = NOT_ASKED
    """silent: its process is there and does not answer. gone: it has ended, and may be starting again."""
    broker_waited_s: float = 0.0
    """How long the brokers took to answer."""


class Metrics(Protocol):
    """Samples of jobs."""

    def sample(self, name: str) -> Sample: ...


# ---------------------------------------------------------------------- store


@dataclass(frozen=True)
class Directive:
    """What a person has asked for: `pause`, `pin` (value: the scale-out) or a foreign-edit `hold`."""

    job: str
    kind: Literal["pause", "pin", "hold"]
    who: str
    why: str
    since_s: float
    until_s: float | None = None
    value: int | None = None

    def __post_init__(self) -> None:
        if self.kind not in ("pause", "pin", "hold"):
            raise Misuse("Directive.kind", f"must be pause, pin or hold, got {self.kind!r}")
        if self.value is not None or self.kind == "pin":
            whole("Directive.value", self.value)
        number("Directive.since_s", self.since_s)
        if self.until_s is not None:
            number("Directive.until_s", self.until_s, above=self.since_s)


@dataclass(frozen=True)
class Control:
    """A job's control state: `epoch` grows with every tick; a change carries the epoch of its tick."""

    job: str
    epoch: int
    state: Mapping[str, Any]


@dataclass(frozen=True)
class Lease:
    """Who may carry out the change of one epoch, until when."""

    job: str
    epoch: int
    holder: str
    """Unique per attempt, for example a run's identifier: the same name holds the same lease."""
    until_s: float

    def __post_init__(self) -> None:
        whole("Lease.epoch", self.epoch, at_least=0)
        number("Lease.until_s", self.until_s)


LATE_TICKS = 3
"""Intervals without an evaluation after which a job counts as not evaluated any more. Judgement: one tick may
be lost, two in a row are no accident."""


class Store(Protocol):
    """Durable storage. Every write is durable when it returns.

    Mappings are plain JSON, infinities allowed; what is not, is Misuse (models.codec).
    """

    def record_evaluation(
        self, job: str, *, interval: int, at_s: float, evaluation: Mapping[str, Any]
    ) -> bool:
        """False when the interval ⌊now / E⌋ has been evaluated already: nothing is written then."""

    def evaluations(
        self, job: str, *, since_s: float = 0.0, until_s: float = math.inf, limit: int = 100
    ) -> tuple[tuple[float, Mapping[str, Any]], ...]:
        """The newest ones from `since_s` up to and with `until_s`, oldest first."""

    def forget_evaluations(self, job: str, *, before_s: float) -> int:
        """Make room: how many older evaluations were dropped."""

    def control(self, job: str) -> Control | None: ...
    def save_control(self, control: Control, *, expected_epoch: int | None) -> bool:
        """Compare-and-set: False when the stored epoch is not `expected_epoch` (None: no state yet).

        An epoch below the expected one, or below 0, is Misuse: it never goes back.
        """

    def claim(self, lease: Lease, *, now_s: float) -> bool:
        """False while another holder has the lease, or when a newer epoch has been claimed.

        The holder itself prolongs it so. One that is released or out of time is free, also for a retry of
        the same epoch. A lease that would be over at `now_s` is Misuse.
        """

    def release(self, lease: Lease) -> None:
        """Older epochs stay refused. Releasing what one does not hold does nothing."""

    def direct(self, directive: Directive) -> None:
        """A directive takes the place of the one of its kind that is in force."""

    def directives(self, job: str, *, now_s: float) -> tuple[Directive, ...]:
        """Those in force at `now_s`, at most one of each kind."""

    def resume(self, job: str, *, who: str, why: str, now_s: float) -> int:
        """End every directive of the job; how many there were. The record of them stays."""

    def audit(self, job: str) -> tuple[Mapping[str, Any], ...]:
        """What people have asked for, in the order they asked: at_s, what, who, why, until_s, value.

        `what` is a directive's kind, or "resume" (also where nothing was left to end).
        """

    def add_measurement(self, job: str, key: str, measurement: Measurement, *, at_s: float) -> bool:
        """`key` names the probe; adding the same key again replaces it, and says False."""

    def measurements(self, job: str) -> tuple[tuple[str, float, Measurement], ...]:
        """Key, time and measurement, by time."""

    def forget_measurements(self, job: str, keys: Collection[str]) -> int:
        """How many of these were there. Events, directives and documents are never forgotten."""

    def add_event(self, job: str, event: RecoveryEvent, *, details: Mapping[str, Any]) -> None:
        """The same failure (kind and instant) added again replaces the earlier one."""

    def events(self, job: str) -> tuple[tuple[RecoveryEvent, Mapping[str, Any]], ...]:
        """By the time of the failure."""

    def save_document(self, job: str, name: str, document: Mapping[str, Any]) -> None:
        """A named piece of state, for example a probing search, that a crash must not lose."""

    def document(self, job: str, name: str) -> Mapping[str, Any] | None: ...


# ------------------------------------------------------------ registry, clock


@dataclass(frozen=True)
class ModelVersion:
    """One fitted model, as it is kept: plain JSON, found again by name and version."""

    name: str
    """JOB.KIND, for example `orders.capacity`."""
    version: int
    document: Mapping[str, Any]
    """As profiling_jobs.training.champions makes it."""
    tags: Mapping[str, str]


class Registry(Protocol):
    """The versions of the models, and which of them is in charge. Where it does not answer: NotReady.

    What was kept but cannot be used (gone, damaged, of another schema) is Unknown with what to do.
    """

    def register(
        self,
        name: str,
        document: Mapping[str, Any],
        *,
        tags: Mapping[str, str],
        picture: bytes = b"",
        about: str = "",
    ) -> ModelVersion:
        """A new version, with the alias `challenger`. `picture`: a PNG; `about`: what a reader should know.

        A document that could not be loaded again is Misuse.
        """

    def promote(self, name: str, version: int, *, alias: str = "champion") -> None:
        """Let `alias` mean this version from now on. A version that is not there is Misconfigured."""

    def load(
        self, name: str, *, alias: str = "champion", version: int | None = None
    ) -> ModelVersion | Unknown:
        """The version that the alias means, or the one of this number."""

    def versions(self, name: str) -> tuple[int, ...]:
        """Every version, oldest first; none for a name that was never registered."""

    def aliases(self, name: str) -> Mapping[str, int]:
        """Alias -> version."""


class Clock(Protocol):
    """Clock, passed to what needs the time."""

    def now_s(self) -> float:
        """Epoch seconds."""

    def sleep(self, seconds: float) -> None: ...
