"""`/metrics` of the door, and its further port: who is let in, and what is said where nothing answers."""

from __future__ import annotations

import asyncio
import stat
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from models.errors import HeadroomError, Misconfigured, NotReady
from pipelines.integrations.ports import HOST, free_ports
from pipelines.settings.schema import WebSettings
from pipelines.web.access import KEPT_METRICS_TOKEN, METRICS_TOKEN, TOKEN, Access, make_token, read_token
from pipelines.web.door import Door
from pipelines.web.metrics import MetricsPage

PAGES, METRICS = "the-token-of-the-pages", "the-token-of-metrics"
TEXT = 'headroom_job_lag_seconds{job_name="orders"} 3.0\n'
Ask = Callable[..., Awaitable[tuple[int, str, Any]]]


class Reports:
    """Client of a server that reports this, or does not answer."""

    def __init__(self, problem: HeadroomError | None = None) -> None:
        self.problem, self.asked = problem, 0

    def metrics(self) -> str:
        self.asked += 1
        if self.problem is not None:
            raise self.problem
        return TEXT


def at_the_door(told: Callable[[Ask, Ask], Awaitable[None]], client: Reports) -> None:
    """Run this against a door; the first asks at its port, the second at the further one."""

    async def running() -> None:
        port, further = free_ports(2)
        page = MetricsPage(Path("nowhere"), METRICS, port=further, host=HOST)
        page._client = client  # type: ignore[assignment]
        door = Door(Access(PAGES, port), Path("nowhere"), {}, metrics=page)
        runner = web.AppRunner(door.application(), access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        try:
            await web.TCPSite(runner, HOST, port).start()
            async with aiohttp.ClientSession() as session:

                async def ask(at: int, path: str = "/metrics", method: str = "GET", **headers: str) -> Any:
                    async with session.request(method, f"http://{HOST}:{at}{path}", headers=headers) as got:
                        return got.status, await got.text(), got.headers

                def at(where: int) -> Ask:
                    return lambda *words, **headers: ask(where, *words, **headers)

                await told(at(port), at(further))
        finally:
            await runner.cleanup()

    asyncio.run(running())


BEARER = {"Authorization": f"Bearer {METRICS}"}


def test_its_own_token_lets_in_whatever_the_host_is_called() -> None:
    async def told(door: Ask, further: Ask) -> None:
        for ask in (door, further):
            for headers in (BEARER, {**BEARER, "Host": "headroom.headroom.svc:9464"}):
                status, text, found = await ask(**headers)
                assert (status, text) == (200, TEXT)
                assert found["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
                assert found["Cache-Control"] == "no-store"

    at_the_door(told, Reports())


WRONG = (None, "", "Bearer ", "Bearer wrong", METRICS, f"Bearer {PAGES}", "Bearer ü")


@pytest.mark.parametrize("token", WRONG)
def test_no_other_token_lets_in(token: str | None) -> None:
    client = Reports()
    cookie = Access(PAGES, 1).cookie

    async def told(door: Ask, further: Ask) -> None:
        for ask in (door, further):
            headers = {} if token is None else {"Authorization": token}
            status, text, found = await ask(**headers, Cookie=f"headroom-1={cookie}")
            assert (status, "headroom" in text) == (401, False)
            assert found["WWW-Authenticate"] == "Bearer"
            assert (await ask(f"/metrics?token={METRICS}"))[0] == 401

    at_the_door(told, client)
    assert client.asked == 0


def test_it_opens_nothing_else() -> None:
    async def told(door: Ask, further: Ask) -> None:
        for path in ("/", "/dagster/", "/metrics/", "/metrics/x"):
            assert (await door(path, **BEARER))[0] == 401
            assert (await further(path, **BEARER))[0] == 404
        assert (await door("/metrics", "POST", **BEARER))[0] == 401
        assert (await further("/metrics", "POST", **BEARER))[0] == 405

    at_the_door(told, Reports())


def test_why_there_is_nothing_is_said() -> None:
    async def told(door: Ask, further: Ask) -> None:
        status, text, _ = await door(**BEARER)
        assert (status, text) == (503, "no server runs: start it\n")

    at_the_door(told, Reports(NotReady("no server runs: start it")))


def test_the_token_is_made_once_or_given_by_the_environment(tmp_path: Path) -> None:
    make_token(tmp_path, WebSettings())
    kept = tmp_path / KEPT_METRICS_TOKEN
    first = kept.read_text().strip()
    for path in (kept, tmp_path / METRICS_TOKEN):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    make_token(tmp_path, WebSettings())
    assert read_token(tmp_path, METRICS_TOKEN) == first != read_token(tmp_path, TOKEN)
    given = WebSettings(metrics_token_from="SCRAPES")
    make_token(tmp_path, given, {"SCRAPES": f"{METRICS}\n"})
    assert read_token(tmp_path, METRICS_TOKEN) == METRICS
    make_token(tmp_path, WebSettings())
    assert read_token(tmp_path, METRICS_TOKEN) == first, "the one of the environment was not kept"
    for wrong in ({}, {"SCRAPES": "short"}):
        with pytest.raises(Misconfigured, match=r"web\.metrics_token_from: the environment variable SCRAPES"):
            make_token(tmp_path, given, wrong)


def test_a_further_port_that_is_taken_ends_the_door() -> None:
    """So that it is said at the start, and not found out by a scrape."""

    async def running() -> None:
        server = await asyncio.start_server(lambda *both: None, HOST, 0)
        page = MetricsPage(Path("nowhere"), METRICS, port=server.sockets[0].getsockname()[1], host=HOST)
        runner = web.AppRunner(Door(Access(PAGES, 1), Path("nowhere"), {}, metrics=page).application())
        try:
            with pytest.raises(OSError, match="address already in use"):
                await runner.setup()
        finally:
            server.close()
            await runner.cleanup()

    asyncio.run(running())
