"""The local cluster: its configuration, then a real one with a job that loses what it stands on."""

from __future__ import annotations

import http.client
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from waiting import until

from models.errors import Misconfigured, NotReady, Unsafe
from pipelines.environments.local.executors import LocalExecutors
from pipelines.integrations import jars, spark
from pipelines.integrations.spark import MASTER, WORKER, LocalSpark
from pipelines.processes.owner import Owner, cleanup
from pipelines.processes.processes import OWNER, ROLE, Process, marked
from pipelines.settings import spark_timeouts
from pipelines.settings.schema import SparkSettings


@pytest.fixture
def unstarted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LocalSpark:
    monkeypatch.setattr(jars, "fetch", lambda *groups, **given: (Path("/jars/a.jar"), Path("/jars/b.jar")))
    cluster = LocalSpark(Owner(tmp_path / ".headroom"))
    cluster.folder.mkdir(parents=True)
    (cluster.folder / "ports.json").write_text("[20001, 20002]")
    return cluster


def test_a_job_can_be_found_again_rescaled_and_told_from_others(unstarted: LocalSpark) -> None:
    conf = unstarted.job_conf("orders-profile-e4")
    assert conf["spark.master"] == unstarted.url == "spark://127.0.0.1:20001"
    assert conf["spark.jars"] == "/jars/a.jar,/jars/b.jar"
    assert conf[f"spark.executorEnv.{ROLE}"] == "executor.orders-profile-e4"
    assert len(conf[f"spark.executorEnv.{OWNER}"]) == 16
    assert conf["spark.dynamicAllocation.enabled"] == "false"
    assert "spark.cores.max" not in conf
    assert all(isinstance(value, str) for value in conf.values())


def test_a_silent_executor_is_given_up_after_the_time_that_was_set(unstarted: LocalSpark) -> None:
    unstarted.settings = SparkSettings(network_timeout_s=30, heartbeat_s=5)
    conf = unstarted.job_conf("orders")
    seconds = {key: int(conf[f"spark.{key}"].removesuffix("s")) for key in TIMEOUTS}
    assert seconds["network.timeout"] == 30
    assert seconds["executor.heartbeatInterval"] == 5
    assert seconds["storage.blockManagerHeartbeatTimeoutMs"] <= 30
    assert seconds["network.timeoutInterval"] <= 3


@pytest.mark.parametrize(
    ("chosen", "silent", "expected"),
    [
        ({"spark.network.timeout": "90s"}, 90.0, ("90s", "9s", "90s", "4s")),
        ({"spark.network.timeout": "2m"}, 120.0, ("2m", "12s", "120s", "4s")),
        ({"spark.executor.heartbeatInterval": "500"}, 20.0, ("20s", "2s", "20s", "500")),
    ],
)
def test_a_time_out_that_a_job_chooses_moves_those_that_hang_on_it(
    unstarted: LocalSpark, chosen: dict[str, str], silent: float, expected: tuple[str, ...]
) -> None:
    conf = unstarted.job_conf("orders", conf=chosen)
    assert tuple(conf[f"spark.{key}"] for key in TIMEOUTS) == expected
    assert spark_timeouts.silence_s(SparkSettings(), chosen) == silent


@pytest.mark.parametrize(
    ("chosen", "said"),
    [
        ({"spark.network.timeout": "soon"}, r'conf\."spark\.network\.timeout": \'soon\' is no duration'),
        ({"spark.network.timeout": "7s"}, r"spark\.heartbeat_s: 4 s is more than half of spark\.network"),
        ({"spark.executor.heartbeatInterval": "11s"}, r'Interval": 11 s .*spark\.network_timeout_s \(20 s\)'),
    ],
)
def test_time_outs_that_cannot_be_are_refused(
    unstarted: LocalSpark, chosen: dict[str, str], said: str
) -> None:
    with pytest.raises(Misconfigured, match=said):
        unstarted.job_conf("orders", conf=chosen)


TIMEOUTS = (
    "network.timeout",
    "network.timeoutInterval",
    "storage.blockManagerHeartbeatTimeoutMs",
    "executor.heartbeatInterval",
)


def test_settings_come_before_the_job_both_after_our_defaults_and_jars_beside_ours(
    unstarted: LocalSpark,
) -> None:
    conf = unstarted.job_conf("orders", conf={"spark.jars": "/mine.jar,/yours.jar"})
    assert conf["spark.jars"] == "/jars/a.jar,/jars/b.jar,/mine.jar,/yours.jar"
    assert unstarted.job_conf("orders", conf={"spark.jars": ""})["spark.jars"] == "/jars/a.jar,/jars/b.jar"
    unstarted.settings = SparkSettings(conf={"spark.ui.port": "1", "spark.x": "settings"})
    conf = unstarted.job_conf("orders", conf={"spark.x": "job"})
    assert (conf["spark.ui.port"], conf["spark.x"]) == ("1", "job")


def test_what_would_break_rescaling_is_refused_by_name(unstarted: LocalSpark) -> None:
    for key in (
        *("spark.master", "spark.cores.max", "spark.dynamicAllocation.enabled", "spark.executor.cores"),
        *("spark.storage.blockManagerHeartbeatTimeoutMs", "spark.executor.memory"),
    ):
        with pytest.raises(Misconfigured, match=key):
            unstarted.job_conf("orders", conf={key: "1"})


@pytest.mark.parametrize("key", ["spark.authenticate", "spark.authenticate.secret"])
def test_no_job_switches_authentication_off(unstarted: LocalSpark, key: str) -> None:
    assert unstarted.job_conf("orders")["spark.authenticate"] == "true"
    with pytest.raises(Misconfigured, match=key):
        unstarted.job_conf("orders", conf={key: "false"})


@pytest.mark.parametrize(
    "left",
    ["", "spark.authenticate true\n", "spark.authenticate.secret\n", "spark.authenticate.secret  short\n",
     f"spark.authenticate.secret {'a' * 64}\nspark.authenticate.secret=\n"],
)  # fmt: skip
def test_without_its_secret_spark_is_not_started(unstarted: LocalSpark, left: str) -> None:
    """Spark itself would let everybody in, and say nothing: so is a file after a crash of the machine."""
    path = unstarted.folder / "conf" / "spark-defaults.conf"
    path.parent.mkdir()
    path.write_text(left)
    with pytest.raises(Unsafe, match=r"spark-defaults\.conf has no spark\.authenticate\.secret .* delete"):
        unstarted.ensure()


def test_the_secret_is_on_the_disk_before_it_is_used(
    unstarted: LocalSpark, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    sync = os.fsync
    monkeypatch.setattr(
        os, "fsync", lambda file: (synced.append(os.readlink(f"/proc/self/fd/{file}")), sync(file))
    )
    monkeypatch.setattr(unstarted._owner, "running", lambda role="": (Process(7, 7, role, ()),))
    unstarted.ensure()
    path = unstarted.folder / "conf" / "spark-defaults.conf"
    assert path.stat().st_mode & 0o777 == 0o600
    written, folder = synced
    assert (Path(written).parent, Path(folder)) == (path.parent, path.parent)
    secret = path.read_text()
    unstarted.ensure()
    assert path.read_text() == secret


def test_libraries_that_killed_processes_have_left_are_removed(unstarted: LocalSpark) -> None:
    folder = unstarted.folder / "tmp"
    folder.mkdir()
    old = ("liblz4-java-1.so", "liblz4-java-1.so.lck", "other")
    for name, age_s in (*((name, 100.0) for name in old), ("liblz4-java-2.so", 0.0)):
        (folder / name).touch()
        os.utime(folder / name, (time.time() - age_s,) * 2)
    unstarted.tidy()
    assert {path.name for path in folder.iterdir()} == {"liblz4-java-2.so", "other"}


def test_more_memory_than_the_machine_has_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Misconfigured, match=r"spark\.slots.*lower"):
        LocalSpark(Owner(tmp_path), SparkSettings(slots=10_000, executor_memory_mb=4096)).ensure()


def test_before_it_was_started_there_is_no_address_and_nothing_runs(tmp_path: Path) -> None:
    cluster = LocalSpark(Owner(tmp_path))
    with pytest.raises(NotReady, match="never started"):
        cluster.url
    assert cluster.lost() == (MASTER, WORKER)
    assert cluster.executors("orders") == ()


@pytest.mark.parametrize(("role", "cleared"), [("executor.orders", False), ("kafka", True)])
def test_a_new_worker_clears_what_killed_ones_have_left_unless_something_lives(
    unstarted: LocalSpark, monkeypatch: pytest.MonkeyPatch, role: str, cleared: bool
) -> None:
    left = unstarted.folder / "local" / "spark-1" / "executor-2"
    left.mkdir(parents=True)
    monkeypatch.setattr(spark, "marked", lambda owner: (Process(7, 7, role, ()),))
    monkeypatch.setattr(unstarted, "_spawn", lambda role, *words, options: Process(8, 8, role, ()))
    monkeypatch.setattr(unstarted, "_wait", lambda process, ready: True)
    unstarted._start_worker()
    assert left.exists() is not cleared


# ------------------------------------------------------------------------------------------------- real

DRIVER = """
import json, os, sys, time
from pyspark.sql import SparkSession
builder = SparkSession.builder
for key, value in json.load(open(sys.argv[1])).items():
    builder = builder.config(key, value)
spark = builder.getOrCreate()
sc = spark.sparkContext
def role(number):
    time.sleep(0.05)
    return os.environ["HEADROOM_ROLE"], os.environ["HEADROOM_OWNER"], sys.executable
while True:
    print(json.dumps(sc.parallelize(range(4), 4).map(role).distinct().collect()), flush=True)
    time.sleep(0.2)
"""


def known_to_the_master(cluster: LocalSpark) -> dict[str, Any]:
    found = cluster._ask()
    assert found is not None, "the master does not answer"
    return found


def jobs(cluster: LocalSpark) -> list[str]:
    """The names of the jobs that are connected."""
    return [one["name"] for one in known_to_the_master(cluster)["activeapps"]]


@pytest.fixture(scope="module")
def cluster(owner: Owner) -> LocalSpark:
    cluster = LocalSpark(owner, SparkSettings(slots=2))
    cluster.ensure()
    (worker,) = known_to_the_master(cluster)["workers"]
    assert (worker["state"], worker["cores"]) == ("ALIVE", 2)
    return cluster


@pytest.fixture(scope="module")
def driver(owner: Owner, cluster: LocalSpark) -> Process:
    (owner.folder / "driver.py").write_text(DRIVER)
    (owner.folder / "conf.json").write_text(json.dumps(cluster.job_conf("counting")))
    return owner.start(
        "driver.counting",
        [sys.executable, owner.folder / "driver.py", owner.folder / "conf.json"],
        environment=cluster.environment(),
    )


def rounds(owner: Owner) -> list[str]:
    return [line for line in owner.log("driver.counting").read_text().splitlines() if line.startswith("[")]


@pytest.mark.real
def test_a_job_runs_and_its_executors_are_known(owner: Owner, cluster: LocalSpark, driver: Process) -> None:
    until(lambda: len(rounds(owner)) >= 2)
    assert json.loads(rounds(owner)[-1]) == [["executor.counting", owner.id, sys.executable]]
    until(lambda: len(cluster.executors("counting")) == 2)
    assert jobs(cluster) == ["counting"]
    assert sum(one["coresused"] for one in known_to_the_master(cluster)["workers"]) == 2
    first, second = cluster.executors("counting")
    assert (first.executor_id, second.executor_id) == ("0", "1")
    assert first.application_id.startswith("app-")
    assert cluster.executors("other") == ()
    before = owner.running()
    cluster.ensure()
    assert owner.running() == before, "what runs is left alone"


@pytest.mark.real
def test_nobody_else_runs_code_in_our_name_and_the_secret_is_on_no_command_line(
    owner: Owner, cluster: LocalSpark, driver: Process
) -> None:
    defaults = cluster.folder / "conf" / "spark-defaults.conf"
    assert defaults.stat().st_mode & 0o777 == 0o600
    secret = defaults.read_text().split()[-1]
    until(lambda: len(cluster.executors("counting")) == 2)
    assert not [one for one in owner.everything() if any(secret in word for word in one.command)]
    stranger = {**cluster.environment(), "SPARK_CONF_DIR": str(owner.folder)}
    foreign = {**cluster.job_conf("stranger"), "spark.authenticate": "false"}
    (owner.folder / "foreign.json").write_text(json.dumps(foreign))
    owner.start(
        "driver.stranger",
        [sys.executable, owner.folder / "driver.py", owner.folder / "foreign.json"],
        environment=stranger,
    )
    until(lambda: "Failed to connect to master" in owner.log("driver.stranger").read_text())
    assert "Expected SaslMessage" in owner.log(MASTER).read_text()
    owner.stop(owner.running("driver.stranger")[0])
    assert jobs(cluster) == ["counting"]


def asked(port: int, path: str, method: str = "GET") -> bytes:
    """As a page in a browser of this machine could, or another user."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request(method, path)
        return connection.getresponse().read()
    finally:
        connection.close()


@pytest.mark.real
def test_no_page_of_sparks_ends_or_halts_anything(owner: Owner, cluster: LocalSpark, driver: Process) -> None:
    until(lambda: len(rounds(owner)) >= 2 and len(cluster.executors("counting")) == 2)
    application = cluster.executors("counting")[0].application_id
    master = json.loads((cluster.folder / "ports.json").read_text())[1]
    page = int(LocalExecutors(cluster).page("counting")[0].rpartition(":")[2])
    for which in ("threadDump", "heapHistogram"):
        for executor in ("driver", "0"):
            said = asked(page, f"/executors/{which}/?executorId={executor}").lower()
            assert b"thread dump for" not in said
            assert b"heap histogram" not in said
    for path in (f"/app/kill/?terminate=true&id={application}", "/workers/kill/?host=127.0.0.1"):
        for method in ("GET", "POST"):
            asked(master, path, method)
    for _ in range(10):
        newest = json.loads(asked(page, f"/api/v1/applications/{application}/jobs"))[0]["jobId"]
        for job in range(newest, newest + 3):  # those to come as well
            asked(page, f"/jobs/job/kill/?id={job}")
            asked(page, f"/stages/stage/kill/?id={job}")
    done = len(rounds(owner))
    until(lambda: not driver.alive or len(rounds(owner)) > done + 2)
    assert driver.alive
    assert cluster.lost() == ()
    assert jobs(cluster) == ["counting"]


@pytest.mark.real
def test_native_libraries_are_unpacked_where_they_are_cleared(cluster: LocalSpark, driver: Process) -> None:
    until(lambda: len(cluster.executors("counting")) == 2)
    for one in (driver, *(executor.process for executor in cluster.executors("counting"))):
        environment = Path(f"/proc/{one.pid}/environ").read_bytes().split(b"\0")
        assert f'JAVA_TOOL_OPTIONS="-Djava.io.tmpdir={cluster.folder / "tmp"}"'.encode() in environment


@pytest.mark.real
def test_a_worker_that_dies_is_seen_and_replaced_under_a_running_job(
    owner: Owner, cluster: LocalSpark, driver: Process
) -> None:
    (worker,) = owner.running(WORKER)
    orphans = [one.process for one in cluster.executors("counting")]
    worker.signal(signal.SIGKILL)
    until(lambda: cluster.lost() == (WORKER,))
    until(lambda: not any(process.alive for process in orphans))
    cluster.ensure()
    assert cluster.lost() == ()
    assert owner.running(WORKER) != (worker,)
    until(lambda: len(cluster.executors("counting")) == 2)
    done = len(rounds(owner))
    until(lambda: len(rounds(owner)) > done + 1)


@pytest.mark.real
def test_after_a_crash_of_ours_all_of_it_is_found_frozen_ones_too(
    owner: Owner, cluster: LocalSpark, driver: Process
) -> None:
    until(lambda: len(cluster.executors("counting")) == 2)
    cluster.executors("counting")[0].process.signal(signal.SIGSTOP)
    owner.release()  # as if we had died
    roles = {one.process.role for one in cleanup(owner.folder)}
    assert roles >= {MASTER, WORKER, "driver.counting", "executor.counting"}
    assert marked(owner.id) == ()
    owner.acquire()
    assert cluster.lost() == (MASTER, WORKER)


@pytest.mark.real
def test_a_master_that_died_is_replaced_on_the_same_port_with_its_worker(
    owner: Owner, cluster: LocalSpark
) -> None:
    cluster.ensure()
    url = cluster.url
    (worker,) = owner.running(WORKER)
    owner.stop(owner.running(MASTER)[0], kill=True)
    assert MASTER in cluster.lost()
    cluster.ensure()
    assert cluster.lost() == ()
    assert cluster.url == url
    assert not worker.alive
    assert known_to_the_master(cluster)["url"] == url
    for process in owner.running():
        owner.stop(process)
    assert owner.everything() == ()
