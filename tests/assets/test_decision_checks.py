"""The checks of `decision`: when they are red, yellow and green, and how they come to Dagster's page."""

import json
import math

import dagster as dg
import pytest
from evaluations import evaluation, record
from temporary_store import TemporaryStore

from assets import decide, decision_checks
from assets.decision_checks import looked
from models.quantities import RecoveryEvent, Unknown
from pipelines.orchestration import sensors

NOW_S = 1_763_474_430.0
HOLD = {"do": "hold", "to": None, "would": None, "reason": "hold 4 executors: all fits"}
IN_TIME = {"executor_kill": {"probability": 0.99}, "driver_kill": {"probability": 0.97}}
SLOW = {"condition": "recovery", "sentence": "after a driver_kill it needs 240 s", "measure": None}
FITS = {"scale_out": 4, "status": "feasible", "excuses": []}
TOO_SMALL = {"scale_out": 4, "status": "infeasible", "excuses": [SLOW]}
UNSURE = {"scale_out": 4, "status": "unknown", "excuses": [SLOW | {"sentence": "its capacity is not known"}]}
LARGER = {"scale_out": 6, "status": "feasible", "excuses": []}
PAUSED = {"decision": {"unknown": "paused"}}
KILLED = {"kind": "driver_kill", "failed_at_s": NOW_S - 230.0, "why": "", "spoilt": ""}


def decided(*verdicts):
    return {"scale_out": 6, "smallest": 6, "verdicts": list(verdicts), "reason": ""}


SHORT = decided(TOO_SMALL)


def keep(store, job="orders", *, at_s=NOW_S - 30.0, **changes):
    given = {
        "epoch": 7,
        "instruction": HOLD,
        "promise": {"target_s": 180.0, "confidence": 0.95},
        "recoveries": IN_TIME,
        "decision": decided(FITS),
    }
    record(store, evaluation(at_s, job=job, **given | changes))


@pytest.fixture
def store():
    with TemporaryStore() as found:
        yield found


@pytest.fixture
def kept(store):
    """What `promise_kept` says of one job with this evaluation."""

    def look(**more):
        keep(store, **more)
        checked, _ = looked(store, ["orders"], now_s=NOW_S)
        return checked.findings[0].outcome, checked.findings[0].said

    return look


class TestPromise:
    @pytest.mark.parametrize(
        ("evaluation", "outcome", "said"),
        [
            ({}, "ok", "hold 4 executors: all fits"),
            ({"decision": decided(TOO_SMALL, LARGER)}, "wrong", "4 executors: after a driver_kill it needs"),
            (
                {"decision": decided(TOO_SMALL, LARGER), "instruction": HOLD | {"would": 6}},
                "wrong",
                "4 executors (6 executors recommended): ",
            ),
            (
                {"decision": decided(TOO_SMALL, LARGER), "instruction": HOLD | {"do": "scale", "to": 6}},
                "ok",
                "all fits",
            ),
            ({"decision": decided(UNSURE)}, "not known", "its capacity is not known"),
            # A pause, or a change that is verified: nothing is decided, and recoveries are predicted.
            (PAUSED, "ok", "all fits"),
            (
                PAUSED | {"recoveries": IN_TIME | {"driver_kill": {"probability": 0.9}}},
                "wrong",
                "after the loss of the driver it catches up in time in 90 % of the cases, 95 % were promised",
            ),
            (PAUSED | {"recoveries": {"driver_kill": Unknown("no models")}}, "not known", "all fits"),
            (PAUSED | {"scale_out": Unknown("gone"), "recoveries": {}}, "not known", ""),
            ({"recovering": KILLED}, "wrong", "3 min 50 s after the loss of the driver it has not caught up"),
            ({"recovering": KILLED | {"failed_at_s": NOW_S - 100.0}}, "ok", ""),
            ({"recovering": KILLED | {"kind": "live_out"}}, "ok", ""),  # a change of the size is no failure
            ({"at_s": NOW_S - 600.0}, "not known", "it is not evaluated any more"),
        ],
    )  # fmt: skip
    def test_the_size_that_runs_keeps_it_or_not(self, kept, evaluation, outcome, said):
        found = kept(**evaluation)
        assert found[0] == outcome
        assert said in found[1]

    @pytest.mark.parametrize(
        ("ago_s", "took_s", "kind", "details", "outcome"),
        [
            (3600.0, 240.0, "driver_kill", {"origin": "live"}, "wrong"),
            (3600.0, math.inf, "driver_kill", {"on": "live"}, "wrong"),
            (3600.0, 170.0, "driver_kill", {"origin": "live"}, "ok"),
            (90_000.0, 240.0, "driver_kill", {"origin": "live"}, "ok"),
            (3600.0, 240.0, "driver_kill", {"on": "copy"}, "ok"),
            (3600.0, 240.0, "live_out", {"origin": "live"}, "ok"),
            (3600.0, 240.0, "node_loss", {"origin": "live"}, "ok"),  # the promise does not cover it
        ],
    )
    def test_a_recovery_of_the_live_job_that_took_too_long_is_red_for_a_day(
        self, store, kept, ago_s, took_s, kind, details, outcome
    ):
        store.add_event("orders", RecoveryEvent(kind, 4, NOW_S - ago_s, 20.0, took_s), details=details)
        found = kept()
        assert found[0] == outcome
        if outcome == "wrong":
            assert "the loss of the driver at 2025-11-18 13:00 UTC" in found[1]
            assert found[1].endswith("180 s were promised")


class TestFreshness:
    def test_three_intervals_without_an_evaluation_are_red(self, store):
        keep(store, at_s=NOW_S - 179.0)
        keep(store, "late", at_s=NOW_S - 181.0)
        keep(store, "ahead", at_s=NOW_S + 500.0)  # a simulated clock
        _, fresh = looked(store, ["orders", "late", "ahead", "new"], now_s=NOW_S)
        assert fresh.outcomes == {"orders": "ok", "late": "wrong", "ahead": "ok", "new": "not known"}
        shown = fresh.result()
        assert (shown.passed, shown.severity) == (False, dg.AssetCheckSeverity.ERROR)
        assert shown.description.startswith(
            "late: not evaluated for 3 min 1 s, where it should be every 1 min"
        )

    def test_wrong_settings_are_why_nothing_is_evaluated(self, store):
        kept, fresh = looked(store, ["orders"], now_s=NOW_S, problem="line 3: job.orders.mode")
        assert (kept.result().severity, fresh.result().severity) == (
            dg.AssetCheckSeverity.WARN,
            dg.AssetCheckSeverity.ERROR,
        )
        assert "line 3" in fresh.result().description

    def test_one_job_that_is_wrong_makes_the_check_of_all_red(self, store):
        keep(store)
        keep(store, "clicks", decision=decided(TOO_SMALL))
        keep(store, "views", decision=decided(UNSURE))
        kept, _ = looked(store, ["orders", "clicks", "views"], now_s=NOW_S)
        shown = kept.result()
        assert (shown.passed, shown.severity) == (False, dg.AssetCheckSeverity.ERROR)
        assert [part.split(":")[0] for part in shown.description.split("; ")] == ["clicks", "views"]
        assert "| orders | ok |" in shown.metadata["jobs"].value


BROKEN = (
    "3",
    '{"freshness": 4}',
    '{"freshness": [[], 4]}',
    '{"freshness": [3, 4]}',
    '{"freshness": [{}, "x"]}',
)
KEYS = [dg.AssetCheckKey(dg.AssetKey("decision"), name) for name in decision_checks.ABOUT]


def statuses(instance):
    """What Dagster's page shows."""
    found = instance.event_log_storage.get_latest_asset_check_execution_by_key(KEYS)
    return {key.name: found[key].status.value for key in KEYS if key in found}


@pytest.fixture(scope="module")
def instance():
    with dg.DagsterInstance.ephemeral() as found:
        yield found


class TestOnDagstersPage:
    def test_by_hand_they_run_without_an_evaluation(self, store, instance):
        keep(store, decision=decided(TOO_SMALL))
        defs = dg.Definitions(
            assets=[decide.decision],
            asset_checks=[decision_checks.checks(["orders"])],
            jobs=[dg.define_asset_job("checks", selection=dg.AssetSelection.checks_for_assets("decision"))],
            resources={"store": store, "server": None},
        )
        done = defs.resolve_job_def("checks").execute_in_process(instance=instance)
        assert done.success, "a red check is no failed run"
        found = {one.check_name: one.passed for one in done.get_asset_check_evaluations()}
        assert found == {"promise_kept": False, "freshness": False}, "it was evaluated long ago"

    def test_the_sensor_reports_what_has_changed(self, store, instance):
        cursor = None
        for more, now_s, told in (
            ({}, NOW_S, {"promise_kept": "SUCCEEDED", "freshness": "SUCCEEDED"}),
            ({"at_s": NOW_S + 30.0}, NOW_S + 60.0, {}),
            ({"at_s": NOW_S + 90.0, "decision": SHORT}, NOW_S + 120.0, {"promise_kept": "FAILED"}),
            (None, NOW_S + 300.0, {"promise_kept": "FAILED", "freshness": "FAILED"}),
            ({"at_s": NOW_S + 330.0}, NOW_S + 360.0, {"promise_kept": "SUCCEEDED", "freshness": "SUCCEEDED"}),
        ):  # fmt: skip
            if more is not None:
                keep(store, **more)
            found = sensors.checked(cursor, store, ["orders"], now_s=now_s)
            cursor = found.cursor
            assert {event.check_name for event in found.asset_events} == set(told)
            for event in found.asset_events:
                instance.report_runless_asset_event(event)
            assert statuses(instance).items() >= told.items()

    def test_what_has_not_changed_is_reported_again_after_hours(self, store):
        keep(store)
        first = sensors.checked(None, store, ["orders"], now_s=NOW_S)
        keep(store, at_s=NOW_S + 30_000.0)
        again = sensors.checked(first.cursor, store, ["orders"], now_s=NOW_S + 30_000.0)
        assert (len(first.asset_events), len(again.asset_events)) == (2, 2)

    @pytest.mark.parametrize(
        "cursor",
        ["", "x", "[]", '{"schema": 2}', *(f'{{"schema": 1, "checked": {one}}}' for one in BROKEN)],
    )
    def test_a_cursor_that_cannot_be_read_is_begun_anew(self, store, cursor):
        keep(store)
        found = sensors.checked(cursor, store, ["orders"], now_s=NOW_S)
        assert len(found.asset_events) == 2
        assert set(json.loads(found.cursor)["checked"]) == {"promise_kept", "freshness"}

    def test_the_sensor_in_the_definitions(self, store, instance):
        sensor = sensors.decision_checks(["orders"], problem="")
        found = sensor(dg.build_sensor_context(instance=instance, resources={"store": store}))
        assert {event.check_name: event.severity.value for event in found.asset_events} == {
            "promise_kept": "WARN",
            "freshness": "WARN",
        }, "it was never evaluated"
