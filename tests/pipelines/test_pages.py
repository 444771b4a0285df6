"""The pages beside the owner: what is wrong with one of them is said and tried again, and harms nobody."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from models.errors import HeadroomError, NotReady
from pipelines.orchestration import pages
from pipelines.orchestration.pages import Pages
from pipelines.processes.processes import Process
from pipelines.settings import loading

TOML = '[job.orders]\nbuild = "a:b"\ninputs = {events = "in"}\n'
DAGSTER = ("dagster-code", "dagster-webserver", "dagster-daemon")


class Machine:
    """An owner that starts nothing: its processes live until they are told to die. Its clock is stepped."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = root / ".headroom"
        self.now_s = 1000.0
        self.problem: Exception | None = None
        self.started: list[str] = []
        self.running: dict[str, SimpleNamespace] = {}
        self.said: list[str] = []
        monkeypatch.setattr(pages, "time", SimpleNamespace(monotonic=lambda: self.now_s, sleep=self._sleep))
        monkeypatch.setattr(Pages, "_prepare_dagster", lambda pages: self._prepare())
        monkeypatch.setattr(Pages, "_prepare_door", lambda pages: None)
        monkeypatch.setattr(Pages, "_prepare_mlflow", lambda pages: None)
        self.unprepared: Exception | None = None
        settings = loading.parse(TOML, environment={})
        self.evaluated_at_s = 0.0
        self.pages = Pages(
            self,  # type: ignore[arg-type]
            settings,
            file=root / "headroom.toml",
            say=self.said.append,
            evaluated_at_s=lambda: self.evaluated_at_s,
        )
        for page in self.pages._pages.values():
            page.ready = lambda role=page.role: role in self.running and self.running[role].alive

    def _sleep(self, seconds: float) -> None:
        self.now_s += seconds

    def _prepare(self) -> None:
        if self.unprepared is not None:
            raise self.unprepared

    def log(self, role: str) -> Path:
        return self.folder / "logs" / f"{role}.log"

    def start(self, role: str, command: Any, **more: Any) -> SimpleNamespace:
        if self.problem is not None:
            raise self.problem
        self.started.append(role)
        self.running[role] = SimpleNamespace(alive=True, role=role)
        return self.running[role]

    def stop(self, process: SimpleNamespace, **more: Any) -> None:
        process.alive = False

    def begin(self) -> Machine:
        self.pages.start()
        self.settled()
        return self

    def settled(self) -> None:
        assert self.pages._starting is not None
        self.pages._starting.join()

    def die(self, role: str) -> None:
        self.running[role].alive = False

    def after(self, seconds: float, *, evaluates: bool = True) -> None:
        """Looked at once a second, as `headroom serve` does."""
        until_s = self.now_s + seconds
        while self.now_s < until_s:
            self.now_s += 1.0
            if evaluates:
                self.evaluated_at_s = self.now_s
            self.pages.watch()
            self.settled()


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(tmp_path, monkeypatch)


def test_what_has_ended_is_said_and_started_again(machine: Machine) -> None:
    machine.begin()
    assert sorted(machine.started) == sorted(("web", *DAGSTER, "mlflow"))
    assert machine.pages.wait() == machine.pages.addresses
    machine.die("dagster-daemon")
    machine.after(20.0)
    assert machine.running["dagster-daemon"].alive
    assert "dagster-daemon has ended: see" in machine.said[0]
    assert "dagster-daemon is started again" in machine.said[-1]


@pytest.mark.parametrize(
    "problem",
    [NotReady("it could not be recorded: the disk is full"), OSError(28, "No space left on device")],
)
def test_a_page_that_cannot_be_started_is_tried_again_and_harms_nobody(
    machine: Machine, problem: Exception
) -> None:
    machine.begin()
    machine.die("dagster-webserver")
    machine.problem = problem
    machine.after(30.0)
    told = [line for line in machine.said if line.startswith("dagster-webserver could not be started")]
    assert str(problem) in told[0]
    machine.die("mlflow")  # the others are looked after as well
    machine.problem = None
    machine.after(60.0)
    assert all(process.alive for process in machine.running.values())


@pytest.mark.parametrize("unprepared", [NotReady("its disk is full"), ValueError("damaged")])
def test_dagster_that_cannot_be_prepared_is_told_and_comes_back(
    machine: Machine, unprepared: Exception
) -> None:
    machine.unprepared = unprepared
    machine.begin()
    with pytest.raises(HeadroomError, match=str(unprepared)):
        machine.pages.wait()
    machine.after(60.0)
    assert machine.said == []
    machine.unprepared = None
    machine.after(60.0)
    assert all(machine.running[role].alive for role in DAGSTER)
    assert machine.said[-1] == f"Dagster: {machine.pages.addresses['dagster']}"


def test_dagster_that_takes_longer_is_told_of_once_it_answers(machine: Machine) -> None:
    machine.begin()
    web = machine.pages._pages["web"]
    web.ready, ready = (lambda: False), web.ready
    with pytest.raises(NotReady, match="dagster-webserver is not ready within 240 s"):
        machine.pages.wait()
    machine.after(60.0)
    web.ready = ready
    machine.after(2.0)
    assert machine.said == [f"Dagster: {machine.pages.addresses['dagster']}"]


@pytest.mark.parametrize(
    ("role", "stops"),
    [("dagster-code", True), ("dagster-daemon", True), ("dagster-webserver", False), ("mlflow", False)],
)
def test_it_is_said_whether_decisions_go_on_without_it(machine: Machine, role: str, stops: bool) -> None:
    machine.begin()
    machine.die(role)
    machine.after(1.0)
    (line,) = machine.said
    assert line.startswith(f"{role} has ended: see")
    assert ("nothing is evaluated or decided until it runs again" in line) is stops


def test_one_that_ends_now_and_then_is_always_started_again_at_once(machine: Machine) -> None:
    machine.begin()
    for _ in range(6):
        machine.after(3600.0)
        machine.die("dagster-daemon")
        machine.after(10.0)
        assert machine.running["dagster-daemon"].alive


def test_one_that_ends_again_and_again_is_tried_more_and_more_seldom_for_ever(machine: Machine) -> None:
    machine.begin()
    took = []
    for _ in range(30):
        machine.die("dagster-daemon")
        died_s = machine.now_s
        while not machine.running["dagster-daemon"].alive:
            assert machine.now_s - died_s < 600.0
            machine.after(1.0)
        took.append(machine.now_s - died_s)
    assert took == sorted(took)
    assert took[0] < 10.0
    assert took[-1] == pytest.approx(pages.LONGEST_S, abs=3.0)


def restarted(machine: Machine) -> list[str]:
    started, machine.started = machine.started, []
    return started


@pytest.mark.parametrize("role", ["dagster-code", "dagster-webserver", "mlflow"])
def test_one_that_is_alive_and_answers_no_more_is_restarted(machine: Machine, role: str) -> None:
    machine.begin().after(30.0)
    stuck, _ = machine.running[role], restarted(machine)
    page = next(page for page in machine.pages._pages.values() if page.role == role)
    page.ready = lambda: machine.running[role] is not stuck
    machine.after(pages.UNANSWERED_S / 2)
    assert machine.said == []
    machine.after(pages.UNANSWERED_S)
    assert restarted(machine) == [role]
    assert machine.said == [f"{role} has not answered for 60 s: {role} is restarted"]
    machine.after(600.0)
    assert restarted(machine) == []


def test_without_evaluations_what_is_stuck_is_restarted_and_more_and_more_seldom(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Pages, "_switched_off", lambda pages: False)
    machine.begin().after(3600.0)
    restarted(machine)
    machine.after(170.0, evaluates=False)  # not yet three intervals of 60 s
    assert restarted(machine) == []
    machine.after(30.0, evaluates=False)
    assert restarted(machine) == ["dagster-daemon"]
    assert machine.said == ["no job was evaluated for 181 s: dagster-daemon is restarted"]
    machine.after(400.0, evaluates=False)  # which did not help
    assert restarted(machine) == ["dagster-code", "dagster-daemon"]
    machine.after(400.0, evaluates=False)
    assert restarted(machine) == []
    machine.after(60.0)  # it has helped: the next time is the first again
    machine.after(200.0, evaluates=False)
    assert restarted(machine) == ["dagster-daemon"]


def test_a_code_server_that_never_answered_is_the_one_that_is_restarted(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Pages, "_switched_off", lambda pages: False)
    machine.begin()
    restarted(machine)
    machine.pages._pages["code"].ready = lambda: False
    machine.after(200.0, evaluates=False)
    assert restarted(machine) == ["dagster-code"]


def test_a_sensor_that_a_person_has_switched_off_is_said_and_nothing_is_restarted(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Pages, "_switched_off", lambda pages: True)
    machine.begin()
    restarted(machine)
    machine.after(200.0, evaluates=False)
    assert restarted(machine) == []
    (line,) = machine.said
    assert "optimization_sensor was switched off on Dagster's pages" in line


@pytest.mark.fast
@pytest.mark.parametrize(
    ("interval_s", "restarts", "longest_s"),
    [(10.0, 0, 120.0), (60.0, 0, 180.0), (60.0, 1, 360.0), (60.0, 9, 3600.0), (3600.0, 5, 10_800.0)],
)
def test_three_intervals_without_an_evaluation_are_too_many(
    interval_s: float, restarts: int, longest_s: float
) -> None:
    assert pages.longest_silence_s(interval_s, restarts=restarts) == longest_s


@pytest.mark.fast
def test_read_only_is_for_the_door_and_for_dagster_which_knows_its_mutations(tmp_path: Path) -> None:
    owner: Any = SimpleNamespace(folder=tmp_path)
    settings = loading.parse(TOML, environment={})
    for read_only, limited in ((True, {"web", "dagster-webserver"}), (False, set())):
        there = Pages(owner, settings, file=tmp_path / "headroom.toml", read_only=read_only)
        assert {one.role for one in there._pages.values() if "--read-only" in one.command} == limited


@pytest.mark.fast
def test_the_door_is_given_the_further_port_of_the_metrics(tmp_path: Path) -> None:
    owner: Any = SimpleNamespace(folder=tmp_path)
    for web, expected in (("[web]\nmetrics_port = 9464\n", ["--metrics-port=9464"]), ("", [])):
        there = Pages(owner, loading.parse(web + TOML, environment={}), file=tmp_path / "headroom.toml")
        assert [word for word in there._pages["door"].command if "metrics" in word] == expected


def test_runs_of_dagster_are_given_the_address_of_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATABASE_URL", "postgresql://db/headroom")
    owner: Any = SimpleNamespace(folder=tmp_path)
    for store, known in (('[store]\nurl_from = "DATABASE_URL"\n', True), ("", False)):
        settings = loading.parse(store + TOML, environment={})
        given = Pages(owner, settings, file=tmp_path / "headroom.toml").environment()
        assert ("DATABASE_URL" in given) is known


def test_a_page_gets_no_variable_that_it_does_not_need(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The door reads the store; whoever may look into its process finds no other password there."""
    secrets = {"DATABASE_URL": "postgresql://db/headroom", "HEADROOM_BROKERS_PASSWORD": "s3cr3t"}
    for name, value in secrets.items():
        monkeypatch.setenv(name, value)
    given: dict[str, set[str]] = {}

    def start(role: str, command: object, *, environment: dict[str, str], **more: object) -> Process:
        given[role] = set(environment) & set(secrets)
        return Process(1, 1, role, ())

    owner: Any = SimpleNamespace(folder=tmp_path, start=start)
    settings = loading.parse('[store]\nurl_from = "DATABASE_URL"\n' + TOML, environment={})
    there = Pages(owner, settings, file=tmp_path / "headroom.toml")
    for name in ("door", "mlflow", "code"):
        there._begin(name)
    assert [given[there._pages[name].role] for name in ("door", "mlflow", "code")] == [
        {"DATABASE_URL"},
        set(),
        {"DATABASE_URL"},
    ]


def test_what_a_page_leaves_behind_when_it_is_killed_is_in_a_folder_that_is_removed(tmp_path: Path) -> None:
    """Dagster's code server makes a socket of its own, named by `tempfile`."""
    given: list[Path] = []

    def start(role: str, command: object, *, environment: dict[str, str], **more: object) -> Any:
        given.append(Path(environment["TMPDIR"]))
        return SimpleNamespace(alive=False, signal=lambda number: False)

    owner: Any = SimpleNamespace(folder=tmp_path, start=start, stop=lambda process, grace_s: None)
    there = Pages(owner, loading.parse(TOML, environment={}), file=tmp_path / "headroom.toml")
    there._prepare_door()
    there._begin("code")
    (folder,) = given
    assert folder.stat().st_mode & 0o777 == 0o700
    (folder / "tmp3xgjiitj").touch()
    assert len(f"{folder}/tmp3xgjiitj") <= pages.LONGEST_SOCKET
    there.close()
    assert not folder.exists()
