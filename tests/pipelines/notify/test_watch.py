"""The watch of a simulated server: what is told, how often, over a restart too; the dead man's switch."""

import json
import threading
import time
from contextlib import contextmanager

import pytest
import receivers
import waiting
from simulated_service import ORDERS, Service

from models.errors import Misconfigured, NotReady, Unsafe
from pipelines.environments import base
from pipelines.notify import watch as watch_module
from pipelines.notify.channels import opened
from pipelines.notify.watch import DOCUMENT, LOOP, Watch, notifying
from pipelines.orchestration.pages import WAIT_S, longest_silence_s
from pipelines.server.in_process import Evaluated, InProcessServer
from pipelines.serving import open_service
from pipelines.settings import loading
from pipelines.settings.schema import NotifySettings
from profiling_jobs.control_loop.memory import Evaluation
from profiling_jobs.orders import run_order

HOLD = {"do": "hold", "to": None, "would": None, "reason": "hold 2 executors: it fits"}
SILENT_S = longest_silence_s(60.0, restarts=0)


class Outbox:
    """Keeps what is put into it."""

    def __init__(self):
        self.put_, self.beats = [], 0

    def put(self, message):
        self.put_.append(message)

    def beat(self, at_s):
        self.beats += 1

    def texts(self):
        """Those since the last call."""
        found, self.put_ = [one.body for one in self.put_], []
        return found


class Watched:
    """A watch on a server, with a clock that is stepped for silences."""

    def __init__(self, service, said=None, evaluates=True, **settings):
        self.service, self.outbox = service, Outbox()
        self.now_s = max(1e9, service.here.evaluated["orders"].at_s)
        self.watch = Watch(
            NotifySettings(**settings),
            service.here,
            self.outbox,
            secrets=("hunter22",),
            evaluates=lambda: evaluates,
            say=[].append if said is None else said.append,
            monotonic=lambda: self.now_s,
        )

    def evaluated(self, *alarms, after_s=0.0, **changes):
        """An evaluation of the job `orders` is written down; what is told of it."""
        store = self.service.environment.store
        at_s = self.service.environment.clock.now_s() + after_s
        given = {"interval": int(at_s), "interval_s": 60.0, "mode": "apply", "epoch": 1, "scale_out": 2}
        given |= {"instruction": HOLD, "apply": None, "alarms": alarms, **changes}
        document = Evaluation(job="orders", at_s=at_s, **given).to_json()
        assert store.record_evaluation("orders", interval=given["interval"], at_s=at_s, evaluation=document)
        return self.later(0.001)

    def told(self):
        self.watch.look()
        return self.outbox.texts()

    def later(self, seconds, *, evaluated=True):
        self.now_s += seconds
        if evaluated:
            self.service.here.evaluated["orders"] = Evaluated(self.now_s)
        return self.told()


@contextmanager
def served(folder, toml):
    """A server that samples nothing: the evaluations that matter are written down by hand."""
    settings = loading.parse(toml, environment={})
    with base.opened(settings, folder, since_s=time.time()) as environment:
        server = InProcessServer(environment, settings, folder)
        yield Service(environment, server, server, folder)
        server.close()


@pytest.fixture
def service(tmp_path):
    with served(tmp_path, ORDERS) as service:
        yield service


class TestEvaluations:
    def test_what_was_evaluated_before_the_first_start_is_no_news(self, service):
        first = Watched(service)
        assert first.evaluated("an alarm of before", after_s=-60.0) == []
        assert first.evaluated("a new alarm") == ["a new alarm"]
        assert first.told() == []

    def test_after_a_restart_it_goes_on_and_repetitions_stay_repetitions(self, service):
        first = Watched(service)
        first.told()
        assert first.evaluated("the lag grows: 120 s", after_s=1.0) == ["the lag grows: 120 s"]
        second = Watched(service)
        assert second.told() == []
        assert second.evaluated("the lag grows: 240 s", "another", after_s=1900.0) == ["another"]
        third = Watched(service)
        (text,) = third.evaluated("the lag grows: 900 s", after_s=14_500.0)
        assert text == "the lag grows: 900 s\nThe same was raised 1 time since the last message."

    def test_what_was_written_down_while_nobody_looked_is_told_at_the_next_start(self, service):
        Watched(service).evaluated(after_s=-120.0)
        kept = Watched(service)
        kept.evaluated("told", after_s=-60.0)
        service.environment.store.save_document(
            "orders", DOCUMENT, {"schema": 1, "until_s": service.environment.clock.now_s() - 90.0, "keys": {}}
        )
        assert Watched(service).told() == ["told"]

    def test_what_is_old_by_then_is_no_news(self, service):
        store, now_s = service.environment.store, service.environment.clock.now_s()
        store.save_document("orders", DOCUMENT, {"schema": 1, "until_s": now_s - 90_000.0, "keys": {}})
        assert Watched(service).evaluated("yesterday", after_s=-86_400.0) == []

    def test_only_what_is_wanted_is_told(self, service):
        watched = Watched(service, events=("change",))
        watched.told()
        grow = HOLD | {"do": "scale", "to": 4, "reason": "scale out from 2 to 4 executors: load"}
        assert watched.evaluated("an alarm", instruction=grow) == ["goes from 2 to 4 executors: load"]

    def test_too_many_are_counted_and_the_count_is_told(self, service):
        watched = Watched(service, most_per_hour=2)
        watched.told()
        assert watched.evaluated("a", "b", "c", "d") == ["a", "b"]
        watched.now_s += 3600.0
        (text,) = watched.evaluated("e", after_s=1.0)
        assert text == "e\nHeld back, as there were too many: 2 messages."

    def test_no_secret_is_told(self, service):
        watched = Watched(service)
        watched.told()
        assert watched.evaluated("the login hunter22 is refused") == ["the login *** is refused"]

    def test_an_evaluation_of_another_version_is_left_out(self, service):
        watched = Watched(service)
        watched.told()
        assert watched.evaluated("a", instruction={}) == []
        store, at_s = service.environment.store, service.environment.clock.now_s() + 1.0
        store.record_evaluation("orders", interval=1, at_s=at_s, evaluation={"schema": 99})
        assert watched.told() == []
        assert watched.evaluated("b", after_s=2.0) == ["b"]

    def test_a_store_that_is_away_is_said_once_and_caught_up_with(self, service, monkeypatch):
        said = []
        watched = Watched(service, said)
        watched.told()

        def away(*given, **more):
            raise NotReady("the store is locked")

        with monkeypatch.context() as gone:
            gone.setattr(type(service.environment.store), "evaluations", away)
            assert watched.later(1.0) == watched.later(1.0) == []
        assert said == ["notify: the store does not answer, which is tried again: the store is locked"]
        assert watched.evaluated("an alarm") == ["an alarm"]


class TestDrills:
    def test_one_that_failed_is_told_once(self, service):
        watched = Watched(service)
        with pytest.raises(Unsafe):
            service.drilled(live=True, kinds=["driver_kill"])
        (text,) = watched.told()
        assert text.startswith("no drill: job.orders.allow_live_drills is false")
        assert watched.told() == []

    def test_other_orders_are_not(self, service):
        run_order(service.server, "stop", "orders")
        assert Watched(service).told() == []


class TestTheLoop:
    def test_one_that_stands_still_is_told_once_and_when_it_goes_on(self, service):
        watched = Watched(service)
        assert watched.later(0.0) == []
        assert watched.later(SILENT_S, evaluated=False) == []
        service.here.evaluated["orders"] = Evaluated(watched.now_s - SILENT_S, "the store is locked")
        assert watched.later(1.0, evaluated=False) == [
            "orders not evaluated for 3 min 1 s: the store is locked"
        ]
        assert watched.later(600.0, evaluated=False) == []
        assert watched.later(1.0) == ["every job is evaluated again"]
        assert watched.later(SILENT_S + 1.0, evaluated=False) != [], "the next time is news"

    def test_it_is_told_although_the_store_is_away(self, service, monkeypatch):
        watched = Watched(service)
        watched.later(0.0)

        def away(*given, **more):
            raise NotReady("the store is locked")

        for name in ("evaluations", "document", "save_document"):
            monkeypatch.setattr(type(service.environment.store), name, away)
        assert len(watched.later(SILENT_S + 1.0, evaluated=False)) == 1
        assert watched.later(1.0, evaluated=False) == []

    def test_after_a_restart_it_is_a_repetition_until_it_goes_on(self, service):
        before = Watched(service)
        before.later(0.0)
        assert len(before.later(SILENT_S + 1.0, evaluated=False)) == 1
        service.here.evaluated["orders"] = Evaluated()
        after = Watched(service)
        assert after.told() == []
        assert after.later(WAIT_S + SILENT_S + 1.0, evaluated=False) == []
        assert after.later(1.0) == ["every job is evaluated again"]
        assert service.environment.store.document(LOOP, DOCUMENT)["keys"] == {}

    def test_dagster_is_given_its_time_to_start(self, service):
        watched = Watched(service)
        watched.told()
        assert watched.later(WAIT_S + SILENT_S, evaluated=False) == []
        (text,) = watched.later(1.0, evaluated=False)
        assert "whether its sensors are switched on" in text

    def test_without_anything_that_asks_nothing_is_missed(self, service):
        watched = Watched(service, evaluates=False)
        watched.told()
        assert watched.later(1e6, evaluated=False) == []

    def test_a_full_disk_is_the_reason(self, service, monkeypatch):
        monkeypatch.setattr(type(service.here), "problem", "the disk is full")
        watched = Watched(service)
        watched.later(0.0)
        (text,) = watched.later(SILENT_S + 1.0, evaluated=False)
        assert text.endswith("the disk is full")


class TestTheSwitch:
    def test_it_is_pinged_after_each_round_in_which_every_job_was_evaluated(self, tmp_path):
        two = ORDERS + '[job.clicks]\nbuild = "a:b"\ninputs = {events = "clicks"}\n'
        with served(tmp_path, two) as service:
            watched = Watched(service)
            beats = []
            for job in ("orders", "", "orders", "clicks", "", "clicks", "orders"):
                if job:
                    service.server.evaluate(job)
                watched.told()
                beats.append(watched.outbox.beats)
        assert beats == [0, 0, 0, 1, 1, 1, 2]

    def test_an_evaluation_that_fails_does_not_count(self, service, monkeypatch):
        watched = Watched(service)
        service.server.evaluate("orders")
        watched.told()

        def away(*given, **more):
            raise NotReady("the store is locked")

        with monkeypatch.context() as gone:
            gone.setattr(type(service.environment.store), "control", away)
            with pytest.raises(NotReady):
                service.server.evaluate("orders")
        watched.told()
        assert watched.outbox.beats == 1
        assert service.here.evaluated["orders"].problem == "the store is locked"
        service.server.evaluate("orders")
        assert service.here.evaluated["orders"].problem == ""


def posted(web, path):
    return [body for _, asked, body in web.got if asked == path]


class TestTogether:
    """A server with `[notify]` and receivers on this machine."""

    @contextmanager
    def serving(self, folder):
        toml = f'{ORDERS}[notify]\nurl_from = "HOOK"\nheartbeat_url_from = "BEAT"\n'
        (folder / "headroom.toml").write_text(toml)
        settings = loading.load(folder / "headroom.toml", environment={})
        where = {"file": folder / "headroom.toml", "folder": folder / ".headroom"}
        with open_service(settings, **where) as service:
            yield service

    def test_alarms_arrive_and_a_receiver_that_hangs_delays_no_evaluation(self, tmp_path, monkeypatch):
        monkeypatch.setattr(watch_module, "LOOK_S", 0.02)
        with receivers.web() as web:
            monkeypatch.setenv("HOOK", f"{web.url}/hook")
            monkeypatch.setenv("BEAT", f"{web.url}/beat")
            with self.serving(tmp_path) as service:
                store, now_s = service.environment.store, service.environment.clock.now_s()
                for beats in (1, 2):  # after the second one the first look is over
                    service.server.evaluate("orders")
                    waiting.until(lambda beats=beats: len(posted(web, "/beat")) == beats)
                web.slow = "/hook"
                web.answering.clear()
                document = Evaluation(
                    job="orders", at_s=now_s + 100.0, interval=9, interval_s=60.0, mode="apply", epoch=9,
                    scale_out=2, instruction=HOLD, apply=None, alarms=["it burns"],
                ).to_json()  # fmt: skip
                store.record_evaluation("orders", interval=9, at_s=now_s + 100.0, evaluation=document)
                service.server.evaluate("orders")
                waiting.until(lambda: posted(web, "/hook"))
                assert service.server.evaluate("orders")["job"] == "orders", "while the receiver hangs"
                web.answering.set()
        assert "it burns" in [json.loads(body)["text"] for body in posted(web, "/hook")]

    def test_a_variable_that_is_not_set_is_told_before_anything_starts(self, tmp_path, monkeypatch):
        monkeypatch.setenv("HOOK", "https://127.0.0.1/x")
        monkeypatch.delenv("BEAT", raising=False)
        with pytest.raises(Misconfigured, match="BEAT is not set"), self.serving(tmp_path):
            raise AssertionError("it must not start")
        assert not (tmp_path / ".headroom").exists()

    def test_without_a_channel_nothing_runs(self, service):
        before = threading.active_count()
        given = {"secrets": (), "evaluates": lambda: True, "say": [].append}
        with notifying(NotifySettings(), opened(NotifySettings(), {}), service.here, **given):
            assert threading.active_count() == before
