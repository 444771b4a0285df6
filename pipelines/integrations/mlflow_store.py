"""Access to MLflow: where its data are, clients, locks and errors.

Without a `tracking_uri` the data are in SQLite under `.headroom/`: `mlflow.sqlite` and `mlflow-artifacts/`.
Only explicit clients are used, never MLflow's current server, run or experiment, which belong to the process.
There is no telemetry, and MLflow's errors become ours.
"""

from __future__ import annotations

import fcntl
import importlib
import logging
import os
import re
import sqlite3
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from models.errors import HeadroomError, Misconfigured, NotReady, Unsafe

from ..settings.schema import MlflowSettings

if TYPE_CHECKING:
    from mlflow import MlflowClient

DATABASE = "mlflow.sqlite"
ARTIFACTS = "mlflow-artifacts"
LOCK = "mlflow.lock"
REMAIN = "the exported champions stay in charge"
LOCK_S = 300.0  # measured: creating the tables takes 2 s, on a disk that others keep busy over a minute
ENVIRONMENT = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "DO_NOT_TRACK": "true",
    "MLFLOW_ENABLE_ASYNC_LOGGING": "false",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
}
PATIENCE = {
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",  # MLflow's own 7 with back-off are minutes of silence
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "20",
}
_CURRENT = threading.Lock()


class MlflowStore:
    """One tracking server and registry, from any thread or process; imported and opened at first use."""

    def __init__(self, *, tracking_uri: str | None, folder: Path) -> None:
        self.folder = folder.resolve()
        self.ours = tracking_uri is None
        self.uri = tracking_uri or f"sqlite:///{self.folder / DATABASE}"
        if "://" not in self.uri and not self.uri.startswith("databricks"):
            raise Misconfigured(
                "mlflow.tracking_uri", f"must be an address such as http://…, got {self.uri!r}"
            )
        if self.uri.startswith("file:"):
            raise Misconfigured(
                "mlflow.tracking_uri", "is a folder, which MLflow keeps no more: leave it out, or sqlite:///…"
            )
        self._turn = threading.RLock()
        self._client: MlflowClient | None = None
        self._alone_now = False

    @classmethod
    def of(cls, settings: MlflowSettings, folder: Path) -> MlflowStore:
        """The one that `[mlflow]` asks for; `folder` is `.headroom`."""
        return cls(tracking_uri=settings.tracking_uri, folder=folder)

    @property
    def address(self) -> str:
        """For messages: without a password."""
        return re.sub(r"//[^@/]*@", "//…@", self.uri)

    def artifact_location(self, experiment: str) -> str | None:
        """Where a new experiment puts its files: beside the database, or where the server wants them."""
        return (self.folder / ARTIFACTS / experiment).as_uri() if self.ours else None

    def check_location(self, address: str) -> None:
        """Refuse files of this machine outside our store: MLflow's pages let people name any folder."""
        parts = urlsplit(address)
        if parts.scheme not in ("", "file") or not (self.ours or self.uri.startswith("http")):
            return
        path = os.path.realpath(unquote(parts.path))
        if not (self.ours and Path(path).is_relative_to(os.path.realpath(self.folder / ARTIFACTS))):
            fix = (
                "name another experiment as mlflow.experiment, and fit the model again"
                if self.ours
                else "let the server hand out its files (`mlflow server --serve-artifacts`)"
            )
            raise Unsafe(
                f"its files are to lie in {path}, which is not in MLflow's store ({self.address}): {fix}"
            )

    @contextmanager
    def reading(self) -> Iterator[MlflowClient]:
        """A client; MLflow's errors become ours."""
        with self.translated():
            yield self._opened()

    @contextmanager
    def writing(self) -> Iterator[MlflowClient]:
        """The same for several steps that belong together: one writer at a time where the store is ours."""
        with self.translated(), self._turn, self._alone():
            yield self._opened()

    @contextmanager
    def as_current(self) -> Iterator[None]:
        """For the one call in which MLflow asks for the process's current server whatever it is given.

        Without it a version made from a logged model is looked for, and a database made, where we stand.
        """
        import mlflow

        with _CURRENT:
            before = mlflow.get_tracking_uri() if mlflow.is_tracking_uri_set() else None
            mlflow.set_tracking_uri(self.uri)
            try:
                yield
            finally:
                mlflow.set_tracking_uri(before)  # type: ignore[arg-type]

    def _opened(self) -> MlflowClient:
        with self._turn:
            if self._client is None:
                with self._alone():  # two that create the tables at once would fail
                    self._looked_at()
                    self._client = _connected(self.uri)
            return self._client

    def _looked_at(self) -> None:
        """MLflow would try for two minutes to open a database that is none."""
        if not self.ours:
            return
        path = self.folder / DATABASE
        # Not read as a file: closing it would drop the locks of this process's other connections to it.
        try:
            with closing(sqlite3.connect(path)) as connection:
                connection.execute("PRAGMA schema_version")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF not in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
                raise Misconfigured(str(path), f"cannot be opened ({error})") from error
        except sqlite3.DatabaseError as error:
            raise Unsafe(f"{path} is damaged or no database: move it aside, {REMAIN}") from error

    @contextmanager
    def _alone(self) -> Iterator[None]:
        if not self.ours:
            yield
            return
        if self._alone_now:  # by this thread, which has the turn
            yield
            return
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle = os.open(self.folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            _locked(handle, timeout_s=LOCK_S)
            self._alone_now = True
            yield
        finally:
            self._alone_now = False
            os.close(handle)

    @contextmanager
    def translated(self) -> Iterator[None]:
        """MLflow's errors, and those of its database and its files, as ours."""
        try:
            yield
        except (HeadroomError, ValueError):
            raise
        except OSError as error:
            raise NotReady(f"MLflow's files at {self.address} cannot be used ({error})") from error
        except Exception as error:
            found = self._translated(error)
            if found is None:
                raise
            raise found from error

    def _translated(self, error: Exception) -> HeadroomError | None:
        family = type(error).__module__.partition(".")[0]
        if family not in ("mlflow", "sqlalchemy", "alembic", "requests", "urllib3", "sqlite3"):
            return None
        said = _short(error)
        where = f"MLflow at {self.address}"
        if "out-of-date database schema" in said or "Can't locate revision" in said:
            return Unsafe(
                f"{where} was made by another version of MLflow ({said}): back it up, then run "
                "`mlflow db upgrade` on it"
            )
        if "not a database" in said or "malformed" in said:
            return Unsafe(f"{where} is damaged ({said}): move {DATABASE} aside, {REMAIN}")
        if error_code(error) in ("PERMISSION_DENIED", "UNAUTHENTICATED", "CUSTOMER_UNAUTHORIZED"):
            return Misconfigured(
                "mlflow.tracking_uri",
                f"{where} refuses us ({said}): set MLFLOW_TRACKING_USERNAME and …_PASSWORD",
            )
        if error_code(error) in ("INVALID_PARAMETER_VALUE", "RESOURCE_DOES_NOT_EXIST", "INVALID_STATE"):
            return Unsafe(f"{where}: {said}")
        return NotReady(f"{where} does not answer ({said}); {REMAIN}")


def _locked(handle: int, *, timeout_s: float) -> None:
    until = time.monotonic() + timeout_s
    while True:
        try:
            return fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as busy:
            if time.monotonic() > until:
                raise NotReady(
                    f"another process has been writing to MLflow's store for {timeout_s:.0f} s"
                ) from busy
            time.sleep(0.02)


def error_code(error: BaseException) -> str:
    """MLflow's name for what happened; empty for anything else."""
    return str(getattr(error, "error_code", ""))


def is_gone(error: BaseException) -> bool:
    """Whether the error says that a thing does not exist, rather than that the server is away."""
    if error_code(error) in ("RESOURCE_DOES_NOT_EXIST", "NOT_FOUND"):
        return True
    if getattr(getattr(error, "response", None), "status_code", None) == 404:
        return True
    # MLflow raises a bare OSError, without a number, for a local file.
    return isinstance(error, OSError) and "No such file" in str(error)


def _short(error: Exception) -> str:
    """The first line, without the statement and the address of SQLAlchemy's help."""
    text = str(error).strip() or type(error).__name__
    return re.sub(r"//[^@/\s]*@", "//…@", text.splitlines()[0])[:300]


def _connected(uri: str) -> MlflowClient:
    os.environ.update(ENVIRONMENT)
    for name, value in PATIENCE.items():
        os.environ.setdefault(name, value)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what MLflow thinks of its own type hints while it is imported
        for name in ("mlflow.artifacts", "mlflow.pyfunc"):
            importlib.import_module(name)
    from mlflow import MlflowClient

    for noisy in ("alembic", "mlflow"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    logging.getLogger("mlflow.utils.environment").setLevel(logging.ERROR)  # our requirements name no pip
    logging.getLogger("mlflow.store.db.utils").setLevel(
        logging.CRITICAL
    )  # a traceback of an error that is reported anyway
    client: Any = MlflowClient(tracking_uri=uri, registry_uri=uri)
    client.search_experiments(max_results=1)  # creates the tables, and shows whether the server answers
    return client
