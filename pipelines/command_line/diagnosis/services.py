"""Do brokers, Spark, MLflow and Dagster answer? Those that run, and the settings of the others."""

from __future__ import annotations

import email.utils
import json
import os
import socket
import urllib.error
import urllib.request
from pathlib import Path
from urllib.parse import urlsplit

from models.errors import HeadroomError, Misconfigured
from models.quantities import executors

from ...environments.local.environment import yours
from ...processes import records
from ...processes.owner import owner_id
from ...settings.schema import Settings
from . import Finding, Patient

ANSWER_S = 1.5  # judgement: on the way to a fix, who takes longer does not answer
HOST = "127.0.0.1"
CHECKOUT = Path(__file__).resolve().parents[3]
SKEW_S = 5.0  # as for our own clock
MEMORY_SHARE = 0.8  # as the local Spark judges it: the rest is for broker, drivers and page cache


def brokers(patient: Patient) -> list[Finding]:
    """They answer, and the jobs' topics are there."""
    given = patient.settings.brokers
    if patient.settings.deployment.kind == "simulated":
        return [Finding("brokers", "ok", "not needed, the deployment is simulated")]
    if given.bootstrap is None:
        port = _port(patient.folder / "kafka" / "ports.json")
        if not _runs(patient.folder, "kafka"):
            return [Finding("brokers", "ok", "embedded: it is started with `headroom serve`")]
        if port is None or not _listens(HOST, port):
            told = "the embedded broker runs and does not answer"
            return [Finding("brokers", "problem", told, f"see {patient.folder / 'logs' / 'kafka.log'}")]
        return [Finding("brokers", "ok", f"embedded, on {HOST}:{port}")]
    try:
        address = yours(given)
        address.client(patient.environment)
    except Misconfigured as wrong:
        return [Finding("brokers", "problem", str(wrong), f"set {wrong.setting}, or what it names")]
    silent = []
    for one in given.bootstrap.split(","):
        host, _, port_ = one.rpartition(":")
        if not port_.isdigit() or not _listens(host.strip("[]"), int(port_)):
            silent.append(one)
    every = given.bootstrap.split(",")
    if len(silent) == len(every):
        told = f"nobody listens on {given.bootstrap}"
        return [Finding("brokers", "problem", told, "start them, or correct brokers.bootstrap")]
    found = _topics(patient)
    if silent:
        told = f"{', '.join(silent)} does not answer, the others do"
        found.append(Finding("brokers", "warning", told, "start it, or leave it out of brokers.bootstrap"))
    return found


def spark(patient: Patient) -> list[Finding]:
    """Room for the executors that are declared, and the cluster where it runs."""
    settings = patient.settings.spark
    if not patient.real:
        return [Finding("Spark", "ok", "not needed, the deployment is simulated")]
    found = []
    need_mb = settings.slots * settings.executor_memory_mb
    there_mb = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2**20
    if patient.settings.deployment.kind == "local" and need_mb > MEMORY_SHARE * there_mb:
        told = (
            f"{executors(settings.slots)} of {settings.executor_memory_mb} MB do not fit into {there_mb} MB"
        )
        found.append(Finding("Spark", "problem", told, "lower spark.slots or spark.executor_memory_mb"))
    if 2 * settings.heartbeat_s > settings.network_timeout_s:
        told = f"spark.heartbeat_s = {settings.heartbeat_s} is more than half of spark.network_timeout_s"
        found.append(Finding("Spark", "problem", told, f"at most {settings.network_timeout_s // 2}"))
    most = max((job.scale_out_max for job in patient.settings.jobs.values()), default=0)
    if patient.settings.deployment.kind == "local" and most > settings.slots:
        told = f"scale_out_max is up to {most}, and the worker has {settings.slots} slots"
        found.append(Finding("Spark", "warning", told, f"spark.slots = {most}, or a smaller scale_out_max"))
    elif patient.settings.deployment.kind == "local":
        found += _room_for_copies(patient.settings)
    home = patient.environment.get("SPARK_HOME")
    if home:
        told = f"SPARK_HOME={home} is set; Headroom uses the installed pyspark and does not look there"
        found.append(Finding("Spark", "warning", told, "unset SPARK_HOME where it confuses your scripts"))
    if found:
        return found
    if not _runs(patient.folder, "spark-master"):
        return [Finding("Spark", "ok", f"{settings.slots} slots fit; it is started with `headroom serve`")]
    page = _port(patient.folder / "spark" / "ports.json", which=1)
    if page is None or not _listens(HOST, page):
        told = "the master runs and does not answer"
        return [Finding("Spark", "problem", told, f"see {patient.folder / 'logs' / 'spark-master.log'}")]
    return [Finding("Spark", "ok", f"runs, its page is http://{HOST}:{page}")]


def _room_for_copies(settings: Settings) -> list[Finding]:
    """A profile leaves live jobs all that they may be given; something must be left of it."""
    kept = sum(job.scale_out_max for job in settings.jobs.values() if job.mode == "apply")
    smallest = min(
        (min(job.profile_scale_outs or (job.scale_out_min,)) for job in settings.jobs.values()), default=0
    )
    if not kept or kept + smallest <= settings.spark.slots:
        return []
    told = f"jobs in mode apply may be given {kept} of {settings.spark.slots} slots: none is left for a copy"
    fix = f"spark.slots = {kept + smallest} or more to profile beside them"
    return [Finding("Spark", "warning", told, fix)]


def mlflow(patient: Patient) -> list[Finding]:
    """The registry answers; with an outage the loop goes on with the champions' files."""
    uri = patient.settings.mlflow.tracking_uri
    if uri is None or not uri.startswith(("http://", "https://")):
        path = patient.folder / "mlflow.sqlite"
        if uri is not None:
            return [Finding("MLflow", "ok", f"{urlsplit(uri).scheme} store, opened at the first model")]
        if path.exists() and not os.access(path, os.R_OK | os.W_OK):
            return [Finding("MLflow", "problem", f"{path} cannot be written", f"chmod 600 {path}")]
        return [Finding("MLflow", "ok", f"{path}, {'there' if path.exists() else 'made at the first model'}")]
    where = urlsplit(uri)
    name = f"{where.hostname}:{where.port or (443 if where.scheme == 'https' else 80)}"
    try:
        with urllib.request.urlopen(f"{uri.rstrip('/')}/health", timeout=ANSWER_S) as answer:
            said_s = _date_s(answer.headers.get("Date"))
    except urllib.error.HTTPError as refused:
        if refused.code in (401, 403):
            fix = "set MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, or MLFLOW_TRACKING_TOKEN"
            return [Finding("MLflow", "warning", f"{name} asks who we are ({refused.code})", fix)]
        told = f"{name} answers with {refused.code}: is it an MLflow server?"
        return [Finding("MLflow", "problem", told, "correct mlflow.tracking_uri")]
    except (OSError, ValueError) as error:
        told = f"{name} does not answer ({getattr(error, 'reason', error)})"
        fix = "start it, or correct mlflow.tracking_uri; decisions go on with the champions there are"
        return [Finding("MLflow", "problem", told, fix)]
    if said_s is not None and abs(said_s - patient.now_s) > SKEW_S:
        told = f"{name} answers, and its clock differs from ours by {abs(said_s - patient.now_s):.0f} s"
        return [Finding("MLflow", "warning", told, "synchronise the clocks")]
    return [Finding("MLflow", "ok", f"{name} answers")]


def dagster(patient: Patient) -> list[Finding]:
    """Its files are there, and no other DAGSTER_HOME is in the way."""
    missing = [name for name in ("dagster.yaml", "workspace.yaml") if not (CHECKOUT / name).is_file()]
    if missing:
        told = f"{' and '.join(missing)} not in {CHECKOUT}"
        return [Finding("Dagster", "problem", told, "run Headroom from its checkout, or from the image")]
    home = patient.environment.get("DAGSTER_HOME")
    if home and not Path(home).is_absolute():
        told = f"DAGSTER_HOME={home} is not absolute, which Dagster refuses"
        return [Finding("Dagster", "problem", told, "unset DAGSTER_HOME: `headroom serve` sets its own")]
    ours = (CHECKOUT, patient.root, patient.folder.resolve())
    if home and not any(Path(home).resolve().is_relative_to(one) for one in ours):
        told = f"DAGSTER_HOME={home} is another instance"
        return [Finding("Dagster", "warning", told, "unset it for Headroom, or you look at other runs")]
    return [Finding("Dagster", "ok", "dagster.yaml and workspace.yaml are there")]


def _topics(patient: Patient) -> list[Finding]:
    from ...integrations.kafka_broker import KafkaBroker

    given = patient.settings.brokers
    try:
        with KafkaBroker(yours(given), patience_s=ANSWER_S) as asked:
            there = asked.topics()
    except HeadroomError as wrong:
        return [Finding("brokers", "problem", str(wrong), "correct [brokers], or see the brokers' logs")]
    wanted = {
        topic: name for name, job in sorted(patient.settings.jobs.items()) for topic in job.inputs.values()
    }
    missing = {topic: name for topic, name in wanted.items() if topic not in there}
    if missing:
        topic, name = next(iter(missing.items()))
        told = f"the topic {topic!r} of job.{name} is not there"
        return [Finding("brokers", "problem", told, f"create it, or correct job.{name}.inputs")]
    return [Finding("brokers", "ok", f"{given.bootstrap}, {len(there)} topics, all inputs are there")]


def _runs(folder: Path, role: str) -> bool:
    """Whether a process of ours with this role is alive; notes of dead ones are left to the owner."""
    return any(one.alive and one.role == role for one in records.read(folder.resolve(), owner_id(folder)))


def _listens(host: str, port: int) -> bool:
    try:
        with socket.create_connection((host, port), timeout=ANSWER_S):
            return True
    except OSError:
        return False


def _port(path: Path, *, which: int = 0) -> int | None:
    try:
        return int(json.loads(path.read_text())[which])
    except (OSError, ValueError, IndexError, TypeError):
        return None


def _date_s(text: str | None) -> float | None:
    try:
        return None if text is None else email.utils.parsedate_to_datetime(text).timestamp()
    except ValueError:
        return None
