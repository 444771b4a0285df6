"""Checks of brokers, Spark, MLflow and who is told: those that run, and the settings of the others."""

from __future__ import annotations

import os
import socket
import urllib.error
import urllib.request
from pathlib import Path
from urllib.parse import urlsplit

from models.errors import HeadroomError, Misconfigured
from models.quantities import counted, executors

from ...environments.real import yours
from ...integrations import ports
from ...integrations.ports import HOST
from ...notify.channels import configured
from ...processes import records
from ...processes.owner import owner_id
from ...settings.checks import host_and_port
from ...settings.schema import Settings
from .findings import Finding, Surroundings, ok, problem, refused, warning

ANSWER_S = 1.5  # judgement: on the way to a fix, who takes longer does not answer
MEMORY_SHARE = 0.8  # as the local Spark judges it: the rest is for broker, drivers and page cache


def brokers(around: Surroundings) -> list[Finding]:
    """Check that the brokers answer, and that the jobs' topics exist."""
    given = around.settings.brokers
    if around.settings.deployment.kind == "simulated":
        return ok("brokers", "not needed, the deployment is simulated")
    if given.bootstrap is None:
        kept = ports.kept(around.folder / "kafka")
        if not _runs(around.folder, "kafka"):
            return ok("brokers", "embedded: it is started with `headroom serve`")
        if kept is None or not _listens(HOST, kept[0]):
            seen = "the embedded broker runs and does not answer"
            return problem("brokers", seen, f"see {around.folder / 'logs' / 'kafka.log'}")
        return ok("brokers", f"embedded, on {HOST}:{kept[0]}")
    try:
        address = yours(given)
        address.client(around.environment)
    except Misconfigured as wrong:
        return problem("brokers", str(wrong), f"set {wrong.setting}, or what it names")
    silent = []
    for one in given.bootstrap.split(","):
        address_of = host_and_port(one)
        if address_of is None or not _listens(*address_of):
            silent.append(one)
    every = given.bootstrap.split(",")
    if len(silent) == len(every):
        seen = f"nothing listens on {given.bootstrap}"
        return problem("brokers", seen, "start them, or correct brokers.bootstrap")
    found = _topics(around)
    if silent:
        seen = f"no answer from {', '.join(silent)}, the others answer"
        found += warning("brokers", seen, "start what is missing, or leave it out of brokers.bootstrap")
    return found


def spark(around: Surroundings) -> list[Finding]:
    """Check the slots for the declared executors, and the Spark cluster where it runs."""
    settings = around.settings.spark
    if not around.real:
        return ok("Spark", "not needed, the deployment is simulated")
    found = []
    need_mb = settings.slots * settings.executor_memory_mb
    there_mb = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2**20
    if around.settings.deployment.kind == "local" and need_mb > MEMORY_SHARE * there_mb:
        seen = (
            f"{executors(settings.slots)} of {settings.executor_memory_mb} MB do not fit into {there_mb} MB"
        )
        found += problem("Spark", seen, "lower spark.slots or spark.executor_memory_mb")
    if 2 * settings.heartbeat_s > settings.network_timeout_s:
        seen = f"spark.heartbeat_s = {settings.heartbeat_s} is more than half of spark.network_timeout_s"
        found += problem("Spark", seen, f"at most {settings.network_timeout_s // 2}")
    most = max((job.scale_out_max for job in around.settings.jobs.values()), default=0)
    if around.settings.deployment.kind == "local" and most > settings.slots:
        seen = f"scale_out_max is up to {most}, and the worker has {settings.slots} slots"
        found += warning("Spark", seen, f"spark.slots = {most}, or a smaller scale_out_max")
    elif around.settings.deployment.kind == "local":
        found += _room_for_copies(around.settings)
    if found:
        return found
    if not _runs(around.folder, "spark-master"):
        return ok("Spark", f"{settings.slots} slots fit; it is started with `headroom serve`")
    kept = ports.kept(around.folder / "spark")
    if kept is None or not _listens(HOST, kept[1]):
        seen = "the master runs and does not answer"
        return problem("Spark", seen, f"see {around.folder / 'logs' / 'spark-master.log'}")
    return ok("Spark", f"runs, its page is http://{HOST}:{kept[1]}")


def _room_for_copies(settings: Settings) -> list[Finding]:
    """Check that slots are left for copies when every live job has its largest size."""
    kept = sum(job.scale_out_max for job in settings.jobs.values() if job.mode == "apply")
    smallest = min(
        (min(job.profile_scale_outs or (job.scale_out_min,)) for job in settings.jobs.values()), default=0
    )
    if not kept or kept + smallest <= settings.spark.slots:
        return []
    seen = f"jobs in mode apply may be given {kept} of {settings.spark.slots} slots: none is left for a copy"
    fix = f"spark.slots = {kept + smallest} or more to profile beside them"
    return warning("Spark", seen, fix)


def mlflow(around: Surroundings) -> list[Finding]:
    """Check that the registry answers; in an outage the loop goes on with the champions' files."""
    uri = around.settings.mlflow.tracking_uri
    if uri is None or not uri.startswith(("http://", "https://")):
        path = around.folder / "mlflow.sqlite"
        if uri is not None:
            return ok("MLflow", f"{urlsplit(uri).scheme} store, opened at the first model")
        if path.exists() and not os.access(path, os.R_OK | os.W_OK):
            return problem("MLflow", f"{path} cannot be written", f"chmod 600 {path}")
        return ok("MLflow", f"{path}, {'there' if path.exists() else 'made at the first model'}")
    where = urlsplit(uri)
    name = f"{where.hostname}:{where.port or (443 if where.scheme == 'https' else 80)}"
    try:
        urllib.request.urlopen(f"{uri.rstrip('/')}/health", timeout=ANSWER_S).close()
    except urllib.error.HTTPError as refused:
        if refused.code in (401, 403):
            fix = "set MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, or MLFLOW_TRACKING_TOKEN"
            return warning("MLflow", f"{name} asks who we are ({refused.code})", fix)
        seen = f"{name} answers with {refused.code}: is it an MLflow server?"
        return problem("MLflow", seen, "correct mlflow.tracking_uri")
    except (OSError, ValueError) as error:
        seen = f"{name} does not answer ({getattr(error, 'reason', error)})"
        fix = "start it, or correct mlflow.tracking_uri; decisions go on with the champions there are"
        return problem("MLflow", seen, fix)
    return ok("MLflow", f"{name} answers")


def notify(around: Surroundings) -> list[Finding]:
    """Check that every channel of [notify] can be used; nothing is sent."""
    channels = configured(around.settings.notify, around.environment)
    if not channels:
        return ok("notify", "nobody is told of alarms and changes: [notify] names no channel")
    found = [
        each
        for one in channels.values()
        if isinstance(one, Misconfigured)
        for each in refused("notify", str(one))
    ]
    where = ", ".join(channels)
    return found or ok("notify", f"by {where}; `headroom notify --test` sends a message")


def _topics(around: Surroundings) -> list[Finding]:
    from ...integrations.kafka_broker import KafkaBroker

    given = around.settings.brokers
    try:
        with KafkaBroker(yours(given), patience_s=ANSWER_S) as asked:
            there = asked.topics()
    except HeadroomError as wrong:
        return problem("brokers", str(wrong), "correct [brokers], or see the brokers' logs")
    wanted = {
        topic: name for name, job in sorted(around.settings.jobs.items()) for topic in job.inputs.values()
    }
    missing = {topic: name for topic, name in wanted.items() if topic not in there}
    if missing:
        topic, name = next(iter(missing.items()))
        seen = f"the topic {topic!r} of job.{name} is not there"
        return problem("brokers", seen, f"create it, or correct job.{name}.inputs")
    return ok("brokers", f"{given.bootstrap}, {counted(len(there), 'topic')}, all inputs are there")


def _runs(folder: Path, role: str) -> bool:
    """Whether a process of ours with this role is alive; notes of dead ones are left to the owner."""
    return any(one.alive and one.role == role for one in records.read(folder.resolve(), owner_id(folder)))


def _listens(host: str, port: int) -> bool:
    try:
        with socket.create_connection((host, port), timeout=ANSWER_S):
            return True
    except OSError:
        return False
