"""One suite for both desks: that of the owner's own process, and the one that is reached over loopback."""

import errno
import json
import os
import re
import stat
import threading
import time
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime

import numpy as np
import pytest
from memory_registry import MemoryRegistry

from models.control import Blackout, Settings
from models.errors import Misconfigured, NotReady, Unsafe
from models.quantities import Unknown
from models.simulation import sampling
from pipelines.environments import base
from pipelines.environments.simulated.adapters import SimulatedDeployments
from pipelines.orchestration.modelling import Modelling
from pipelines.processes.owner import Owner
from pipelines.server import drills, recording
from pipelines.server.client import DeskClient, DeskServer
from pipelines.server.context import Means
from pipelines.server.in_process import HereDesk
from pipelines.server.protocol import Late, awaited, carried_out
from pipelines.settings import loading, time_windows
from profiling_jobs.experiments.drill import Outcome
from profiling_jobs.recording import recorder
from profiling_jobs.recording import recorder as slicing
from profiling_jobs.telemetry import batch_costs
from profiling_jobs.training import workload_history
from profiling_jobs.training.promoting import refit

TOML = """
[deployment]
kind = "simulated"
[spark]
slots = 8
[job.orders]
build = "a:b"
inputs = {events = "in"}
outputs = {alerts = "out"}
scale_out = 2
scale_out_max = 4
max_offsets_per_trigger = 2000
probe_s = 60
warm_up_s = 10
profile_scale_outs = [1, 2]
profile_budget_executor_s = 4000
failure_kinds = ["executor_kill", "driver_kill"]
[job.clicks]
build = "a:b"
inputs = {events = "clicks"}
"""
LONG = {"scale_out": 1, "rate_rps": 300.0}
SPEED = 300.0  # of simulated time: unbounded, its thread leaves the interpreter to nobody else


@pytest.fixture(autouse=True)
def _nobody_asks_the_twin_for_latency(monkeypatch):
    """Nine tenths of its time, and probes reckon their own."""
    none = Unknown("left out")
    monkeypatch.setattr(sampling, "_percentiles", lambda *arguments: [none, none, none])


def toml_with(**changed):
    """The settings with keys of the job changed."""
    kept = "\n".join(line for line in TOML.splitlines() if line.partition(" = ")[0] not in changed)
    own = "".join(f"{key} = {json.dumps(value)}\n" for key, value in changed.items())
    return kept.replace("[job.clicks]", f"{own}[job.clicks]")


class Office:
    """A simulated world with a desk in it."""

    def __init__(self, there, here, desk, folder):
        self.world, self.here, self.desk, self.folder = there, here, desk, folder

    def launched(self, rate_rps=700.0):
        result = carried_out(self.desk, "launch", "orders")
        self.world.flow("in", rate_rps)
        return result

    def passes(self, seconds):
        """Simulated time; somebody else's thread sees to it."""
        until = self.world.clock.now_s() + seconds
        while self.world.clock.now_s() < until:
            time.sleep(0.002)

    def copies(self):
        return [name for name in self.world.deployments.names() if name not in ("orders", "clicks")]

    def scratch(self):
        return [topic for topic in self.world.broker.topics() if topic.startswith("headroom.")]


@pytest.fixture(params=["here", "line"])
def office(request, tmp_path):
    settings = loading.parse(TOML, environment={})
    with (
        base.opened(settings, tmp_path, since_s=time.time()) as there,
        HereDesk(there, settings, tmp_path) as here,
    ):
        there.pace.set(SPEED)
        if request.param == "here":
            yield Office(there, here, here, tmp_path)
            return
        server = DeskServer(here, tmp_path)
        server.start()
        try:
            yield Office(there, here, DeskClient(tmp_path), tmp_path)
        finally:
            server.close()


def ended(desk, id, *, within_s=60.0):
    until = time.monotonic() + within_s
    while (now := desk.order(id))["state"] == "running":
        assert time.monotonic() < until, now
        time.sleep(0.01)
    return now


class TestLiveJob:
    def test_it_is_launched_with_its_topics_and_stopped(self, office):
        assert office.desk.status()["jobs"]["orders"]["state"] == "stopped"
        assert office.launched() == {"launched": True, "state": "running", "scale_out": 2}
        assert office.launched()["launched"] is False
        status = office.desk.status()
        assert (status["kind"], status["jobs"]["orders"]["executors_alive"]) == ("simulated", 2)
        assert {"in", "out"} <= set(office.world.broker.topics())
        assert carried_out(office.desk, "stop", "orders") == {"stopped": True}
        assert carried_out(office.desk, "stop", "orders") == {"stopped": False}

    def test_an_evaluation_is_recorded_and_the_same_all_through_its_interval(self, office):
        office.launched()
        office.passes(90.0)
        first = office.desk.evaluate("orders")
        assert first["observation"]["arrival_rps"] == pytest.approx(700.0, rel=0.02)
        assert first["instruction"]["do"] == "hold"
        assert json.loads(json.dumps(first)) == first
        office.passes(61.0)
        second = office.desk.evaluate("orders")
        assert second["interval"] > first["interval"]
        kept = office.world.store.evaluations("orders")
        assert [evaluation["interval"] for _, evaluation in kept] == [first["interval"], second["interval"]]

    def test_an_epoch_that_nobody_ordered_is_not_applied(self, office):
        office.launched()
        done = carried_out(office.desk, "apply", "orders", epoch=7, to=4)
        assert done["did"] == "nothing"
        assert office.desk.status()["jobs"]["orders"]["declared_scale_out"] == 2

    def test_a_recording_holds_every_record_of_its_time(self, office):
        office.launched(rate_rps=500.0)
        lines = []
        done = carried_out(office.desk, "record", "orders", say=lines.append, seconds=20)
        kept = done["recordings"]["events"]
        assert (kept["ended"], kept["records"]) == ("complete", pytest.approx(10_000, rel=0.002))
        assert lines[0] == "recording in for 20 s"

    def test_a_recording_that_is_given_up_counts_as_far_as_it_went(self, office):
        office.launched(rate_rps=500.0)
        id = office.desk.begin("record", "orders", seconds=3600)
        until = time.monotonic() + 60.0
        while time.monotonic() < until:
            kept = list((office.folder / "recordings" / "orders").glob("*-events/slices/000003.json"))
            if kept:
                break
            time.sleep(0.01)
        office.desk.cancel(id)
        assert ended(office.desk, id)["state"] == "cancelled"
        grid = workload_history.history(office.world.store, "orders")
        assert 1 <= (~np.isnan(grid.values)).sum() < 360
        assert np.nanmean(grid.values) == pytest.approx(500.0, rel=0.1)


class TestRecordingAgain:
    """What was cut short is gone on with, as long as that makes sense."""

    @pytest.fixture
    def full_disk(self, monkeypatch):
        """Until it is told that there is room."""
        original, full = slicing.described, [True]

        def described(target, piece, *arguments):
            if full[0] and piece == 2:
                raise OSError(errno.ENOSPC, "No space left on device")
            return original(target, piece, *arguments)

        monkeypatch.setattr(slicing, "described", described)
        return full

    @staticmethod
    def cut_short(office, full_disk, seconds=40):
        office.launched(rate_rps=500.0)
        id = office.desk.begin("record", "orders", seconds=seconds)
        order = ended(office.desk, id)
        assert order["error"]["kind"] == "NotReady"
        assert "there is no room left" in order["error"]["message"]
        full_disk[0] = False
        (folder,) = (office.folder / "recordings" / "orders").iterdir()
        return folder, order["lines"]

    @staticmethod
    def again(office, seconds=40, **details):
        lines = []
        done = carried_out(office.desk, "record", "orders", say=lines.append, seconds=seconds, **details)
        return done["recordings"]["events"], lines

    def test_the_next_order_goes_on_with_it(self, office, full_disk):
        folder, lines = self.cut_short(office, full_disk)
        assert lines[-1].startswith("what was recorded is kept: to record 40 s again goes on with it, until ")
        kept, lines = self.again(office)
        assert lines[0].startswith("going on with the recording of ")
        assert (kept["folder"], kept["ended"], kept["missing"]) == (str(folder), "complete", 0)
        assert kept["records"] == pytest.approx(20_000, rel=0.002)
        grid = workload_history.history(office.world.store, "orders")
        rates = grid.values[~np.isnan(grid.values)]
        assert 4 <= rates.size <= 5, "its whole time is known now"
        assert rates == pytest.approx(500.0, rel=0.02)
        kept, lines = self.again(office)
        assert kept["folder"] != str(folder)
        assert lines[0] == "recording in for 40 s"

    def test_another_number_of_seconds_is_another_recording(self, office, full_disk):
        folder, _ = self.cut_short(office, full_disk)
        kept, lines = self.again(office, seconds=20)
        assert (kept["folder"] != str(folder), kept["ended"]) == (True, "complete")
        assert lines[0] == "recording in for 20 s"

    def test_long_after_its_time_a_new_one_begins(self, office, full_disk, monkeypatch):
        monkeypatch.setattr(recording, "LATER_S", 10.0)
        folder, _ = self.cut_short(office, full_disk)
        office.passes(90.0)
        kept, lines = self.again(office)
        assert kept["folder"] != str(folder)
        assert re.fullmatch(
            r"the recording of .* was cut short and stays so, its time was over at .*: a new one begins",
            lines[0],
        )

    @pytest.mark.parametrize(
        ("question", "why"),
        [("starts", "retention has deleted what follows in in"), ("ends", "in was deleted and made again")],
    )
    def test_what_the_topic_no_longer_has_is_not_gone_on_with(
        self, office, full_disk, monkeypatch, question, why
    ):
        folder, _ = self.cut_short(office, full_disk)
        there, asked = getattr(type(office.world.broker), question), []

        def answer(broker, topics):
            asked.append(topics)
            if len(asked) > 1:
                return there(broker, topics)
            return {
                key: at + (10**6 if question == "starts" else -at)
                for key, at in there(broker, topics).items()
            }

        monkeypatch.setattr(type(office.world.broker), question, answer)
        kept, lines = self.again(office)
        assert (kept["folder"] != str(folder), kept["ended"]) == (True, "complete")
        assert f"was cut short and stays so, {why}: a new one begins" in lines[0]

    def test_one_that_somebody_still_writes_is_left_alone(self, office, full_disk):
        folder, _ = self.cut_short(office, full_disk)
        with recorder._alone(folder):
            kept, _ = self.again(office)
        assert (kept["folder"] != str(folder), kept["ended"]) == (True, "complete")

    def test_of_several_topics_what_is_complete_stays_as_it_is(self, tmp_path, full_disk):
        settings = loading.parse(
            TOML.replace('{events = "in"}', '{events = "in", users = "who"}'), environment={}
        )
        with (
            base.opened(settings, tmp_path, since_s=time.time()) as there,
            HereDesk(there, settings, tmp_path) as desk,
        ):
            there.pace.set(SPEED)
            office = Office(there, desk, desk, tmp_path)
            office.launched(rate_rps=0.0)
            there.flow("who", 9000.0)  # nothing comes in the other one: its recording is over at once
            assert ended(desk, desk.begin("record", "orders", seconds=40))["state"] == "failed"
            full_disk[0] = False
            before = {
                folder: (folder / "ended.json").exists() for folder in tmp_path.glob("recordings/orders/*")
            }
            assert sorted(before.values()) == [False, True]
            done = carried_out(desk, "record", "orders", seconds=40)["recordings"]
            assert {one["folder"] for one in done.values()} == {str(folder) for folder in before}
            assert {one["ended"] for one in done.values()} == {"complete"}
            assert done["users"]["records"] == pytest.approx(360_000, rel=0.002)

    def test_what_a_later_topic_loses_meanwhile_is_not_taken_for_silence(self, tmp_path, monkeypatch):
        settings = loading.parse(
            TOML.replace('{events = "in"}', '{events = "in", users = "who"}'), environment={}
        )
        with (
            base.opened(settings, tmp_path, since_s=time.time()) as there,
            HereDesk(there, settings, tmp_path) as desk,
        ):
            there.pace.set(SPEED)
            Office(there, desk, desk, tmp_path).launched(rate_rps=500.0)
            there.flow("who", 1500.0)
            starts = type(there.broker).starts

            def short_retention(broker, topics):
                """Nothing is left of the second topic once the first one was recorded."""
                first_is_over = any(tmp_path.glob("recordings/orders/*-events/ended.json"))
                return broker.ends(topics) if topics == ["who"] and first_is_over else starts(broker, topics)

            monkeypatch.setattr(type(there.broker), "starts", short_retention)
            done = carried_out(desk, "record", "orders", seconds=20)["recordings"]
            assert done["events"]["missing"] == 0
            assert done["users"]["missing"] >= 30_000
            assert isinstance(workload_history.history(there.store, "orders"), Unknown)

    def test_a_size_limit_is_its_end(self, office):
        office.launched(rate_rps=500.0)
        first, lines = self.again(office, max_bytes=25_000)
        assert (first["ended"], 0 < first["bytes"] <= 25_000) == ("size limit", True)
        assert lines[-1].endswith("; it ended at the size limit")
        kept, _ = self.again(office)
        assert (kept["folder"] != first["folder"], kept["ended"]) == (True, "complete")
        with pytest.raises(Misconfigured, match=r"^record\.max_bytes: must be at least 1"):
            self.again(office, max_bytes=0)


@pytest.mark.parametrize(("timeout_s", "take_effect_s"), [(30, 180.0), (120, 180.0), (300, 360.0)])
def test_a_change_has_not_failed_while_its_executors_may_still_come(tmp_path, timeout_s, take_effect_s):
    patient = TOML.replace("[spark]", f"[spark]\nscale_timeout_s = {timeout_s}")
    settings = loading.parse(patient, environment={})
    with base.opened(settings, tmp_path) as there, HereDesk(there, settings, tmp_path) as desk:
        agreed = desk.control_settings("orders")
    assert agreed.take_effect_s == take_effect_s
    assert agreed.horizon_s == Settings(promise=agreed.promise, max_scale_out=4).horizon_s


class TestCopies:
    def test_a_profile_tells_its_points_and_leaves_no_copy(self, office):
        office.launched()
        shares, lines = [], []
        seen = []
        done = carried_out(
            office.desk,
            "profile",
            "orders",
            say=lines.append,
            seen=lambda order: (shares.append(order["share"]), seen.append(order)),
        )
        facts = seen[-1]["facts"]
        light = [fact for fact in facts if not fact["executor_seconds"]]
        assert len(light) == 4  # two rates below the capacity of each size, for the latency
        assert len(facts) == done["probes"] + len(light) >= 6
        assert {fact["scale_out"] for fact in facts} == {1, 2}
        assert all(fact["key"].startswith(f"orders/e{fact['scale_out']}/r") for fact in facts)
        assert 600.0 < done["capacity_rps"]["1"]["mid"] < 900.0  # the twin: 2000 / (0.3 + 2000 / 800) = 714
        assert len(office.world.store.measurements("orders")) >= 2
        assert shares[-1] == 1.0
        assert any("executors at" in line for line in lines)
        assert (office.copies(), office.scratch()) == ([], [])

    def test_one_probe_repeats_one_point(self, office):
        office.launched()
        done = carried_out(office.desk, "probe", "orders", scale_out=1, rate_rps=300.4)
        assert (done["key"], done["verdict"]) == ("orders/e1/r300", "sustained")
        ((key, _, measurement),) = office.world.store.measurements("orders")
        assert (key, measurement.scale_out, measurement.sustained) == ("orders/e1/r300", 1, True)
        assert office.copies() == []

    def test_a_drill_tells_downtime_and_recovery(self, office):
        office.launched()
        done = carried_out(
            office.desk, "drill", "orders", kinds=["driver_kill"], scale_outs=[2], rates_rps=[500.0]
        )
        (row,) = done["drills"]
        assert (row["kind"], row["scale_out"], row["kept"]) == ("driver_kill", 2, True)
        assert 0.0 < row["downtime_s"] <= row["recovery_s"]
        assert len(office.world.store.events("orders")) == 1
        assert (office.copies(), office.world.failures.active()) == ([], ())

    def test_without_a_rate_the_capacity_must_be_known(self, office):
        office.launched()
        with pytest.raises(Misconfigured, match=r"^drill\.rates_rps: is needed"):
            carried_out(office.desk, "drill", "orders")

    def test_a_failure_that_cannot_be_caused_here_is_refused_before_a_copy_is_started(self, office):
        office.launched()
        with pytest.raises(
            Misconfigured, match=r"^drill\.kinds: 'node_loss' cannot be caused here; there is"
        ):
            carried_out(office.desk, "drill", "orders", kinds=["driver_kill", "node_loss"], rates_rps=[100.0])
        jobs = office.here._settings.jobs
        jobs["orders"] = jobs["orders"].model_copy(update={"failure_kinds": ("node_loss",)})
        with pytest.raises(Misconfigured, match=r"^job\.orders\.failure_kinds: 'node_loss' cannot be"):
            carried_out(office.desk, "drill", "orders", rates_rps=[100.0])
        assert office.world.store.document("orders", "copies") is None
        jobs["orders"] = jobs["orders"].model_copy(update={"failure_kinds": ("node_loss", "driver_kill")})
        lines = []
        done = carried_out(office.desk, "drill", "orders", say=lines.append, rates_rps=[100.0])
        assert [row["kind"] for row in done["drills"]] == ["driver_kill"]
        assert lines[0] == "node_loss of job.orders.failure_kinds cannot be caused here, and is left out"

    def test_the_live_job_is_not_hurt_unless_that_is_allowed(self, office):
        office.launched()
        with pytest.raises(Unsafe, match="allow_live_drills"):
            carried_out(office.desk, "drill", "orders", kinds=["driver_kill"], live=True)

    @pytest.mark.parametrize("live", [False, True])
    def test_the_broker_is_not_restarted_under_a_job_that_may_not_be_hurt(self, office, monkeypatch, live):
        office.launched()
        carried_out(office.desk, "launch", "clicks")
        jobs = office.here._settings.jobs
        jobs["orders"] = jobs["orders"].model_copy(update={"allow_live_drills": True})
        order = {"kinds": ["driver_kill", "broker_restart"], "scale_outs": [1], "rates_rps": [100.0]}
        with pytest.raises(Unsafe, match=r"job\.clicks\.allow_live_drills is false.*broker_restart"):
            carried_out(office.desk, "drill", "orders", live=live, **order)
        assert office.copies() == []
        carried_out(office.desk, "stop", "clicks")
        done = carried_out(office.desk, "drill", "orders", live=live, **order)
        assert [row["kind"] for row in done["drills"]] == order["kinds"]

    def test_nor_under_one_that_was_launched_meanwhile(self, office, monkeypatch):
        launch = SimulatedDeployments.launch
        office.world.broker.create("clicks", partitions=2)

        def launch_both(self, plan):
            launch(self, plan)
            its = {"inputs": {"events": "clicks"}, "outputs": {}, "checkpoint": "/checkpoints/clicks"}
            launch(self, replace(plan, name="clicks", job="clicks", role="live", **its))

        monkeypatch.setattr(SimulatedDeployments, "launch", launch_both)
        with pytest.raises(Unsafe, match=r"job\.clicks\.allow_live_drills is false.*broker_restart"):
            carried_out(
                office.desk,
                "drill",
                "orders",
                kinds=["broker_restart"],
                scale_outs=[1],
                rates_rps=[100.0],
            )
        assert (office.copies(), office.world.failures.active()) == ([], ())

    def test_a_series_on_the_live_job_has_an_end(self, office):
        office.launched()
        jobs = office.here._settings.jobs
        jobs["orders"] = jobs["orders"].model_copy(update={"allow_live_drills": True})
        order = {"kinds": ["driver_kill", "executor_kill"], "repeats": 11, "live": True}
        with pytest.raises(Misconfigured, match=r"drill\.repeats: makes 22 drills .* may hold 20"):
            carried_out(office.desk, "drill", "orders", **order)

    def test_live_drills_end_where_a_blackout_begins(self, office, monkeypatch):
        office.launched()
        run, hurt = [], Means.job

        def drilled(watch, kind, **given):
            run.append(kind)
            return Outcome(kind, 2, Unknown("not read"), Unknown("it showed nothing"), {})

        def window(job, now_s):
            return Blackout("payday") if run and job.allow_live_drills else None

        monkeypatch.setattr(drills, "run_drill", drilled)
        monkeypatch.setattr(time_windows, "blackout", window)
        monkeypatch.setattr(
            Means, "job", lambda self, order: hurt(self, order).model_copy(update={"allow_live_drills": True})
        )
        lines = []
        done = carried_out(office.desk, "drill", "orders", live=True, say=lines.append)
        assert (run, len(done["drills"]), done["kept"]) == (["executor_kill"], 1, False)
        assert lines[-1] == "the blackout payday has begun: driver_kill is left out"

    def test_drills_on_a_copy_cost_no_more_than_a_profile(self, office):
        office.launched()
        lines = []
        done = carried_out(
            office.desk, "drill", "orders", say=lines.append, scale_outs=[4], rates_rps=[400.0], repeats=3
        )
        assert len(done["drills"]) <= 5
        assert lines[0] == (
            "1 drill left out: the budget of 4,000 executor-seconds (job.orders.profile_budget_executor_s) "
            "has no room for more than 5"
        )
        with pytest.raises(
            Misconfigured, match=r"^drill\.budget_executor_s: 100 is not enough for one drill"
        ):
            carried_out(office.desk, "drill", "orders", rates_rps=[400.0], budget_executor_s=100)


class TestWhatDecisionsNeed:
    @pytest.fixture
    def opened(self, tmp_path):
        @contextmanager
        def opened(**changed):
            settings = loading.parse(toml_with(**changed), environment={})
            with base.opened(settings, tmp_path) as there, HereDesk(there, settings, tmp_path) as desk:
                carried_out(desk, "launch", "orders")
                there.flow("in", 700.0)
                yield Office(there, desk, desk, tmp_path)

        return opened

    def test_a_job_with_a_trigger_interval_gets_from_its_profile_to_a_decision(self, opened):
        with opened(trigger_s=1.0, event_time="kafka-timestamp", longest_window_s=10.0) as office:
            carried_out(office.desk, "record", "orders", seconds=400.0)
            carried_out(office.desk, "profile", "orders")
            modelling = Modelling(office.here._settings, office.folder, MemoryRegistry())
            store = office.world.store
            room, purpose = modelling.context(store), modelling.purpose("orders", store)
            for kind in ("capacity", "workload", "recovery"):
                assert refit(kind, purpose, room).promoted
            office.passes(61.0)
            found = office.desk.evaluate("orders")
        assert isinstance(found["decision"]["scale_out"], int), found["decision"]["reason"]

    def test_a_profile_after_which_none_can_be_made_is_no_success(self, opened, monkeypatch):
        monkeypatch.setattr(batch_costs, "FEWEST", 10_000)
        with opened() as office:
            with pytest.raises(
                Misconfigured,
                match=r"^job\.orders\.probe_s: no decision can follow from this profile, the cost of a batch "
                r"is unknown: only \d+ batches were seen.* Set it to 120, say, and profile again",
            ):
                carried_out(office.desk, "profile", "orders")
            assert office.world.store.measurements("orders"), "what was measured is kept"

    @pytest.mark.parametrize("what", ["profile", "probe", "drill"])
    def test_copies_wait_until_a_recovering_live_job_has_caught_up(self, opened, what):
        lines = []
        details = {"profile": {}, "probe": LONG, "drill": {"scale_outs": [1], "rates_rps": [300.0]}}[what]
        with opened(failure_kinds=["driver_kill"]) as office:
            office.passes(60.0)
            office.world.failures.inject("orders", "driver_kill")
            office.passes(20.0)
            carried_out(office.desk, what, "orders", say=lines.append, **details)
        assert re.fullmatch(r"waiting until orders has caught up: it is \d+ s of input behind", lines[0])
        assert "waiting" not in lines[-1]

    def test_a_live_job_that_does_not_catch_up_is_not_made_worse(self, opened):
        with opened() as office:
            office.world.flow("in", 5000.0)
            office.passes(60.0)
            with pytest.raises(
                NotReady, match=r"^orders is \d+ s of input behind, and has not caught up within"
            ):
                carried_out(office.desk, "profile", "orders")
            assert office.copies() == []
            carried_out(office.desk, "stop", "orders")
            carried_out(office.desk, "profile", "orders")


class TestBesideALiveJob:
    """Which may grow to four at any moment, of eight slots."""

    @pytest.fixture
    def opened(self, tmp_path):
        @contextmanager
        def opened(**changed):
            given = {"mode": "apply", "profile_scale_outs": [1, 2, 3, 6], "profile_parallel": 2} | changed
            own = "".join(f"{key} = {json.dumps(value)}\n" for key, value in given.items())
            toml = TOML.replace("profile_scale_outs = [1, 2]\n", own)
            settings = loading.parse(toml, environment={})
            with base.opened(settings, tmp_path) as there, HereDesk(there, settings, tmp_path) as desk:
                carried_out(desk, "launch", "orders")
                there.flow("in", 700.0)
                yield Office(there, desk, desk, tmp_path)

        return opened

    def test_a_profile_leaves_it_the_room_to_grow(self, opened):
        lines, held = [], []
        with opened() as office:

            def look(order):
                names = office.copies()
                held.append(sum(office.world.deployments.status(one).declared_scale_out for one in names))

            done = carried_out(office.desk, "profile", "orders", say=lines.append, seen=look)
        assert lines[0] == (
            "6 executors left out: 4 of 8 slots kept for live jobs (orders: 4); spark.slots = 10 has room"
        )
        assert max(held) <= 4
        assert set(done["capacity_rps"]) == {"1", "2", "3"}
        assert all(one["mid"] > 1.0 for one in done["capacity_rps"].values())

    def test_what_only_recommends_keeps_what_it_has(self, opened):
        lines = []
        with opened(mode="recommend", profile_parallel=1) as office:
            done = carried_out(office.desk, "profile", "orders", say=lines.append)
        assert "left out" not in lines[0]
        assert set(done["capacity_rps"]) == {"1", "2", "3", "6"}

    def test_where_no_size_has_room_it_is_refused_before_anything_starts(self, opened):
        with opened(profile_scale_outs=[5, 6]) as office:
            with pytest.raises(
                Misconfigured, match=r"^spark\.slots: 4 of 8 slots kept for live jobs \(orders: 4\) leave no"
            ) as refused:
                carried_out(office.desk, "profile", "orders")
            assert "set it to at least 9" in str(refused.value)
            assert (office.copies(), office.scratch()) == ([], [])


class TestWhereABlackoutBegins:
    @pytest.fixture
    def desk(self, tmp_path):
        """A window of two minutes begins eight minutes after the world does."""
        began_s = datetime(2026, 3, 2, 9, 0, tzinfo=UTC).timestamp()
        begins, ends = (datetime.fromtimestamp(began_s + after_s, UTC) for after_s in (480.0, 600.0))
        window = f"daily {begins:%H:%M}-{ends:%H:%M}"
        toml = TOML.replace("scale_out = 2", f'scale_out = 2\nblackouts = ["{window}"]', 1)
        settings = loading.parse(toml, environment={})
        with (
            base.opened(settings, tmp_path, since_s=began_s) as there,
            HereDesk(there, settings, tmp_path) as desk,
        ):
            there.pace.set(SPEED)
            carried_out(desk, "launch", "orders")
            yield Office(there, desk, desk, tmp_path)

    def test_a_profile_ends_there_and_the_next_one_goes_on(self, desk):
        lines = []
        done = carried_out(desk.desk, "profile", "orders", say=lines.append)
        assert done["why_done"] == lines[-1]
        assert re.fullmatch(
            r"the blackout daily .* \(UTC\) has begun: what was measured is kept, the next profile goes on "
            r"from there",
            lines[-1],
        )
        assert done["probes"] >= 1
        assert len(desk.world.store.measurements("orders")) >= 1
        assert (desk.copies(), desk.scratch()) == ([], [])
        with pytest.raises(NotReady, match="blackout window"):
            desk.desk.begin("profile", "orders")
        with desk.world.hurried():
            desk.passes(180.0)
        again = carried_out(desk.desk, "profile", "orders", say=lines.append)
        assert again["probes"] > done["probes"]
        assert again["spent_executor_s"] > done["spent_executor_s"]
        assert not again["why_done"].startswith("the blackout")
        first = [line for line in lines if line.startswith("probe 1:")]
        assert len(first) == 2  # begun and done, before the blackout

    def test_drills_on_a_copy_end_there_too_unless_they_were_ordered_within(self, desk):
        lines = []
        done = carried_out(desk.desk, "drill", "orders", say=lines.append, rates_rps=[400.0], repeats=5)
        assert 1 <= len(done["drills"]) < 10
        assert lines[-1].endswith("has begun: the drills end here, the next ones go on from there")
        assert (desk.copies(), desk.world.failures.active()) == ([], ())
        with pytest.raises(NotReady, match="blackout window"):  # of a schedule, that had to wait for its turn
            desk.desk.begin("drill", "orders", rates_rps=[400.0], by_itself=True)
        within = carried_out(desk.desk, "drill", "orders", kinds=["driver_kill"], rates_rps=[400.0])
        assert within["kept"] is True


class TestOrders:
    def test_two_orders_that_would_be_in_each_others_way(self, office):
        office.launched()
        id = office.desk.begin("profile", "orders")
        with pytest.raises(NotReady, match=rf"profile of orders is under way \(order {id}\)"):
            office.desk.begin("drill", "orders", kinds=["driver_kill"], scale_outs=[1], rates_rps=[100.0])
        office.desk.cancel(id)
        assert ended(office.desk, id)["state"] == "cancelled"
        assert (office.copies(), office.scratch()) == ([], [])
        carried_out(office.desk, "probe", "orders", **LONG)

    def test_an_order_outlives_whoever_gave_it_and_is_picked_up_by_its_id(self, office):
        office.launched()
        id = office.desk.begin("probe", "orders", **LONG)
        other = office.here if office.desk is not office.here else office.desk
        lines = []
        assert awaited(other, id, say=lines.append)["verdict"] == "sustained"
        assert lines[0] == "1 executor at 300 records/s"
        (row,) = [order for order in office.desk.status()["orders"] if order["id"] == id]
        assert (row["state"], row["share"], "lines" in row) == ("done", 1.0, False)

    def test_the_same_order_given_again_while_it_runs_is_that_order(self, office):
        office.launched()
        id = office.desk.begin("profile", "orders")
        assert office.desk.begin("profile", "orders") == id
        office.desk.cancel(id)
        assert ended(office.desk, id)["state"] == "cancelled"
        again = office.desk.begin("profile", "orders")
        assert again != id
        office.desk.cancel(again)
        ended(office.desk, again)

    def test_lines_are_told_from_where_one_has_read(self, office):
        office.launched()
        id = office.desk.begin("probe", "orders", **LONG)
        done = ended(office.desk, id)
        assert done["next"] == len(done["lines"]) == 2
        assert office.desk.order(id, since=1)["lines"] == done["lines"][1:]

    def test_whoever_stops_waiting_cancels(self, office):
        office.launched()

        def interrupt(order):
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            carried_out(office.desk, "profile", "orders", seen=interrupt)
        (order,) = [one for one in office.desk.status()["orders"] if one["what"] == "profile"]
        assert ended(office.desk, order["id"])["state"] == "cancelled"
        assert office.copies() == []

    def test_cancelling_what_has_ended_changes_nothing(self, office):
        id = office.desk.begin("stop", "orders")
        ended(office.desk, id)
        office.desk.cancel(id)
        assert office.desk.order(id)["state"] == "done"

    def test_what_went_wrong_comes_back_as_the_same_error(self, office):
        office.launched()
        with pytest.raises(Misconfigured, match=r"^spark\.slots: 99 executors"):
            carried_out(office.desk, "probe", "orders", scale_out=99, rate_rps=10.0)

    @pytest.mark.parametrize(
        ("what", "job", "details", "message"),
        [
            ("dance", "orders", {}, r"^order: 'dance' is none; there is launch, stop"),
            ("launch", "oders", {}, r"^job\.oders: is not in the settings; there is clicks, orders"),
            ("launch", "orders", {"now": True}, r"^launch\.now: does not belong"),
            ("record", "orders", {}, r"^record\.seconds: is missing"),
            ("record", "orders", {"seconds": "long"}, r"^record\.seconds: must be a number"),
            ("record", "orders", {"seconds": float("nan")}, r"^record\.seconds: must be a number"),
            ("record", "orders", {"seconds": 9, "max_bytes": 0.5}, r"^record\.max_bytes: must be a whole"),
            ("probe", "orders", {"scale_out": 1.5, "rate_rps": 1.0}, r"^probe\.scale_out: must be a whole"),
            ("probe", "orders", {"scale_out": True, "rate_rps": 1.0}, r"^probe\.scale_out: must be a whole"),
            (
                "probe",
                "orders",
                {"scale_out": 1, "rate_rps": 0},
                r"^probe\.rate_rps: must be a number, above 0",
            ),
            ("profile", "orders", {"scale_outs": []}, r"^profile\.scale_outs: must be a list"),
            ("drill", "orders", {"live": 1}, r"^drill\.live: must be true or false"),
        ],
    )
    def test_an_order_that_makes_no_sense_is_refused_at_once(self, office, what, job, details, message):
        with pytest.raises(Misconfigured, match=message):
            office.desk.begin(what, job, **details)
        assert office.desk.status()["orders"] == []

    def test_in_a_blackout_window_no_profile_is_begun(self, tmp_path):
        everything = TOML.replace("scale_out = 2", 'scale_out = 2\nblackouts = ["daily 00:00-24:00"]', 1)
        settings = loading.parse(everything, environment={})
        with base.opened(settings, tmp_path) as there, HereDesk(there, settings, tmp_path) as desk:
            with pytest.raises(NotReady, match="blackout window, daily 00:00-24:00"):
                desk.begin("profile", "orders")
            carried_out(desk, "launch", "orders")

    def test_an_order_of_an_earlier_owner_is_not_known(self, office):
        with pytest.raises(NotReady, match="give it again"):
            office.desk.order("profile-orders-1")


class TestAnOwnerThatIsBusy:
    """An order of hours, asked after four times a second."""

    class Desk:
        def __init__(self, *answers):
            self.answers, self.cancelled = list(answers), []

        def order(self, id, *, since=0):
            answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
            if isinstance(answer, BaseException):
                raise answer
            running = {"lines": [], "next": since, "state": "running", "result": None}
            return {**running, **answer}

        def cancel(self, id):
            self.cancelled.append(id)

    LATE = Late("the owner did not answer 'order' within 30 s")

    def test_it_is_asked_again(self):
        desk = self.Desk({}, self.LATE, self.LATE, {}, {"state": "done", "result": {"probes": 9}})
        assert awaited(desk, "profile-orders-1", sleep=lambda seconds: None) == {"probes": 9}
        assert desk.cancelled == []

    def test_after_a_minute_the_waiting_ends_and_the_order_does_not(self, monkeypatch):
        monkeypatch.setattr("pipelines.server.protocol.PATIENCE_S", 0.02)
        naps, desk = [], self.Desk(self.LATE)

        def nap(seconds):
            naps.append(seconds)
            time.sleep(0.001)

        with pytest.raises(NotReady, match=r"within 30 s; order profile-orders-1 may go on: give it again"):
            awaited(desk, "profile-orders-1", sleep=nap)
        assert len(naps) > 2
        assert desk.cancelled == []

    @pytest.mark.parametrize(
        ("wrong", "cancelled"),
        [
            (NotReady("order profile-orders-1 is not known here"), []),
            (OSError("the run's own storage is locked"), []),
            (SystemExit(143), ["profile-orders-1"]),
            (KeyboardInterrupt(), ["profile-orders-1"]),
        ],
    )
    def test_only_whoever_is_interrupted_takes_it_back(self, wrong, cancelled):
        desk = self.Desk(wrong)
        with pytest.raises(type(wrong)):
            awaited(desk, "profile-orders-1", sleep=lambda seconds: None)
        assert desk.cancelled == cancelled


class TestTheEnd:
    def test_closing_cancels_what_is_under_way_and_puts_it_away(self, tmp_path):
        settings = loading.parse(TOML, environment={})
        with base.opened(settings, tmp_path) as there:
            before = threading.active_count()
            with HereDesk(there, settings, tmp_path) as desk:
                carried_out(desk, "launch", "orders")
                id = desk.begin("profile", "orders")
            assert desk.order(id)["state"] == "cancelled"
            assert there.deployments.names() == ("orders",)
            assert threading.active_count() == before
            with pytest.raises(NotReady, match="stopping"):
                desk.begin("stop", "orders")


class TestLine:
    def test_without_an_owner_it_is_said_how_to_get_one(self, tmp_path):
        with pytest.raises(NotReady, match="start it with `headroom serve`"):
            DeskClient(tmp_path).status()

    def test_an_owner_without_a_desk_is_named(self, tmp_path):
        with (
            Owner(tmp_path),
            pytest.raises(NotReady, match=rf"owned by process {os.getpid()} .* does not serve"),
        ):
            DeskClient(tmp_path).status()

    def test_what_a_killed_owner_has_left_leads_nowhere(self, tmp_path):
        class Nobody:
            pass

        server = DeskServer(Nobody(), tmp_path)
        server.start()
        address = (tmp_path / "desk" / "address.json").read_bytes()
        token = (tmp_path / "desk" / "token").read_bytes()
        server.close()
        (tmp_path / "desk" / "address.json").write_bytes(address)
        (tmp_path / "desk" / "token").write_bytes(token)
        with pytest.raises(NotReady, match="start it with `headroom serve`"):
            DeskClient(tmp_path).status()

    def test_an_owner_that_answers_late_is_told_from_one_that_is_gone(self, tmp_path):
        answers = threading.Event()

        class Busy:
            def status(self):
                answers.wait(10.0)
                return {}

        server = DeskServer(Busy(), tmp_path)
        server.start()
        try:
            client = DeskClient(tmp_path, answer_s=0.05)
            with pytest.raises(NotReady, match="nobody owns") as gone:
                client.status()
            assert not isinstance(gone.value, Late)
            with Owner(tmp_path), pytest.raises(Late, match="did not answer 'status' within"):
                client.status()
        finally:
            answers.set()
            server.close()

    def test_the_key_is_for_this_user_only_and_gone_afterwards(self, tmp_path):
        class Nobody:
            pass

        server = DeskServer(Nobody(), tmp_path)
        server.start()
        assert stat.S_IMODE((tmp_path / "desk" / "token").stat().st_mode) == 0o600
        assert stat.S_IMODE((tmp_path / "desk").stat().st_mode) == 0o700
        server.close()
        assert list((tmp_path / "desk").iterdir()) == []


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
            threads = [
                threading.Thread(target=live, args=("slow", [4.0] * 3)),
                threading.Thread(target=live, args=("quick", [1.0] * 12)),
            ]
            for thread in threads:
                thread.start()
            time.sleep(0.05)
            assert there.clock.now_s() == began
        for thread in threads:
            thread.join()
        assert seen["slow"] == pytest.approx([4.0, 8.0, 12.0])
        assert seen["quick"] == pytest.approx([float(second) for second in range(1, 13)])


def test_a_served_simulation_goes_with_the_wall_clock_unless_somebody_waits(tmp_path):
    settings = loading.parse(TOML, environment={})
    with base.opened(settings, tmp_path, since_s=time.time() - 500.0) as there:
        before = time.monotonic()
        there.clock.sleep(1.0)
        assert 0.5 < time.monotonic() - before < 5.0
        before = time.monotonic()
        with there.hurried():
            there.clock.sleep(30.0)
        assert time.monotonic() - before < 5.0
        assert there.clock.now_s() < time.time() - 300.0
        there.pace.catch_up()
        there.clock.sleep(300.0)
        assert time.monotonic() - before < 10.0
