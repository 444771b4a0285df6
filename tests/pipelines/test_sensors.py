"""One tick per interval and job: a point on the timeline always, a run only if something must change."""

import json
from collections import Counter
from types import SimpleNamespace

import dagster as dg
import evaluations
import pytest
from temporary_store import TemporaryStore

from models.errors import Misconfigured, NotReady
from pipelines.orchestration import sensors
from pipelines.orchestration.jobs import all_jobs
from pipelines.settings import loading

NOW_S = 6_000_030.0
TOML = """
[job.orders]
build = "a:b"
inputs = {events = "in"}
mode = "apply"
blackouts = ["2026-11-27 00:00-24:00"]
[job.clicks]
build = "a:b"
inputs = {events = "clicks"}
evaluation_interval_s = 120
"""
JOBS = loading.parse(TOML, environment={}).jobs
ORDER = {"epoch": 7, "before": 4, "to": 6, "origin": "decision", "reason": "the load rises"}
ORDER["key"] = "orders:7:wait0"
HOLD = {"do": "hold", "to": None, "would": None, "reason": "hold 4 executors: 36 of 42 krps fit"}


def evaluation(job="orders", **changes):
    given = {
        "interval": 100_000,
        "epoch": 7,
        "instruction": HOLD,
        "observation": {"arrival_rps": 36_000.0, "lag_records": 120.0, "throughput_rps": 36_010.0},
        "lag_s": 0.5,
    }
    return evaluations.evaluation(NOW_S, job=job, **given | changes).to_json()


class Server:
    """A server that says what a test has written down for it."""

    def __init__(self, **answers):
        self.answers, self.asked, self.cancelled = answers, [], []

    def evaluate(self, job):
        self.asked.append(job)
        answer = self.answers.get(job, evaluation(job))
        if isinstance(answer, Exception):
            raise answer
        return answer

    def cancel(self, id):
        self.cancelled.append(id)
        if "gone" in id:
            raise NotReady("order is not known here")


def tick(server, cursor=None, *, now_s=NOW_S, jobs=JOBS):
    return sensors.tick(cursor, jobs, server, now_s=now_s)


class TestTick:
    def test_every_job_gets_a_point_and_a_reason_also_when_nothing_changes(self):
        found = tick(Server())
        assert not found.run_requests
        assert "orders: hold 4 executors: 36 of 42 krps fit" in found.skip_reason.skip_message
        assert {(event.asset_key.to_user_string(), event.partition) for event in found.asset_events} == {
            (asset, job) for asset in ("decision", "running_query", "input_topics") for job in JOBS
        }

    def test_what_is_seen_is_told_every_five_minutes_what_is_said_at_every_interval(self):
        told = []
        for number in range(100_000, 100_010):
            found = tick(Server(orders=evaluation(interval=number)), now_s=60.0 * number)
            told += [e.asset_key.to_user_string() for e in found.asset_events if e.partition == "orders"]
        assert Counter(told) == {"decision": 10, "running_query": 2, "input_topics": 2}

    def test_a_job_is_asked_once_in_its_interval(self):
        server = Server()
        first = tick(server)
        again = tick(server, first.cursor, now_s=NOW_S + 20.0)
        assert server.asked == ["orders", "clicks"]
        assert again.asset_events == []
        assert "in 10 s" in again.skip_reason.skip_message
        third = tick(server, again.cursor, now_s=NOW_S + 31.0)
        assert server.asked[2:] == ["orders"], "clicks is asked every two minutes"
        assert len(json.loads(third.cursor)["reported"]) == 2

    def test_a_change_is_a_run_named_by_its_attempt(self):
        found = tick(Server(orders=evaluation(apply=ORDER)))
        (run,) = found.run_requests
        assert (run.run_key, run.job_name, run.partition_key) == ("orders:7:wait0", "optimization", "orders")
        assert run.tags["headroom/why"] == "4 to 6 executors: the load rises"
        assert found.skip_reason is None

    def test_the_owner_is_gone_nothing_breaks_and_it_is_asked_again(self):
        gone = NotReady("no server runs for .headroom: start it with `headroom serve`")
        found = tick(Server(orders=gone, clicks=gone))
        assert "start it with `headroom serve`" in found.skip_reason.skip_message
        assert json.loads(found.cursor)["reported"] == {}

    def test_one_job_that_cannot_be_evaluated_does_not_hold_the_others_up(self):
        found = tick(Server(orders=Misconfigured("job.orders", "is not in the settings")))
        said = "orders was not evaluated: job.orders: is not in the settings"
        assert said in found.skip_reason.skip_message
        assert {event.partition for event in found.asset_events} == {"clicks"}

    @pytest.mark.parametrize(
        "cursor", [None, "", "x", "[]", "3", '{"schema": 2}', '{"schema": 1, "reported": 3}',
                   '{"schema": 1, "reported": {"orders": "x"}}', '{"schema": 1, "reported": {"gone": 4}}']
    )  # fmt: skip
    def test_a_cursor_that_cannot_be_read_is_begun_anew(self, cursor):
        server = Server()
        found = tick(server, cursor)
        assert server.asked == ["orders", "clicks"]
        assert set(json.loads(found.cursor)["reported"]) == {"orders", "clicks"}

    def test_a_clock_that_was_put_back_stops_nothing(self):
        server = Server()
        cursor = tick(server).cursor
        tick(server, cursor, now_s=NOW_S - 3600.0)
        assert len(server.asked) == 4

    def test_no_job_is_said_to_be_none(self):
        assert "[job.NAME]" in tick(Server(), jobs={}).skip_reason.skip_message

    def test_what_is_unknown_is_left_out_of_the_plots(self):
        blind = evaluation(observation={"arrival_rps": {"unknown": "no"}}, lag_s=float("inf"))
        (event,) = (one for one in tick(Server(orders=blind)).asset_events if one.partition == "orders")
        assert event.asset_key == dg.AssetKey("decision")
        assert {"arrival_rps", "lag_s"} & set(event.metadata) == set()

    def test_a_slow_owner_leaves_the_rest_for_the_next_tick(self, monkeypatch):
        monkeypatch.setattr(sensors, "MOST_S", -1.0)
        found = tick(Server())
        assert "waits for the next tick" in found.skip_reason.skip_message
        assert json.loads(found.cursor)["reported"] == {}


REFIT = {"do": "refit", "model": "workload", "why": "it missed 5 times", "since_s": 6e6}
PROFILE = {"do": "profile", "model": "capacity", "why": "it has drifted", "since_s": 6e6, "scale_outs": [4]}


class TestRequests:
    def runs(self, *requests, job="orders", **more):
        found = tick(Server(**{job: evaluation(job, requests=requests)}), **more)
        return found.run_requests or [], found.skip_reason

    def test_a_model_that_misses_is_fitted_again_once(self):
        (run,), _ = self.runs(REFIT)
        assert (run.run_key, run.job_name) == ("orders:refit:workload:6000000", "model")
        assert [key.to_user_string() for key in run.asset_selection] == ["workload_model"]

    def test_what_has_drifted_is_profiled_again_at_the_sizes_that_have(self):
        (run,), _ = self.runs(PROFILE)
        assert (run.run_key, run.job_name) == ("orders:profile:6000000", "profile")
        assert run.run_config["ops"]["search"]["config"] == {"scale_outs": [4]}
        made = all_jobs(["orders"])["profile"]
        assert dg.validate_run_config(made, run.run_config)

    def test_never_inside_a_blackout(self):
        black_friday = 1_795_780_800.0 + 3600.0
        runs, reason = self.runs(PROFILE, now_s=black_friday)
        assert not runs
        assert "after the blackout 2026-11-27" in reason.skip_message

    def test_never_when_the_job_is_only_watched(self):
        jobs = loading.parse(TOML + 'mode = "observe"\n', environment={}).jobs
        runs, reason = self.runs(PROFILE, job="clicks", jobs=jobs)
        assert not runs
        assert "only watches" in reason.skip_message

    @pytest.mark.parametrize(("program", "runs"), [("", 0), ('build = "a:b"\n', 1)])
    def test_a_job_of_somebody_else_is_profiled_where_its_program_is_at_hand(self, program, runs):
        text = f'[job.clicks]\nattach = true\ncheckpoint = "/c"\ninputs = {{e = "t"}}\n{program}'
        jobs = loading.parse(text, environment={}).jobs
        found, reason = self.runs(PROFILE, job="clicks", jobs=jobs)
        assert len(found) == runs
        if not runs:
            assert "copies need `script` or `build`" in reason.skip_message


class TestSensor:
    def sensor(self, problem=""):
        return sensors.optimization_sensor(JOBS, all_jobs(list(JOBS)), problem=problem)

    def ticked(self, server, instance, problem=""):
        around = {"server": server, "store": TemporaryStore()}
        return self.sensor(problem)(dg.build_sensor_context(instance=instance, resources=around))

    def test_it_ticks_by_itself_with_the_server_and_leaves_no_interval_out(self):
        sensor = self.sensor()
        assert sensor.default_status == dg.DefaultSensorStatus.RUNNING
        assert sensor.minimum_interval_seconds == 30
        server = Server(orders=evaluation(apply=ORDER))
        with dg.DagsterInstance.ephemeral() as instance:
            found = self.ticked(server, instance)
            assert [run.run_key for run in found.run_requests] == ["orders:7:wait0"]
            key = dg.AssetKey("decision")
            seen = instance.fetch_observations(key, limit=9).records
            assert {one.asset_observation.partition for one in seen} == {"orders", "clicks"}

    def test_a_preview_of_the_same_tick_leaves_one_point(self):
        server = Server()
        with dg.DagsterInstance.ephemeral() as instance:
            for _ in range(2):
                found = self.ticked(server, instance)
                assert "hold 4 executors" in found.skip_reason.skip_message
                assert not found.asset_events, "Dagster would not show the reason"
            server.answers["orders"] = evaluation(interval=100_001)
            self.ticked(server, instance)
            points = [
                one.asset_observation.tags["headroom/interval"]
                for one in instance.fetch_observations(dg.AssetKey("decision"), limit=9).records
                if one.asset_observation.partition == "orders"
            ]
        assert points == ["100001", "100000"]

    def test_wrong_settings_are_the_reason_of_every_tick(self):
        server = Server()
        with dg.DagsterInstance.ephemeral() as instance:
            found = self.ticked(server, instance, "line 3: job.orders.mode: must be one of")
        assert found.skip_reason.skip_message.startswith("line 3")
        assert server.asked == []


class TestAfterRuns:
    @pytest.mark.parametrize(
        ("tags", "cancelled", "words"),
        [
            ({"headroom/order": "drill-1"}, ["drill-1"], "failures are cleared, copies are stopped"),
            # Of an owner that was started anew.
            ({"headroom/order": "gone-1"}, ["gone-1"], "nothing of it is going on any more"),
            ({"dagster/partition": "orders"}, [], "nothing behind"),
        ],
    )
    def test_what_a_run_has_ordered_is_given_up(self, tags, cancelled, words):
        server = Server()
        said = sensors.put_right(SimpleNamespace(job_name="drill", tags=tags), server)
        assert (server.cancelled, words in said) == (cancelled, True)

    def test_a_change_is_never_cut_in_two_but_looked_at_by_control(self):
        server = Server()
        tags = {"headroom/order": "apply-1", "dagster/partition": "orders"}
        said = sensors.put_right(SimpleNamespace(job_name="optimization", tags=tags), server)
        assert (server.cancelled, server.asked) == ([], ["orders"])
        assert "hold 4 executors" in said
