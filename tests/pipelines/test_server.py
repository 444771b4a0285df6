"""The server on a simulated cluster: its protocol in both implementations, and what each order does."""

import errno
import json
import os
import re
import stat
import subprocess
import sys
import threading
import time
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import simulated_service
import waiting
from memory_registry import MemoryRegistry
from simulated_service import ORDERS, Service

from models.control import Blackout, Settings
from models.errors import Misconfigured, NotReady, Unsafe
from models.quantities import Unknown
from pipelines.environments import base
from pipelines.environments.simulated.time import SharedCluster
from pipelines.orchestration.resources import Modelling
from pipelines.orchestration.runs import Watched
from pipelines.processes.owner import Owner
from pipelines.server import client, drills, recording
from pipelines.server import context as server_context
from pipelines.server.client import Client, Listener
from pipelines.server.in_process import InProcessServer
from pipelines.settings import loading, time_windows
from profiling_jobs.experiments.drill import Outcome
from profiling_jobs.orders import ServerBusy, run_order, wait_for
from profiling_jobs.recording import recorder
from profiling_jobs.telemetry import batch_costs
from profiling_jobs.training import workload_history
from profiling_jobs.training.promoting import refit

ROOT = Path(__file__).parents[2]

TOML = f"""{ORDERS}
scale_out = 2
scale_out_max = 4
probe_s = 60
profile_scale_outs = [1, 2]
profile_budget_executor_s = 4000
failure_kinds = ["executor_kill", "driver_kill"]
[job.clicks]
build = "a:b"
inputs = {{events = "clicks"}}
"""
TWO_TOPICS = TOML.replace('{events = "in"}', '{events = "in", users = "who"}')
BESIDE = {"mode": "apply", "profile_scale_outs": [1, 2, 3, 6], "profile_parallel": 2}
"""Of a job that may grow to four of eight slots."""
PROBE = {"scale_out": 1, "rate_rps": 300.0}
SPEED = 300.0  # of simulated time: unbounded, its thread leaves the interpreter to nobody else


pytestmark = pytest.mark.usefixtures("no_latency")


def toml_with(**changed):
    """The settings with keys of the job changed."""
    kept = "\n".join(line for line in TOML.splitlines() if line.partition(" = ")[0] not in changed)
    own = "".join(f"{key} = {json.dumps(value)}\n" for key, value in changed.items())
    return kept.replace("[job.clicks]", f"{own}[job.clicks]")


def opened(folder, toml=TOML, *, since_s=None):
    since_s = time.time() if since_s is None else since_s
    return simulated_service.opened(folder, toml, since_s=since_s, speed=SPEED)


@pytest.fixture
def service(tmp_path):
    with opened(tmp_path) as service:
        yield service


@pytest.fixture(params=["in process", "client"])
def either(request, service):
    """The same, with each implementation of the protocol."""
    if request.param == "in process":
        yield service
        return
    listener = Listener(service.here, service.folder)
    listener.start()
    try:
        yield Service(service.environment, service.here, Client(service.folder), service.folder)
    finally:
        listener.close()


def ended(server, id):
    waiting.until(lambda: server.order(id)["state"] != "running", id, timeout_s=60.0)
    return server.order(id)


class TestProtocol:
    """Cases of both implementations."""

    def test_a_job_is_launched_with_its_topics_and_stopped(self, either):
        assert either.server.status()["jobs"]["orders"]["state"] == "stopped"
        assert either.launched() == {"launched": True, "state": "running", "scale_out": 2}
        assert either.launched()["launched"] is False
        status = either.server.status()
        assert (status["kind"], status["jobs"]["orders"]["executors_alive"]) == ("simulated", 2)
        assert {"in", "out"} <= set(either.environment.broker.topics())
        assert run_order(either.server, "stop", "orders") == {"stopped": True}
        assert run_order(either.server, "stop", "orders") == {"stopped": False}

    def test_an_interval_is_evaluated_once_and_recorded(self, either):
        either.launched()
        either.passes(90.0)
        first = either.server.evaluate("orders")
        assert first["observation"]["arrival_rps"] == pytest.approx(700.0, rel=0.02)
        assert first["instruction"]["do"] == "hold"
        assert json.loads(json.dumps(first)) == first
        either.passes(61.0)
        second = either.server.evaluate("orders")
        assert second["interval"] > first["interval"]
        kept = either.environment.store.evaluations("orders")
        assert [evaluation["interval"] for _, evaluation in kept] == [first["interval"], second["interval"]]

    def test_an_order_outlives_its_client_and_is_found_by_its_id(self, either):
        id = either.server.begin("probe", "orders", **PROBE)
        lines = []
        assert wait_for(either.here, id, say=lines.append)["verdict"] == "sustained"
        assert lines[0] == "1 executor at 300 records/s"
        done = either.server.order(id)
        assert (done["next"], done["lines"]) == (2, lines)
        assert either.server.order(id, since=1)["lines"] == lines[1:]
        (row,) = [order for order in either.server.status()["orders"] if order["id"] == id]
        assert (row["state"], row["share"], "lines" in row) == ("done", 1.0, False)
        either.server.cancel(id)
        assert either.server.order(id)["state"] == "done", "what has ended stays as it is"

    def test_the_same_order_is_given_once_and_excludes_others(self, either):
        either.launched()
        id = either.server.begin("profile", "orders")
        assert either.server.begin("profile", "orders") == id
        with pytest.raises(NotReady, match=rf"profile of orders is under way \(order {id}\)"):
            either.server.begin("drill", "orders", kinds=["driver_kill"], rates_rps=[100.0])
        either.server.cancel(id)
        assert ended(either.server, id)["state"] == "cancelled"
        assert (either.copies(), either.scratch()) == ([], [])
        again = either.server.begin("profile", "orders")
        assert again != id
        either.server.cancel(again)
        assert ended(either.server, again)["error"]["message"] == "profile was cancelled"

    def test_an_interrupted_client_cancels_its_order(self, either):
        either.launched()

        def interrupt(order):
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            run_order(either.server, "profile", "orders", seen=interrupt)
        (order,) = [one for one in either.server.status()["orders"] if one["what"] == "profile"]
        assert ended(either.server, order["id"])["state"] == "cancelled"
        assert either.copies() == []

    def test_what_went_wrong_comes_back_as_the_same_error(self, either):
        with pytest.raises(Misconfigured, match=r"^spark\.slots: 99 executors"):
            run_order(either.server, "probe", "orders", scale_out=99, rate_rps=10.0)
        with pytest.raises(NotReady, match="unknown: the server was restarted, give the order again"):
            either.server.order("profile-orders-1")

    def test_the_metrics_are_those_of_the_newest_evaluation(self, either):
        assert 'headroom_job_evaluations_total{job_name="orders"} 0.0' in either.server.metrics()
        either.launched()
        either.passes(90.0)
        evaluated = either.server.evaluate("orders")
        text = either.server.metrics()
        load = evaluated["observation"]["arrival_rps"]
        assert f'headroom_job_load_records_per_second{{job_name="orders"}} {float(load)!r}' in text
        assert 'headroom_job_evaluations_total{job_name="orders"} 1.0' in text
        assert 'headroom_job_recovery_target_seconds{job_name="clicks"} 180.0' in text

    def test_an_order_that_makes_no_sense_is_refused_at_once(self, either):
        for what, job, message in (
            ("dance", "orders", r"^order: unknown order 'dance'"),
            ("launch", "oders", r"^job\.oders: is not in the settings; expected clicks, orders"),
        ):
            with pytest.raises(Misconfigured, match=message):
                either.server.begin(what, job)
        assert either.server.status()["orders"] == []


class TestLiveJob:
    def test_an_epoch_that_was_never_ordered_is_not_applied(self, service):
        service.launched()
        assert run_order(service.server, "apply", "orders", epoch=7, to=4)["did"] == "nothing"
        assert service.server.status()["jobs"]["orders"]["declared_scale_out"] == 2

    @pytest.mark.parametrize(("timeout_s", "take_effect_s"), [(30, 180.0), (120, 180.0), (300, 360.0)])
    def test_a_change_has_not_failed_while_its_executors_may_still_come(
        self, tmp_path, timeout_s, take_effect_s
    ):
        with opened(tmp_path, TOML.replace("[spark]", f"[spark]\nscale_timeout_s = {timeout_s}")) as service:
            agreed = service.server.context.control_settings("orders")
        assert agreed.take_effect_s == take_effect_s
        assert agreed.horizon_s == Settings(promise=agreed.promise, max_scale_out=4).horizon_s

    def test_closing_cancels_every_order_and_leaves_the_job(self, tmp_path):
        settings = loading.parse(TOML, environment={})
        with base.opened(settings, tmp_path) as environment:
            before = threading.active_count()
            with InProcessServer(environment, settings, tmp_path) as server:
                run_order(server, "launch", "orders")
                id = server.begin("profile", "orders")
            assert server.order(id)["state"] == "cancelled"
            assert environment.deployments.names() == ("orders",)
            assert threading.active_count() == before
            with pytest.raises(NotReady, match="stopping"):
                server.begin("stop", "orders")

    @pytest.mark.parametrize("ticks", [0, 3], ids=["at once", "after a while"])
    def test_that_it_was_stopped_and_started_by_orders_was_no_failure(self, tmp_path, ticks):
        with simulated_service.opened(tmp_path, ORDERS) as service, service.environment.taking_part():
            clock, server = service.environment.clock, service.server

            def evaluated(count):
                for _ in range(count):
                    clock.sleep(service.here.context.settings.jobs["orders"].evaluation_interval_s)
                    yield server.evaluate("orders")

            run_order(server, "launch", "orders", sleep=clock.sleep)
            service.environment.flow("in", 500.0)
            list(evaluated(3))
            run_order(server, "stop", "orders", sleep=clock.sleep)
            list(evaluated(ticks))
            run_order(server, "launch", "orders", sleep=clock.sleep)
            assert [one["recovering"] for one in evaluated(4)] == [None] * 4
            assert service.environment.store.events("orders") == ()


class TestRecording:
    @pytest.fixture
    def full_disk(self, monkeypatch):
        """A disk that is full while its item is true."""
        original, full = recorder.described, [True]

        def described(target, piece, *arguments):
            if full[0] and piece == 2:
                raise OSError(errno.ENOSPC, "No space left on device")
            return original(target, piece, *arguments)

        monkeypatch.setattr(recorder, "described", described)
        return full

    @staticmethod
    def cut_short(service, full_disk):
        service.launched(rate_rps=500.0)
        order = ended(service.server, service.server.begin("record", "orders", seconds=40))
        assert order["error"]["kind"] == "NotReady"
        assert "there is no room left" in order["error"]["message"]
        assert order["lines"][-1].startswith("what was recorded is kept: another order for 40 s continues it")
        full_disk[0] = False
        (folder,) = (service.folder / "recordings" / "orders").iterdir()
        return folder

    @staticmethod
    def recorded(service, seconds=40, **details):
        lines = []
        done = run_order(service.server, "record", "orders", say=lines.append, seconds=seconds, **details)
        return done["recordings"]["events"], lines

    def test_a_recording_that_is_cancelled_counts_as_far_as_it_went(self, service):
        service.launched(rate_rps=500.0)
        id = service.server.begin("record", "orders", seconds=3600)
        recordings = service.folder / "recordings" / "orders"
        waiting.until(lambda: list(recordings.glob("*-events/slices/000003.json")), timeout_s=60.0)
        service.server.cancel(id)
        assert ended(service.server, id)["state"] == "cancelled"
        grid = workload_history.history(service.environment.store, "orders")
        assert 1 <= (~np.isnan(grid.values)).sum() < 360
        assert np.nanmean(grid.values) == pytest.approx(500.0, rel=0.1)

    def test_the_next_order_continues_what_was_cut_short(self, service, full_disk):
        folder = self.cut_short(service, full_disk)
        kept, lines = self.recorded(service)
        assert lines[0].startswith("continuing the recording of ")
        assert (kept["folder"], kept["ended"], kept["missing"]) == (str(folder), "complete", 0)
        assert kept["records"] == pytest.approx(20_000, rel=0.002)
        grid = workload_history.history(service.environment.store, "orders")
        rates = grid.values[~np.isnan(grid.values)]
        assert 4 <= rates.size <= 5, "its whole time is known now"
        assert rates == pytest.approx(500.0, rel=0.02)
        kept, lines = self.recorded(service)
        assert kept["folder"] != str(folder)
        assert lines[0] == "recording in for 40 s"

    @pytest.mark.parametrize(
        ("case", "why"),
        [("other seconds", ""), ("still written", ""), ("long ago", r"its time was over at .*")],
    )
    def test_what_cannot_be_continued_is_left_as_it_is(self, service, full_disk, monkeypatch, case, why):
        monkeypatch.setattr(recording, "LATER_S", 10.0)
        folder = self.cut_short(service, full_disk)
        writer = recorder._alone(folder) if case == "still written" else nullcontext()
        if case == "long ago":
            service.passes(90.0)
        with writer:
            kept, lines = self.recorded(service, seconds=20 if case == "other seconds" else 40)
        assert (kept["folder"] != str(folder), kept["ended"]) == (True, "complete")
        refused = rf"the recording of .* was cut short and cannot be continued, {why}: a new one begins"
        assert re.fullmatch(refused if why else r"recording in for \d+ s", lines[0])

    def test_of_several_topics_what_is_complete_stays_as_it_is(self, tmp_path, full_disk):
        with opened(tmp_path, TWO_TOPICS) as service:
            service.launched(rate_rps=0.0)
            service.environment.flow("who", 9000.0)  # the other one is empty: its recording ends at once
            id = service.server.begin("record", "orders", seconds=40)
            assert ended(service.server, id)["state"] == "failed"
            full_disk[0] = False
            folders = tmp_path.glob("recordings/orders/*")
            before = {folder: (folder / "ended.json").exists() for folder in folders}
            assert sorted(before.values()) == [False, True]
            done = run_order(service.server, "record", "orders", seconds=40)["recordings"]
            assert {one["folder"] for one in done.values()} == {str(folder) for folder in before}
            assert {one["ended"] for one in done.values()} == {"complete"}
            assert done["users"]["records"] == pytest.approx(360_000, rel=0.002)


class TestProfile:
    @pytest.mark.parametrize(
        ("job", "sizes", "said"),
        [
            ({}, {"1", "2", "3"}, "6 executors left out: 4 of 8 slots kept for live jobs (orders: 4); "
                "spark.slots = 10 has room"),
            ({"mode": "recommend", "profile_parallel": 1}, {"1", "2", "3", "6"}, ""),
        ],
    )  # fmt: skip
    def test_it_leaves_a_live_job_the_room_to_grow(self, tmp_path, job, sizes, said):
        lines, held = [], []
        with opened(tmp_path, toml_with(**(BESIDE | job))) as service:
            service.launched()

            def look(order):
                names = service.copies()
                status = service.environment.deployments.status
                held.append(sum(status(one).declared_scale_out for one in names))

            done = run_order(service.server, "profile", "orders", say=lines.append, seen=look)
        assert (lines[0] == said) if said else ("left out" not in lines[0])
        assert max(held) <= (4 if said else 6)
        assert set(done["capacity_rps"]) == sizes
        assert all(one["mid"] > 1.0 for one in done["capacity_rps"].values())

    def test_where_no_size_has_room_it_is_refused_before_anything_starts(self, tmp_path):
        with opened(tmp_path, toml_with(**(BESIDE | {"profile_scale_outs": [5, 6]}))) as service:
            service.launched()
            with pytest.raises(
                Misconfigured, match=r"^spark\.slots: 4 of 8 slots kept for live jobs \(orders: 4\) leave no"
            ) as refused:
                run_order(service.server, "profile", "orders")
            assert "set it to at least 9" in str(refused.value)
            assert (service.copies(), service.scratch()) == ([], [])


class TestWhatDecisionsNeed:
    @pytest.fixture
    def opened(self, tmp_path):
        @contextmanager
        def with_job(rate_rps=700.0, **changed):
            with opened(tmp_path, toml_with(**changed)) as service:
                service.launched(rate_rps)
                yield service

        return with_job

    def test_a_job_with_a_trigger_interval_gets_from_its_profile_to_a_decision(self, opened):
        with opened(trigger_s=1.0, event_time="kafka-timestamp", longest_window_s=10.0) as service:
            found = self._decided(service)
        assert isinstance(found["decision"]["scale_out"], int), found["decision"]["reason"]

    def test_a_job_that_no_source_can_saturate_gets_a_decision_too(self, opened, monkeypatch):
        """It keeps up with many times its load: how much it could do beyond is not asked."""
        monkeypatch.setattr(server_context, "LEAST_RPS", 200.0)
        with opened(rate_rps=4.0, profile_guess_rps=200.0) as service:
            found = self._decided(service)
            known = run_order(service.server, "profile", "orders")["capacity_rps"]
            capacity = service.environment.store.measurements("orders")
            drilled = run_order(service.server, "drill", "orders", repeats=1)["drills"]
        assert [list(one) for one in known.values()] == [["at_least"], ["at_least"]]
        assert all(one.sustained for _, _, one in capacity if one.origin == "profile")
        assert found["decision"]["smallest"] == 1, found["decision"]["reason"]
        assert [one["kind"] for one in drilled] == ["executor_kill", "driver_kill"]
        assert all(one["recovery_s"] < 120.0 for one in drilled)

    def _decided(self, service):
        """The evaluation after a recording, a profile and the models of it."""
        run_order(service.server, "record", "orders", seconds=400.0)
        run_order(service.server, "profile", "orders")
        settings, store = service.here.context.settings, service.environment.store
        modelling = Modelling(settings, service.folder, MemoryRegistry())
        room, purpose = modelling.context(store), modelling.purpose("orders", store)
        for kind in ("capacity", "workload", "recovery"):
            assert refit(kind, purpose, room).promoted
        service.passes(61.0)
        return service.server.evaluate("orders")

    def test_a_profile_after_which_none_can_be_made_is_no_success(self, opened, monkeypatch):
        monkeypatch.setattr(batch_costs, "FEWEST", 10_000)
        with opened() as service:
            refused = r"^job\.orders\.probe_s: no decision can follow .*: only \d+ batches .* Set it to 120"
            with pytest.raises(Misconfigured, match=refused):
                run_order(service.server, "profile", "orders")
            assert service.environment.store.measurements("orders"), "what was measured is kept"

    @pytest.mark.parametrize("what", ["profile", "probe", "drill"])
    def test_copies_wait_until_a_recovering_live_job_has_caught_up(self, opened, what):
        lines = []
        details = {"profile": {}, "probe": PROBE, "drill": {"scale_outs": [1], "rates_rps": [300.0]}}[what]
        with opened(failure_kinds=["driver_kill"]) as service:
            service.passes(60.0)
            with service.environment.taking_part():  # or it has caught up before the order looks
                service.environment.failures.inject("orders", "driver_kill")
                service.environment.flow("in", 5000.0)
                service.environment.clock.sleep(20.0)
                service.environment.flow("in", 100.0)
                id = service.server.begin(what, "orders", **details)
            wait_for(service.server, id, say=lines.append)
        assert re.fullmatch(r"waiting until orders has caught up: it is \d+ s of input behind", lines[0])
        assert "waiting" not in lines[-1]

    def test_a_live_job_that_does_not_catch_up_is_not_made_worse(self, opened):
        with opened() as service:
            service.environment.flow("in", 5000.0)
            service.passes(60.0)
            with pytest.raises(NotReady, match=r"^orders is \d+ s of input behind, and has not caught up"):
                run_order(service.server, "profile", "orders")
            assert service.copies() == []
            run_order(service.server, "stop", "orders")
            run_order(service.server, "profile", "orders")


class TestDrills:
    def test_a_failure_that_cannot_be_injected_here_is_refused_before_a_copy_is_started(self, service):
        service.launched()
        refused = r"^drill\.kinds: 'node_loss' cannot be injected here; expected"
        with pytest.raises(Misconfigured, match=refused):
            service.drilled(kinds=["driver_kill", "node_loss"], rates_rps=[100.0])
        context = service.server.context
        context.environment = replace(context.environment, kind="kubernetes")
        refused = r"cannot be injected here without kubernetes\.drill_node_selector; expected"
        with pytest.raises(Misconfigured, match=refused):
            service.drilled(kinds=["node_loss"], rates_rps=[100.0])
        context.environment = service.environment
        service.change(failure_kinds=("node_loss",))
        with pytest.raises(Misconfigured, match=r"^job\.orders\.failure_kinds: 'node_loss' cannot be"):
            service.drilled(rates_rps=[100.0])
        assert service.environment.store.document("orders", "copies") is None
        service.change(failure_kinds=("node_loss", "driver_kill"))
        lines = []
        done = service.drilled(say=lines.append, rates_rps=[100.0])
        assert [row["kind"] for row in done["drills"]] == ["driver_kill"]
        assert lines[0] == "left out: node_loss of job.orders.failure_kinds, which cannot be injected here"

    @pytest.mark.parametrize("live", [False, True])
    def test_the_broker_is_not_restarted_under_a_job_that_may_not_be_drilled(self, service, live):
        service.launched()
        with pytest.raises(Unsafe, match=r"job\.orders\.allow_live_drills is false"):
            service.drilled(kinds=["driver_kill"], live=True)
        run_order(service.server, "launch", "clicks")
        service.change(allow_live_drills=True)
        kinds = ["driver_kill", "broker_restart"]
        with pytest.raises(Unsafe, match=r"job\.clicks\.allow_live_drills is false.*broker_restart"):
            service.drilled(kinds=kinds, scale_outs=[1], rates_rps=[100.0], live=live)
        assert service.copies() == []
        run_order(service.server, "stop", "clicks")
        done = service.drilled(kinds=kinds, scale_outs=[1], rates_rps=[100.0], live=live)
        assert [row["kind"] for row in done["drills"]] == kinds

    def test_nor_under_one_that_was_launched_meanwhile(self, service, monkeypatch):
        launch = SharedCluster.launch
        service.environment.broker.create("clicks", partitions=2)

        def launch_both(self, plan):
            launch(self, plan)
            its = {"inputs": {"events": "clicks"}, "outputs": {}, "checkpoint": "/checkpoints/clicks"}
            launch(self, replace(plan, name="clicks", job="clicks", role="live", **its))

        monkeypatch.setattr(SharedCluster, "launch", launch_both)
        with pytest.raises(Unsafe, match=r"job\.clicks\.allow_live_drills is false.*broker_restart"):
            service.drilled(kinds=["broker_restart"], scale_outs=[1], rates_rps=[100.0])
        assert (service.copies(), service.environment.failures.active()) == ([], ())

    def test_a_series_of_live_drills_is_bounded(self, service):
        service.launched()
        service.change(allow_live_drills=True)
        with pytest.raises(Misconfigured, match=r"drill\.repeats: makes 22 drills .* may hold 20"):
            service.drilled(kinds=["driver_kill", "executor_kill"], repeats=11, live=True)

    def test_live_drills_end_where_a_blackout_begins(self, service, monkeypatch):
        service.launched()
        service.change(allow_live_drills=True)
        run = []

        def drilled(one):
            run.append(one.kind)
            return Outcome(one.kind, 2, Unknown("not read"), Unknown("it showed nothing"), {})

        monkeypatch.setattr(drills.DrillRun, "run", drilled)
        monkeypatch.setattr(time_windows, "blackout", lambda job, now_s: Blackout("payday") if run else None)
        lines = []
        done = service.drilled(live=True, say=lines.append)
        assert (run, len(done["drills"]), done["kept"]) == (["executor_kill"], 1, False)
        assert lines[-1] == "the blackout payday has begun: driver_kill is left out"

    def test_nothing_is_caused_in_a_blackout_that_begins_while_the_job_is_watched(self, service, monkeypatch):
        service.launched()
        service.change(allow_live_drills=True)
        begins_s = service.environment.clock.now_s() + 30.0  # it is watched for a minute before
        monkeypatch.setattr(
            time_windows, "blackout", lambda job, now_s: Blackout("payday") if now_s > begins_s else None
        )
        monkeypatch.setattr(type(service.environment.failures), "inject", None)
        [drill] = service.drilled(kinds=["driver_kill"], live=True)["drills"]
        assert "the blackout payday has begun meanwhile" in drill["invalid"]


class TestBlackout:
    @pytest.fixture
    def service(self, tmp_path):
        """A window of two minutes begins eight minutes after the start."""
        began_s = datetime(2026, 3, 2, 9, 0, tzinfo=UTC).timestamp()
        begins, ends = (datetime.fromtimestamp(began_s + after_s, UTC) for after_s in (480.0, 600.0))
        window = f"daily {begins:%H:%M}-{ends:%H:%M}"
        toml = TOML.replace("scale_out = 2", f'scale_out = 2\nblackouts = ["{window}"]', 1)
        # The window lasts 0.4 s of real time: it must not pass while this thread looks away.
        with opened(tmp_path, toml, since_s=began_s) as service, service.environment.taking_part():
            run_order(service.server, "launch", "orders", sleep=service.environment.clock.sleep)
            yield service

    def test_a_profile_ends_there_and_the_next_one_continues(self, service):
        lines, sleep = [], service.environment.clock.sleep
        done = run_order(service.server, "profile", "orders", say=lines.append, sleep=sleep)
        assert done["why_done"] == lines[-1]
        assert re.match(r"the blackout daily .* \(UTC\) has begun: what was measured is kept", lines[-1])
        assert done["probes"] >= 1
        assert len(service.environment.store.measurements("orders")) >= 1
        assert (service.copies(), service.scratch()) == ([], [])
        with pytest.raises(NotReady, match="blackout window"):
            service.server.begin("profile", "orders")
        sleep(180.0)
        again = run_order(service.server, "profile", "orders", say=lines.append, sleep=sleep)
        assert again["probes"] > done["probes"]
        assert again["spent_executor_s"] > done["spent_executor_s"]
        assert not again["why_done"].startswith("the blackout")
        first = [line for line in lines if line.startswith("probe 1:")]
        assert len(first) == 2  # begun and done, before the blackout

    def test_drills_on_a_copy_end_there_too_unless_they_were_ordered_within(self, service):
        lines, sleep = [], service.environment.clock.sleep
        done = service.drilled(say=lines.append, sleep=sleep, rates_rps=[400.0], repeats=5)
        assert 1 <= len(done["drills"]) < 10
        assert lines[-1].endswith("has begun: the drills end here, the next ones go on from there")
        assert (service.copies(), service.environment.failures.active()) == ([], ())
        with pytest.raises(NotReady, match="blackout window"):  # of a schedule that had to wait its turn
            service.server.begin("drill", "orders", rates_rps=[400.0], by_itself=True)
        within = service.drilled(sleep=sleep, kinds=["driver_kill"], rates_rps=[400.0])
        assert within["kept"] is True


class TestClient:
    def test_without_a_server_it_is_said_how_to_start_one(self, tmp_path):
        with pytest.raises(NotReady, match="start it with `headroom serve`"):
            Client(tmp_path).status()
        with Owner(tmp_path), pytest.raises(NotReady, match=rf"owned by process {os.getpid()} .* no orders"):
            Client(tmp_path).status()

    def test_the_key_is_for_this_user_only_and_what_a_killed_server_leaves_leads_nowhere(self, tmp_path):
        folder, listener = tmp_path / "server", Listener(None, tmp_path)
        listener.start()
        assert stat.S_IMODE((folder / "token").stat().st_mode) == 0o600
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert listener._server.address == folder / "owner.sock"
        left = {path: path.read_bytes() for path in folder.iterdir() if path.is_file()}
        listener.close()
        assert list(folder.iterdir()) == []
        for path, content in left.items():
            path.write_bytes(content)
        with pytest.raises(NotReady, match="start it with `headroom serve`"):
            Client(tmp_path).status()

    def test_on_a_volume_without_sockets_one_is_made_elsewhere_and_goes_with_the_next_server(
        self, tmp_path, monkeypatch
    ):
        serve = client.ControlServer

        def without(calls, *, token, address):
            if address.is_relative_to(tmp_path):
                raise PermissionError(errno.EPERM, "Operation not permitted")
            return serve(calls, token=token, address=address)

        monkeypatch.setattr(client, "ControlServer", without)
        killed = Listener(None, tmp_path)
        killed.start()
        sockets = killed._server.address.parent
        assert stat.S_IMODE(sockets.stat().st_mode) == 0o700
        after = Listener(None, tmp_path)
        after.start()
        assert not sockets.exists()
        after.close()
        killed.close()

    def test_the_probe_of_a_pod_asks_it_too_and_waits_for_nobody_else(self, tmp_path):
        def status():
            raise NotReady("the API server does not answer for 45 s")

        listener = Listener(SimpleNamespace(status=status), tmp_path)
        listener.start()
        probe = [sys.executable, "-S", "deploy/control/headroom-alive", str(tmp_path)]
        assert subprocess.run(probe, cwd=ROOT).returncode == 0
        listener.close()
        assert subprocess.run(probe, cwd=ROOT, stderr=subprocess.DEVNULL).returncode == 1

    def test_a_server_that_answers_late_is_not_one_that_has_ended(self, tmp_path):
        answers = threading.Event()

        class Busy:
            def status(self):
                answers.wait(10.0)
                return {}

        listener = Listener(Busy(), tmp_path)
        listener.start()
        try:
            client = Client(tmp_path, answer_s=0.05)
            with pytest.raises(NotReady, match="no server runs") as gone:
                client.status()
            assert not isinstance(gone.value, ServerBusy)
            with Owner(tmp_path), pytest.raises(ServerBusy, match="did not answer 'status' within"):
                client.status()
        finally:
            answers.set()
            listener.close()


def test_simulated_time_waits_for_whoever_works(tmp_path):
    settings = loading.parse(TOML, environment={})
    with base.opened(settings, tmp_path) as there:
        seen = {}

        def live(name, naps):
            with there.taking_part():
                moments = []
                for nap in naps:
                    there.clock.sleep(nap)
                    moments.append(there.clock.now_s() - began)
                seen[name] = moments

        with there.taking_part():
            began = there.clock.now_s()
            works = {"slow": [4.0] * 3, "quick": [1.0] * 12}
            threads = [threading.Thread(target=live, args=work) for work in works.items()]
            for thread in threads:
                thread.start()
            waiting.until(lambda: len(there.deployments._sleepers) == len(threads))
            assert there.clock.now_s() == began
        for thread in threads:
            thread.join()
        assert seen["slow"] == pytest.approx([4.0, 8.0, 12.0])
        assert seen["quick"] == pytest.approx([float(second) for second in range(1, 13)])


def test_those_that_wake_up_at_the_same_moment_work_one_after_the_other():
    cluster, seen = SharedCluster(), []

    def work():
        name = threading.current_thread().name
        with cluster.taking_part():
            for _ in range(3):
                cluster.sleep(1.0)
                seen.append((cluster.now_s, name, "begins"))
                time.sleep(0.01)
                seen.append((cluster.now_s, name, "ends"))

    with cluster.taking_part():
        threads = [threading.Thread(target=work, name=name) for name in ("c", "a", "b")]
        for thread in threads:
            thread.start()
        waiting.until(lambda: len(cluster._sleepers) == len(threads))
    for thread in threads:
        thread.join()
    assert seen == [(at_s, name, did) for at_s in (1, 2, 3) for name in "abc" for did in ("begins", "ends")]


@pytest.mark.parametrize("delay_s", [0.0, 0.3])
def test_simulated_time_waits_for_a_run_that_gives_an_order(service, delay_s):
    """A run of Dagster takes real time before its order and after it."""
    service.launched()
    clock = service.environment.clock
    with service.environment.taking_part():
        began_s = clock.now_s()
        time.sleep(delay_s)
        watched = Watched(service.server, say=lambda line: None, seen=lambda order: None, sleep=clock.sleep)
        run_order(watched, "record", "orders", seconds=30)
        time.sleep(delay_s)
        assert clock.now_s() - began_s == pytest.approx(32.0, abs=2.0)


def test_a_served_simulation_goes_with_the_wall_clock_unless_somebody_waits(tmp_path):
    settings = loading.parse(TOML, environment={})
    with base.opened(settings, tmp_path, since_s=time.time() - 500.0) as there:
        there.pace.set(1.0)  # it counts from here, however long the store took to open
        before = time.monotonic()
        there.clock.sleep(1.0)
        assert 0.5 < time.monotonic() - before < 5.0
        before = time.monotonic()
        with there.hurried():
            there.clock.sleep(30.0)
        assert time.monotonic() - before < 5.0
        assert there.clock.now_s() < time.time() - 300.0
        there.pace.catch_up()
        with there.hurried():
            there.clock.sleep(30.0)
        there.clock.sleep(270.0)
        assert time.monotonic() - before < 10.0
