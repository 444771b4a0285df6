"""The door: the one address that Headroom opens, with Dagster's and MLflow's pages behind it.

Both listen on Unix sockets in a folder that only this user may enter. Whatever passes the rules of
`access.py` is handed on as it is, WebSockets too: Dagster below `/dagster`, MLflow below `/mlflow`. The
door's own pages, of all jobs and of each, are in `home.py`. `?token=…` in the address becomes a cookie, so
that it is given once.

    python -m pipelines.web.door FOLDER --port PORT --part dagster=SOCKET --part mlflow=SOCKET
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from html import escape
from pathlib import Path
from weakref import WeakKeyDictionary

import aiohttp
import click
from aiohttp import WSMsgType, web
from multidict import CIMultiDict, CIMultiDictProxy
from yarl import URL

from ..integrations.ports import HOST
from .access import METRICS_TOKEN, Access, read_token, user_of
from .home import Home
from .metrics import MetricsPage

TITLES = {"dagster": "Dagster", "mlflow": "MLflow"}
SHOW = {"dagster": "runs, plots and the sensor", "mlflow": "the models and their versions"}
CONNECT_S = 5.0  # judgement: a socket of this machine
LONGEST_LINE = 65_536  # of an address with its query; uvicorn's own limit
AGAIN_S = 2
# Of one connection, not of what is sent over it (RFC 9110, 7.6.1).
HOPS = "Connection Keep-Alive Proxy-Authenticate Proxy-Authorization Proxy-Connection TE Trailer".split()
HOPS += "Transfer-Encoding Upgrade".split()
# The door has looked at these; MLflow would answer a page of another port of this machine.
OURS = "Host Origin Authorization Cookie Expect Forwarded X-Forwarded-For".split()
# aiohttp agrees on these with each side anew.
OURS += "Sec-WebSocket-Key Sec-WebSocket-Version Sec-WebSocket-Extensions Sec-WebSocket-Protocol".split()
AWAY = (aiohttp.ClientConnectionError, OSError)
OPEN_IT = "In a terminal of this machine: <code>headroom open</code>."


class Door:
    """`parts`: the socket of each; `links`: pages elsewhere; `user`: beside root, who may use a cookie."""

    def __init__(
        self,
        access: Access,
        folder: Path,
        parts: Mapping[str, str],
        *,
        links: Mapping[str, str] | None = None,
        user: int | None = None,
        metrics: MetricsPage | None = None,
    ) -> None:
        self._metrics = metrics
        self._access, self._parts, self._user = access, dict(parts), user
        pages = {TITLES[name]: (f"/{name}/", SHOW[name]) for name in parts}
        pages |= {TITLES[name]: (f"{at.rstrip('/')}/", SHOW[name]) for name, at in (links or {}).items()}
        self._home = Home(folder, pages, read_only=access.read_only)
        self._known: WeakKeyDictionary[asyncio.Transport, bool] = WeakKeyDictionary()
        self._sessions: dict[str, aiohttp.ClientSession] = {}

    def application(self) -> web.Application:
        """The door as aiohttp serves it."""
        found = web.Application()
        if self._metrics is not None:  # it asks for a token of its own
            self._metrics.add_to(found)
        found.router.add_route("*", "/{path:.*}", self._answer)
        found.cleanup_ctx.append(self._connected)
        found.on_response_prepare.append(_framed)
        return found

    async def _connected(self, _: web.Application) -> AsyncIterator[None]:
        for name, socket in self._parts.items():
            self._sessions[name] = aiohttp.ClientSession(
                # A connection each: one that uvicorn is about to close would lose a POST.
                connector=aiohttp.UnixConnector(socket, limit=0, force_close=True),
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S),
                auto_decompress=False,
                cookie_jar=aiohttp.DummyCookieJar(),
                skip_auto_headers=("User-Agent", "Accept", "Accept-Encoding", "Content-Type"),
            )
        yield
        for session in self._sessions.values():
            await session.close()

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        token, websocket = request.query.get("token"), _wants_websocket(request)
        if token is not None and request.method == "GET" and not websocket:
            return self._let_in(request, token)
        refused = self._access.refusal(
            request.method,
            request.path,
            request.headers,
            cookie=request.cookies.get(self._access.cookie_name, ""),
            websocket=websocket,
        )
        if refused is not None:
            return _page(refused.status, refused.sentence, OPEN_IT if refused.status == 401 else "")
        if not self._access.has_token(request.headers) and not self._ours(request):
            return _page(403, "This browser is run by another user than Headroom.")
        if self._home.has(request.path):
            return await self._home.answer(request)
        part = request.path.split("/")[1]
        if part not in self._parts:
            return _page(404, "There is no such page here.", '<a href="/">Headroom</a>')
        if request.path == f"/{part}":
            return web.Response(status=308, headers={"Location": f"/{part}/"})
        return await (self._websocket if websocket else self._http)(request, part)

    def _let_in(self, request: web.Request, token: str) -> web.StreamResponse:
        """Exchange the token of the address for a cookie, and go to the same address without it."""
        if (foreign := self._access.foreign("GET", request.headers)) is not None:
            return _page(foreign.status, foreign.sentence)
        if not self._access.fits(token):
            return _page(403, "The token is not the one of this start of Headroom.", OPEN_IT)
        left = request.rel_url.without_query_params("token")
        # Two slashes at the beginning, or one and a backslash, would lead to another host.
        answer = web.Response(status=303, headers={"Location": "/" + str(left).lstrip("/\\")})
        name, value = self._access.cookie_name, self._access.cookie
        answer.set_cookie(name, value, path="/", httponly=True, samesite="Lax")
        return answer

    def _ours(self, request: web.Request) -> bool:
        """Whether the request comes from this user, or from root as a forwarded port does."""
        if self._user is None or (transport := request.transport) is None:
            return self._user is None
        if transport not in self._known:
            own, other = transport.get_extra_info("sockname"), transport.get_extra_info("peername")
            try:
                self._known[transport] = user_of(other, own) in (0, self._user)
            except OSError:  # a kernel that does not tell: the cookie has to do
                self._known[transport] = True
        return self._known[transport]

    async def _http(self, request: web.Request, part: str) -> web.StreamResponse:
        try:
            found = await self._sessions[part].request(
                request.method,
                _upstream(request),
                headers=_handed_on(request),
                data=request.content if request.body_exists else None,
                allow_redirects=False,
            )
        except AWAY:
            return _away(part)
        async with found:
            answer = web.StreamResponse(
                status=found.status, reason=found.reason, headers=_without(found.headers, *HOPS)
            )
            await answer.prepare(request)
            async for chunk in found.content.iter_any():
                await answer.write(chunk)
            await answer.write_eof()
            return answer

    async def _websocket(self, request: web.Request, part: str) -> web.StreamResponse:
        wanted = request.headers.get("Sec-WebSocket-Protocol", "")
        try:
            there = await self._sessions[part].ws_connect(
                _upstream(request),
                headers=_handed_on(request),
                protocols=[name.strip() for name in wanted.split(",") if name.strip()],
                max_msg_size=0,
            )
        except aiohttp.WSServerHandshakeError as error:
            return web.Response(status=error.status)
        except AWAY:
            return _away(part)
        async with there:
            chosen = [there.protocol] if there.protocol else []
            here = web.WebSocketResponse(protocols=chosen, compress=False, max_msg_size=0)
            await here.prepare(request)
            both = [asyncio.create_task(_copied(here, there)), asyncio.create_task(_copied(there, here))]
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            for one in both:
                one.cancel()
            await asyncio.gather(*both, return_exceptions=True)
            await here.close(code=aiohttp.WSCloseCode.GOING_AWAY)
            return here


async def _copied(
    source: web.WebSocketResponse | aiohttp.ClientWebSocketResponse,
    target: web.WebSocketResponse | aiohttp.ClientWebSocketResponse,
) -> None:
    async for message in source:
        if message.type is WSMsgType.TEXT:
            await target.send_str(message.data)
        elif message.type is WSMsgType.BINARY:
            await target.send_bytes(message.data)


async def _framed(request: web.BaseRequest, answer: web.StreamResponse) -> None:
    """Keep pages of other sites from showing ours in a frame, and from loading pictures or scripts of it."""
    answer.headers.setdefault("X-Frame-Options", "SAMEORIGIN")
    answer.headers.setdefault("Cross-Origin-Resource-Policy", "same-origin")


def _wants_websocket(request: web.Request) -> bool:
    return request.headers.get("Upgrade", "").lower() == "websocket"


def _upstream(request: web.Request) -> URL:
    """Upstream address with the path as it came: not decoded, not normalised."""
    return URL(f"http://{HOST}{request.raw_path}", encoded=True)


def _handed_on(request: web.Request) -> CIMultiDict[str]:
    headers = _without(request.headers, *HOPS, *OURS)
    headers["Host"] = request.host
    return headers


def _without(headers: CIMultiDictProxy[str], *names: str) -> CIMultiDict[str]:
    named = [name.strip() for name in headers.get("Connection", "").split(",") if name.strip()]
    left = CIMultiDict(headers)
    for name in (*names, *named):
        left.popall(name, None)
    return left


def _away(part: str) -> web.Response:
    return _page(503, f"{TITLES[part]} is starting or away. This page tries again by itself.", again=True)


def _page(status: int, sentence: str, more: str = "", *, again: bool = False) -> web.Response:
    refresh = f'<meta http-equiv="refresh" content="{AGAIN_S}">' if again else ""
    text = (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>Headroom</title>{refresh}'
        f'<body style="font: 16px/1.5 sans-serif; margin: 3em"><p>{escape(sentence)}</p>{more}</body></html>'
    )
    headers = {"Cache-Control": "no-store", **({"Retry-After": str(AGAIN_S)} if again else {})}
    headers |= {"WWW-Authenticate": "Bearer"} if status == 401 else {}
    return web.Response(status=status, text=text, content_type="text/html", headers=headers)


def _pairs(given: Sequence[str]) -> dict[str, str]:
    return {name: value for one in given for name, _, value in [one.partition("=")]}


@click.command()
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--port", type=int, required=True)
@click.option("--host", "hosts", multiple=True)
@click.option("--part", "parts", multiple=True)
@click.option("--link", "links", multiple=True)
@click.option("--user", type=int)
@click.option("--metrics-port", type=int)
@click.option("--read-only", is_flag=True)
def main(
    folder: Path,
    port: int,
    hosts: tuple[str, ...],
    parts: tuple[str, ...],
    links: tuple[str, ...],
    user: int | None,
    metrics_port: int | None,
    read_only: bool,
) -> None:
    """Serve until SIGTERM."""
    known = frozenset(host.lower() for host in hosts)
    access = Access(read_token(folder), port, known, read_only=read_only)
    metrics = MetricsPage(folder, read_token(folder, METRICS_TOKEN), port=metrics_port)
    web.run_app(
        Door(access, folder, _pairs(parts), links=_pairs(links), user=user, metrics=metrics).application(),
        host=HOST,
        port=port,
        access_log=None,  # it would keep the token
        print=None,
        shutdown_timeout=1.0,
        max_line_size=LONGEST_LINE,
        max_field_size=LONGEST_LINE,
    )


if __name__ == "__main__":
    main()
