"""Checks across the keys of headroom.toml: each yields the path of a key and what is wrong with it."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping

from profiling_jobs.plans import COPY, FILES, folder_of

from . import time_windows
from .schema import (
    BrokerSettings,
    DeploymentKind,
    JobSettings,
    NotifySettings,
    SparkSettings,
    WebSettings,
)

FILL_IN = "FILL-IN"
"""Begins what `headroom init` writes in place of what the script does not spell out."""
TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
"""What Kafka takes for the name of a topic."""

Problems = Iterator[tuple[str, str]]


def of_web(web: WebSettings) -> Problems:
    """Mistakes of [web]."""
    if web.port is not None and web.port == web.metrics_port:
        yield "web.metrics_port", "is the port of the pages: choose another one, or leave it out"


def of_names(names: Collection[str]) -> Problems:
    """Mistakes in the names of all jobs together."""
    for name in names:
        if (copy := COPY.fullmatch(name)) and copy["job"] in names:
            yield f"job.{name}", f"is a name that copies of job.{copy['job']} get: choose another one"


def of_labels(names: Collection[str], kind: DeploymentKind) -> Problems:
    """Names that a cluster refuses: there a job's name is the value of labels."""
    for name in names:
        if kind == "kubernetes" and name.endswith("-"):
            yield f"job.{name}", "ends with a hyphen, which no label of Kubernetes may: choose another name"


def of_applications(jobs: Mapping[str, JobSettings], kind: DeploymentKind) -> Problems:
    """Mistakes of all jobs of the Spark operator together."""
    taken: dict[str, str] = {}
    for name, job in jobs.items():
        path = f"job.{name}.spark_application"
        if job.spark_application is None:
            continue
        if kind != "kubernetes":
            yield path, f'goes with [deployment] kind = "kubernetes", which is "{kind}"'
        if (other := taken.setdefault(job.spark_application, name)) != name:
            yield path, f"is {job.spark_application}, as of job.{other}: a SparkApplication is one job"


def of_job(job: JobSettings, path: str) -> Problems:
    """Mistakes of one [job.NAME]."""
    yield from _not_filled_in(job, path)
    yield from _brought(job, path)
    yield from _topics(job, path)
    yield from _size(job, path)
    if job.copyable and job.longest_window_s > 0 and job.event_time is None and not _generated(job):
        yield (
            f"{path}.event_time",
            "is not set, and the job has windows (longest_window_s): events replayed with their old times "
            'would be dropped as late. Name the field that holds their time, or write "kafka-timestamp" if '
            "the windows are on Kafka's own timestamp",
        )
    if not job.failure_kinds:
        yield f"{path}.failure_kinds", "is empty: a promise covers at least one kind of failure"
    for key, problem in time_windows.mistakes(job).items():
        yield f"{path}.{key}", problem


def _not_filled_in(job: JobSettings, path: str) -> Problems:
    for key, does, topics in (("inputs", "reads", job.inputs), ("outputs", "writes", job.outputs)):
        for own, topic in topics.items():
            if topic.startswith(FILL_IN):
                yield f"{path}.{key}.{own}", f"is not filled in: name the topic that the job {does}"
    if FILL_IN in job.args:
        yield f"{path}.args", f"has {FILL_IN} in it: write what the script is to be given there"


def _brought(job: JobSettings, path: str) -> Problems:
    """The program, and what goes with a job that another system runs."""
    if job.script is not None and job.build is not None:
        yield path, "has both script and build: give one of them"
    if not (job.copyable or job.elsewhere):
        yield path, "needs script, build, spark_application or attach = true; none of them is given"
    if job.attach and job.spark_application is not None:
        yield path, "has both attach and spark_application: an attached job is never rescaled"
    if job.executors is not None and not job.attach:
        fix = "for a job that is run here set scale_out"
        if job.spark_application is not None:
            fix = "how many a SparkApplication has is read from it"
        yield f"{path}.executors", f"goes with attach = true; {fix}"
    if not job.elsewhere:
        if job.consumer_group is not None:
            yield (
                f"{path}.consumer_group",
                "goes with attach or spark_application; a job that is run here commits to headroom.NAME",
            )
        return
    who = "an attached job" if job.attach else "a SparkApplication"
    if job.checkpoint is None:
        yield f"{path}.checkpoint", f"{who} needs the path of its checkpoint"
    if job.mode == "apply" and job.attach:
        yield f"{path}.mode", "an attached job is not rescaled from here: use observe or recommend"
    if job.allow_live_drills and job.attach:
        yield f"{path}.allow_live_drills", f"failures are not injected into {who}: drill a copy"
    for cron in ("profile_cron", "drill_cron"):
        if getattr(job, cron) is not None and not job.copyable:
            yield f"{path}.{cron}", f"copies of {who} need its program: give script or build, too"


def _size(job: JobSettings, path: str) -> Problems:
    """The bounds, and the size within them."""
    if job.scale_out_min > job.scale_out_max:
        yield (
            f"{path}.scale_out_min",
            f"is {job.scale_out_min}, more than scale_out_max = {job.scale_out_max}",
        )
        return
    name = "executors" if job.attach else "scale_out"
    size = getattr(job, name)
    if size is not None and not job.scale_out_min <= size <= job.scale_out_max:
        bounds = f"got {job.scale_out_min}, {size}, {job.scale_out_max}"
        yield f"{path}.{name}", f"needs scale_out_min <= {name} <= scale_out_max, {bounds}"


def _generated(job: JobSettings) -> bool:
    return job.events is not None and job.events.startswith("generator:")


def _topics(job: JobSettings, path: str) -> Problems:
    if not job.inputs:
        yield f"{path}.inputs", 'names no topic; for example {events = "orders"}'
    topics = {own: output for own, output in job.outputs.items() if folder_of(output) is None}
    for key, named in (("inputs", job.inputs), ("outputs", topics)):
        for own, topic in named.items():
            if not TOPIC.fullmatch(topic):
                told = f"{own} = {topic!r} is not a topic name: up to 249 letters, digits, . _ -"
                yield f"{path}.{key}", told
    for topic in sorted(set(job.inputs.values()) & set(job.outputs.values())):
        yield f"{path}.outputs", f"the topic {topic!r} is also an input"
    for own, output in job.outputs.items():
        if output.startswith(FILES) and not output.startswith(f"{FILES}/"):
            yield f"{path}.outputs", f"{own} = {output!r} needs an absolute path behind {FILES}"


def of_services(brokers: BrokerSettings, spark: SparkSettings) -> Problems:
    """Mistakes of [brokers] and [spark]."""
    for address in (brokers.bootstrap or "").split(",") if brokers.bootstrap else ():
        if not re.fullmatch(r"\s*\S+:\d+\s*", address):
            told = f"{address!r} is not of the form host:port; for example localhost:9092"
            yield "brokers.bootstrap", told
    if brokers.security_protocol.startswith("SASL_"):
        for key in ("sasl_mechanism", "username_from", "password_from"):
            if getattr(brokers, key) is None:
                yield f"brokers.{key}", f"is needed with security_protocol = {brokers.security_protocol!r}"
    if spark.heartbeat_s >= spark.network_timeout_s:
        yield (
            "spark.heartbeat_s",
            f"must be well below network_timeout_s ({spark.network_timeout_s}), or Spark gives up every "
            f"executor; got {spark.heartbeat_s}",
        )


LOOPBACK = ("localhost", "127.0.0.1", "::1")


def host_and_port(address: str) -> tuple[str, int] | None:
    """The parts of `host:port` or `[::1]:port`; None where it is not of this form."""
    parts = re.fullmatch(r"(?:\[([0-9a-fA-F:.]+)\]|([^\s:/@]+)):([0-9]{1,5})", address)
    if parts is None or not 0 < int(parts[3]) < 65_536:
        return None
    return parts[1] or parts[2], int(parts[3])


def of_notify(notify: NotifySettings) -> Problems:
    """Mistakes of [notify]."""
    if not notify.events:
        yield "notify.events", "is empty: name what is to be told, or leave it out to be told everything"
    together = {key: getattr(notify, key) for key in ("email_to", "email_sender", "smtp")}
    given = [key for key, value in together.items() if value]
    for key in together if given else ():
        if key not in given:
            yield f"notify.{key}", f"is needed with {given[0]}"
    for address in (*notify.email_to, *filter(None, (notify.email_sender,))):
        if not re.fullmatch(r"[^\s@<>,;]+@[^\s@<>,;]+", address):
            key = "email_sender" if address == notify.email_sender else "email_to"
            yield f"notify.{key}", f"{address!r} is not an address; for example oncall@example.com"
    if (notify.username_from is None) != (notify.password_from is None):
        missing = "username_from" if notify.username_from is None else "password_from"
        yield f"notify.{missing}", "is needed: a login has a user name and a password"
    if notify.smtp is None:
        if notify.password_from is not None:
            yield "notify.password_from", "goes with smtp, the server that asks for it"
        return
    server = host_and_port(notify.smtp)
    if server is None:
        yield "notify.smtp", f"{notify.smtp!r} is not of the form host:port; for example mail.example.com:587"
    elif notify.smtp_security == "none" and notify.password_from and server[0] not in LOOPBACK:
        yield (
            "notify.smtp_security",
            "is none: the password would be sent unencrypted over the network. Use starttls or tls",
        )
