"""Access rules of the door, without a server around them.

A request has to name a host of ours (a page of another site that has rebound its own name to 127.0.0.1 does
not), must not come from another page, and carries the token: as a cookie or as `Authorization: Bearer`. The
token is new with each start, unless `[web] token_from` gives one.

A browser keeps cookies by host and not by port. So another page on 127.0.0.1 sends our cookie too, and only
what the browser itself says of the page (Origin, Sec-Fetch-Site) tells it apart. The server of such
a page gets our cookie, too. It is of no use to another user of this machine: it is not the token, and the
kernel knows the user of each connection.
"""

from __future__ import annotations

import hmac
import os
import re
import secrets
import socket
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from models.errors import Misconfigured
from profiling_jobs import secret_file
from profiling_jobs.driver.launch_file import write_text

from ..settings.schema import WebSettings

FOLDER = "web"
TOKEN = f"{FOLDER}/token"  # in `.headroom`
METRICS_TOKEN = f"{FOLDER}/metrics-token"
KEPT_METRICS_TOKEN = "metrics.token"  # in `.headroom`, where the settings of Prometheus name it
LEAST_CHARACTERS = 16  # judgement: of a token that a person gives; ours have 43
NET = Path("/proc/net")
ESTABLISHED = "01"
MAPPED = "0" * 16 + f"{int.from_bytes(bytes((0, 0, 255, 255)), sys.byteorder):08X}"
READS = frozenset({"GET", "HEAD"})
# MLflow asks for these lists by POST.
SEARCHES = re.compile(r"/mlflow/(graphql|(ajax-)?api/\d\.\d/mlflow/[a-z-]+/search(-datasets)?)")


@dataclass(frozen=True)
class Refusal:
    """Why a request is not answered."""

    status: int
    sentence: str


@dataclass(frozen=True)
class Access:
    """Access rules of one door."""

    token: str = field(repr=False)
    port: int
    hosts: frozenset[str] = frozenset()
    """Further names under which it is reached, with their port where a browser shows one."""
    read_only: bool = False

    @property
    def cookie_name(self) -> str:
        """Name with the port: browsers share the cookies of a host between all of its ports."""
        return f"headroom-{self.port}"

    @property
    def cookie(self) -> str:
        """Cookie for which the token is exchanged; the token cannot be computed from it."""
        return hmac.new(self.token.encode(), b"cookie", "sha256").hexdigest()

    def fits(self, token: str) -> bool:
        """Whether this is the token, compared in constant time."""
        same = hmac.compare_digest(token.encode("utf-8", "replace"), self.token.encode())
        return same and bool(self.token)

    def has_token(self, headers: Mapping[str, str]) -> bool:
        """Whether the request carries the token as `Authorization`, from a program or a proxy."""
        return self.fits(headers.get("Authorization", "").removeprefix("Bearer "))

    def refusal(
        self,
        method: str,
        path: str,
        headers: Mapping[str, str],
        *,
        cookie: str = "",
        websocket: bool = False,
    ) -> Refusal | None:
        """Why this request is refused; None if it may pass. `path` is decoded, `headers` know no case."""
        if (foreign := self.foreign(method, headers)) is not None:
            return foreign
        bearer = self.has_token(headers)
        if not bearer and not hmac.compare_digest(cookie.encode("utf-8", "replace"), self.cookie.encode()):
            return Refusal(401, "These pages are for the user who runs Headroom.")
        # Every browser names the page that sends a form or opens a WebSocket.
        if not bearer and (websocket or method not in READS) and "Origin" not in headers:
            return Refusal(403, "The request does not say which page has sent it (Origin).")
        if method in READS and not websocket and path.rstrip("/").endswith("/graphql"):
            return Refusal(405, "GraphQL is asked by POST: a GET could change something.")
        if self.read_only and method not in READS and not self._only_asks(path):
            return Refusal(403, "Headroom was started with --read-only: nothing can be changed here.")
        return None

    def foreign(self, method: str, headers: Mapping[str, str]) -> Refusal | None:
        """Why the request counts as one of another site, which not even the right token helps."""
        host = headers.get("Host", "").lower()
        if host not in {f"127.0.0.1:{self.port}", f"localhost:{self.port}", *self.hosts}:
            return Refusal(403, "This address is not known here: add it to `[web] hosts`.")
        if "Origin" in headers and urlsplit(headers["Origin"]).netloc.lower() != host:
            return Refusal(403, "The request comes from a page of another address.")
        # A link may lead here; what another page loads by itself, a frame too, is refused.
        link = (method, headers.get("Sec-Fetch-Mode"), headers.get("Sec-Fetch-Dest"))
        site = headers.get("Sec-Fetch-Site", "none")
        if site not in ("none", "same-origin") and link != ("GET", "navigate", "document"):
            return Refusal(403, "The request comes from a page of another address.")
        return None

    def _only_asks(self, path: str) -> bool:
        """Dagster's own --read-only refuses the mutations among its queries."""
        return path == "/dagster/graphql" or SEARCHES.fullmatch(path) is not None


def user_of(connection: tuple[str, int], to: tuple[str, int]) -> int | None:
    """The user at the other end of a connection of this machine, as the kernel has it now.

    None where it is not open any more: the kernel then names root instead. OSError where it does not tell.
    """
    here, there = _as_in_the_table(connection), _as_in_the_table(to)
    for table in (NET / "tcp", NET / "tcp6"):
        if table.name == "tcp6" and not table.exists():  # a kernel without IPv6
            continue
        for line in table.read_text().splitlines()[1:]:
            _, local, remote, state, _, _, _, user, *_ = line.split()
            if local in here and remote in there and state == ESTABLISHED:
                return int(user)
    return None


def _as_in_the_table(address: tuple[str, int]) -> tuple[str, str]:
    """Of IPv4, and of IPv6 that stands for IPv4: four bytes, each read as a number of this machine."""
    host = int.from_bytes(socket.inet_aton(address[0]), sys.byteorder)
    short = f"{host:08X}:{address[1]:04X}"
    return short, f"{MAPPED}{short}"


def make_token(folder: Path, settings: WebSettings, environment: Mapping[str, str] = os.environ) -> None:
    """Write the tokens of this start, that of the pages and that of `/metrics`, for this user only.

    Without a variable that gives it, the token of `/metrics` is made once and kept.
    """
    pages = _given("token_from", settings.token_from, environment)
    metrics = _given("metrics_token_from", settings.metrics_token_from, environment)
    (folder / FOLDER).mkdir(mode=0o700, exist_ok=True)
    write_text(folder / TOKEN, pages or secrets.token_urlsafe(32))
    write_text(folder / METRICS_TOKEN, metrics or secret_file.kept(folder / KEPT_METRICS_TOKEN))


def _given(key: str, variable: str | None, environment: Mapping[str, str]) -> str:
    """The token in this environment variable; empty where the settings name none."""
    if variable is None:
        return ""
    token = environment.get(variable, "").strip()
    if len(token) < LEAST_CHARACTERS or not re.fullmatch(r"[\w.~-]+", token, re.ASCII):
        raise Misconfigured(
            f"web.{key}",
            f"the environment variable {variable} needs {LEAST_CHARACTERS} or more letters, digits and -._~",
        )
    return token


def read_token(folder: Path, name: str = TOKEN) -> str:
    """The token of the server of this folder."""
    return (folder / name).read_text(encoding="utf-8").strip()


def with_token(address: str, folder: Path) -> str:
    """The address that lets a browser in."""
    return f"{address}{'&' if '?' in address else '?'}token={read_token(folder)}"
