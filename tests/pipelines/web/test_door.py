"""The door as it runs: attacked as by a page in a browser, as by another user, and used as it is meant."""

import asyncio
import gzip
import http.client
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from types import SimpleNamespace

import aiohttp
import pytest
from aiohttp import web
from waiting import until

from pipelines.integrations.ports import HOST, free_ports
from pipelines.orchestration.pages import Pages
from pipelines.settings import loading
from pipelines.settings.schema import WebSettings
from pipelines.web.access import METRICS_TOKEN, Access, make_token, read_token, user_of

ROOT = Path(__file__).parents[3]
MUTATION = "query=mutation%7BlaunchRun%7D"
JSON = {"Content-Type": "application/json"}


class Upstream:
    """What stands for Dagster or MLflow: it notes what reaches it, and answers the same each time."""

    def __init__(self, path):
        self.socket, self.seen = path, []
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._runner = asyncio.run_coroutine_threadsafe(self._started(), self._loop).result(30.0)

    async def _started(self):
        application = web.Application()
        application.router.add_route("*", "/{path:.*}", self._answer)
        runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        await web.UnixSite(runner, self.socket).start()
        return runner

    async def _answer(self, request):
        body = await request.text()
        self.seen.append(SimpleNamespace(line=f"{request.method} {request.raw_path}", body=body, of=request))
        if request.headers.get("Upgrade") == "websocket":
            talk = web.WebSocketResponse(protocols=["graphql-ws"])
            await talk.prepare(request)
            async for message in talk:
                if message.type is aiohttp.WSMsgType.TEXT:
                    await talk.send_str(f"{message.data}, {message.data}")
                else:
                    await talk.send_bytes(message.data[::-1])
            return talk
        headers = {"Content-Encoding": "gzip", "Content-Type": "text/plain", "X-Of": "upstream"}
        return web.Response(status=418, body=gzip.compress(b"pages"), headers=headers)

    def close(self):
        asyncio.run_coroutine_threadsafe(self._runner.cleanup(), self._loop).result(30.0)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(30.0)
        self._loop.close()


class Door:
    """The process, with a browser's requests to it."""

    def __init__(self, folder, sockets, *options):
        (self.port,) = free_ports(1)
        self.host = f"{HOST}:{self.port}"
        make_token(folder, WebSettings())
        self.token = read_token(folder)
        self.metrics_token = read_token(folder, METRICS_TOKEN)
        access = Access(self.token, self.port)
        self.cookie = {"Cookie": f"{access.cookie_name}={access.cookie}"}
        self.page = {**self.cookie, "Origin": f"http://{self.host}", "Sec-Fetch-Site": "same-origin"}
        parts = [f"--part={name}={sockets / name}" for name in ("dagster", "mlflow")]
        door = [sys.executable, "-m", "pipelines.web.door", str(folder), f"--port={self.port}"]
        self.process = subprocess.Popen([*door, *parts, *options], cwd=ROOT)
        until(self._answers, "the door")

    def _answers(self):
        assert self.process.poll() is None
        try:
            return self.ask("GET", "/")[0] == 401
        except OSError:
            return False

    def ask(self, method, path, headers=None, body=None):
        connection = http.client.HTTPConnection(HOST, self.port, timeout=30.0)
        try:
            connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
            for name, value in {"Host": self.host, **(headers or {})}.items():
                connection.putheader(name, value)
            if body is not None:
                connection.putheader("Content-Length", str(len(body)))
            connection.endheaders(None if body is None else body.encode())
            answer = connection.getresponse()
            return answer.status, answer.headers, answer.read()
        finally:
            connection.close()

    def talk(self, path, headers):
        """Over a WebSocket: the protocol and what comes back, or the status with which it is refused."""

        async def talked():
            address = f"ws://{self.host}{path}"
            async with aiohttp.ClientSession() as session:
                try:
                    async with session.ws_connect(address, protocols=["graphql-ws"], headers=headers) as one:
                        await one.send_str("hello")
                        await one.send_bytes(b"abc")
                        return one.protocol, await one.receive_str(), await one.receive_bytes()
                except aiohttp.WSServerHandshakeError as error:
                    return error.status

        return asyncio.run(talked())

    def close(self):
        self.process.terminate()
        assert self.process.wait(30.0) in (0, -15)


@pytest.fixture(scope="module")
def there():
    with tempfile.TemporaryDirectory(prefix="door-") as place:  # a path that is short enough for a socket
        (folder := Path(place, ".headroom")).mkdir()
        upstreams = {name: Upstream(f"{place}/{name}") for name in ("dagster", "mlflow")}
        door = Door(folder, Path(place), f"--user={os.getuid()}")
        found = SimpleNamespace(door=door, **upstreams)
        yield found
        door.close()
        for one in (found.dagster, found.mlflow):
            one.close()


@pytest.fixture
def door(there):
    there.dagster.seen.clear()
    there.mlflow.seen.clear()
    return there.door


def nothing_came_through(there):
    return not there.dagster.seen and not there.mlflow.seen


@pytest.mark.parametrize(
    "path", ["/", "/job/orders", "/dagster/runs", "/mlflow/", "/mlflow/get-artifact?path=x", "/other"]
)
def test_without_the_token_there_is_only_a_sentence_about_how_to_get_in(there, door, path):
    for headers in ({}, {"Cookie": f"headroom-{door.port}=wrong"}, {"Authorization": "Bearer wrong"}):
        for method in ("GET", "POST", "DELETE", "OPTIONS"):
            status, _, body = door.ask(method, path, headers)
            assert (status, b"<code>headroom open</code>" in body) == (401, True)
    assert door.talk("/dagster/graphql", {}) == 401
    assert nothing_came_through(there)


def test_the_token_in_the_address_becomes_a_cookie_once(there, door):
    status, headers, _ = door.ask("GET", f"/dagster/runs?a=b%2Fc&token={door.token}")
    assert (status, headers["Location"].partition("?")[0]) == (303, "/dagster/runs")
    assert door.token not in headers["Location"]
    cookie, *attributes = headers["Set-Cookie"].split("; ")
    assert set(attributes) == {"HttpOnly", "Path=/", "SameSite=Lax"}
    assert door.ask("GET", headers["Location"], {"Cookie": cookie})[0] == 418
    status, headers, body = door.ask("GET", "/?token=wrong")
    assert (status, "Set-Cookie" in headers, b"headroom open" in body) == (403, False, True)
    assert door.ask("GET", f"/?token={door.token}", {"Host": "rebound.example.net"})[0] == 403


@pytest.mark.parametrize("path", ["//example.net/", "/\\example.net/", "///example.net"])
def test_the_token_leads_to_no_other_host(door, path):
    _, headers, _ = door.ask("GET", f"{path}?token={door.token}")
    assert headers["Location"].startswith("/example.net")


OTHER = {"Origin": "https://example.net", "Sec-Fetch-Site": "cross-site"}
# Of another port: the browser sends our cookie.
NEIGHBOUR = {"Origin": "http://127.0.0.1:9", "Sec-Fetch-Site": "same-site"}
NO_CORS = {"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "script"}
FRAME = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "iframe"}


@pytest.mark.parametrize(
    ("method", "path", "headers", "expected"),
    [
        ("GET", "/dagster/runs", {"Host": "rebound.example.net"}, 403),
        ("POST", "/dagster/graphql", OTHER, 403),
        ("POST", f"/dagster/graphql?{MUTATION}", {**NEIGHBOUR, "Content-Type": "text/plain"}, 403),
        ("POST", "/mlflow/ajax-api/2.0/mlflow/runs/delete", NEIGHBOUR, 403),
        ("OPTIONS", "/mlflow/ajax-api/2.0/mlflow/runs/search", OTHER, 403),
        ("GET", "/mlflow/get-artifact?path=x", NO_CORS, 403),
        ("GET", "/dagster/runs", FRAME, 403),
        ("GET", f"/dagster/graphql?{MUTATION}", {}, 405),
        ("GET", f"/dagster/%67raphql?{MUTATION}", {}, 405),
        ("GET", f"/dagster%2Fgraphql?{MUTATION}", {}, 405),
        ("GET", f"/mlflow/graphql?{MUTATION}", {}, 405),
        ("HEAD", f"/dagster/graphql?{MUTATION}", {}, 405),
    ],
)
def test_what_another_page_makes_the_browser_send_goes_nowhere(there, door, method, path, headers, expected):
    body = json.dumps({"query": "mutation{launchRun}"}) if method == "POST" else None
    assert door.ask(method, path, {**door.cookie, **headers}, body)[0] == expected
    assert nothing_came_through(there)


@pytest.mark.parametrize("headers", [{}, {"Origin": "https://example.net"}, {"Origin": "http://127.0.0.1:9"}])
def test_another_page_opens_no_websocket(there, door, headers):
    assert door.talk("/dagster/graphql", {**door.cookie, **headers}) == 403
    assert nothing_came_through(there)


def test_our_own_pages_pass_as_they_are(there, door):
    body = json.dumps({"query": "{x}"})
    status, headers, found = door.ask("POST", "/dagster/graphql?op=%2Fx", {**door.page, **JSON}, body)
    assert (status, gzip.decompress(found), headers["X-Of"]) == (418, b"pages", "upstream")
    assert headers["X-Frame-Options"] == "SAMEORIGIN"
    (seen,) = there.dagster.seen
    assert (seen.line, seen.body) == ("POST /dagster/graphql?op=%2Fx", body)
    assert seen.of.headers["Host"] == door.host
    assert not {"Cookie", "Authorization", "Origin"} & set(seen.of.headers)  # the token ends at the door
    bearer = {"Authorization": f"Bearer {door.token}"}
    assert door.ask("POST", "/mlflow/api/2.0/mlflow/runs/search", {**bearer, **JSON}, body)[0] == 418
    assert [one.body for one in there.mlflow.seen] == [body]
    assert door.ask("GET", "/mlflow", door.page)[1]["Location"] == "/mlflow/"
    assert door.ask("HEAD", "/mlflow/", door.page)[0] == 418
    assert door.ask("GET", "/other", door.page)[0] == 404


def test_our_own_websockets_pass(door):
    expected = ("graphql-ws", "hello, hello", b"cba")
    assert door.talk("/dagster/graphql", door.page) == expected
    assert door.talk("/dagster/graphql", {"Authorization": f"Bearer {door.token}"}) == expected


def test_the_first_page_leads_to_the_others(door):
    status, _, body = door.ask("GET", "/", door.cookie)
    assert (status, b'href="/dagster/"' in body, b'href="/mlflow/"' in body) == (200, True, True)


def test_prometheus_has_a_token_of_its_own(door):
    assert door.ask("GET", "/metrics", {**door.cookie, "Authorization": f"Bearer {door.token}"})[0] == 401
    status, _, body = door.ask("GET", "/metrics", {"Authorization": f"Bearer {door.metrics_token}"})
    assert (status, body.startswith(b"no server runs for ")) == (503, True)


def test_a_part_that_is_away_is_said_until_it_comes(there, door):
    there.mlflow.close()
    try:
        status, headers, body = door.ask("GET", "/mlflow/", door.cookie)
        assert (status, headers["Retry-After"]) == (503, "2")
        assert b"MLflow is starting or away" in body
        assert b'http-equiv="refresh"' in body
        assert door.talk("/mlflow/x", door.page) == 503
        assert door.ask("GET", "/dagster/", door.cookie)[0] == 418
    finally:
        there.mlflow = Upstream(there.mlflow.socket)
    assert door.ask("GET", "/mlflow/", door.cookie)[0] == 418


as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as another user")


def as_user(user, code, *words):
    """What this code does where another user of the machine runs it."""
    command = ["/usr/bin/env", "python3", "-c", code, *words]
    whose = {"user": user, "group": user, "extra_groups": [], "cwd": "/"}
    return subprocess.run(command, **whose, capture_output=True, text=True)


@as_root
def test_another_user_of_the_machine_reaches_neither_the_token_nor_the_sockets():
    with tempfile.TemporaryDirectory(prefix="door-") as place:
        os.chmod(place, 0o755)
        (folder := Path(place, ".headroom")).mkdir(mode=0o755)
        owner = SimpleNamespace(folder=folder)
        settings = loading.parse("", environment={})
        pages = Pages(owner, settings, file=Path(place, "headroom.toml"))
        pages._prepare_door()
        upstream = Upstream(pages._socket("mlflow"))
        os.chmod(upstream.socket, 0o666)  # as uvicorn leaves it
        try:
            tries = (
                f"open({str(folder / 'web' / 'token')!r})",
                f"import os; os.listdir({str(Path(upstream.socket).parent)!r})",
                f"import socket; socket.socket(socket.AF_UNIX).connect({upstream.socket!r})",
            )
            for code in tries:
                for user, denied in ((0, False), (65534, True)):
                    done = as_user(user, code)
                    assert ("PermissionError" in done.stderr) is denied, (code, done.stderr)
                    assert (done.returncode != 0) is denied, (code, done.stderr)
        finally:
            upstream.close()
            pages.close()
        assert not Path(upstream.socket).parent.exists()
        assert not (folder / "web").exists()


AS_ANOTHER_USER = """
import http.client, sys
connection = http.client.HTTPConnection("127.0.0.1", int(sys.argv[1]))
method, path, name, value, *more = sys.argv[2:]
connection.request(method, path, headers={name: value, **dict(zip(more[::2], more[1::2]))})
print(connection.getresponse().status)
"""


@as_root
def test_a_cookie_that_another_user_has_stolen_lets_him_in_nowhere(there, door):
    """As any page on 127.0.0.1 can: browsers keep cookies by host, not by port."""
    bearer = f"Bearer {door.token}"  # of a proxy, which may be another user
    stolen = f"Bearer {door.cookie['Cookie'].partition('=')[2]}"
    runs, order = ("GET", "/dagster/runs"), ("POST", "/job/orders")
    ours = {**door.cookie, "Origin": f"http://127.0.0.1:{door.port}"}
    for request, headers, user, expected in (
        (runs, door.cookie, 0, "418"),
        (runs, door.cookie, 65534, "403"),
        (("GET", "/"), door.cookie, 65534, "403"),
        (("GET", "/job/orders"), door.cookie, 65534, "403"),
        (order, ours, 0, "503"),  # it would be taken, if there were settings
        (order, ours, 65534, "403"),
        (runs, {**door.cookie, "Authorization": "Basic bWU="}, 65534, "403"),
        (runs, {"Authorization": stolen}, 65534, "401"),
        (runs, {"Authorization": bearer}, 65534, "418"),
    ):
        words = [word for pair in headers.items() for word in pair]
        done = as_user(user, AS_ANOTHER_USER, str(door.port), *request, *words)
        assert done.stdout.strip() == expected, (request, headers, user, done.stderr)


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6])
def test_the_kernel_knows_whose_connection_it_is_while_it_is_open(family):
    with socket.create_server((HOST, 0)) as server, socket.socket(family) as client:
        client.connect((HOST if family == socket.AF_INET else f"::ffff:{HOST}", server.getsockname()[1]))
        here, _ = server.accept()
        with here:
            other, own = here.getpeername(), here.getsockname()
            assert user_of(other, own) == os.getuid()
            client.close()  # from now on the kernel says root
            until(lambda: user_of(other, own) is None, timeout_s=30.0)


def test_sockets_have_a_short_path_wherever_the_project_is(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / ("long" * 30)))
    owner = SimpleNamespace(folder=tmp_path / ("deep" * 40) / ".headroom")
    pages = Pages(owner, loading.parse("", environment={}), file=tmp_path / "headroom.toml")
    assert len(pages.code_socket) < 108


def test_what_a_killed_server_has_left_is_removed(tmp_path):
    owner = SimpleNamespace(folder=tmp_path)
    settings = loading.parse("", environment={})
    killed, later = (Pages(owner, settings, file=tmp_path / "headroom.toml") for _ in range(2))
    killed._prepare_door()
    (tmp_path / "dagster").mkdir()
    (tmp_path / "dagster" / "pages.json").write_text(json.dumps({"code_socket": killed.code_socket}))
    later._prepare_door()
    assert not Path(killed.code_socket).parent.exists()
    assert Path(later.code_socket).parent.stat().st_mode & 0o777 == 0o700
    later.close()


def test_another_program_on_the_port_is_not_taken_for_the_door(tmp_path, door):
    owner = SimpleNamespace(folder=tmp_path)
    settings = loading.parse(f"[web]\nport = {door.port}\n", environment={})
    pages = Pages(owner, settings, file=tmp_path / "headroom.toml")
    assert pages.addresses["pages"] == f"http://{door.host}"
    assert not pages._pages["door"].ready()
    pages._pages["door"].process = SimpleNamespace(alive=True)
    assert pages._pages["door"].ready()
