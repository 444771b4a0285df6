"""`/metrics` of the door: what the server reports of every job, for Prometheus.

It has a token of its own, which opens nothing else; the token of the pages does not open it. The token comes
as `Authorization: Bearer`, which no page of another site can make a browser send. So whatever name the door
is reached by (`Host`), and whoever connects, the token decides.
"""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import AsyncIterator
from pathlib import Path

from aiohttp import web

from models.errors import HeadroomError

from ..server.client import Client

PATH = "/metrics"
ANSWER_S = 9.0  # the server needs milliseconds a job; Prometheus itself gives up after 10 s
CLOSE_S = 1.0  # judgement: a scrape that is cut off comes again
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
NO_STORE = {"Cache-Control": "no-store"}


class MetricsPage:
    """The page for Prometheus. `port`: a further one, of every address, on which there is nothing else."""

    def __init__(self, folder: Path, token: str, *, port: int | None = None, host: str | None = None) -> None:
        self._client = Client(folder, answer_s=ANSWER_S)
        self._token, self._port, self._host = token, port, host
        self._turn = asyncio.Lock()

    def add_to(self, application: web.Application) -> None:
        """Answer below this application, and on the further port as long as it runs."""
        application.router.add_get(PATH, self.answer)
        if self._port is not None:
            application.cleanup_ctx.append(self._listening)

    async def answer(self, request: web.Request) -> web.Response:
        """The metrics; 401 without the token, 503 with the reason where the server does not answer."""
        given = request.headers.get("Authorization", "").encode("utf-8", "replace")
        if not self._token or not hmac.compare_digest(given, f"Bearer {self._token}".encode()):
            said, headers = "The token of /metrics is missing or wrong.\n", {"WWW-Authenticate": "Bearer"}
            return web.Response(status=401, text=said, headers={**NO_STORE, **headers})
        try:
            async with self._turn:  # one thread, however many ask
                text = await asyncio.to_thread(self._client.metrics)
        except HeadroomError as error:
            return web.Response(status=503, text=f"{error}\n", headers=NO_STORE)
        return web.Response(text=text, headers={**NO_STORE, "Content-Type": CONTENT_TYPE})

    async def _listening(self, _: web.Application) -> AsyncIterator[None]:
        alone = web.Application()
        alone.router.add_get(PATH, self.answer)
        runner = web.AppRunner(alone, access_log=None, shutdown_timeout=CLOSE_S)
        await runner.setup()
        try:
            await web.TCPSite(runner, self._host, self._port).start()
            yield
        finally:
            await runner.cleanup()
