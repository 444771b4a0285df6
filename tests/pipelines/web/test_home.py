"""The door's own pages, on a store of ticks: what they say, and what their forms do."""

import asyncio
import html
import re
import sqlite3
import threading
import time
from contextlib import closing, contextmanager
from types import SimpleNamespace
from urllib.parse import quote

import evaluations
import pytest
from aiohttp.test_utils import TestClient, TestServer
from evaluations import TWO_JOBS, forecast, instruction, record, verdict
from yarl import URL

from models.quantities import RecoveryEvent
from pipelines.integrations.stores.sql import SqlStore
from pipelines.integrations.stores.sqlite import SqliteStore
from pipelines.processes.owner import Owner
from pipelines.server.client import Listener
from pipelines.settings import loading
from pipelines.web import home, timeline
from pipelines.web.access import Access
from pipelines.web.door import Door

TOKEN, HOST = "a-token-of-these-tests", "127.0.0.1:8080"
ORIGIN = {"Origin": f"http://{HOST}"}
EVIL = "<script>alert(1)</script>"
SHOWN = html.escape(EVIL)
PARTS = {"dagster": "/nowhere/dagster.sock", "mlflow": "/nowhere/mlflow.sock"}


class Browser:
    """Requests to the door in this process; it listens for each of them anew."""

    def __init__(self, folder, *, read_only=False, **how):
        self.access = Access(TOKEN, 8080, read_only=read_only)
        self.door = Door(self.access, folder, PARTS, **how)
        self.headers = {"Host": HOST, "Cookie": f"{self.access.cookie_name}={self.access.cookie}"}

    def ask(self, method, path, form=None, headers=None):
        return asyncio.run(self.asked((method, path, form, headers)))[0]

    async def asked(self, *requests, meanwhile=lambda: None):
        """`meanwhile`: called when all but the first are answered."""

        async def one(client, method, path, form=None, headers=None):
            given = {**self.headers, **(headers or {})}
            request = client.request(
                method, URL(path, encoded=True), data=form, headers=given, allow_redirects=False
            )
            async with request as answer:
                text = await answer.text()
                return SimpleNamespace(status=answer.status, headers=answer.headers, text=text)

        async with TestClient(TestServer(self.door.application())) as client:
            first = asyncio.create_task(one(client, *requests[0]))
            others = [await one(client, *request) for request in requests[1:]]
            meanwhile()
            return [await first, *others]

    def get(self, path):
        found = self.ask("GET", path)
        assert found.status == 200, found.text
        return found.text

    def send(self, path, **form):
        return self.ask("POST", path, form, ORIGIN)


@pytest.fixture
def folder(tmp_path):
    (folder := tmp_path / ".headroom").mkdir()
    configure(folder, TWO_JOBS)
    return folder


@pytest.fixture
def store(folder):
    with SqliteStore(folder / "headroom.sqlite") as store:
        yield store


@pytest.fixture
def browser(folder):
    return Browser(folder)


def configure(folder, toml):
    """As `headroom serve` leaves the settings in force."""
    loading.SettingsFile(loading.parse(toml, environment={}), kept=folder / "settings.json")


@contextmanager
def serving(folder, jobs, **more):
    """A server that says this of the jobs."""
    found = {"folder": str(folder), "now_s": 0.0, "jobs": jobs, "removed": [], "problem": "", "orders": []}
    with Owner(folder, command="headroom serve"):
        listener = Listener(SimpleNamespace(status=lambda: found | more), folder)
        listener.start()
        try:
            yield
        finally:
            listener.close()


def running(size, alive):
    return {"state": "running", "declared_scale_out": size, "executors_alive": alive, "run_id": "r"}


def evaluation(at_s, *, do="hold", to=None, reason="hold 4 executors: it fits", **changes):
    given = {
        "instruction": instruction(do, to=to, reason=reason),
        "observation": {
            "arrival_rps": 1912.0, "throughput_rps": 1900.0, "lag_records": 5737.0, "executors_alive": 4
        },
        "lag_s": 3.0,
        "decision": {
            "current": 4, "scale_out": 4, "smallest": 4, "feasible": True, "alarm": "", "reason": reason,
            "verdicts": [verdict(3, "infeasible"), verdict(4)],
        },
        "capacity": {"used": {"low": 3900.0, "mid": 4000.0, "high": 4100.0, "confidence": 0.9}},
        "forecast": forecast(at_s),
        "models": {"capacity": 3, "recovery": 1},
        "provisional": {"recovery": "2 more drills of executor_kill"},
        "promise": {"target_s": 60.0, "confidence": 0.95},
    }  # fmt: skip
    return evaluations.evaluation(at_s, **given | changes)


def cells(page, job):
    """Name of the column -> the text of the cell, in the row of this job."""
    (row,) = (row for row in re.findall(r"<tr>.*?</tr>", page, re.DOTALL) if f'href="/job/{job}"' in row)
    found = re.findall(r'<td data-name="([^"]+)"[^>]*>(.*?)</td>', row, re.DOTALL)
    return {name: html.unescape(re.sub(r"<[^>]+>|\s+", " ", text)).strip() for name, text in found}


class TestEveryJob:
    def test_all_jobs_are_in_one_table(self, folder, store, browser):
        now_s = time.time()
        alarm = "the change to 5 executors has failed"
        record(store, evaluation(now_s - 600, alarms=[alarm]), evaluation(now_s - 5))
        pause = {"who": "anna", "why": "deploying", "until_s": None}
        record(store, evaluation(now_s - 5, job="clicks", orders={"pause": pause}, decision={"unknown": "x"}))
        with serving(folder, {"orders": running(4, 3), "clicks": running(4, 4)}):
            page = browser.get("/")
        orders, clicks = cells(page, "orders"), cells(page, "clicks")
        assert orders.pop("last evaluation") in {f"{n} s ago" for n in range(5, 100)}
        assert orders == {
            "job": "orders",
            "promise": "kept (98.5 %)",
            "executors": "3 of 4",
            "records/s": "1,912",
            "lag": "3.0 s",
            "models": "2 in charge, provisional: recovery",
            "in force": "",
            "alarms": alarm,
        }
        assert (clicks["promise"], clicks["in force"]) == ("not known", "pause")
        assert 'href="/dagster/"' in page
        assert 'href="/mlflow/"' in page

    def test_promises_that_are_not_kept_come_first(self, folder, store, browser):
        decision = evaluation(0.0).decision | {"verdicts": [verdict(4, "infeasible")]}
        record(store, evaluation(time.time() - 5, decision=decision))
        with serving(folder, {}):
            page = browser.get("/")
        assert re.findall(r'href="/job/(\w+)"', page) == ["orders", "clicks"]
        assert cells(page, "orders")["promise"] == "not kept (71 %)"
        assert "2 jobs, promise: 1 not evaluated, 1 not kept." in page

    def test_before_anything_was_stored_it_says_what_is_missing(self, folder, browser):
        page = browser.get("/")
        assert f"no server runs for {folder}, nothing is evaluated: start it with `headroom serve`" in page
        assert cells(page, "orders")["promise"] == "not evaluated"
        assert cells(page, "orders")["last evaluation"] == "never"
        assert "Nothing was evaluated yet." in browser.get("/job/orders")
        assert not (folder / "headroom.sqlite").exists(), "looking makes nothing"

    def test_without_settings_the_other_pages_are_still_linked(self, folder, browser):
        (folder / "settings.json").unlink()
        page = browser.get("/")
        assert "restart `headroom serve`, which writes it" in page
        assert 'href="/dagster/"' in page
        assert browser.ask("GET", "/job/orders").status == 503

    def test_a_server_that_does_not_answer_leaves_what_is_stored(self, folder, store, browser):
        record(store, evaluation(time.time() - 5))
        with Owner(folder, command="headroom serve"):  # it owns the folder, and listens nowhere
            page, job = browser.get("/"), browser.get("/job/orders")
        for one in (page, job):
            assert "(headroom serve), which takes no orders, or not yet" in one
        row = cells(page, "orders")
        assert (row["records/s"], row["promise"]) == ("1,912", "not evaluated")
        assert "Why not one less" in job

    def test_a_job_that_runs_without_being_in_the_file_is_named(self, folder, store, browser):
        with serving(folder, {}, removed=["old"]):
            assert "old is not in headroom.toml any more, and runs" in browser.get("/")

    def test_two_hundred_jobs_are_one_page_of_few_reads(self, folder, store, monkeypatch):
        names = [f"job-{number}" for number in range(200)]
        one = '[job.{}]\nbuild = "some.module:build"\ninputs = {{events = "orders"}}\n'
        configure(folder, "".join(map(one.format, names)))
        now_s = time.time()
        for name in names:
            record(store, *(evaluation(now_s - 60.0 * ago, job=name) for ago in range(2)))
        read = []
        evaluations = SqlStore.evaluations
        monkeypatch.setattr(
            SqlStore, "evaluations", lambda *a, **how: [read.append(x) or x for x in evaluations(*a, **how)]
        )
        page = Browser(folder).get("/")
        assert re.findall(r'href="/job/(job-\d+)"', page) == sorted(names)
        assert len(read) <= home.MOST_READ
        assert len(page) < 400_000

    def test_a_store_that_is_locked_is_said_to_be_so(self, folder, store, browser, monkeypatch):
        monkeypatch.setattr(home, "PATIENCE_S", 0.01)
        with closing(sqlite3.connect(folder / "headroom.sqlite")) as other:
            other.execute("BEGIN IMMEDIATE")
            page, job = browser.get("/"), browser.ask("GET", "/job/orders")
        assert "another process keeps it locked" in page
        assert (job.status, "another process keeps it locked" in job.text) == (503, True)

    def test_a_store_that_hangs_keeps_no_other_page_waiting(self, browser, monkeypatch):
        go_on = threading.Event()

        def hanging(*given, **how):
            assert go_on.wait(60.0), "the other page had to wait for this one"

        monkeypatch.setattr(home, "find_store", hanging)
        first, other = asyncio.run(
            browser.asked(("GET", "/job/orders"), ("GET", home.STYLE), meanwhile=go_on.set)
        )
        assert (first.status, other.status) == (200, 200)
        assert other.headers["Content-Type"] == "text/css; charset=utf-8"


class TestOneJob:
    def test_it_answers_why_and_why_not_one_less(self, folder, store, browser):
        now_s = float(int(time.time()))
        incident = {"kind": "executor_kill", "failed_at_s": now_s - 305, "why": "an executor is missing"}
        change = {"kind": "live_out", "failed_at_s": now_s - 115, "why": "we go from 3 to 4 executors"}
        record(
            store,
            evaluation(now_s - 300, recovering=incident | {"spoilt": ""}),
            evaluation(now_s - 240, recovering=incident | {"spoilt": ""}),
            evaluation(now_s - 120, do="scale", to=4, scale_out=3, alarms=["the models are old"]),
            evaluation(now_s - 60, recovering=change | {"spoilt": ""}),
            evaluation(now_s),
        )
        predicted = {"low": 20.0, "mid": 31.0, "high": float("inf"), "confidence": 0.9}
        drill = {"on": "copy", "rate_rps": 900.0, "predicted_recovery_s": predicted}
        store.add_event("orders", RecoveryEvent("driver_kill", 4, now_s - 900, 20.0, 34.2), details=drill)
        store.add_event(
            "orders",
            RecoveryEvent("executor_kill", 4, now_s - 305, 6.0, float("inf")),
            details={"origin": "live"},
        )
        with serving(folder, {"orders": running(4, 4)}):
            page = html.unescape(browser.get("/job/orders"))
        text = " ".join(re.sub(r"<[^>]+>", " ", page).split())
        assert "orders holds 4 executors" in text
        assert "Promise: kept (98.5 %)" in text
        assert "Why not one less With 3 executors: after the loss of the driver at the worst moment" in text
        assert "in 71 % of the cases looked at" in text
        assert "the loss of the driver a copy 4 900 34 s 31 s (20 – longer than was looked at)" in text
        assert "the loss of an executor the live job 4 ? not back –" in text
        assert "change Ordered: from 3 to 4 executors" in text
        assert "alarm The models are old" in text
        assert text.count("failure The loss of an executor, not back") == 1
        assert "an executor is missing" not in text, "it is the same failure"
        assert "we go from 3 to 4" not in text, "a change of ours is no failure"
        assert "To make it firm: 2 more drills of executor_kill" in text
        for sort in ("load", "expected", "capacity", "lag", "declared", "alive", "recommended"):
            assert re.search(rf'<path class="{sort}" d="M[\d.]+,[\d.]+H', page), sort
        for sort, many in (("change", 1), ("failure", 1), ("alarm", 1)):
            assert page.count(f'<path class="mark {sort}"') == many, sort
        assert 'href="/dagster/assets/decision?partition=orders"' in page
        assert 'href="/mlflow/#/models/orders.capacity/versions/3"' in page
        assert '<a href="/job/orders?span=24h#timeline">24h</a>' in page
        assert "<strong>1h</strong>" in browser.get("/job/orders?span=1h")

    @pytest.mark.parametrize("name", ["nobody", quote(EVIL, safe=""), "", "orders/x"])
    def test_a_job_that_is_not_there_is_404(self, store, browser, name):
        asked = browser.ask("GET", f"/job/{name}")
        for found in (asked, browser.send(f"/job/{name}", what="pause", why="x")):
            assert (found.status, "<script" in found.text) == (404, False)
            assert "There is no job" in found.text

    def test_a_job_that_is_only_stored_is_shown(self, store, browser):
        record(store, evaluation(time.time() - 5, job="old"))
        assert "holds 4 executors" in browser.get("/job/old")
        assert browser.send("/job/old", what="pause", why="it is to be stopped").status == 303
        assert [one.kind for one in store.directives("old", now_s=time.time())] == ["pause"]

    def test_what_another_version_has_written_is_said_to_be_so(self, store, browser):
        now_s = time.time()
        document = evaluation(now_s).to_json() | {"schema": 99}
        store.record_evaluation("orders", interval=1, at_s=now_s, evaluation=document)
        assert "written by another version of Headroom" in browser.get("/job/orders")
        assert cells(browser.get("/"), "orders")["promise"] == "not evaluated"


class TestWhatIsWrittenIntoPages:
    def test_nothing_that_was_stored_becomes_markup(self, folder, store, browser):
        now_s = time.time()
        pause = {"who": EVIL, "why": EVIL, "until_s": None}
        record(store, evaluation(now_s - 60, alarms=[EVIL], do="scale", to=5))
        record(store, evaluation(
            now_s, reason=EVIL, alarms=[EVIL], trouble=[EVIL], orders={"pause": pause},
            models={EVIL: EVIL}, provisional={EVIL: EVIL}, mode=EVIL,
            forecast={"unknown": EVIL}, recoveries={EVIL: {"unknown": EVIL}},
        ))  # fmt: skip
        event = RecoveryEvent("driver_kill", 4, now_s - 900, 20.0, 34.2)
        store.add_event("orders", event, details={"on": EVIL, "predicted_recovery_s": {"reason": EVIL}})
        browser.send("/job/orders", what="pause", why=EVIL)
        order = {"state": "running", "what": EVIL, "job": "orders", "share": None, "stage": EVIL}
        with serving(folder, {"orders": running(4, 4) | {"state": EVIL}}, problem=EVIL, orders=[order]):
            pages = [browser.get("/"), browser.get("/job/orders")]
        refused = browser.send("/job/orders", what="pin", why=EVIL, until=EVIL, size=EVIL)
        assert refused.status == 400
        for page in (*pages, refused.text):
            assert "<script" not in page
            assert SHOWN in page or "&lt;script&gt;" in page

    def test_the_browser_may_run_no_script_and_load_nothing_from_elsewhere(self, store, browser):
        record(store, evaluation(time.time()))
        for path in ("/", "/job/orders", "/job/nobody", home.STYLE):
            found = browser.ask("GET", path)
            rules = found.headers["Content-Security-Policy"]
            assert rules.startswith("default-src 'none'; style-src 'self';")
            assert "unsafe" not in rules
            assert not re.search(r"<script|\son\w+=|\sstyle=|https?:", found.text), path
            assert found.headers["Cache-Control"] == "no-store"
            assert found.headers["X-Frame-Options"] == "SAMEORIGIN"

    def test_only_the_page_without_forms_loads_itself_again(self, store, browser):
        assert 'http-equiv="refresh"' in browser.get("/")
        assert "<form" not in browser.get("/")
        assert 'http-equiv="refresh"' not in browser.get("/job/orders")


class TestForms:
    def given(self, store, job="orders"):
        return store.directives(job, now_s=time.time())

    def test_a_pause_is_stored_as_by_the_command_and_shown(self, store, browser):
        record(store, evaluation(time.time() - 5))
        done = browser.send("/job/orders", what="pause", why="  deploying\n4.2 ", until="2h")
        assert (done.status, done.headers["Location"]) == (303, "/job/orders#in-force")
        (pause,) = self.given(store)
        assert (pause.kind, pause.why, pause.until_s - pause.since_s) == ("pause", "deploying 4.2", 7200.0)
        assert pause.who.endswith(" (home page)")
        page = html.unescape(browser.get("/job/orders"))
        assert "The pause by" in page
        assert "“deploying 4.2”" in page
        assert "This is not in force yet. It counts from the next tick on" in page
        said = {"pause": {"who": pause.who, "why": pause.why, "until_s": pause.until_s}}
        record(store, evaluation(time.time() + 60, orders=said))
        assert "not in force yet" not in browser.get("/job/orders")

    def test_a_pin_and_a_resume(self, store, browser):
        assert browser.send("/job/orders", what="pin", why="sale tonight", size="6").status == 303
        (pin,) = self.given(store)
        assert (pin.kind, pin.value, pin.until_s) == ("pin", 6, None)
        assert browser.send("/job/orders", what="resume", why="sale is over").status == 303
        assert self.given(store) == ()
        assert [one["why"] for one in store.audit("orders")] == ["sale tonight", "sale is over"]
        browser.send("/job/clicks", what="pin", why="a look", size="1")
        assert "the pin is shown as a recommendation" in browser.get("/job/clicks")

    def test_before_anything_was_stored_a_pause_waits_for_the_first_tick(self, folder, browser):
        assert browser.send("/job/orders", what="pause", why="not yet").status == 303
        with SqliteStore(folder / "headroom.sqlite") as store:
            assert [one.why for one in self.given(store)] == ["not yet"]
        assert "from the first tick on" in browser.get("/job/orders")

    @pytest.mark.parametrize(
        ("form", "said"),
        [
            ({"what": "pause", "why": " "}, "The reason is empty: say why"),
            ({"what": "pause"}, "The reason is empty"),
            ({"what": "pause", "why": "x", "until": "2020-01-01"}, "is over, it is"),
            ({"what": "pause", "why": "x", "until": "2 weeks"}, "The end '2 weeks' is not a moment"),
            ({"what": "pin", "why": "sale", "size": "9"}, "The size 9 is outside of job.orders's bounds"),
            ({"what": "pin", "why": "sale", "size": "-1"}, "The size -1 is outside"),
            ({"what": "pin", "why": "sale", "size": "two"}, "The size 'two' is not a whole number"),
            ({"what": "pin", "why": "sale"}, "is not a whole number"),
            ({"what": "stop", "why": "x"}, "The order is pause, pin or resume"),
            ({}, "The order is pause, pin or resume"),
        ],
    )
    def test_what_makes_no_sense_is_refused_and_what_was_typed_stays(self, store, browser, form, said):
        found = browser.send("/job/orders", **form)
        assert found.status == 400
        assert said in html.unescape(found.text)
        assert "<details open>" in found.text
        assert store.audit("orders") == ()
        if form.get("why", "").strip() and form["what"] != "stop":
            assert f'value="{form["why"]}"' in found.text
        if form.get("size"):
            assert f'value="{html.escape(form["size"])}"' in found.text

    @pytest.mark.parametrize(
        "headers",
        [
            {"Origin": "https://example.net"},
            {"Origin": "http://127.0.0.1:9"},
            {"Origin": "null"},
            {"Sec-Fetch-Site": "cross-site"},
            {},
            {**ORIGIN, "Cookie": ""},
            {**ORIGIN, "Host": "rebound.example.net:8080"},
        ],
    )
    def test_a_form_of_another_page_changes_nothing(self, store, browser, headers):
        found = browser.ask("POST", "/job/orders", {"what": "pause", "why": "x"}, headers)
        assert found.status == (401 if headers.get("Cookie") == "" else 403)
        assert store.audit("orders") == ()

    def test_a_link_changes_nothing(self, store, browser):
        browser.get("/job/orders?what=pause&why=x")
        assert browser.ask("POST", "/?what=pause&why=x", {"what": "pause", "why": "x"}, ORIGIN).status == 405
        assert store.audit("orders") == ()

    def test_with_read_only_there_are_no_forms_and_none_is_taken(self, folder, store):
        looking = Browser(folder, read_only=True)
        page = looking.get("/job/orders")
        assert "<form" not in page
        assert "--read-only: nothing can be changed here" in page
        assert looking.send("/job/orders", what="pause", why="x").status == 403
        assert store.audit("orders") == ()

    def test_what_is_no_form_is_refused(self, browser):
        kind = {**ORIGIN, "Content-Type": "application/x-www-form-urlencoded; charset=nonsense"}
        assert browser.ask("POST", "/job/orders", b"what=pause", kind).status == 400


class TestTimeline:
    BEGAN_S = 1_763_474_400.0

    def drawn(self, store, *, minutes=60.0, target_s=None):
        when = {"since_s": self.BEGAN_S, "until_s": self.BEGAN_S + 60.0 * minutes}
        points, marks = timeline.read(store, "orders", **when)
        drawing = timeline.draw(points, marks, target_s=target_s, **when)
        paths = {line.sort: line.path for panel in drawing.panels for line in panel.lines}
        return points, drawing, paths

    def minute(self, number, **changes):
        return evaluation(self.BEGAN_S + 60.0 * number, **changes)

    def test_it_is_read_in_pieces_and_whole(self, store, monkeypatch):
        record(store, *map(self.minute, range(11)))
        monkeypatch.setattr(timeline, "AT_ONCE", 3)
        points, _, paths = self.drawn(store)
        assert [point.at_s for point in points] == [self.BEGAN_S + 60.0 * n for n in range(11)]
        assert paths["load"].count("M") == 1
        monkeypatch.setattr(timeline, "MOST", 6)
        assert [point.at_s for point in self.drawn(store)[0]] == [point.at_s for point in points[-6:]]

    def test_where_nothing_is_known_no_line_is_drawn(self, store):
        blind = {"observation": {"arrival_rps": {"unknown": "no answer"}}}
        record(store, self.minute(0), self.minute(1, **blind), self.minute(2), self.minute(30))
        _, _, paths = self.drawn(store)
        assert paths["load"].count("M") == 3
        assert paths["declared"].count("M") == 2
        assert "nan" not in "".join(paths.values())

    def test_everything_is_inside_the_drawing(self, store):
        record(
            store, self.minute(0, lag_s=float("inf"), capacity={}), self.minute(60, lag_s=75.0, scale_out=7)
        )
        _, drawing, paths = self.drawn(store, target_s=60.0)
        for numbers in re.findall(r"[MH]([\d.]+)", "".join(paths.values())):
            assert drawing.left <= float(numbers) <= drawing.right
        assert [panel.levels[1][1] for panel in drawing.panels] == ["5,000", "100", "10"]
        assert "target" in paths
        assert "target" not in self.drawn(store, target_s=600.0)[2]
        assert 2 <= len(drawing.ticks) <= timeline.TICKS + 1

    def test_a_job_of_which_nothing_is_known_can_be_drawn(self, store):
        unknown = {"unknown": "x"}
        blind = {"observation": {}, "capacity": {}, "forecast": unknown, "decision": unknown, "lag_s": 0.0}
        record(store, self.minute(0, **blind))
        assert self.drawn(store)[2]["load"] == ""
