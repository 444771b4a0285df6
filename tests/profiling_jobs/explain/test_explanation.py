"""Why this size, why not one less, what would change it: one stored evaluation, in sentences."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pytest
from evaluations import evaluation, instruction, verdict

from models import codec
from models.control.state import decided
from models.downtime import DowntimeModel
from models.optimise import BatchEngine, Question, decide
from models.promise import Promise
from models.quantities import Interval, Unknown, lasting
from models.workload.fitting import naive_forecaster
from profiling_jobs.control_loop.memory import Evaluation
from profiling_jobs.explain.explanation import explained, in_short

AT_S = 1_795_000_020.0


def shown(at_s: float) -> str:
    return f"{datetime.fromtimestamp(at_s, UTC):%H:%M}"


def figures(low: float, high: float | None) -> dict[str, Any]:
    return {"low": low, "mid": low, "high": high, "confidence": 0.9}


def recoveries(low: float, high: float | None, promised: float | None) -> dict[str, Any]:
    return figures(low, high) | {"promised": promised}


VERDICTS = [
    verdict(2, "infeasible"),
    verdict(3, "infeasible", recovery_s=recoveries(30.0, 84.2, 78.6)),
    verdict(4, recovery_s=recoveries(14.0, 46.0, 41.2)),
    verdict(5),
]


HELD = "hold 4 executors: forecast 1.9–2.1k rps fits 4k, 95 % of recoveries within 41 s ≤ 60 s"


def tick(**changes: Any) -> Evaluation:
    """A quiet tick at four executors."""
    given: dict[str, Any] = {
        "epoch": 5,
        "instruction": instruction(reason=HELD),
        "observation": {
            "at_s": AT_S, "scale_out": 4, "executors_alive": 4, "run_id": "r", "arrival_rps": 1912.4,
            "throughput_rps": 1900.0, "lag_records": 5737.0, "latency_ms": 2400.0, "last_commit_at_s": AT_S,
            "limited_by": "waiting", "hottest_share": 0.4781, "workers": 4,
        },
        "lag_s": 3.0,
        "decision": {
            "current": 4, "scale_out": 4, "smallest": 4, "feasible": True, "alarm": "",
            "reason": HELD,
            "verdicts": VERDICTS,
        },
        "models": {"capacity": 3, "recovery": 1},
        "forecast": {
            "by": "champion", "model": "arima", "from_s": AT_S, "step_s": 60.0, "horizon_s": 270.0,
            "mean_rps": 2000.0, "peak": figures(1900.0, 2100.0) | {"mid": 2000.0}, "misses_in_row": 0,
            "instead": None, "scored": [],
        },
        "promise": {"target_s": 60.0, "confidence": 0.95},
    }  # fmt: skip
    return Evaluation.from_json(json.loads(json.dumps(evaluation(AT_S, **given | changes).to_json())))


def with_sizes(*verdicts: dict[str, Any], **changes: Any) -> Evaluation:
    return tick(decision=tick().decision | {"verdicts": verdicts}, **changes)


def said(reason: str, **changes: Any) -> dict[str, Any]:
    return instruction(reason=reason) | changes


def answers(evaluation: Evaluation, **given: Any) -> dict[str, Any]:
    found = asdict(explained(evaluation, shown=shown, **given))
    json.dumps(found)
    return {
        name: "\n".join(value) if name in ("why", "why_not_less", "would_change") else value
        for name, value in found.items()
    }


class TestAQuietTick:
    def test_why_this_size_and_not_one_less(self) -> None:
        found = answers(tick())
        assert found["done"] == "holds 4 executors"
        why, less = found["why"], found["why_not_less"]
        assert "4 executors can process 4,000 records/s (3,880 – 4,120)" in why
        assert "the load is expected to peak at 2,000" in why
        assert "After the loss of the driver at the worst moment (in 1 min 19 s)" in why
        assert "are back within 41 s, and 98.5 % within the promised 60 s; 95 % are promised." in why
        assert less.startswith("With 3 executors: after the loss of the driver")
        assert "are back within 79 s, and 71 % within the promised 60 s" in less

    def test_what_a_failure_now_would_cost(self) -> None:
        lost = recoveries(8.2, 47.0, 44.0) | {"mid": 14.0, "probability": 0.99}
        never = recoveries(31.0, None, None) | {"mid": None, "probability": 0.2}
        taken = {"executor_kill": lost, "node_loss": never, "driver_kill": {"unknown": "no drill yet"}}
        assert answers(tick(recoveries=taken))["failures"] == (
            (
                "the loss of an executor",
                "back after 14 s (8.2 – 47), within the promised 60 s in 99 % of the cases",
            ),
            (
                "the loss of a node",
                "not back within what was looked at (31 – longer than was looked at), "
                "within the promised 60 s in 20 % of the cases",
            ),
            ("the loss of the driver", "unknown: no drill yet"),
        )

    def test_what_would_change_it(self) -> None:
        change = answers(tick())["would_change"]
        # Three stand at 1 500 where four stand at 2 000, and four at 2 667 where three stand at 2 000.
        assert "Less load: 3 executors would do" in change
        assert "when the expected peak falls to about 1,500" in change
        assert "4 executors would no longer do, at the latest when" in change
        assert "the expected peak reaches about 2,667" in change
        assert "5 executors would be next" in change
        assert "recovery_target_s = 79 instead of 60, 3 executors would keep it" in change
        assert "4 executors have 19 s to spare of the 60 s promised" in change

    def test_every_size_has_its_line(self) -> None:
        lines = explained(tick(), shown=shown).sizes
        assert [(one.scale_out, one.answer, one.capacity, one.recovery) for one in lines] == [
            (2, "does not", "2,000", ""),
            (3, "does not", "3,000", "79 s"),
            (4, "keeps it", "4,000", "41 s"),
            (5, "keeps it", "5,000", ""),
        ]

    def test_another_confidence_is_told_with_its_own_time(self) -> None:
        sizes = [
            verdict(3, "infeasible", recovery_s=recoveries(30.0, 147.0, 84.2)),
            verdict(4, probability=0.91, recovery_s=recoveries(29.0, 147.0, 55.0)),
        ]
        promise = {"target_s": 60.0, "confidence": 0.8}
        found = answers(with_sizes(*sizes, promise=promise))
        assert "80 % of the cases looked at are back within 55 s" in found["why"]
        assert "147" not in found["why"] + found["why_not_less"]
        assert "recovery_target_s = 85 instead of 60, 3 executors would keep it" in found["would_change"]

    def test_a_size_judged_by_its_neighbour_is_told_by_its_share(self) -> None:
        sizes = [verdict(4, recovery_s=recoveries(29.0, 80.0, 61.0)), verdict(5)]
        found = answers(with_sizes(*sizes))
        assert "it would be back within the promised 60 s in 98.5 % of the cases" in found["why"]
        assert "61" not in found["why"]
        assert "to spare" not in found["would_change"]

    def test_a_larger_size_that_comes_out_lower_is_explained(self) -> None:
        closer = recoveries(14.0, 46.0, 41.2)
        rough = [verdict(4, probability=0.99), verdict(5, probability=0.97, recovery_s=closer)]
        less_sure = figures(3500.0, 6400.0)
        wide = [verdict(4), verdict(5, probability=0.97, capacity=less_sure)]
        for sizes, why in (
            (rough, "5 executors come out lower than 4 because only the size that is chosen"),
            (wide, "5 executors come out lower than 4 because the capacity of 5 is less certain"),
        ):
            (note,) = answers(with_sizes(*sizes))["notes"]
            assert note.startswith(why)
        assert not answers(tick())["notes"]

    def test_failures_and_changes_are_named_by_what_happens(self) -> None:
        change = {
            "condition": "rescale",
            "sentence": "the change itself (live_in) is recovered within 60 s in 71 % of the draws",
            "measure": None,
        }
        sizes = [verdict(3, "infeasible", excuses=[change]), verdict(4)]
        found = answers(with_sizes(*sizes))
        assert "the change itself (removing executors while it runs)" in found["why_not_less"]

    def test_what_was_seen(self) -> None:
        seen = dict(explained(tick(), shown=shown).seen)
        assert seen["load"] == "1,912 records/s arrive"
        assert seen["lag"] == "5,737 records wait, 3 s of input"
        assert seen["executors"] == (
            "4 declared, 4 alive, the busiest is busy 47.8 % of the time, "
            "it waits more than it computes, its slots limit it"
        )
        assert "a peak of 2,000 records/s (1,900 – 2,100) within the next 4 min 30 s" in seen["forecast"]


class TestWhatOutranksADecision:
    @pytest.mark.parametrize(
        ("changes", "why", "change"),
        [
            (
                {"orders": {"pause": {"who": "anna", "why": "deploying", "until_s": AT_S + 3600}}},
                "anna has paused it until 12:07: deploying.",
                "The pause ends with `headroom resume orders --why …`, or by itself at 12:07",
            ),
            (
                {"orders": {"pause": {"who": "anna", "why": "deploying", "until_s": None}}},
                "anna has paused it: deploying.",
                "The pause ends with `headroom resume orders --why …`.",
            ),
            (
                {"orders": {"pin": {"who": "ben", "why": "sale", "until_s": None, "scale_out": 4}}},
                "ben has pinned it to 4 executors: sale.",
                "The pin ends with",
            ),
            (
                {"foreign": {"since_s": AT_S - 60, "found": 4, "ours": 6}},
                "4 executors were set from outside at 11:06, where we had set 6",
                "ours again after `headroom resume orders",
            ),
            (
                {"orders": {"blackout": {"why": "night", "scale_out_allowed": False}}},
                "A blackout window: night.",
                "The end of the blackout window.",
            ),
            ({"mode": "observe"}, "Its mode is observe", 'job.orders.mode = "recommend"'),
            (
                {"change": {"origin": "decision", "before": 2, "to": 4, "at_s": AT_S - 60, "problem": ""}},
                "The change from 2 to 4 executors, asked for 1 min ago, is being verified",
                "then it is decided again",
            ),
            (
                {"recovering": {"kind": "driver_kill", "failed_at_s": AT_S - 90, "why": "a new run"}},
                "coming back from the loss of the driver, for 1 min 30 s (a new run)",
                "The end of the recovery",
            ),
            (
                {"change": {"origin": "pin", "before": 2, "to": 4, "at_s": AT_S - 60, "problem": "no room"}},
                "The change to 4 executors has failed: no room.",
                "What made the change fail (no room) put right",
            ),
            ({"scale_out": Unknown("nobody answers")}, "Held because", "What stands in the way"),
        ],
    )
    def test_it_is_said_and_how_it_ends(self, changes: dict[str, Any], why: str, change: str) -> None:
        evaluation = tick(decision={"unknown": "held"}, instruction=said("held because"), **changes)
        found = answers(evaluation)
        assert why in found["why"]
        assert change in found["would_change"]

    def test_figures_of_another_moment_are_named_and_not_mixed_in(self) -> None:
        waiting = tick(
            decision={"unknown": "waiting"},
            instruction=said("change from 2 to 4 executors asked for 60 s ago is being verified"),
            change={"origin": "decision", "before": 2, "to": 4, "at_s": AT_S - 60, "problem": ""},
        )
        found = answers(waiting, before=replace(tick(), at_s=AT_S - 60))
        assert "The newest decision is of 11:06: `headroom explain orders --at …` with" in found["why"]
        assert found["why_not_less"] == "Nothing was decided at this tick, so fewer were not looked at."
        assert found["sizes"] == ()
        assert "records/s" not in found["why"] + found["would_change"]

    def test_a_model_that_is_missing_is_named(self) -> None:
        decision = tick().decision | {"scale_out": {"unknown": "profile the job"}, "verdicts": []}
        request = {"do": "refit", "model": "workload", "why": "it missed 4 horizons", "since_s": AT_S}
        found = answers(tick(decision=decision, requests=[request]))
        assert "No size can be recommended: profile the job." in found["why"]
        assert "What is missing for a decision: profile the job." in found["would_change"]
        assert "Fitting the workload model anew is asked for: it missed 4 horizons." in found["would_change"]


class TestLimitsAndOpenEnds:
    def test_a_smaller_size_that_has_to_wait(self) -> None:
        reason = "cool-down, no scale-in for another 120 s; wanted: scale in from 5 to 4 executors: fits"
        found = answers(tick(scale_out=5, instruction=said(reason)))
        assert "that is 4 executors" in found["why"]
        assert found["why_not_less"] == (
            "4 executors would keep the promise. It comes later: cool-down, no scale-in for another 120 s."
        )
        assert "Time: cool-down, no scale-in for another 120 s." in found["would_change"]

    def test_a_recommendation_that_nobody_carries_out(self) -> None:
        evaluation = tick(mode="recommend", scale_out=6, instruction=said("would scale", would=4))
        found = answers(evaluation)
        assert found["done"] == "would go from 6 to 4 executors (mode recommend changes nothing)"
        assert found["chosen"] == 4
        assert 'job.orders.mode = "apply"' in found["would_change"]

    def test_an_order(self) -> None:
        found = answers(tick(scale_out=2, instruction=said("scale out", do="scale", to=4)))
        assert (found["done"], found["chosen"]) == ("goes from 2 to 4 executors", 4)

    def test_nothing_is_enough(self) -> None:
        sizes = [verdict(s, "infeasible", recovery_s=recoveries(90.0, None, None)) for s in (2, 3, 4)]
        decision = tick().decision | {"verdicts": sizes, "feasible": False, "smallest": {"unknown": "none"}}
        found = answers(tick(decision=decision))
        assert "No size that was looked at is known to keep the promise" in found["would_change"]
        assert "raise scale_out_max" in found["would_change"]
        assert "it would be back within the promised 60 s in 71 % of the cases" in found["why_not_less"]
        assert found["sizes"][0]["recovery"] == "longer"

    def test_what_nobody_has_measured(self) -> None:
        open_ = {
            "condition": "capacity",
            "sentence": "the capacity of 3 executors is unknown: never probed",
            "measure": "measure the capacity of 3 executors",
        }
        unknown = {"unknown": "never probed"}
        sizes = [
            verdict(3, "unknown", excuses=[open_], capacity=unknown, probability=unknown, recovery_s=unknown),
            verdict(4),
        ]
        found = answers(with_sizes(*sizes))
        assert "the capacity of 3 executors is unknown: never probed" in found["why_not_less"]
        assert "To know more: measure the capacity of 3 executors." in found["would_change"]

    def test_the_smallest_size_and_no_sizes_at_all(self) -> None:
        smallest = answers(with_sizes(verdict(4), verdict(5)))
        assert smallest["why_not_less"] == "4 executors is the smallest size that may be taken."
        assert "not looked at" in answers(with_sizes())["why_not_less"]

    def test_a_latency_bound_is_not_turned_into_load(self) -> None:
        slow = {"condition": "latency", "sentence": "900 ms is above the bound of 500 ms", "measure": None}
        sizes = [verdict(3, "infeasible", excuses=[slow]), verdict(4)]
        found = answers(with_sizes(*sizes))
        assert "900 ms is above the bound of 500 ms" in found["why_not_less"]
        assert "Less load" not in found["would_change"]

    def test_nothing_could_be_read(self) -> None:
        gone = Unknown("the broker does not answer")
        evaluation = tick(
            scale_out=gone,
            lag_s=gone,
            observation={"arrival_rps": gone, "throughput_rps": gone, "lag_records": gone},
            forecast={"unknown": "there is no workload model yet: fit it"},
            decision={"unknown": "size held"},
            instruction=said("size held, missing: scale_out"),
            trouble=["the metrics could not be read: the broker does not answer"],
        )
        found = explained(evaluation, shown=shown)
        assert all("unknown" in value for _, value in found.seen)
        assert found.alarms == ("the metrics could not be read: the broker does not answer",)
        assert in_short(evaluation).load == "?"


def test_a_real_decision_is_explained() -> None:
    noise = np.random.default_rng(3).normal(0.0, 30.0, 600)
    forecaster = naive_forecaster((2_000.0 + noise).tolist(), step_s=60.0, steps=5, seed=1)
    assert not isinstance(forecaster, Unknown)
    answer = decide(
        Question(
            candidates=(2, 3, 4, 6, 8),
            current=8,
            promise=Promise(180.0),
            forecast=forecaster.predict(paths=200),
            observed_rps=2_000.0,
            lag_records=2_000.0,
            capacity={s: Interval(970.0 * s, 1000.0 * s, 1030.0 * s, 0.9) for s in (2, 3, 4, 6, 8)},
            downtime=DowntimeModel(),
            kinds=("executor_kill", "driver_kill"),
            moments_s=90.0,
            engine=BatchEngine(overhead_s=0.3),
        )
    )
    kept = decided(answer, at_s=AT_S, current=8, models_version="capacity 1")
    found = answers(tick(scale_out=8, decision=codec.readable(kept), instruction=said(answer.reason)))
    assert len(found["sizes"]) == 5
    assert "More load" in found["would_change"]


class TestInShort:
    @pytest.mark.parametrize(
        ("reason", "why"),
        [
            ("hold 4 executors: forecast 2k rps fits 4k", "forecast 2k rps fits 4k"),
            ("hold 1 executor: forecast 2k rps fits 4k", "forecast 2k rps fits 4k"),
            ("mode recommend, would scale to 1 executor: scale in from 2 to 1 executor: f", "f"),
            ("scale in from 6 to 4 executors: forecast 2k", "forecast 2k"),
            ("hold 4 executors although 3 would do: x", "although 3 would do: x"),
            ("mode recommend, would scale to 4 executors: scale in from 6 to 4 executors: f", "f"),
            (
                "cool-down, 60 s; wanted: scale in from 6 to 1 executor: f",
                "cool-down, 60 s (wanted 1 executor)",
            ),
            ("paused by anna: deploying", "paused by anna: deploying"),
        ],
    )
    def test_why_without_what_the_table_says_already(self, reason: str, why: str) -> None:
        assert in_short(tick(instruction=said(reason))).why == why

    def test_a_line(self) -> None:
        line = in_short(tick(scale_out=2, instruction=said("x", do="scale", to=4)))
        assert (line.load, line.lag, line.scale_out, line.done) == ("1,912", "3.0", "2", "2 → 4")


@pytest.mark.fast
@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0, "0 s"), (0.4, "0.4 s"), (59.6, "1 min"), (270, "4 min 30 s"), (3600, "1 h"), (7500, "2 h 5 min"),
     (3601, "1 h"), (270_000, "3 d 3 h")],
)  # fmt: skip
def test_how_long_it_lasts(seconds: float, words: str) -> None:
    assert lasting(seconds) == words
