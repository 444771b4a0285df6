"""What is told of an evaluation, of a drill, and of a loop that stands still; and what is a repetition."""

import json
from dataclasses import replace

import evaluations
import pytest

from models.quantities import Unknown
from pipelines.notify import messages
from pipelines.notify.messages import LONGEST, Counted, Message, not_again, scrubbed, slack
from profiling_jobs.control_loop.memory import Evaluation

pytestmark = pytest.mark.fast

AT_S = 1_763_474_400.0
HOLD = {"do": "hold", "to": None, "would": None, "reason": "hold 2 executors: forecast 900 rps fits"}
GROW = HOLD | {"do": "scale", "to": 4, "reason": "scale out from 2 to 4 executors: forecast 1.8k rps"}


def evaluation(after_s=0.0, **changes):
    """One as it comes back from the store."""
    given = {
        "interval": 1,
        "epoch": 7,
        "scale_out": 2,
        "instruction": HOLD,
        "promise": {"target_s": 120.0, "confidence": 0.95},
        "recoveries": {"driver_kill": {"unknown": "no drill yet"}},
    }
    made = evaluations.evaluation(AT_S + after_s, **given | changes)
    return Evaluation.from_json(json.loads(json.dumps(made.to_json())))


def told(e, before=None):
    return [(one.event, one.text) for one in messages.of_evaluation(e, before=before)]


def test_of_a_tick_that_holds_or_only_recommends_nothing_is_told():
    assert told(evaluation()) == []
    assert told(evaluation(mode="recommend", instruction=HOLD | {"would": 4})) == []
    assert told(evaluation(scale_out=Unknown("it was not read"), promise={})) == []


def test_alarms_are_told_in_plain_words_and_known_again_with_other_numbers():
    (first,) = messages.of_evaluation(evaluation(alarms=["no metrics for 120 s: driver_kill"]), before=None)
    (later,) = messages.of_evaluation(evaluation(alarms=["no metrics for 1,920 s: gone"]), before=None)
    (other,) = messages.of_evaluation(evaluation(alarms=["not scalable: 2 → 4"]), before=None)
    assert (first.event, first.job) == ("alarm", "orders")
    assert first.text == "no metrics for 120 s: the loss of the driver"
    assert first.key == later.key != other.key


def test_a_change_is_told_with_its_reason():
    assert told(evaluation(instruction=GROW)) == [
        ("change", "goes from 2 to 4 executors: forecast 1.8k records/s")
    ]


def test_a_size_that_others_have_set_is_told_once():
    edit = {"since_s": AT_S, "found": 5, "ours": 2}
    first, second = evaluation(foreign=edit), evaluation(60.0, foreign=edit)
    ((event, text),) = told(first, before=evaluation(-60.0))
    assert (event, "set to 5 executors where Headroom had set 2" in text) == ("change", True)
    assert told(second, before=first) == []
    assert told(evaluation(120.0, foreign=edit | {"since_s": AT_S + 120.0}), before=second) != []


LOST = {"kind": "driver_kill", "failed_at_s": AT_S, "why": "gone", "spoilt": ""}


class TestBrokenPromises:
    """A driver that was lost at AT_S; 120 s are promised."""

    def test_the_time_is_over_while_the_job_is_still_behind(self):
        ticks = [evaluation(after_s, recovering=LOST) for after_s in (60.0, 120.0, 180.0, 240.0)]
        found = [told(now, before=before) for before, now in zip([None, *ticks], ticks, strict=False)]
        text = "not caught up 3 min after the loss of the driver, within 2 min is promised"
        assert found == [[], [], [("promise", text)], []]

    def test_it_is_told_after_a_restart_too_but_not_twice(self):
        late = evaluation(180.0, recovering=LOST)
        assert len(told(late, before=None)) == 1
        assert told(evaluation(240.0, recovering=LOST), before=late) == []

    def test_another_failure_is_another_promise(self):
        late = evaluation(180.0, recovering=LOST)
        other = LOST | {"failed_at_s": AT_S + 100.0}
        assert len(told(evaluation(300.0, recovering=other), before=late)) == 1

    @pytest.mark.parametrize(
        ("kind", "took_s", "text"),
        [
            (
                "driver_kill",
                150.0,
                "caught up 2 min 30 s after the loss of the driver, within 2 min is promised",
            ),
            ("driver_kill", 119.0, ""),
            ("driver_kill", None, ""),
            ("live_out", 150.0, ""),
            ("broker_restart", 150.0, ""),
        ],
    )
    def test_how_long_it_took_is_told_in_the_end(self, kind, took_s, text):
        fact = {"fact": "event", "kind": kind, "scale_out": 2, "failed_at_s": AT_S, "recovery_s": took_s}
        found = told(evaluation(180.0, learnt=[fact, {"fact": "measurement", "scale_out": 2}]))
        assert [text for _, text in found] == ([text] if text else [])

    @pytest.mark.parametrize("kind", ["restart_out", "broker_restart"])
    def test_what_the_promise_does_not_cover_cannot_break_it(self, kind):
        assert told(evaluation(180.0, recovering=LOST | {"kind": kind})) == []


def row(kept=True, **changes):
    said = "driver_kill, 2 executors: said"
    return {"kind": "driver_kill", "scale_out": 2, "rate_rps": 900.0, "kept": kept, "said": said, **changes}


@pytest.mark.parametrize(
    ("state", "rows", "text"),
    [
        ("done", [row(), row()], None),
        ("done", [], None),
        ("cancelled", [row(kept=False)], None),
        ("done", [row(), row(kept=False, said="driver_kill: too late")], "the loss of the driver: too late"),
        ("done", [row(kept=False, invalid="no load"), row()], None),
        (
            "done",
            [row(kept=False, invalid="a", said="first"), row(kept=False, invalid="b", said="last")],
            "last",
        ),
        ("failed", [], "no drill: there is no room"),
    ],
)
def test_a_drill_is_told_where_it_failed(state, rows, text):
    order = {"job": "orders", "state": state, "result": {"drills": rows}, "error": None}
    if state == "failed":
        order |= {"result": None, "error": {"kind": "NotReady", "message": "there is no room"}}
    found = messages.of_drill(order, at_s=AT_S)
    assert (None if found is None else found.text) == text


def test_jobs_that_are_not_evaluated_are_one_message_with_the_reasons():
    silent = {"orders": "the store is locked", "clicks": "the store is locked", "views": ""}
    found = messages.of_silence(silent, silent_s=200.0, at_s=AT_S)
    assert found.text == "orders, clicks, views not evaluated for 3 min 20 s: the store is locked"
    assert "headroom status" in messages.of_silence({"orders": ""}, silent_s=200.0, at_s=AT_S).text


ALARM = Message("alarm", "orders", "no metrics", AT_S, key="alarm no metrics")


def test_repetitions_are_counted_and_told_with_the_next_one():
    known: dict[str, Counted] = {}

    def passed(after_s, message=ALARM):
        return not_again(replace(message, at_s=AT_S + after_s), known, repeat_after_s=3600.0)

    assert passed(0.0).repeated == 0
    assert [passed(1800.0), passed(3599.0)] == [None, None]
    assert passed(1800.0, replace(ALARM, key="alarm other")) is not None
    again = passed(3600.0)
    assert again.repeated == 2
    assert again.body == "no metrics\nThe same was raised 2 times since the last message."
    assert passed(7200.0).repeated == 0
    assert passed(-100.0) is not None, "the clock was set back"


def test_what_happens_once_is_never_a_repetition():
    change = Message("change", "orders", "goes from 2 to 4", AT_S)
    known: dict[str, Counted] = {}
    assert [not_again(change, known, repeat_after_s=3600.0) for _ in range(2)] == [change, change]


def test_no_secret_is_told_and_no_endless_text():
    text = "cannot reach postgresql://me:pass@db/x or http://name:other@host with hunter22hunter, hunter22"
    found = scrubbed(replace(ALARM, text=text), ("hunter22hunter", "hunter22"))
    assert found.text == "cannot reach postgresql://***@db/x or http://***@host with ***, ***"
    assert len(scrubbed(replace(ALARM, text="x" * 5000), ()).text) == LONGEST


def test_the_forms_of_a_message():
    message = replace(ALARM, text="load < 5 & rising", repeated=3, held_back=1)
    assert message.title == "Headroom: orders: alarm"
    assert message.to_json() == {
        "schema": 1,
        "event": "alarm",
        "job": "orders",
        "title": "Headroom: orders: alarm",
        "text": "load < 5 & rising",
        "at_s": AT_S,
        "at": "2025-11-18T14:00:00+00:00",
        "repeated": 3,
        "held_back": 1,
    }
    assert slack(message)["text"].splitlines() == [
        "*Headroom: orders: alarm*",
        "load &lt; 5 &amp; rising",
        "The same was raised 3 times since the last message.",
        "Held back, as there were too many: 1 message.",
    ]
    assert messages.of_return(at_s=AT_S).title == "Headroom: evaluations"
