"""What can be set, what is accepted, and what does each setting mean?

Every section of headroom.toml is one frozen dataclass; every key is one field, declared with its default, its
bounds and the sentence that docs/configuration.md shows. pipelines/config.py reads the file into them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from models.probing.settings import MOST_PROBES
from models.quantities import FAILURE_KINDS

from .declaring import key

Mode = Literal["observe", "recommend", "apply"]
Strategy = Literal["adaptive", "stepped"]
Rescale = Literal["live", "restart"]
DeploymentKind = Literal["simulated", "local"]
SideEffects = Literal["checked", "none"]
TimeUnit = Literal["s", "ms", "us", "iso"]


@dataclass(frozen=True)
class DeploymentSettings:
    """Where the jobs run."""

    kind: DeploymentKind = key(
        "local",
        choices=get_args(DeploymentKind),
        refused={"kubernetes": "cannot be done yet: use 'local', real Spark on this machine, or 'simulated'"},
        help="`local`: real Spark and Kafka processes on this machine. `simulated`: no JVM, no network.",
    )


@dataclass(frozen=True)
class BrokerSettings:
    """Which Kafka to use. Without `bootstrap` one is started here, on loopback, data under `.headroom/`."""

    bootstrap: str | None = key(None, help="`host:port[,host:port]` of your brokers.")
    security_protocol: str = key(
        "PLAINTEXT",
        choices=("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
        help="How to talk to your brokers.",
    )
    sasl_mechanism: str | None = key(
        None, choices=("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"), help="With a SASL protocol."
    )
    username_from: str | None = key(
        None, secret_from=True, help="Name of the environment variable that holds the user name."
    )
    password_from: str | None = key(
        None, secret_from=True, help="Name of the environment variable that holds the password."
    )
    ssl_cafile: str | None = key(
        None, help="PEM file of the authority that signed the brokers' certificates."
    )
    ssl_certfile: str | None = key(
        None,
        help="PEM file with your own certificate and its unencrypted PKCS#8 key, where brokers ask for one.",
    )


@dataclass(frozen=True)
class SparkSettings:
    """The Spark that runs the jobs and their profiling copies."""

    slots: int = key(
        8, at_least=1, help="Executors the local worker offers in all; may exceed the machine's processors."
    )
    executor_memory_mb: int = key(512, at_least=480, help="Heap of one executor.")
    driver_memory_mb: int = key(512, at_least=480, help="Heap of one driver.")
    network_timeout_s: int = key(
        20,
        at_least=5,
        help="After how long a silent executor is given up. Spark's own default, 120, alone breaks most "
        "promises: nothing else notices a frozen executor.",
    )
    heartbeat_s: int = key(4, at_least=1, help="How often executors report. Well below `network_timeout_s`.")
    scale_timeout_s: float = key(
        120.0, above=0, help="How long executors may take to register before a rescale has failed."
    )
    jars_ivy_settings: str | None = key(None, help="An `ivysettings.xml` of your own, for a mirror.")
    conf: Mapping[str, str] = key({}, help="Further Spark configuration of every job.")


@dataclass(frozen=True)
class MlflowSettings:
    """Where the models are registered. Without `tracking_uri` in SQLite under `.headroom/`."""

    tracking_uri: str | None = key(
        None,
        help="Your MLflow server, `http://host:5000`. Secrets stay in the environment: MLflow reads "
        "`MLFLOW_TRACKING_USERNAME`, `MLFLOW_TRACKING_PASSWORD` or `MLFLOW_TRACKING_TOKEN`.",
    )
    experiment: str = key(
        "headroom", help="Every job has an experiment of its own, named by this and the job: `headroom/NAME`."
    )


@dataclass(frozen=True)
class JobSettings:
    """One streaming job: how it is run, what it promises, and how far Headroom may go."""

    # how to run it
    script: str | None = key(None, help="Path of a PySpark script. This or `build`, unless `attach` is set.")
    args: tuple[str, ...] = key(
        (),
        help="Arguments of the script. `{input_topic}`, `{output_topic}`, `{checkpoint}`, `{brokers}` are "
        "filled in; with several topics `{input:NAME}` and `{output:NAME}`.",
    )
    build: str | None = key(
        None,
        help='`"package.module:function"`, called as `build(spark, topics)`, returns a `DataStreamWriter`. '
        "Of our benchmark jobs, `profiling_jobs.jobs.NAME:build`, windows, batches and partitions are known.",
    )
    attach: bool = key(
        False,
        help="The job is run by somebody else: it is watched through the brokers and its checkpoint, sized "
        "by advice only, and never touched. With `script` or `build` beside it, copies of it can be profiled "
        "and drilled.",
    )
    executors: int | None = key(
        None,
        at_least=1,
        help="With `attach`: how many executors its owner has given it, which nobody else can see; without "
        "it nothing is decided. After a change of theirs edit it, and start `headroom serve` anew.",
    )
    inputs: Mapping[str, str] = key(
        help='The input topics: the job\'s name for each -> topic, `{events = "orders"}`.'
    )
    outputs: Mapping[str, str] = key(
        {},
        help="The output topics, the same way; `files:/FOLDER` is a folder with one part per batch, which is "
        "replaced when the batch is run again: exactly once. Empty for another kind of sink.",
    )
    checkpoint: str | None = key(
        None,
        help="Where the query keeps its checkpoint. Default: `.headroom/checkpoints/NAME`. With `attach` it "
        "is needed, as a folder that can be read from here.",
    )
    consumer_group: str | None = key(
        None,
        help="With `attach`: a consumer group to which the job itself commits what it has finished. It is "
        "only read, and tells how far the job is where its checkpoint cannot be read: on an object store.",
    )
    profiling_side_effects: SideEffects = key(
        "checked",
        choices=get_args(SideEffects),
        help="`checked`: a profiling copy whose sink cannot be judged is refused. `none`: you declare that "
        "such a sink has no effect outside the copy's scratch topics; what can be judged still is.",
    )
    trigger_s: float = key(
        0.0, at_least=0, help="Trigger interval; 0: the next batch starts as the last one ends."
    )
    max_offsets_per_trigger: int | None = key(
        None,
        at_least=1,
        help="Largest batch. Without one, the first batch after a failure is one giant batch.",
    )
    state_partitions: int | None = key(
        None, at_least=1, help="`spark.sql.shuffle.partitions` of a new checkpoint; an old one keeps its own."
    )
    topic_partitions: int = key(
        12,
        at_least=1,
        help="Partitions of its topics that Headroom makes; a topic that is there keeps its own. The default "
        "is divisible by 1, 2, 3, 4, 6 and 12, so that as many task slots share the work evenly.",
    )
    conf: Mapping[str, str] = key({}, help="Further Spark configuration of this job.")

    # what it promises
    recovery_target_s: float = key(
        180.0, above=0, help="After a failure the job has caught up with its input within this time."
    )
    confidence: float = key(0.95, above=0, at_most=0.9999, help="With this probability, whenever it fails.")
    failure_kinds: tuple[str, ...] = key(
        ("executor_kill", "driver_kill"), choices=FAILURE_KINDS, help="The failures the promise covers."
    )
    max_lag_s: float | None = key(
        None,
        above=0,
        help="Lag, in seconds of input, beyond which the job is behind. Default: half the target.",
    )
    latency_bound_ms: float | None = key(
        None, above=0, help="Largest 95th percentile of latency at the load to come. Default: none."
    )

    # how far Headroom may go
    mode: Mode = key(
        "recommend",
        choices=get_args(Mode),
        help="`observe`: only watch. `recommend`: decide and show. `apply`: decide and do.",
    )
    scale_out_min: int = key(1, at_least=1, help="Never fewer executors.")
    # judgement: every size up to this one is looked at in every tick
    scale_out_max: int = key(8, at_least=1, at_most=1000, help="Never more executors.")
    scale_out: int = key(1, at_least=1, help="Executors to begin with.")
    step_out: int | None = key(
        None, at_least=1, help="Largest number of executors added at once. Default: no limit."
    )
    step_in: int | None = key(
        None, at_least=1, help="Largest number of executors removed at once. Default: no limit."
    )
    rescale: Rescale = key(
        "live",
        choices=get_args(Rescale),
        help="How the size is changed. `live`: executors come and go under the running query. `restart`: the "
        "query is stopped between two batches and started anew from its checkpoint.",
    )
    evaluation_interval_s: float = key(60.0, at_least=10, help="How often it is decided.")
    scale_in_window_s: float = key(
        600.0,
        at_least=0,
        help="Executors are removed only down to the most that was needed within this window.",
    )
    blackouts: tuple[str, ...] = key(
        (),
        help="Windows in which nothing changes, neither a profile nor a live drill begins, and what of "
        "copies is under way ends: `Mon-Fri 08:00-18:00`, `daily 22:00-02:00`, `2026-11-27 00:00-24:00`. "
        "With `no-scale-in` behind it the job may still grow.",
    )
    time_zone: str = key("UTC", help="By whose clock blackouts and schedules are meant, `Europe/Berlin`.")

    # profiling
    strategy: Strategy = key("adaptive", choices=get_args(Strategy), help="How the capacity is searched.")
    profile_scale_outs: tuple[int, ...] = key(
        (), at_least=1, help="Scale-outs to profile. Default: chosen between the bounds."
    )
    profile_budget_executor_s: float = key(
        7200.0, above=0, help="Executor-seconds one profile may cost, and one round of drills on a copy."
    )
    profile_guess_rps: float | None = key(
        None,
        above=0,
        help="About what one executor carries, if you know: saves the run that finds where to begin.",
    )
    profile_most_probes: int = key(
        MOST_PROBES,
        at_least=1,
        help="`adaptive`: probes of one scale-out at most. One finds about what it sustains, more narrow it "
        "down.",
    )
    profile_first_rps: float = key(1000.0, above=0, help="`stepped`: the first rate.")
    profile_step_rps: float = key(1000.0, above=0, help="`stepped`: the increment.")
    profile_parallel: int = key(1, at_least=1, help="Profiling copies at the same time.")
    probe_s: float = key(60.0, at_least=10, help="Length of the measured stretch of one probe.")
    warm_up_s: float = key(30.0, at_least=0, help="Shortest warm-up; it lasts until the copy is steady.")
    longest_window_s: float = key(
        0.0, at_least=0, help="Longest window or state TTL of the job: the warm-up lasts at least that long."
    )
    events: str | None = key(
        None,
        help="Where profiling takes its events: a Parquet path, from the folder of this file, or "
        "`generator:NAME`. Default: a recording of the input topics.",
    )
    event_time: str | None = key(
        None,
        help="The field of the events that holds their time, `payload.created_at`; or a function of yours, "
        "`package.module:function`, that gets the values and by how many milliseconds to move each. A copy "
        "is sent its events over and over, each time as of now: with old times they would be late, and "
        "dropped. Of a generator it is known.",
    )
    event_time_unit: TimeUnit = key(
        "ms", choices=get_args(TimeUnit), help="What `event_time` counts; `iso` is a text."
    )
    profile_cron: str | None = key(
        None,
        help="When the job is profiled again, `0 3 * * Sun`. Default: only when its models have drifted.",
    )
    drill_cron: str | None = key(
        None, help="When the job's failures are drilled, `0 4 * * Sat`; on a copy. Default: only by hand."
    )
    allow_live_drills: bool = key(
        False,
        help="Whether failures may be injected into the live job, outside every blackout. "
        "`broker_restart` hits every job that runs, also where it is drilled on a copy: all must allow it.",
    )

    @property
    def copyable(self) -> bool:
        """Is its program at hand, so that copies of it can be run?"""
        return self.script is not None or self.build is not None


@dataclass(frozen=True)
class Settings:
    """The whole of headroom.toml."""

    deployment: DeploymentSettings
    brokers: BrokerSettings
    spark: SparkSettings
    jobs: Mapping[str, JobSettings]
    mlflow: MlflowSettings = MlflowSettings()
