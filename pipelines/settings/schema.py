"""The settings in headroom.toml: one frozen pydantic model per section.

docs/configuration.md shows the descriptions of the fields; pipelines/settings/loading.py reads the file.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, PlainSerializer, field_validator

from models.probing.settings import MOST_PROBES
from models.quantities import FailureKind

Mode = Literal["observe", "recommend", "apply"]
Strategy = Literal["adaptive", "stepped"]
Rescale = Literal["live", "restart"]
DeploymentKind = Literal["simulated", "local"]
SideEffects = Literal["checked", "none"]
TimeUnit = Literal["s", "ms", "us", "iso"]

Text = Annotated[str, Field(min_length=1)]
Table = Annotated[
    Mapping[str, str],
    AfterValidator(lambda table: MappingProxyType(dict(table))),
    PlainSerializer(dict, return_type=dict[str, str]),
]
VariableName = Annotated[str, Field(min_length=1, json_schema_extra={"secret": True})]
"""The name of an environment variable that holds a secret, never the secret itself."""


def _empty() -> Mapping[str, str]:
    return MappingProxyType({})


class Section(BaseModel):
    """One table of the file."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class DeploymentSettings(Section):
    """Where the jobs run."""

    kind: DeploymentKind = Field(
        "local",
        description="`local`: real Spark and Kafka processes on this machine. `simulated`: no JVM, no "
        "network.",
    )

    @field_validator("kind", mode="before")
    @classmethod
    def _not_yet(cls, kind: Any) -> Any:
        if kind == "kubernetes":
            raise ValueError(
                "'kubernetes' cannot be done yet: use 'local', real Spark on this machine, or 'simulated'"
            )
        return kind


class BrokerSettings(Section):
    """Which Kafka to use. Without `bootstrap` one is started here, on loopback, data under `.headroom/`."""

    bootstrap: Text | None = Field(None, description="`host:port[,host:port]` of your brokers.")
    security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = Field(
        "PLAINTEXT", description="How to talk to your brokers."
    )
    sasl_mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] | None = Field(
        None, description="With a SASL protocol."
    )
    username_from: VariableName | None = Field(
        None, description="Name of the environment variable that holds the user name."
    )
    password_from: VariableName | None = Field(
        None, description="Name of the environment variable that holds the password."
    )
    ssl_cafile: Text | None = Field(
        None, description="PEM file of the authority that signed the brokers' certificates."
    )
    ssl_certfile: Text | None = Field(
        None,
        description="PEM file with your own certificate and its unencrypted PKCS#8 key, where brokers ask "
        "for one.",
    )


class SparkSettings(Section):
    """The Spark that runs the jobs and their profiling copies."""

    slots: int = Field(
        8,
        ge=1,
        description="Executors the local worker offers in all; may exceed the machine's processors.",
    )
    executor_memory_mb: int = Field(512, ge=480, description="Heap of one executor.")
    driver_memory_mb: int = Field(512, ge=480, description="Heap of one driver.")
    network_timeout_s: int = Field(
        20,
        ge=5,
        description="A silent executor is given up after this time. Spark's own default, 120, alone breaks "
        "most promises: nothing else notices a frozen executor.",
    )
    heartbeat_s: int = Field(
        4, ge=1, description="How often executors report. At most half of `network_timeout_s`."
    )
    scale_timeout_s: float = Field(
        120.0, gt=0, description="A rescale has failed when executors take longer than this to register."
    )
    jars_ivy_settings: Text | None = Field(
        None, description="An `ivysettings.xml` of your own, for a mirror."
    )
    conf: Table = Field(default_factory=_empty, description="Further Spark configuration of every job.")


class MlflowSettings(Section):
    """Where the models are registered. Without `tracking_uri` in SQLite under `.headroom/`."""

    tracking_uri: Text | None = Field(
        None,
        description="Your MLflow server, `http://host:5000`. Secrets stay in the environment: MLflow reads "
        "`MLFLOW_TRACKING_USERNAME`, `MLFLOW_TRACKING_PASSWORD` or `MLFLOW_TRACKING_TOKEN`.",
    )
    experiment: Text = Field(
        "headroom",
        description="Every job has an experiment of its own, named by this and the job: `headroom/NAME`.",
    )


class JobProgram(Section):
    """The program, and who runs it."""

    script: Text | None = Field(
        None, description="Path of a PySpark script. This or `build`, unless `attach` is set."
    )
    args: tuple[Text, ...] = Field(
        (),
        description="Arguments of the script. `{input_topic}`, `{output_topic}`, `{checkpoint}`, `{brokers}` "
        "are filled in; with several topics `{input:NAME}` and `{output:NAME}`.",
    )
    build: Text | None = Field(
        None,
        description='`"package.module:function"`, called as `build(spark, topics)`, returns a '
        "`DataStreamWriter`. Of our benchmark jobs, `profiling_jobs.jobs.NAME:build`, windows, batches and "
        "partitions are known.",
    )
    attach: bool = Field(
        False,
        description="The job is run elsewhere: it is watched through the brokers and its checkpoint, "
        "gets recommendations only, and is never changed. With `script` or `build` beside it, copies of it "
        "can be profiled and drilled.",
    )
    executors: int | None = Field(
        None,
        ge=1,
        description="With `attach`: how many executors the job has now, which cannot be seen from here; "
        "without it nothing is decided. After a change edit it and restart `headroom serve`.",
    )

    @property
    def copyable(self) -> bool:
        """Whether its program is here, so that copies of it can be run."""
        return self.script is not None or self.build is not None


class JobTopics(Section):
    """What it reads and writes."""

    inputs: Table = Field(
        description='The input topics: the job\'s name for each -> topic, `{events = "orders"}`.'
    )
    outputs: Table = Field(
        default_factory=_empty,
        description="The output topics, the same way; `files:/FOLDER` is a folder with one part per batch, "
        "which is replaced when the batch is run again: exactly once. Empty for another kind of sink.",
    )
    checkpoint: Text | None = Field(
        None,
        description="Where the query keeps its checkpoint. Default: `.headroom/checkpoints/NAME`. With "
        "`attach` it is needed, as a folder that can be read from here.",
    )
    consumer_group: Text | None = Field(
        None,
        description="With `attach`: a consumer group to which the job itself commits what it has finished. "
        "It is only read, and gives the position of the job where its checkpoint cannot be read, on an "
        "object store.",
    )


class JobBatches(Section):
    """Its batches and its Spark configuration."""

    trigger_s: float = Field(
        0.0, ge=0, description="Trigger interval; 0: the next batch starts as the last one ends."
    )
    max_offsets_per_trigger: int | None = Field(
        None,
        ge=1,
        description="Largest batch. Without one, the first batch after a failure is one giant batch.",
    )
    state_partitions: int | None = Field(
        None,
        ge=1,
        description="`spark.sql.shuffle.partitions` of a new checkpoint; an old one keeps its own.",
    )
    topic_partitions: int = Field(
        12,
        ge=1,
        description="Partitions of its topics that Headroom makes; a topic that is there keeps its own. The "
        "default is divisible by 1, 2, 3, 4, 6 and 12, so that as many task slots share the work evenly.",
    )
    longest_window_s: float = Field(
        0.0,
        ge=0,
        description="Longest window or state TTL of the job: a warm-up lasts at least that long.",
    )
    conf: Table = Field(default_factory=_empty, description="Further Spark configuration of this job.")


class JobPromise(Section):
    """The promise."""

    recovery_target_s: float = Field(
        180.0, gt=0, description="After a failure the job has caught up with its input within this time."
    )
    confidence: float = Field(0.95, gt=0, le=0.9999, description="With this probability, whenever it fails.")
    failure_kinds: tuple[FailureKind, ...] = Field(
        ("executor_kill", "driver_kill"), description="The failures the promise covers."
    )
    max_lag_s: float | None = Field(
        None,
        gt=0,
        description="Lag, in seconds of input, beyond which the job is behind. Default: half the target.",
    )
    latency_bound_ms: float | None = Field(
        None, gt=0, description="Largest 95th percentile of latency at the load to come. Default: none."
    )


class JobSize(Section):
    """How far Headroom may go."""

    mode: Mode = Field(
        "recommend",
        description="`observe`: only watch. `recommend`: decide and show. `apply`: decide and do.",
    )
    scale_out_min: int = Field(1, ge=1, description="Never fewer executors.")
    # judgement: every size up to this one is looked at in every tick
    scale_out_max: int = Field(8, ge=1, le=1000, description="Never more executors.")
    scale_out: int = Field(1, ge=1, description="Executors to begin with.")
    step_out: int | None = Field(
        None, ge=1, description="Largest number of executors added at once. Default: no limit."
    )
    step_in: int | None = Field(
        None, ge=1, description="Largest number of executors removed at once. Default: no limit."
    )
    rescale: Rescale = Field(
        "live",
        description="How the size is changed. `live`: executors come and go under the running query. "
        "`restart`: the query is stopped between two batches and restarted from its checkpoint.",
    )
    evaluation_interval_s: float = Field(
        60.0, ge=10, description="Time between two decisions; needs `headroom serve` restarted."
    )
    scale_in_window_s: float = Field(
        600.0,
        ge=0,
        description="Executors are removed only down to the most that was needed within this window.",
    )


class JobCalendar(Section):
    """Blackouts and schedules."""

    time_zone: Text = Field("UTC", description="The time zone of blackouts and schedules, `Europe/Berlin`.")
    blackouts: tuple[Text, ...] = Field(
        (),
        description="Windows in which nothing changes, neither a profile nor a live drill begins, and what "
        "of copies is under way ends: `Mon-Fri 08:00-18:00`, `daily 22:00-02:00`, `2026-11-27 00:00-24:00`. "
        "With `no-scale-in` behind it the job may still grow.",
    )
    profile_cron: Text | None = Field(
        None,
        description="When the job is profiled again, `0 3 * * Sun`. Default: only when its models have "
        "drifted.",
    )
    drill_cron: Text | None = Field(
        None,
        description="When failures are drilled on a copy, `0 4 * * Sat`. Default: only when ordered.",
    )


class JobEvents(Section):
    """The events that profiling sends."""

    events: Text | None = Field(
        None,
        description="Where profiling takes its events: a Parquet path, from the folder of this file, or "
        "`generator:NAME`. Default: a recording of the input topics.",
    )
    event_time: Text | None = Field(
        None,
        description="The field of the events that holds their time, `payload.created_at`; or a function of "
        "yours, `package.module:function`, that gets the values and by how many milliseconds to move each. "
        "`kafka-timestamp`: windows are on Kafka's own timestamp. A copy is sent its events over and over, "
        "each time as of now: with old times they would be late, and dropped. Needed with "
        "`longest_window_s`; of a generator it is known.",
    )
    event_time_unit: TimeUnit = Field("ms", description="What `event_time` counts; `iso` is a text.")


class JobProfiling(Section):
    """How it is profiled and drilled."""

    strategy: Strategy = Field("adaptive", description="How the capacity is searched.")
    profile_scale_outs: tuple[Annotated[int, Field(ge=1)], ...] = Field(
        (), description="Scale-outs to profile. Default: chosen between the bounds."
    )
    profile_budget_executor_s: float = Field(
        7200.0,
        gt=0,
        description="Executor-seconds one profile may cost, and one round of drills on a copy.",
    )
    profile_guess_rps: float | None = Field(
        None,
        gt=0,
        description="About what one executor carries, if you know: saves the run that finds where to begin.",
    )
    profile_most_probes: int = Field(
        MOST_PROBES,
        ge=1,
        description="`adaptive`: probes of one scale-out at most. One finds about what it sustains, more "
        "narrow it down.",
    )
    profile_first_rps: float = Field(1000.0, gt=0, description="`stepped`: the first rate.")
    profile_step_rps: float = Field(1000.0, gt=0, description="`stepped`: the increment.")
    profile_parallel: int = Field(1, ge=1, description="Profiling copies at the same time.")
    probe_s: float = Field(60.0, ge=10, description="Length of the measured stretch of one probe.")
    warm_up_s: float = Field(30.0, ge=0, description="Shortest warm-up; it lasts until the copy is steady.")
    profiling_side_effects: SideEffects = Field(
        "checked",
        description="`checked`: a profiling copy whose sink cannot be judged is refused. `none`: you declare "
        "that such a sink has no effect outside the copy's scratch topics; what can be judged still is.",
    )
    allow_live_drills: bool = Field(
        False,
        description="Whether failures may be injected into the live job, outside every blackout. "
        "`broker_restart` hits every job that runs, also where it is drilled on a copy: all must allow it.",
    )


JOB_GROUPS = (
    JobProgram,
    JobTopics,
    JobBatches,
    JobPromise,
    JobSize,
    JobCalendar,
    JobEvents,
    JobProfiling,
)


LIVE_GROUPS = (JobPromise, JobSize, JobCalendar, JobEvents, JobProfiling)
"""What a running `headroom serve` takes over when the file is edited."""
LIVE_KEYS = frozenset(key for group in LIVE_GROUPS for key in group.model_fields) - {"evaluation_interval_s"}


class JobSettings(
    JobProgram, JobTopics, JobBatches, JobPromise, JobSize, JobCalendar, JobEvents, JobProfiling
):
    """One streaming job: how it is run, what it promises, and how far Headroom may go."""


class Settings(Section):
    """The whole of headroom.toml."""

    deployment: DeploymentSettings = Field(default_factory=DeploymentSettings)
    brokers: BrokerSettings = Field(default_factory=BrokerSettings)
    spark: SparkSettings = Field(default_factory=SparkSettings)
    mlflow: MlflowSettings = Field(default_factory=MlflowSettings)
    jobs: Mapping[str, JobSettings] = Field(default_factory=dict)
