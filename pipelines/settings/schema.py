"""The settings in headroom.toml: one frozen pydantic model per section.

docs/configuration.md shows the docstrings of the fields; pipelines/settings/loading.py reads the file.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, PlainSerializer

from models.probing.state import MOST_PROBES
from models.quantities import FailureKind

Mode = Literal["observe", "recommend", "apply"]
Strategy = Literal["adaptive", "stepped"]
Rescale = Literal["live", "restart"]
DeploymentKind = Literal["simulated", "local", "kubernetes"]
SideEffects = Literal["checked", "none"]
TimeUnit = Literal["s", "ms", "us", "iso"]
NotifyEvent = Literal["alarm", "change", "promise", "drill", "loop"]

Text = Annotated[str, Field(min_length=1)]
Table = Annotated[
    Mapping[str, str],
    AfterValidator(lambda table: MappingProxyType(dict(table))),
    PlainSerializer(dict, return_type=dict[str, str]),
]
Name = Annotated[str, Field(pattern=r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$")]
"""The name of a Kubernetes object."""
Quantity = Annotated[str, Field(pattern=r"^[0-9]+(\.[0-9]+)?m?$")]
"""Processors, as Kubernetes counts them: `2` or `500m`."""
VariableName = Annotated[
    str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_.-]*$", json_schema_extra={"secret": True})
]
"""The name of an environment variable that holds a secret, never the secret itself."""


def _empty() -> Mapping[str, str]:
    return MappingProxyType({})


class Section(BaseModel):
    """One table of the file."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, allow_inf_nan=False, use_attribute_docstrings=True
    )


class DeploymentSettings(Section):
    """Where the jobs run."""

    kind: DeploymentKind = "local"
    """`local`: real Spark and Kafka processes on this machine. `kubernetes`: pods of a cluster, see
    `[kubernetes]`. `simulated`: no JVM, no network.
    """


class BrokerSettings(Section):
    """Which Kafka to use. Without `bootstrap` one is started here, on loopback, data under `.headroom/`."""

    bootstrap: Text | None = None
    """`host:port[,host:port]` of your brokers."""
    security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = "PLAINTEXT"
    """How to talk to your brokers."""
    sasl_mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] | None = None
    """With a SASL protocol."""
    username_from: VariableName | None = None
    """Name of the environment variable that holds the user name."""
    password_from: VariableName | None = None
    """Name of the environment variable that holds the password."""
    ssl_cafile: Text | None = None
    """PEM file of the authority that signed the brokers' certificates."""
    ssl_certfile: Text | None = None
    """PEM file with your own certificate and its unencrypted PKCS#8 key, where brokers ask for one."""


class SparkSettings(Section):
    """The Spark that runs the jobs and their profiling copies."""

    slots: int = Field(8, ge=1)
    """Executors the local worker offers in all; may exceed the machine's processors."""
    executor_memory_mb: int = Field(512, ge=480)
    """Heap of one executor."""
    driver_memory_mb: int = Field(512, ge=480)
    """Heap of one driver."""
    network_timeout_s: int = Field(20, ge=5)
    """A silent executor is given up after this time. Spark's own default, 120, alone breaks most promises:
    nothing else notices a frozen executor.
    """
    heartbeat_s: int = Field(4, ge=1)
    """How often executors report. At most half of `network_timeout_s`."""
    scale_timeout_s: float = Field(120.0, gt=0)
    """A rescale has failed when executors take longer than this to register."""
    jars_ivy_settings: Text | None = None
    """An `ivysettings.xml` of your own, for a mirror."""
    conf: Table = Field(default_factory=_empty)
    """Further Spark configuration of every job."""


class KubernetesSettings(Section):
    """The cluster that runs the jobs and their copies, with `[deployment] kind = "kubernetes"`."""

    context: Text | None = None
    """The context of your kubeconfig. It is never guessed. Not needed in a pod: there the token of its
    ServiceAccount is used.
    """
    own_namespace: Name = "headroom"
    """The namespace of Headroom itself, where its Lease is kept."""
    namespace: Name = "headroom-jobs"
    """The namespace of live jobs."""
    copies_namespace: Name = "headroom-copies"
    """The namespace of profiling copies, recordings and replays."""
    image: Text = "headroom-job:latest"
    """The image of drivers, executors and replays (deploy/job)."""
    image_pull_policy: Literal["Always", "IfNotPresent", "Never"] = "IfNotPresent"
    """When the image is pulled."""
    image_pull_secrets: tuple[Name, ...] = ()
    """Secrets for pulling the image."""
    claim: Name = "headroom-data"
    """The PersistentVolumeClaim that holds Headroom's folder, under this name in every namespace. Headroom
    sees the whole of it; each pod only its own checkpoint, recordings and files.
    """
    driver_account: Name = "headroom-driver"
    """The ServiceAccount of drivers."""
    executor_account: Name = "headroom-executor"
    """The ServiceAccount of executors and replays; it gets no token."""
    user_id: int = Field(10001, ge=0)
    """The Unix user of every pod. 0 is root: for test clusters only."""
    node_selector: Table = Field(default_factory=_empty)
    """Labels of the nodes that may run pods."""
    drill_node_selector: Table = Field(default_factory=_empty)
    """Labels of a pool of nodes for drills of `node_loss`, which are refused without it: all executors on one
    of these nodes fall silent at once. Copies run on these nodes only, which should be like those of the live
    jobs.
    """
    tolerations: tuple[Text, ...] = ()
    """Taints that pods tolerate: `key=value:NoSchedule` or `key:NoExecute`."""
    labels: Table = Field(default_factory=_empty)
    """Further labels of every pod."""
    annotations: Table = Field(default_factory=_empty)
    """Further annotations of every pod."""
    driver_cpu: Quantity = "500m"
    """Processors that a driver asks for."""
    executor_cpu: Quantity = "500m"
    """Processors that an executor asks for; one slot each."""
    overhead_mb: int = Field(512, ge=64)
    """Memory of a driver or executor pod beside its heap: Python workers above all."""
    environment_from: Text | None = None
    """A Secret whose keys become environment variables of drivers and executors: passwords of brokers, keys
    of an object store.
    """
    pending_s: float = Field(180.0, gt=0)
    """What waits for a pod fails if the pod cannot be placed within this time."""
    prometheus_url: Annotated[str, Field(pattern=r"^https?://[^\s/@]+(/\S*)?$")] | None = None
    """A Prometheus server that collects the metrics of kubelets, `http://prometheus.monitoring:9090`. It
    tells how many processors executors use. Without it the share of time that their slots are busy is used
    instead.
    """


class StoreSettings(Section):
    """Where evaluations and measurements are kept. Without `url_from` in SQLite under `.headroom/`."""

    url_from: VariableName | None = None
    """Name of the environment variable that holds the URL of a Postgres database,
    `postgresql://USER:PASSWORD@HOST:5432/DATABASE`. What libpq understands may follow:
    `?sslmode=verify-full&sslrootcert=/FILE`.
    """
    schema_name: Annotated[str, Field(pattern=r"^[a-z_][a-z0-9_]{0,62}$")] = "headroom"
    """The schema in that database, made where it is missing. Each installation of Headroom needs one of its
    own.
    """


class MlflowSettings(Section):
    """Where the models are registered. Without `tracking_uri` in SQLite under `.headroom/`."""

    tracking_uri: Text | None = None
    """Your MLflow server, `http://host:5000`. Secrets stay in the environment: MLflow reads
    `MLFLOW_TRACKING_USERNAME`, `MLFLOW_TRACKING_PASSWORD` or `MLFLOW_TRACKING_TOKEN`.
    """
    experiment: Text = "headroom"
    """Every job has an experiment of its own, named by this and the job: `headroom/NAME`."""


class WebSettings(Section):
    """The one web address of `headroom serve`, on 127.0.0.1, with Dagster's and MLflow's pages behind it."""

    port: int | None = Field(None, ge=1, le=65535)
    """Its port. Default: one that is free, another at each start."""
    hosts: tuple[Text, ...] = ()
    """Further names that browsers reach it by, `headroom.example.com` or `localhost:8080`, as their address
    bar shows them. Requests for other names than these, `127.0.0.1:PORT` and `localhost:PORT` are refused.
    """
    token_from: VariableName | None = None
    """Name of the environment variable that holds the token, for a proxy that sends it as `Authorization:
    Bearer`. Default: a new one at each start, which `headroom open` knows.
    """
    metrics_token_from: VariableName | None = None
    """Name of the environment variable that holds the token of `/metrics`, for Prometheus. Default: the one
    in `.headroom/metrics.token`, which is made at the first start and kept.
    """
    metrics_port: int | None = Field(None, ge=1, le=65535)
    """A further port for `/metrics` alone, on every address of the machine or pod, for a Prometheus that runs
    elsewhere. Default: none, it is read at the port of the pages.
    """


class NotifySettings(Section):
    """Who is told what happens: by a webhook, e-mail, or a command of yours. See [notify.md](notify.md)."""

    events: tuple[NotifyEvent, ...] = ("alarm", "change", "promise", "drill", "loop")
    """What is told. `alarm`: a problem that a person has to look at. `change`: the size is changed, by
    Headroom or by others. `promise`: a failure was not recovered from in time. `drill`: one failed. `loop`:
    nothing is evaluated any more, and when it goes on.
    """
    url_from: VariableName | None = None
    """Name of the environment variable that holds the address of a webhook; each message is posted to it."""
    form: Literal["json", "slack"] = "json"
    """What is posted: all that is known as JSON, or the text as Slack's incoming webhooks take it."""
    email_to: tuple[Text, ...] = ()
    """Addresses that get an e-mail."""
    email_sender: Text | None = None
    """The address that e-mails come from."""
    smtp: Text | None = None
    """`host:port` of the server that takes the e-mails, `mail.example.com:587`."""
    smtp_security: Literal["starttls", "tls", "none"] = "starttls"
    """How the connection to it is encrypted. With `none` a password is sent to this machine only."""
    username_from: VariableName | None = None
    """Name of the environment variable that holds the user name for `smtp`. Default: no login."""
    password_from: VariableName | None = None
    """Name of the environment variable that holds the password for `smtp`."""
    command: tuple[Text, ...] = ()
    """A program with its arguments, `["/usr/local/bin/page", "--team", "data"]`. It gets the message as JSON
    on its standard input, and has failed if it ends with another code than 0.
    """
    heartbeat_url_from: VariableName | None = None
    """Name of the environment variable that holds the address of a dead man's switch. It is asked for (GET)
    each time that every job was evaluated again.
    """
    # judgement: an alarm is raised every half hour, and two or three messages a shift are enough
    repeat_after_s: float = Field(14_400.0, ge=0)
    """The same alarm is only counted within this time, and the next message tells the count."""
    # judgement: more are not read, and one cause may raise an alarm of every job
    most_per_hour: int = Field(60, ge=1)
    """Messages beyond this are counted, and the next message tells the count."""
    timeout_s: float = Field(20.0, gt=0, le=120)
    """An attempt to send that takes longer has failed. It is repeated for a quarter of an hour."""


class RetentionSettings(Section):
    """How long what is not needed any more is kept, and [how much disk all of it takes](disk.md)."""

    days: int = Field(30, ge=1)
    """Evaluations, live measurements, recordings, runs on Dagster's pages, and logs of what has ended."""
    # measured: a month of points of ten jobs would be 5 GB, and `headroom history` has the evaluations
    point_days: int = Field(7, ge=1)
    """Points on the timelines of Dagster's pages: two or three for each evaluation."""
    runs: int = Field(2000, ge=100)
    """Most runs on Dagster's pages; the oldest go before their time."""
    model_versions: int = Field(50, ge=2)
    """Versions of each model that MLflow under `.headroom/` keeps beside those in charge. An MLflow server
    of yours is left alone.
    """


class JobProgram(Section):
    """The program, and who runs it."""

    script: Text | None = None
    """Path of a PySpark script. This or `build`, unless `attach` or `spark_application` is set."""
    args: tuple[Text, ...] = ()
    """Arguments of the script. `{input_topic}`, `{output_topic}`, `{checkpoint}`, `{brokers}` are filled in;
    with several topics `{input:NAME}` and `{output:NAME}`.
    """
    build: Text | None = None
    """`"package.module:function"`, called as `build(spark, topics)`, returns a `DataStreamWriter`. Of our
    benchmark jobs, `profiling_jobs.jobs.NAME:build`, windows, batches and partitions are known.
    """
    attach: bool = False
    """The job is run elsewhere: it is watched through the brokers and its checkpoint, gets recommendations
    only, and is never changed. With `script` or `build` beside it, copies of it can be profiled and drilled.
    """
    spark_application: Name | None = None
    """The job is run by the Spark operator: the name of its `SparkApplication`
    (`sparkoperator.k8s.io/v1beta2`) in `kubernetes.namespace`. Goes with `[deployment] kind = "kubernetes"`.
    It is not started or stopped here; a change of its size sets `spec.executor.instances`, and the operator
    restarts it from its checkpoint. With `script` or `build` beside it, copies of it can be profiled and
    drilled.
    """
    executors: int | None = Field(None, ge=1)
    """With `attach`: how many executors the job has now, which cannot be seen from here; without it nothing
    is decided. After a change edit it and restart `headroom serve`.
    """

    @property
    def copyable(self) -> bool:
        """Whether its program is here, so that copies of it can be run."""
        return self.script is not None or self.build is not None

    @property
    def elsewhere(self) -> bool:
        """Whether another system starts and stops it."""
        return self.attach or self.spark_application is not None


class JobTopics(Section):
    """What it reads and writes."""

    inputs: Table
    """The input topics: the job's name for each -> topic, `{events = "orders"}`."""
    outputs: Table = Field(default_factory=_empty)
    """The output topics, the same way; `files:/FOLDER` is a folder with one part per batch, which is replaced
    when the batch is run again: exactly once. Empty for another kind of sink.
    """
    checkpoint: Text | None = None
    """Where the query keeps its checkpoint. Default: `.headroom/checkpoints/NAME`. With `attach` or
    `spark_application` it is needed, as a folder that can be read from here.
    """
    consumer_group: Text | None = None
    """With `attach` or `spark_application`: a consumer group to which the job itself commits what it has
    finished. It is only read, and gives the position of the job where its checkpoint cannot be read, on an
    object store.
    """


class JobBatches(Section):
    """Its batches and its Spark configuration."""

    trigger_s: float = Field(0.0, ge=0)
    """Trigger interval; 0: the next batch starts as the last one ends."""
    max_offsets_per_trigger: int | None = Field(None, ge=1)
    """Most records per batch, of each input: what the script sets as `maxOffsetsPerTrigger`. A copy that
    reads with another limit is refused. Without it, the first batch after a failure takes all the lag.
    """
    state_partitions: int | None = Field(None, ge=1)
    """`spark.sql.shuffle.partitions` of a new checkpoint; an old one keeps its own."""
    topic_partitions: int = Field(12, ge=1)
    """Partitions of its topics that Headroom makes; a topic that is there keeps its own. The default is
    divisible by 1, 2, 3, 4, 6 and 12, so that as many task slots share the work evenly.
    """
    longest_window_s: float = Field(0.0, ge=0)
    """Longest window or state TTL of the job: a warm-up lasts at least that long."""
    conf: Table = Field(default_factory=_empty)
    """Further Spark configuration of this job."""

    @property
    def limit_records(self) -> float:
        """Largest batch; inf without a limit."""
        return math.inf if self.max_offsets_per_trigger is None else float(self.max_offsets_per_trigger)


class JobPromise(Section):
    """The promise."""

    recovery_target_s: float = Field(180.0, gt=0)
    """After a failure the job has caught up with its input within this time."""
    confidence: float = Field(0.95, gt=0, le=0.9999)
    """The probability of that, whenever the job fails."""
    failure_kinds: tuple[FailureKind, ...] = ("executor_kill", "driver_kill")
    """The failures that the promise covers. Drills cause, on one machine: kills, freezes, and
    `broker_restart` of the embedded Kafka; on Kubernetes: all but `broker_restart` and `straggler`.
    """
    max_lag_s: float | None = Field(None, gt=0)
    """Lag, in seconds of input, beyond which the job is behind. Default: half the target."""
    latency_bound_ms: float | None = Field(None, gt=0)
    """Largest 95th percentile of latency at the forecast load. Default: none."""


class JobSize(Section):
    """How far Headroom may go."""

    mode: Mode = "recommend"
    """`observe`: only watch. `recommend`: decide and show. `apply`: decide and rescale."""
    scale_out_min: int = Field(1, ge=1)
    """Never fewer executors."""
    # judgement: every size up to this one is looked at in every tick
    scale_out_max: int = Field(8, ge=1, le=1000)
    """Never more executors."""
    scale_out: int = Field(1, ge=1)
    """Executors to begin with."""
    step_out: int | None = Field(None, ge=1)
    """Most executors added at once; the next aligned size is always allowed. Default: no limit."""
    step_in: int | None = Field(None, ge=1)
    """Most executors removed at once; the next aligned size is always allowed. Default: no limit."""
    rescale: Rescale = "live"
    """How the size is changed. `live`: executors come and go under the running query. `restart`: the query is
    stopped between two batches and restarted from its checkpoint. A `spark_application` is always restarted,
    by its operator.
    """
    evaluation_interval_s: float = Field(60.0, ge=10)
    """Time between two decisions; needs `headroom serve` restarted."""
    scale_in_window_s: float = Field(600.0, ge=0)
    """Executors are removed only down to the most that was needed within this window."""


class JobCalendar(Section):
    """Blackouts and schedules."""

    time_zone: Text = "UTC"
    """The time zone of blackouts and schedules, `Europe/Berlin`."""
    blackouts: tuple[Text, ...] = ()
    """Windows in which the size is not changed, neither a profile nor a live drill begins, and copies that
    run are stopped: `Mon-Fri 08:00-18:00`, `daily 22:00-02:00`, `2026-11-27 00:00-24:00`. With `no-scale-in`
    after the window the job may still grow.
    """
    profile_cron: Text | None = None
    """When the job is profiled again, `0 3 * * Sun`. Default: only when its models have drifted."""
    drill_cron: Text | None = None
    """When failures are drilled on a copy, `0 4 * * Sat`. Default: only by `headroom drill`."""


class JobEvents(Section):
    """The events that profiling sends."""

    events: Text | None = None
    """Where profiling takes its events: a Parquet path, from the folder of this file, or `generator:NAME`.
    Default: a recording of the input topics.
    """
    event_time: Text | None = None
    """The field of the events that holds their time, `payload.created_at`; or a function of yours,
    `package.module:function`, that gets the values and by how many milliseconds to move each.
    `kafka-timestamp`: windows are on Kafka's own timestamp. A copy gets the same events again and again, with
    their times moved to now: with old times they would be late, and dropped. Needed with `longest_window_s`,
    except for a generator.
    """
    event_time_unit: TimeUnit = "ms"
    """What `event_time` counts; `iso` is a text."""


class JobProfiling(Section):
    """How it is profiled and drilled."""

    strategy: Strategy = "adaptive"
    """How the capacity is searched. `adaptive`: each probe is the one that shows most for its cost.
    `stepped`: every scale-out at the same rate, then at the next higher one.
    """
    profile_scale_outs: tuple[Annotated[int, Field(ge=1)], ...] = ()
    """Scale-outs to profile. Default: chosen between the bounds."""
    profile_budget_executor_s: float = Field(7200.0, gt=0)
    """Executor-seconds one profile may cost, and one round of drills on a copy."""
    profile_guess_rps: float | None = Field(None, gt=0)
    """Rough capacity of one executor, if you know it: saves the probe that looks for it."""
    profile_most_probes: int = Field(MOST_PROBES, ge=1)
    """`adaptive`: most probes of one scale-out. The first finds its rough capacity, others narrow it down."""
    # Simulated with 3 % of noise: off by 1.7 % on average, as with two probes of every size, and one size in
    # twenty by 6 % instead of 4 %.
    profile_precision: float = Field(0.1, gt=0, le=1)
    """`adaptive`: how narrow the 90 % interval of a capacity has to be, as upper end / lower end − 1. A
    scale-out whose capacity is known this well is not probed again.
    """
    profile_first_rps: float = Field(1000.0, gt=0)
    """`stepped`: the first rate."""
    profile_step_rps: float = Field(1000.0, gt=0)
    """`stepped`: the increment."""
    profile_parallel: int = Field(1, ge=1)
    """Profiling copies at the same time."""
    # docs/measurements.md: what probes of 40 s find is sustained at 95 % and not at 120 %
    probe_s: float = Field(40.0, ge=10)
    """Length of the measured stretch of one probe."""
    warm_up_s: float = Field(20.0, ge=0)
    """Shortest warm-up of a new copy; it lasts until the copy is steady. One that is rescaled under its
    running query only has to be steady.
    """
    profiling_side_effects: SideEffects = "checked"
    """`checked`: a profiling copy whose sink cannot be judged is refused. `none`: you declare that such a
    sink has no effect outside the copy's scratch topics; what can be judged still is.
    """
    allow_live_drills: bool = False
    """Whether failures may be injected into the live job, outside every blackout. `broker_restart` hits every
    job that runs, also where it is drilled on a copy: all must allow it.
    """


JOB_GROUPS = (JobProgram, JobTopics, JobBatches, JobPromise, JobSize, JobCalendar, JobEvents, JobProfiling)


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
    kubernetes: KubernetesSettings = Field(default_factory=KubernetesSettings)
    store: StoreSettings = Field(default_factory=StoreSettings)
    mlflow: MlflowSettings = Field(default_factory=MlflowSettings)
    web: WebSettings = Field(default_factory=WebSettings)
    notify: NotifySettings = Field(default_factory=NotifySettings)
    retention: RetentionSettings = Field(default_factory=RetentionSettings)
    jobs: Mapping[str, JobSettings] = Field(default_factory=dict)
