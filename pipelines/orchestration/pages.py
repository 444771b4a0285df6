"""Supervision of Dagster's code server, web server and daemon, of MLflow's server, and of the door to them.

Five processes, each of the owner's: one code server that loads the definitions, the web server and the daemon
that share it, MLflow's server where the models are kept here, and the door, the one address that browsers
reach (pipelines/web). The others listen on Unix sockets in a folder that only this user may enter, as
whatever reaches them may start runs and read files. Everything of Dagster's lies in `.headroom/dagster`, with
the dagster.yaml of the project. Nothing phones home.

Without Dagster's daemon and code server nothing is evaluated. A server that ends or no longer answers is
started again, and so are these two when evaluations stop coming for another reason: a process that is alive
may still be stuck. Without MLflow's the exported champions stay in charge, and the others run. What is wrong
with one of them is said, and it is tried again, however often: no page is worth a live job.
"""

from __future__ import annotations

import http.client
import math
import os
import re
import secrets
import shlex
import shutil
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from models.errors import HeadroomError, NotReady
from profiling_jobs.driver.launch_file import read_json, write_json

from ..integrations.ports import HOST, free_ports
from ..processes.owner import Owner, holder
from ..processes.processes import Process
from ..settings.loading import HEADROOM_SETTINGS
from ..settings.schema import Settings
from ..web.access import FOLDER as WEB
from ..web.access import make_token

PROJECT = Path(__file__).resolve().parents[2]
HEADROOM_FILE, HEADROOM_FOLDER, HEADROOM_PAGE = "HEADROOM_FILE", "HEADROOM_FOLDER", "HEADROOM_PAGE"
HOME = "dagster"
ADDRESSES = f"{HOME}/pages.json"  # in the folder, for commands that link to the pages
GRACE_S = 5.0  # judgement: nothing of theirs is lost when they are killed
WAIT_S = 240.0  # measured: 15–45 s on a busy machine
AGAIN_S = 5.0  # judgement: before what has ended is started anew; so much more after each start in a row …
LONGEST_S = 60.0  # … up to this: nothing is decided meanwhile
STEADY_S = 600.0  # judgement: what has run for so long is not ending again and again
UNANSWERED_S = 60.0  # judgement: a busy machine keeps a server from answering for seconds, not for a minute
ANSWER_S = 5.0
LOOK_EVERY_S = 10.0  # judgement: whether they answer
INTERVALS = 3  # without any evaluation: something is stuck
SILENT_S = 120.0  # at least; measured: the daemon needs up to 90 s to see a code server that was restarted
MOST_SILENT_S = 3600.0  # restarts that do not help become rarer, down to one an hour
PUT_RIGHT_S = 20.0  # judgement: a look costs a second, and the cause may have been put right
# Not HEADROOM_…: the settings in force are passed as a file, and such a variable may hold a password.
PASSED_ON = re.compile(r"(MLFLOW|DAGSTER)_\w+|\w*PROXY|\w*proxy|PYTHONPATH")
QUIET = {
    "DAGSTER_DISABLE_TELEMETRY": "1",
    "DO_NOT_TRACK": "1",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    # A job runner and seven workers that are not needed: 300 MB.
    "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
    "PYTHONUNBUFFERED": "1",
}
LONGEST_SOCKET = 100  # characters of its path; the kernel takes 107
SOCKETS = "headroom-web-"  # how the name of their folder begins
EVALUATING = ("code", "daemon")  # the others are only looked at
LOCATION = "headroom"
SENSOR = "optimization_sensor"
Say = Callable[[str], None]
_MAKING = threading.Lock()
"""Both make their tables with alembic, which is for one thread at a time."""


@dataclass
class _Page:
    """One process that is to run."""

    role: str
    command: list[str]
    ready: Callable[[], bool]
    process: Process | None = None
    problem: HeadroomError | None = None
    """Why it was not started."""
    starts: int = 0
    """In a row, none of which was steady."""
    began_s: float = 0.0
    ended_s: float = 0.0
    answered_s: float = 0.0
    """When it last answered; 0 until it has, since its start."""
    left_out: bool = False
    """It did not answer when it was waited for."""

    @property
    def alive(self) -> bool:
        return self.process is not None and self.process.alive


def addresses(folder: Path) -> dict[str, Any]:
    """`pages`, `dagster`, `mlflow` and `code_socket` of what is served from this folder; empty without."""
    found, living = read_json(folder / ADDRESSES) or {}, holder(folder)
    return found if living is not None and found.get("pid") == living.process.pid else {}


def dagster_home(folder: Path) -> Path:
    """DAGSTER_HOME of this folder, with the project's dagster.yaml."""
    home = folder / HOME
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    shutil.copyfile(PROJECT / "dagster.yaml", home / "dagster.yaml")
    return home


def environment(folder: Path, *, file: Path, mlflow: str) -> dict[str, str]:
    """What the definitions have to know: which file, which folder; and the user's own settings."""
    given = {name: value for name, value in os.environ.items() if PASSED_ON.fullmatch(name)}
    return {
        **given,
        **QUIET,
        "DAGSTER_HOME": str(folder / HOME),
        HEADROOM_FILE: str(file),
        HEADROOM_FOLDER: str(folder),
        HEADROOM_PAGE: mlflow,
    }


class Pages:
    """All processes of the pages, for one folder and one headroom.toml."""

    def __init__(
        self,
        owner: Owner,
        settings: Settings,
        *,
        file: Path,
        say: Say = lambda line: None,
        evaluated_at_s: Callable[[], float] = lambda: math.inf,
        read_only: bool = False,
    ) -> None:
        """`evaluated_at_s`: when an evaluation was last asked for, by time.monotonic."""
        self._owner, self._settings, self._say = owner, settings, say
        self._evaluated_at_s = evaluated_at_s
        self._file = file.resolve()
        self.home = owner.folder / HOME
        self._sockets = _new_folder()
        port = settings.web.port or free_ports(1)[0]
        pages, at = f"http://{HOST}:{port}", settings.mlflow.tracking_uri
        self._ours = at is None
        self._mlflow_at = at or f"{pages}/mlflow"
        self.addresses = {"pages": pages, "dagster": f"{pages}/dagster", "mlflow": self._mlflow_at}
        self.code_socket = self._socket("code")
        python, workspace = sys.executable, str(self.home / "workspace.yaml")
        looking = ["--read-only"] if read_only else []
        self._pages = {
            # Another program may have taken the port, and answer in its place.
            "door": _Page(
                "web",
                self._door(port, looking),
                lambda: self._pages["door"].alive and _status(HOST, port) == 401,
            ),
            "code": _Page(
                "dagster-code",
                [python, "-m", "dagster", "code-server", "start", "-s", self.code_socket,
                 "-m", "pipelines.definitions", "--location-name", LOCATION],
                lambda: not _code_server(self.code_socket, "Ping", timeout_s=ANSWER_S),
            ),
            "web": _Page(
                "dagster-webserver",
                [python, "-m", "pipelines.web.dagster_server", self._socket("dagster"), "-w", workspace,
                 "--path-prefix", "/dagster", *looking],
                lambda: _status(self._socket("dagster"), path="/dagster/server_info") == 200,
            ),
            "daemon": _Page(
                "dagster-daemon", [python, "-m", "dagster._daemon", "run", "-w", workspace], lambda: True
            ),
        }  # fmt: skip
        if self._ours:
            self._pages["mlflow"] = self._mlflow(port)
        self._wanted: list[str] = []
        self._starting: threading.Thread | None = None
        self._beginning = threading.Lock()
        self._closed = threading.Event()
        self._looked_s = 0.0
        self._restarts = 0
        """In a row, because evaluations stopped coming."""

    def start(self, *, daemon: bool = True) -> Pages:
        """Start them, in a thread: the tables of their databases have to be made first, by one process."""
        wanted = [name for name in self._pages if daemon or name != "daemon"]
        new = [name for name in wanted if name not in self._wanted]
        self._wanted += new
        self._begin_all(new)
        return self

    @property
    def evaluates(self) -> bool:
        """Whether Dagster's daemon is to run, which asks for evaluations."""
        return "daemon" in self._wanted

    def prepared(self) -> None:
        """Wait until the databases are there and may be used by this process too."""
        if self._starting is not None:
            self._starting.join()
        for page in self._pages.values():
            if page.problem is not None:
                raise page.problem

    def wait(self, *, timeout_s: float = WAIT_S) -> dict[str, str]:
        """The addresses, once all that were started answer; MLflow's is left out where it does not.

        NotReady, with the log that says why, if Dagster's do not answer.
        """
        until = time.monotonic() + timeout_s
        while True:
            starting = {name: page for name in self._wanted if not _answers(page := self._pages[name])}
            late = f"is not ready within {timeout_s:.0f} s" if time.monotonic() > until else ""
            wrong = {name: why for name, page in starting.items() if (why := self._wrong(page, late))}
            dagster = next((name for name in wrong if name != "mlflow"), None)
            if dagster is None and len(wrong) < len(starting):
                time.sleep(0.2)
                continue
            if not wrong:
                return self.addresses
            # The address is printed once it answers; what is wrong with this page is reported here.
            name, shown = (dagster, "web") if dagster else ("mlflow", "mlflow")
            self._pages[shown].left_out = True
            if (page := self._pages[name]).process is not None and not page.alive:
                page.ended_s = time.monotonic()
            if dagster:
                raise wrong[dagster]
            self._say(f"without MLflow's pages, which are tried again: {wrong[name]}")
            return {name: at for name, at in self.addresses.items() if name != "mlflow"}

    def watch(self) -> None:
        """Start again what has ended or is stuck; to be called about once a second."""
        for names, _ in self._groups(self._wanted):
            troubled = [page for name in names if (page := self._pages[name]).problem is not None]
            if troubled and all(time.monotonic() - page.ended_s > PUT_RIGHT_S for page in troubled):
                self._begin_all(names)
        for name in self._wanted:
            page = self._pages[name]
            try:
                self._look_after(name, page)
            except (HeadroomError, OSError) as error:
                page.starts, page.ended_s = page.starts + 1, time.monotonic()
                self._say(f"{page.role} could not be started, which is tried again: {error}")
        if time.monotonic() - self._looked_s >= LOOK_EVERY_S:
            self._look_for_stuck()
            self._looked_s = time.monotonic()

    def reload_definitions(self) -> None:
        """Let Dagster read the settings in force again, in a thread; runs that are under way go on."""
        if self._pages["code"].alive:
            threading.Thread(target=self._reload, name="headroom-reload", daemon=True).start()

    def _reload(self) -> None:
        if problem := _code_server(self.code_socket, "ReloadCode", timeout_s=WAIT_S):
            self._say(f"Dagster has not read the changed settings: {problem}; reload `headroom` on its page")

    def close(self) -> None:
        """End them. Whatever is wrong with them, the owner ends everything afterwards."""
        self._closed.set()
        (self._owner.folder / ADDRESSES).unlink(missing_ok=True)
        if self._starting is not None:
            self._starting.join()
        running = [page.process for page in self._pages.values() if page.process is not None]
        with suppress(HeadroomError):
            for process in running:  # all are asked before the first one is waited for
                process.signal(signal.SIGTERM)
            for process in running:
                self._owner.stop(process, grace_s=GRACE_S)
        for folder in (self._sockets, self._owner.folder / WEB):
            shutil.rmtree(folder, ignore_errors=True)

    # ------------------------------------------------------------------------------------------- its parts

    def _groups(self, names: list[str]) -> list[tuple[list[str], Callable[[], None]]]:
        """Those of these names that have one database, and what makes its tables."""
        groups = (  # the door first: it makes the folder of the sockets, and says what is starting
            ([name for name in names if name == "door"], self._prepare_door),
            ([name for name in names if name not in ("door", "mlflow")], self._prepare_dagster),
            ([name for name in names if name == "mlflow"], self._prepare_mlflow),
        )
        return [(group, prepare) for group, prepare in groups if group]

    def _look_after(self, name: str, page: _Page) -> None:
        if page.process is None:
            return
        now_s = time.monotonic()
        if page.alive:
            if now_s - page.began_s > STEADY_S:
                page.starts = 0
            if page.left_out and self._shows(name):
                page.left_out = False
                mlflow = f"MLflow:  {self._mlflow_at}"
                self._say(mlflow if name == "mlflow" else f"Dagster: {self.addresses['dagster']}")
        elif not page.ended_s:
            page.ended_s = now_s
            meanwhile = "; nothing is evaluated or decided until it runs again" if name in EVALUATING else ""
            self._say(f"{self._wrong(page)}{meanwhile}")
        elif now_s - page.ended_s > min(LONGEST_S, AGAIN_S * page.starts):
            self._say(f"{page.role} is started again")
            self._begin(name)

    def _look_for_stuck(self) -> None:
        """Restart servers that answered once and do not any more, and what keeps evaluations from coming."""
        for name in self._wanted:
            page = self._pages[name]
            unanswered = page.alive and not _answers(page) and page.answered_s
            if unanswered and time.monotonic() - page.answered_s > UNANSWERED_S:
                self._restart([name], f"{page.role} has not answered for {UNANSWERED_S:.0f} s")
        dagster = [self._pages[name] for name in EVALUATING if name in self._wanted]
        intervals_s = [job.evaluation_interval_s for job in self._settings.jobs.values()]
        if len(dagster) < len(EVALUATING) or not intervals_s or not all(page.alive for page in dagster):
            return
        began_s, now_s = max(page.began_s for page in dagster), time.monotonic()
        if self._evaluated_at_s() > began_s:
            self._restarts = 0
        silent_s = now_s - max(self._evaluated_at_s(), began_s)
        if silent_s <= longest_silence_s(min(intervals_s), restarts=self._restarts):
            return
        why = f"no job was evaluated for {silent_s:.0f} s"
        self._restarts += 1
        if self._switched_off():
            self._say(f"{why}: the sensor {SENSOR} was switched off on Dagster's pages; switch it on there")
        elif self._restarts > 1:
            self._restart(EVALUATING, why)
        else:
            self._restart(["daemon"] if self._pages["code"].ready() else ["code"], why)

    def _restart(self, names: Sequence[str], why: str) -> None:
        roles = " and ".join(self._pages[name].role for name in names)
        self._say(f"{why}: {roles} {'is' if len(names) == 1 else 'are'} restarted")
        for name in names:
            page = self._pages[name]
            try:
                if page.process is not None:
                    self._owner.stop(page.process, grace_s=GRACE_S)
                self._begin(name)
            except (HeadroomError, OSError) as error:  # tried again, as one that has ended by itself
                self._say(f"{page.role} could not be restarted, which is tried again: {error}")

    def _switched_off(self) -> bool:
        """Whether a person has switched the sensor off on Dagster's pages."""
        from dagster import DagsterInstance
        from dagster._core.scheduler.instigation import InstigatorStatus

        try:
            with DagsterInstance.from_config(str(self.home)) as instance:
                return any(
                    one.instigator_name == SENSOR and one.status is InstigatorStatus.STOPPED
                    for one in instance.all_instigator_state()
                )
        except Exception:  # noqa: BLE001 - its database does not answer: then a restart may help
            return False

    def _shows(self, name: str) -> bool:
        """Whether this page shows what it is for: Dagster's needs all of its processes."""
        (needed,) = (names for names, _ in self._groups(self._wanted) if name in names)
        return all(_answers(self._pages[one]) for one in ("door", *needed))

    def _begin_all(self, names: list[str]) -> None:
        """In a thread, after what was begun before: make the databases, and start the processes."""
        before = self._starting
        for name in names:
            self._pages[name].problem = None

        def work() -> None:
            if before is not None:
                before.join()
            for group, prepare in self._groups(names):
                try:
                    with _MAKING:
                        prepare()
                    for name in group:
                        self._begin(name)
                except BaseException as error:  # noqa: BLE001 - raised where they are waited for
                    self._not_begun(group, error)

        thread = threading.Thread(target=work, name="headroom-pages", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:  # the machine has none left
            self._not_begun(names, error)
        else:
            self._starting = thread

    def _not_begun(self, names: list[str], error: BaseException) -> None:
        pages = [self._pages[name] for name in names]
        roles = ", ".join(page.role for page in pages)
        problem = NotReady(f"{roles} could not be started: {type(error).__name__}: {error}")
        for page in pages:
            if not page.alive:
                page.ended_s = time.monotonic()
                page.problem = error if isinstance(error, HeadroomError) else problem

    def _wrong(self, page: _Page, late: str = "") -> HeadroomError | None:
        """Why it will not answer, if that is known. `late`: what to say when nothing else is."""
        if page.problem is not None:
            return page.problem
        if page.process is not None and not page.alive:
            late = "has ended"
        return NotReady(f"{page.role} {late}: see {self._owner.log(page.role)}") if late else None

    def environment(self) -> dict[str, str]:
        """What the definitions have to know: which file, which folder; and the user's own settings."""
        known = environment(self._owner.folder, file=self._file, mlflow=self._mlflow_at)
        if (store := self._settings.store.url_from) and store in os.environ:
            known[store] = os.environ[store]
        return {**known, HEADROOM_SETTINGS: str(self._owner.folder / "settings.json")}

    def prepare_home(self) -> Path:
        """DAGSTER_HOME with the project's dagster.yaml, and a workspace that names our code server."""
        dagster_home(self._owner.folder)
        (self.home / "workspace.yaml").write_text(
            "load_from:\n"
            "  - grpc_server:\n"
            f"      socket: {self.code_socket}\n"
            f"      location_name: {LOCATION}\n"
        )
        return self.home

    def _prepare_dagster(self) -> None:
        """Two that make the tables of one database at once fail; the code server makes them, too."""
        if (self.home / "workspace.yaml").exists() and self._pages["web"].process is not None:
            return
        self.prepare_home()
        where = {**self.addresses, "code_socket": self.code_socket, "pid": os.getpid()}
        write_json(self._owner.folder / ADDRESSES, {"schema": 1, **where})
        from dagster import DagsterInstance

        with DagsterInstance.from_config(str(self.home)) as instance:
            instance.get_runs_count()
            instance.all_instigator_state()
        self._begin("code")  # it takes longest

    def _prepare_door(self) -> None:
        before = Path((read_json(self._owner.folder / ADDRESSES) or {}).get("code_socket", "")).parent
        if before.name.startswith(SOCKETS) and before != self._sockets:  # of a server that was killed
            shutil.rmtree(before, ignore_errors=True)
        self._sockets.mkdir(mode=0o700, exist_ok=True)
        make_token(self._owner.folder, self._settings.web)

    def _prepare_mlflow(self) -> None:
        from ..integrations.mlflow_store import MlflowStore

        with MlflowStore.of(self._settings.mlflow, self._owner.folder).reading():
            pass

    def _begin(self, name: str) -> None:
        page = self._pages[name]
        with self._beginning:  # a thread that prepares, or `watch`
            if self._closed.is_set() or page.alive:
                return
            environment = self.environment()
            if name == "mlflow":  # it does not read the store
                environment.pop(self._settings.store.url_from or "", None)
            # Dagster's code server makes one more socket there, which a killed one leaves.
            environment["TMPDIR"] = str(self._sockets)
            page.process = self._owner.start(
                page.role,
                page.command,
                environment=environment,
                directory=self._file.parent,
                umask=0o077,
            )
            page.starts, page.began_s = page.starts + 1, time.monotonic()
            page.ended_s, page.answered_s, page.problem = 0.0, 0.0, None

    def _socket(self, name: str) -> str:
        return str(self._sockets / f"{name}.sock")

    def _door(self, port: int, looking: Sequence[str]) -> list[str]:
        web = self._settings.web
        hosts = [f"--host={host}" for host in web.hosts]
        metrics = [] if web.metrics_port is None else [f"--metrics-port={web.metrics_port}"]
        parts = [f"--part={name}={self._socket(name)}" for name in ("dagster", "mlflow")[: 1 + self._ours]]
        links = [f"--link=mlflow={self._mlflow_at}"] if re.match("https?:", self._mlflow_at) else []
        # A pod has no other users, and a port that is forwarded into it may come as any user.
        user = [] if self._settings.deployment.kind == "kubernetes" else [f"--user={os.getuid()}"]
        return [sys.executable, "-m", "pipelines.web.door", str(self._owner.folder), f"--port={port}",
                *hosts, *parts, *([] if self._ours else links), *user, *metrics, *looking]  # fmt: skip

    def _mlflow(self, port: int) -> _Page:
        from ..integrations.mlflow_store import ARTIFACTS, DATABASE

        folder, own = self._owner.folder, self._socket("mlflow")
        root = (folder / ARTIFACTS).as_uri()
        hosts = (f"{HOST}:{port}", f"localhost:{port}", *self._settings.web.hosts)
        return _Page(
            "mlflow",
            [sys.executable, "-m", "mlflow", "server", "--uvicorn-opts", f"--uds {shlex.quote(own)}",
             "--workers", "1", "--static-prefix", "/mlflow", "--allowed-hosts", ",".join(hosts),
             "--backend-store-uri", f"sqlite:///{folder / DATABASE}", "--default-artifact-root", root,
             "--artifacts-destination", root],
            lambda: _status(own, path="/mlflow/health") == 200,
        )  # fmt: skip


def _new_folder() -> Path:
    """Where sockets can be: a project's path may be too long for the kernel, or on a network file system."""
    for root in (tempfile.gettempdir(), "/tmp"):
        found = Path(root, f"{SOCKETS}{secrets.token_hex(8)}")
        if len(f"{found}/dagster.sock") <= LONGEST_SOCKET:
            break
    return found


def longest_silence_s(interval_s: float, *, restarts: int) -> float:
    """How long no evaluation may come before something is restarted, after so many restarts in vain."""
    return min(
        max(INTERVALS * interval_s, SILENT_S) * 2.0**restarts, max(MOST_SILENT_S, INTERVALS * interval_s)
    )


def _code_server(address: str, call: Literal["Ping", "ReloadCode"], *, timeout_s: float) -> str:
    """Ask the process that has loaded the definitions; the problem, if there is one.

    That the socket answers says little: it belongs to a proxy, which outlives that process.
    """
    if not Path(address).exists():
        return "it does not listen yet"
    import grpc
    from dagster._grpc.__generated__ import dagster_api_pb2 as messages
    from dagster._grpc.__generated__.dagster_api_pb2_grpc import DagsterApiStub

    try:
        with grpc.insecure_channel(f"unix:{address}") as channel:
            getattr(DagsterApiStub(channel), call)(getattr(messages, f"{call}Request")(), timeout=timeout_s)
            return ""
    except grpc.RpcError as error:
        return str(error) or call


def _answers(page: _Page) -> bool:
    if page.problem is not None or not page.ready():
        return False
    page.answered_s = time.monotonic()
    return True


def _status(where: str, port: int | None = None, *, path: str = "/") -> int | None:
    """What a server answers, on a port of `where` or, without one, on the socket of this name."""
    connection = http.client.HTTPConnection("localhost" if port is None else where, port, timeout=ANSWER_S)
    try:
        if port is None:
            connection.sock = socket.socket(socket.AF_UNIX)
            connection.sock.settimeout(ANSWER_S)
            connection.sock.connect(where)
        connection.request("GET", path)
        return connection.getresponse().status
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()
