"""What is too old goes; what is in charge, in use or the newest stays."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import dagster as dg
import pytest
from dagster._core.instance import RUNLESS_RUN_ID

from models.errors import NotReady
from models.quantities import Unknown
from pipelines.orchestration import retention
from pipelines.orchestration.retention import DAY_S, EVERY_S, FIRST_S, ROLE, Retention
from pipelines.settings import loading
from profiling_jobs.driver.launch_file import write_json
from profiling_jobs.training import workload_history

NOW_S = 1_763_500_000.0
TOML = """
[job.orders]
build = "a:b"
inputs = {events = "in"}
[job.clicks]
build = "a:b"
inputs = {events = "clicks"}
"""
PROJECT = Path(__file__).parents[2]


class Turns:
    """An owner whose clock is stepped, and whose process ends when it is told to."""

    def __init__(self, root: Path, toml: str = TOML) -> None:
        self.folder = root / ".headroom"
        self.uptime_s = 0.0
        self.busy: set[str] = set()
        self.started: list[str] = []
        self.said: list[str] = []
        self.forgot_logs_before_s: list[float] = []
        self.process = SimpleNamespace(alive=False)
        self.code: int | None = 0
        self.problem: Exception | None = None
        owner: Any = SimpleNamespace(
            folder=self.folder,
            start=self._start,
            exit_code=lambda process: self.code,
            log=lambda role: self.folder / "logs" / f"{role}.log",
            forget_logs=lambda before_s: self.forgot_logs_before_s.append(before_s),
        )
        self.retention = Retention(
            owner,
            loading.parse(toml, environment={}),
            environment={"HEADROOM_FILE": str(root / "headroom.toml")},
            busy=lambda: self.busy,
            now_s=lambda: NOW_S,
            say=self.said.append,
            uptime_s=lambda: self.uptime_s,
        )

    def _start(self, role: str, command: list[str], **more: Any) -> Any:
        if self.problem is not None:
            raise self.problem
        self.started.append(role)
        self.process = SimpleNamespace(alive=True)
        return self.process

    def after(self, seconds: float) -> int:
        """How often the process has been started until then."""
        self.uptime_s += seconds
        self.retention.look()
        return len(self.started)

    def recorded(self, job: str, days: float) -> Path:
        began_s = NOW_S - days * DAY_S
        folder = workload_history.folder_of(self.folder / "recordings", job, began_s=began_s, own="events")
        folder.mkdir(parents=True)
        write_json(folder / "recording.json", {"schema": 1, "until_s": began_s + 120.0})
        write_json(folder / "ended.json", {"schema": 1, "how": "complete"})
        return folder


class TestTurns:
    def test_the_first_waits_and_the_next_ones_come_four_times_a_day(self, tmp_path: Path) -> None:
        turns = Turns(tmp_path)
        assert turns.after(FIRST_S / 2) == 0
        assert turns.after(FIRST_S / 2) == 1
        assert turns.started == [ROLE]
        turns.process.alive = False
        assert turns.after(EVERY_S / 2) == 1
        assert turns.after(EVERY_S / 2) == 2
        assert turns.after(2 * EVERY_S) == 2, "one at a time"
        turns.process.alive = False
        assert turns.after(1.0) == 3
        assert turns.said == []

    def test_recordings_go_but_not_those_that_an_order_may_use(self, tmp_path: Path) -> None:
        turns = Turns(tmp_path)
        old = {job: [turns.recorded(job, days) for days in (40.0, 31.0)] for job in ("orders", "clicks")}
        newest = [turns.recorded(job, 29.0) for job in old]
        control = turns.folder / "recordings" / "recording.orders.events.orders"
        control.mkdir()
        turns.busy = {"orders"}
        turns.after(FIRST_S)
        assert not any(folder.exists() for folder in old["clicks"])
        assert all(folder.exists() for folder in (*old["orders"], *newest, control))
        assert turns.forgot_logs_before_s == [pytest.approx(time.time() - 30 * DAY_S, abs=600.0)]

    def test_recordings_that_the_settings_name_stay(self, tmp_path: Path) -> None:
        there = Turns(tmp_path)
        named, other, _ = (there.recorded("orders", days) for days in (40.0, 39.0, 1.0))
        events = f'events = "{named.relative_to(tmp_path)}"\n'
        turns = Turns(
            tmp_path, TOML.replace("[job.clicks]", f"{events}[job.clicks]") + "[retention]\ndays = 7\n"
        )
        turns.after(FIRST_S)
        assert named.exists()
        assert not other.exists()

    def test_a_process_that_fails_or_cannot_be_started_is_said_and_tried_again(self, tmp_path: Path) -> None:
        turns = Turns(tmp_path)
        turns.after(FIRST_S)
        turns.process.alive, turns.code = False, 1
        turns.after(1.0)
        turns.after(1.0)
        log = turns.folder / "logs" / "retention.log"
        assert turns.said == [f"what is too old could not all be deleted: see {log}"]
        turns.problem = NotReady("retention was not started, it could not be recorded: no space left")
        assert turns.after(EVERY_S) == 1
        assert "was not deleted: retention was not started" in turns.said[-1]
        turns.problem = None
        assert turns.after(EVERY_S) == 2


@dg.asset(partitions_def=dg.StaticPartitionsDefinition(["orders", "clicks"]))
def decision() -> None:
    """An asset."""


@dg.asset_check(asset=decision)
def fine() -> dg.AssetCheckResult:
    return dg.AssetCheckResult(passed=True)


@dg.job
def nothing() -> None:
    """A job that makes no asset."""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of an instance with the project's dagster.yaml."""
    home = tmp_path_factory.mktemp("headroom") / "dagster"
    home.mkdir()
    (home / "dagster.yaml").write_text((PROJECT / "dagster.yaml").read_text())
    return home


@pytest.fixture(scope="module")
def instance(home: Path) -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.from_config(str(home)) as instance:
        yield instance


class TestDagster:
    def made(self, instance: dg.DagsterInstance, partition: str) -> str:
        done = dg.materialize([decision, fine], instance=instance, partition_key=partition)
        return done.run_id

    def test_runs_go_with_their_files_but_not_the_one_that_made_what_there_is(
        self, home: Path, instance: dg.DagsterInstance
    ) -> None:
        clicks, old, newest = (self.made(instance, name) for name in ("clicks", "orders", "orders"))
        idle = nothing.execute_in_process(instance=instance).run_id
        waits = instance.create_run_for_job(nothing).run_id
        key, events = dg.AssetKey("decision"), home / "history" / "runs"
        assert (events / f"{old}.db").exists()
        assert (home / "storage" / old).exists()
        assert retention.forget_runs(instance, before_s=time.time() - DAY_S, most=4) == 0
        assert retention.forget_runs(instance, before_s=time.time() + DAY_S, most=4) == 2
        assert {run.run_id for run in instance.get_runs()} == {clicks, newest, waits}
        for gone in (old, idle):
            assert list(events.glob(f"{gone}*")) == []
            assert not (home / "storage" / gone).exists()
        assert (events / f"{newest}.db").exists()
        assert instance.get_materialized_partitions(key) == {"orders", "clicks"}
        record = instance.get_latest_materialization_event(key)
        assert record is not None
        assert record.run_id == newest
        check = dg.AssetCheckKey(key, "fine")
        history = instance.event_log_storage.get_asset_check_execution_history(check, limit=10)
        assert [one.run_id for one in history] == [newest, clicks]

    def test_more_than_are_wanted_go_before_their_time_the_oldest_first(
        self, instance: dg.DagsterInstance
    ) -> None:
        before = {run.run_id for run in instance.get_runs()}
        runs = [nothing.execute_in_process(instance=instance).run_id for _ in range(3)]
        assert retention.forget_runs(instance, before_s=0.0, most=2) == 1
        assert {run.run_id for run in instance.get_runs()} == {*before, *runs[1:]}

    def test_points_go_and_the_newest_of_each_stays(
        self, home: Path, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(retention, "AT_ONCE", 2)
        monkeypatch.setattr(retention, "PAUSE_S", 0.0)
        for number in range(6):
            for partition in ("orders", "clicks"):
                instance.report_runless_asset_event(
                    dg.AssetObservation("decision", partition=partition, tags={"number": str(number)})
                )
        instance.report_runless_asset_event(dg.AssetMaterialization("points", partition="orders/e1"))

        def points() -> list[tuple[str | None, str]]:
            records = instance.fetch_observations(dg.AssetKey("decision"), limit=100).records
            found = [record.asset_observation for record in records]
            return sorted((one.partition, one.tags["number"]) for one in found if one is not None)

        assert retention.forget_points(instance, before_s=time.time() - DAY_S) == 0
        assert len(points()) == 12
        assert retention.forget_points(instance, before_s=time.time() + DAY_S) == 10
        assert points() == [("clicks", "5"), ("orders", "5")]
        assert instance.get_materialized_partitions(dg.AssetKey("points")) == {"orders/e1"}
        storage: Any = instance.event_log_storage
        rows = "SELECT count(*) FROM event_logs WHERE run_id = ''"
        with storage.run_connection(RUNLESS_RUN_ID) as copy:
            assert copy.exec_driver_sql(rows).scalar() == 3
        with storage.index_connection() as index:
            assert index.exec_driver_sql(rows).scalar() == 3


def test_a_turn_without_anything_to_delete_opens_nothing_and_says_nothing(tmp_path: Path) -> None:
    settings = loading.parse(TOML, environment={})
    for part in (retention.of_dagster, retention.of_mlflow):
        assert list(part(settings, tmp_path, now_s=NOW_S)) == []
    assert os.listdir(tmp_path) == []


def test_versions_in_charge_are_kept_by_what_decisions_read(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[str, Any] = {}

    def forget(name: str, **how: Any) -> int:
        asked[name] = how
        return 150

    def exported(folder: Path, job: str, kind: str) -> Any:
        return SimpleNamespace(version=3) if kind == "recovery" else Unknown("none yet")

    monkeypatch.setattr(retention.champions, "exported", exported)
    registry: Any = SimpleNamespace(names=lambda: ("orders.recovery", "orders.workload"), forget=forget)
    assert retention.forget_versions(registry, Path("."), keep=50) == 300
    assert asked == {
        "orders.recovery": {"keep": 50, "in_charge": [3], "most": 200},
        "orders.workload": {"keep": 50, "in_charge": [], "most": 50},
    }
