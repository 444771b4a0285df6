"""A real Postgres server for tests: a temporary folder, a free port of 127.0.0.1, a password."""

from __future__ import annotations

import ctypes
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pipelines.integrations.ports import free_ports

USER, PASSWORD, DATABASE = "headroom", "pass-0f-the-test", "postgres"
INSTALL = "there is no Postgres server here: `apt-get install postgresql` as root, or `make test-real`"
PR_SET_PDEATHSIG = 1


def binaries() -> Path | None:
    """Where the server's programs are; Debian keeps them off the path, a folder per version."""
    if found := shutil.which("initdb"):
        return Path(found).resolve().parent
    return max(Path("/usr/lib/postgresql").glob("*/bin"), default=None)


class PostgresServer:
    """Runs from `start` to `stop`, and ends with this process however that ends."""

    def __init__(self, programs: Path) -> None:
        self._programs = programs
        self._folder = Path(tempfile.mkdtemp(prefix="headroom-postgres-", dir="/tmp"))
        # It refuses to run as root.
        self._user = None if os.getuid() else pwd.getpwnam("postgres").pw_name
        if self._user:
            shutil.chown(self._folder, self._user)
        self._process: subprocess.Popen[bytes] | None = None
        (self.port,) = free_ports(1)
        self.url = f"postgresql://{USER}:{PASSWORD}@127.0.0.1:{self.port}/{DATABASE}"
        self._data = self._folder / "data"

    def _make(self) -> None:
        password = self._folder / "password"
        password.write_text(PASSWORD)
        subprocess.run(
            [
                *(self._programs / "initdb", "--pgdata", self._data, "--username", USER, "--no-sync"),
                *("--auth", "scram-sha-256", "--pwfile", password),
                # An order of texts that is not that of their bytes, as most servers have it.
                *("--encoding=UTF8", "--locale=C.UTF-8", "--locale-provider=icu", "--icu-locale=en-US"),
            ],
            **self._identity(),
            check=True,
            capture_output=True,
        )

    def _identity(self) -> dict[str, Any]:
        if self._user is None:
            return {"cwd": self._folder}
        group = pwd.getpwnam(self._user).pw_gid
        return {"cwd": self._folder, "user": self._user, "group": group, "extra_groups": []}

    def start(self) -> None:
        if not self._data.exists():
            self._make()
        libc = ctypes.CDLL(None)
        options = {"listen_addresses": "127.0.0.1", "port": str(self.port), "unix_socket_directories": ""}
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [
                    *(self._programs / "postgres", "-D", self._data),
                    *(word for key, value in options.items() for word in ("-c", f"{key}={value}")),
                ],
                **self._identity(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=lambda: libc.prctl(PR_SET_PDEATHSIG, signal.SIGINT),
            )
        until = time.monotonic() + 60.0
        while not self.answers():
            if self._process.poll() is not None or time.monotonic() > until:
                raise AssertionError((self._folder / "log").read_text()[-2000:])
            time.sleep(0.05)

    def answers(self) -> bool:
        import psycopg

        try:
            psycopg.connect(self.url, connect_timeout=5).close()
        except psycopg.OperationalError:
            return False
        return True

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """SIGINT ends every connection; SIGQUIT is a crash, from which the next start recovers."""
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(60)
            self._process = None

    def execute(self, *statements: str, database: str = DATABASE) -> None:
        import psycopg

        with psycopg.connect(self.url, dbname=database, autocommit=True) as connection:
            for statement in statements:
                connection.execute(statement.encode())

    def url_with(self, **changes: str | int) -> str:
        parts: Mapping[str, str | int] = {
            **{"user": USER, "password": PASSWORD, "port": self.port, "database": DATABASE},
            **changes,
        }
        return "postgresql://{user}:{password}@127.0.0.1:{port}/{database}".format(**parts)

    def close(self) -> None:
        self.stop(signal.SIGQUIT)
        shutil.rmtree(self._folder, ignore_errors=True)
