"""One tick at a time: what control refuses, what it keeps in bounds, and that its memory is JSON."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as effort
from hypothesis import strategies as st
from stand_ins import Answer, Linear

from models import codec
from models.control import (
    Blackout,
    Directives,
    Drill,
    Injected,
    Models,
    Pause,
    Pin,
    Settings,
    Situation,
    State,
    begun,
    refused,
    start,
    step,
    withdrawn,
)
from models.control.state import Move, Quarantine, Window
from models.observation import Observation, Symptoms
from models.policies import POLICIES
from models.promise import Promise
from models.quantities import Alarm, Hold, Instruction, Learn, Misuse, RecoveryEvent, Scale, Unknown

pytestmark = pytest.mark.fast


def agreed(answer: int | Unknown = 4, **changes: Any) -> Settings:
    given: dict[str, Any] = {
        "promise": Promise(180.0),
        "max_scale_out": 12,
        "mode": "apply",
        "models": Models(capacity=Linear(share=0.1)),
        "decide": lambda situation: Answer(answer),
    }
    return Settings(**{**given, **changes})


def healthy(at_s: float, **changes: Any) -> Observation:
    seen: dict[str, Any] = {
        "scale_out": 4,
        "arrival_rps": 2_000.0,
        "throughput_rps": 2_000.0,
        "lag_records": 10_000.0,
        "run_id": "a",
        "executors_alive": 4,
        "last_commit_at_s": at_s - 3.0,
    }
    return Observation(at_s=at_s, **{**seen, **changes})


def ticks(state: State, *observations: Observation) -> tuple[State, list[Instruction]]:
    """The state after these ticks, and the instructions of the last one."""
    instructions: list[Instruction] = []
    for observation in observations:
        state, instructions = step(state, observation, observation.at_s)
    return state, instructions


def silent(at_s: float, seconds: float, commit_at_s: float) -> Observation:
    """The brokers were silent for so long until this tick, and so was the job until this commit."""
    shown = Symptoms(at_s - 300.0, brokers_silent_s=((at_s - seconds, at_s),))
    commits = (*(at_s - seconds - 2.0 * n for n in range(20, 0, -1)), at_s - seconds + 1.0, commit_at_s)
    return healthy(at_s, symptoms=shown, last_commit_at_s=commit_at_s, commits_at_s=commits)


@pytest.mark.parametrize(("commit_s", "noticed"), [(-1.0, True), (-8.0, False)])
def test_brokers_that_were_silent_are_back_before_we_reach_them_again(commit_s: float, noticed: bool) -> None:
    """A commit at the end of a silence is of brokers that answer again; one in the midst of it is not."""
    state, _ = ticks(start(agreed(trigger_s=2.0)), *(healthy(60.0 * n) for n in range(1, 6)))
    state, _ = ticks(state, silent(360.0, 14.0, 360.0 + commit_s))
    assert (state.recovering is not None and state.recovering.kind == "broker_restart") is noticed


def events(state: State, *observations: Observation) -> list[Any]:
    """What was learnt in these ticks."""
    learnt = []
    for observation in observations:
        state, instructions = step(state, observation, observation.at_s)
        learnt += [i.fact for i in instructions if isinstance(i, Learn)]
    return learnt


def test_only_the_fields_that_matter_have_to_be_known() -> None:
    state, instructions = step(start(agreed()), Observation(at_s=60.0), 60.0)
    (hold,) = instructions
    assert isinstance(hold, Hold)
    for name in ("scale_out", "arrival_rps", "lag_records"):
        assert name in hold.reason
    assert state.recovering is None


def test_every_hold_and_every_decision_is_there_to_be_explained() -> None:
    state, _ = ticks(start(agreed(3)), healthy(60.0))
    decided = state.last_decision
    assert not isinstance(decided, Unknown)
    assert (decided.scale_out, decided.reason, decided.current, decided.at_s) == (3, "because", 4, 60.0)
    state, _ = ticks(state, healthy(120.0, run_id="b"))
    assert state.recovering is not None
    assert state.recovering.kind == "driver_kill"


@pytest.mark.parametrize(
    ("answer", "changes", "expected"),
    [
        (9, {}, 9),
        (9, {"max_step_out": 2}, 6),
        (9, {"candidates": (4, 8, 12)}, 8),
        (9, {"candidates": (4, 8, 12), "max_step_out": 3}, 8),
        (99, {"max_scale_out": 7}, 7),
        (4, {}, "because"),
        (Unknown("no models"), {}, "no models"),
        (9, {"mode": "recommend"}, "would scale to 9"),
        (9, {"mode": "observe"}, "observe"),
    ],
)
def test_what_is_left_of_a_wish_to_grow(answer: Any, changes: dict[str, Any], expected: int | str) -> None:
    _, (first, *_) = ticks(start(agreed(answer, **changes)), healthy(60.0))
    if isinstance(expected, int):
        assert isinstance(first, Scale)
        assert first.to == expected
    else:
        assert isinstance(first, Hold)
        assert expected in first.reason


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, 4),  # at most 60 % at once
        ({"max_share_in": 1.0}, 2),
        ({"max_step_in": 4}, 4),
        ({"min_scale_out": 5}, 5),
        ({"candidates": (1, 4, 8)}, 4),
        ({"candidates": (1, 2, 8)}, 2),  # further apart than 60 %, but the next one there is
        ({"max_scale_out": 3}, 3),  # the bounds were lowered under a running job
    ],
)
def test_what_is_left_of_a_wish_to_shrink(changes: dict[str, Any], expected: int) -> None:
    state = start(agreed(2, scale_in_window_s=120.0, **changes))
    eight = {"scale_out": 8, "executors_alive": 8}
    state, (first, *_) = ticks(state, *(healthy(60.0 * k, **eight) for k in range(1, 4)))
    assert isinstance(first, Scale)
    assert first.to == expected


@pytest.mark.parametrize(
    ("seen", "said"),
    [
        ({"lag_records": 200_000.0}, "catching up"),
        ({"lag_records": Unknown("broker gone")}, "broker gone"),
        ({"last_commit_at_s": Unknown("-"), "throughput_rps": Unknown("-")}, "cannot be seen to work"),
        ({"scale_out": Unknown("no answer")}, "no answer"),
        ({"at_s": -60.0}, "old"),
        ({"at_s": 60.0}, "nothing new"),
        ({"at_s": 180.0}, "ahead of our clock"),
        ({"run_id": "b"}, "recovering from driver_kill"),
        ({"executors_alive": 3}, "recovering from executor_kill"),
        ({"last_commit_at_s": 40.0}, "recovering from executor_freeze"),
    ],
)
def test_nothing_shrinks_where_something_is_wrong(seen: dict[str, Any], said: str) -> None:
    state, _ = ticks(start(agreed(2, scale_in_window_s=60.0)), healthy(60.0))
    _, (shrunk, *_) = ticks(state, healthy(120.0))
    _, (held, *_) = step(state, replace(healthy(120.0), **seen), 120.0)
    assert isinstance(shrunk, Scale)
    assert isinstance(held, Hold)
    assert said in held.reason


def test_orders_in_their_precedence() -> None:
    """Paused, foreign edit, pin, blackout, mode, step limit: each is seen when those before it are gone."""
    everything = Directives(
        pause=Pause("ana", "lunch"), foreign_edit=True, pin=Pin(7, "ben", "test"), blackout=Blackout("sale")
    )
    unpaused = replace(everything, pause=None)
    ours_again = replace(unpaused, foreign_edit=False)
    unpinned = replace(ours_again, pin=None)
    for orders, mode, expected in (
        (everything, "observe", "paused by ana"),
        (unpaused, "apply", "foreign edit"),
        (ours_again, "apply", "pinned to 7"),
        (unpinned, "observe", "blackout"),
        (replace(unpinned, blackout=None), "observe", "mode observe"),
        (replace(unpinned, blackout=None), "apply", "a limited step towards 12"),
    ):
        state = start(agreed(12, max_step_out=1, mode=mode)).with_directives(orders)
        _, (first, *_) = ticks(state, healthy(60.0))
        assert expected in first.reason


def test_a_pin_to_the_size_of_a_change_that_has_failed_is_carried_out() -> None:
    """The job went back to its old size before the change was verified; then a person wants that size."""
    state, _ = ticks(start(agreed(6)), healthy(60.0), healthy(70.0, scale_out=6, executors_alive=6))
    pinned = state.with_directives(Directives(foreign_edit=False, pin=Pin(6, "ben", "sale")))
    _, (found, *_) = ticks(pinned, healthy(80.0))
    assert isinstance(found, Scale), found
    assert (found.to, found.origin) == (6, "pin")


def test_pauses_and_pins_end_by_themselves() -> None:
    orders = Directives(pause=Pause("ana", "lunch", until_s=100.0), pin=Pin(4, "ben", "test", until_s=160.0))
    state = start(agreed(6)).with_directives(orders)
    state, (first, *_) = ticks(state, healthy(60.0))
    assert "paused" in first.reason
    assert "for another 40 s" in first.reason
    state, (second, *_) = ticks(state, healthy(120.0))
    assert "pinned" in second.reason
    _, (third, *_) = ticks(state, healthy(180.0))
    assert isinstance(third, Scale)


def test_an_injected_failure_is_learnt_under_its_own_name() -> None:
    state, _ = ticks(start(agreed()), healthy(60.0), healthy(120.0))
    state = state.with_directives(Directives(injected=Injected("network_delay", 130.0)))
    state, _ = ticks(state, healthy(180.0, lag_records=60_000.0, throughput_rps=1_200.0))
    assert state.recovering is not None
    assert state.recovering.kind == "network_delay"
    assert state.recovering.failed_at_s == 130.0
    (event,) = events(state, healthy(240.0), healthy(300.0))
    assert event.kind == "network_delay"
    assert event.scale_out == 4


def test_while_it_is_drilled_nothing_is_decided_and_the_drill_alone_measures() -> None:
    state, _ = ticks(start(agreed()), healthy(60.0), healthy(120.0))
    state = state.with_directives(Directives(drill=Drill("driver_kill", 125.0)))
    down = healthy(180.0, run_id="b", lag_records=60_000.0, throughput_rps=0.0, executors_alive=0)
    state, found = ticks(state, down)
    (hold,) = found
    assert isinstance(hold, Hold)
    assert hold.reason.startswith("drill under way: driver_kill on purpose, for 55 s")
    assert state.recovering is None
    # It ended between two ticks: what it has changed since the tick before is still no new failure.
    state = state.with_directives(Directives(drill=Drill("driver_kill", 125.0, until_s=200.0)))
    state, found = ticks(state, healthy(240.0, run_id="c"))
    assert state.recovering is None
    assert not found[0].reason.startswith("drill")
    # A pin is a person's, and goes first.
    pinned = Directives(drill=Drill("driver_kill", 250.0), pin=Pin(5, "ben", "test"))
    _, found = ticks(state.with_directives(pinned), healthy(300.0, run_id="c"))
    assert found[0] == Scale(5, found[0].reason)


def test_a_backlog_in_one_batch_is_no_frozen_job() -> None:
    long_batch = [
        healthy(60.0),
        healthy(120.0, lag_records=600_000.0, arrival_rps=9_000.0),
        healthy(180.0, lag_records=700_000.0, last_commit_at_s=117.0),
        healthy(240.0, lag_records=800_000.0, last_commit_at_s=117.0),
    ]
    state, _ = ticks(start(agreed(mode="recommend")), *long_batch)
    assert state.recovering is None
    state, _ = ticks(state, healthy(360.0, lag_records=900_000.0, last_commit_at_s=117.0))
    assert state.recovering is not None
    assert state.recovering.kind == "executor_freeze"


def test_a_silent_driver_is_told_from_silent_executors() -> None:
    gone = healthy(240.0, lag_records=300_000.0, last_commit_at_s=117.0, executors_alive=Unknown("no driver"))
    state, _ = ticks(start(agreed()), healthy(60.0), healthy(120.0), gone)
    assert state.recovering is not None
    assert state.recovering.kind == "driver_freeze"


def test_a_size_of_which_its_owner_tells_us_later_is_no_event() -> None:
    blind = {"run_id": Unknown("-"), "executors_alive": Unknown("-")}
    seen = [healthy(60.0, **blind), healthy(120.0, **blind), healthy(180.0, scale_out=8, **blind)]
    state, _ = ticks(start(agreed(mode="recommend", only_commits=True)), *seen)
    assert state.recovering is None
    state, _ = ticks(start(agreed(mode="recommend")), *seen)
    assert state.recovering is not None


def test_models_that_are_contradicted_by_growing_lag_do_not_hold_the_size() -> None:
    worse = [
        healthy(60.0 * k, lag_records=10_000.0 + 60_000.0 * k, throughput_rps=1_000.0) for k in range(1, 6)
    ]
    state, instructions = start(agreed(4)), []
    for observation in worse:
        state, said = step(state, observation, observation.at_s)
        instructions += said
    (scale,) = [i for i in instructions if isinstance(i, Scale)]
    assert scale.to == 12  # 4 · (2 000 + 190 000 / 180) / 1 000 = 12.2, and there is nothing larger
    assert any("contradicted" in i.reason for i in instructions if isinstance(i, Alarm))


def test_growing_waits_for_the_change_before_to_be_seen() -> None:
    eager = agreed(12, max_step_out=1, cooldown_out_s=400.0)
    state, said = start(eager), []
    for k in range(1, 12):
        size = min(4 + sum(isinstance(i, Scale) for i in said), 12)
        state, instructions = step(state, healthy(60.0 * k, scale_out=size, executors_alive=size), 60.0 * k)
        said.append(instructions[0])
    grown = [60.0 * (k + 1) for k, i in enumerate(said) if isinstance(i, Scale)]
    assert grown == [60.0, 480.0]
    assert "cool-down, no scale-out for another" in said[6].reason


@pytest.mark.parametrize(("trigger_s", "verified_after_s"), [(1.0, 40.0), (10.0, 50.0), (60.0, 200.0)])
def test_a_change_is_verified_for_as_long_as_its_batches_need(
    trigger_s: float, verified_after_s: float
) -> None:
    state, found = start(agreed(5, max_step_out=1, trigger_s=trigger_s)), 0.0
    for k in range(1, 30):
        size = 4 if k == 1 else 5
        seen = healthy(10.0 * k, scale_out=size, executors_alive=size, lag_records=2_000.0)
        state, _ = step(state, seen, 10.0 * k)
        if state.change is None:
            found = 10.0 * (k - 1)
            break
    assert state.last_good == 5
    assert found == verified_after_s


def test_nothing_is_measured_while_the_job_recovers() -> None:
    """Saturated at full speed for ten minutes, but after a failure."""
    state, _ = ticks(start(agreed(mode="recommend")), healthy(60.0), healthy(120.0, run_id="b"))
    worked_off = [
        healthy(120.0 + 60.0 * k, run_id="b", lag_records=900_000.0 - 80_000.0 * k, throughput_rps=3_900.0)
        for k in range(1, 9)
    ]
    assert events(state, *worked_off) == []
    undisturbed = [replace(o, run_id="a") for o in worked_off]
    (measured,) = events(ticks(start(agreed(mode="recommend")), healthy(60.0))[0], *undisturbed)
    assert not measured.sustained
    assert measured.throughput_rps == pytest.approx(3_900.0)


@pytest.mark.parametrize(("lag_records", "helped"), [(120_000.0, False), (600_000.0, True)])
def test_help_is_asked_for_only_if_the_target_would_be_missed(lag_records: float, helped: bool) -> None:
    """60 s after the failure: 120 000 records take 4 executors another minute, 600 000 take five."""
    state, _ = ticks(start(agreed()), healthy(60.0), healthy(120.0, run_id="b"))
    _, (first, *_) = ticks(state, healthy(180.0, run_id="b", lag_records=lag_records))
    assert isinstance(first, Scale) is helped
    assert "recovering from driver_kill" in first.reason


def test_missing_executors_are_an_alarm_once() -> None:
    state, alarms = start(agreed()), []
    for k in range(1, 20):
        alive = 3 if k > 3 else 4
        state, said = step(state, healthy(60.0 * k, executors_alive=alive), 60.0 * k)
        assert not [i for i in said if isinstance(i, Scale)]
        alarms += [i.reason for i in said if isinstance(i, Alarm)]
    (alarm,) = alarms
    assert "only 3 of 4 executors" in alarm


def test_the_headroom_policy_is_control_allowed_to_act() -> None:
    policy = POLICIES["headroom"]
    state = policy.start(agreed(6, mode="recommend"))
    _, (first, *_) = policy.step(state, healthy(60.0), 60.0)
    assert isinstance(first, Scale)
    with pytest.raises(TypeError):
        POLICIES["mine"] = policy  # type: ignore[index]


# An ordered change: what became of it is told to control


def test_where_every_size_is_in_quarantine_the_optimiser_is_not_asked_and_an_alarm_says_so() -> None:
    def unasked(situation: Situation) -> Answer:
        raise AssertionError("there is nothing to choose from")

    barred = Quarantine(6, 0.0, 3_600.0, 1, "no room", "out")
    state = replace(start(agreed(candidates=(6, 8), decide=unasked)), quarantined=(barred,))
    _, (hold, alarm) = ticks(state, healthy(60.0))
    assert "every size that may be taken is in quarantine" in hold.reason
    assert isinstance(alarm, Alarm)
    assert hold.ends == "the end of the quarantine, or `headroom resume`"
    assert hold.again_at_s == 120.0


def test_a_hold_that_lasts_longer_than_its_reason_explains_raises_an_alarm() -> None:
    state, alarms = start(agreed(Unknown("no models"))), []
    for minute in range(1, 8):
        state, (first, *rest) = ticks(state, healthy(60.0 * minute))
        assert first.ends == "what is missing for a decision"
        alarms += [(minute, each.reason) for each in rest if isinstance(each, Alarm)]
    ((minute, reason),) = alarms
    assert minute == 6
    assert reason.startswith("the size is held until what is missing for a decision, for 5 min already: ")


def test_the_time_until_the_next_change_is_the_jobs_own() -> None:
    asked: list[float] = []

    def decide(situation: Situation) -> Answer:
        asked.append(situation.stay_s)
        return Answer(situation.current)

    moves = tuple(Move(600.0 * k, 4, 5, Unknown("not for the load"), -1.0) for k in range(4))
    ticks(replace(start(agreed(decide=decide)), moves=moves), healthy(1_860.0))
    ticks(replace(start(agreed(decide=decide)), moves=moves), healthy(9_000.0))
    ticks(start(agreed(decide=decide)), healthy(9_000.0))
    assert asked == [600.0, 7_200.0, 3_600.0]


def steady(at_s: float, *, size: int = 4) -> Observation:
    commits = tuple(at_s - 3.0 - 10.0 * k for k in range(6))[::-1]
    return healthy(at_s, scale_out=size, executors_alive=size, commits_at_s=commits)


def ordered() -> State:
    """Two ticks; the second orders 6 instead of 4 executors."""
    state, _ = ticks(start(agreed(4)), steady(60.0))
    state, instructions = ticks(state.with_settings(agreed(6)), steady(120.0))
    assert instructions[0] == Scale(6, "because")
    return state


def tick(state: State, at_s: float, *, size: int = 4) -> tuple[State, list[Instruction]]:
    return ticks(state, steady(at_s, size=size))


def test_what_began_late_has_as_long_as_ever_to_take_effect() -> None:
    late = begun(ordered(), at_s=170.0)
    for at_s in (180.0, 240.0, 300.0, 345.0):
        late, instructions = tick(late, at_s)
        assert isinstance(instructions[0], Hold), at_s
    late, instructions = tick(late, 360.0)
    assert isinstance(instructions[0], Hold)  # the size is the one to go back to already
    assert "still 4 executors, 6 executors failed" in instructions[0].reason
    assert late.change is None


def test_what_began_late_is_measured_from_then() -> None:
    learnt: list[RecoveryEvent] = []
    state = begun(ordered(), at_s=170.0)
    for at_s in (180.0, 240.0, 300.0, 360.0):
        state, instructions = tick(state, at_s, size=6)
        learnt += [i.fact for i in instructions if isinstance(i, Learn) and isinstance(i.fact, RecoveryEvent)]
    assert [(e.kind, e.failed_at_s) for e in learnt] == [("live_out", 170.0)]
    assert learnt[0].downtime_s == 7.0


def test_nothing_is_told_of_a_change_that_is_not_there() -> None:
    state = start(agreed(6))
    assert begun(state, at_s=1.0) is state
    assert refused(state, why="x") is state
    assert withdrawn(state) is state


# The window of recommendations


@given(
    st.lists(st.tuples(st.integers(1, 50), st.integers(1, 20)), min_size=1, max_size=40), st.integers(1, 200)
)
def test_the_window_forgets_nothing_it_needs(gaps: list[tuple[int, int]], window_s: int) -> None:
    times = list(itertools.accumulate(gap for gap, _ in gaps))
    window = Window()
    for at_s, (_, value) in zip(times, gaps, strict=True):
        window = window.add(float(at_s), value, window_s=float(window_s), gap_s=100.0)
        young = [v for t, (_, v) in zip(times, gaps, strict=True) if at_s - window_s <= t <= at_s]
        assert window.maximum(float(at_s), float(window_s)) == max(young)
    assert len(window.entries) <= 20


# The memory


@pytest.mark.parametrize(
    ("broken", "named"),
    [
        *[(memory, "data") for memory in ({"schema": 7}, {}, [], 3)],
        *[(codec.to_json(start(agreed())) | {"stepped_at_s": "soon"}, "stepped_at_s")],
        *[(codec.to_json(start(agreed())) | {"history": 3}, "history")],
        *[(codec.to_json(start(agreed())) | {"applied": wrong}, "applied") for wrong in ("four", True)],
        *[(codec.to_json(start(agreed())) | {"change": [1]}, "change")],
    ],
)
def test_a_memory_that_cannot_be_read_is_refused(broken: Any, named: str) -> None:
    with pytest.raises(Misuse, match=named):
        codec.from_json(State, broken, settings=agreed())


unknown = st.just(Unknown("not read"))
observations = st.fixed_dictionaries(
    {
        "scale_out": st.integers(1, 14) | unknown,
        "arrival_rps": st.sampled_from([0.0, 500.0, 2_000.0, 9_000.0]) | unknown,
        "throughput_rps": st.sampled_from([0.0, 500.0, 2_000.0, 9_000.0]) | unknown,
        "lag_records": st.sampled_from([0.0, 5_000.0, 300_000.0, 3_000_000.0]) | unknown,
        "run_id": st.sampled_from(["a", "b"]) | unknown,
        "executors_alive": st.integers(0, 14) | unknown,
        "behind_s": st.sampled_from([0.0, 5.0, 90.0]) | unknown,
        "age_s": st.sampled_from([0.0, 0.0, 0.0, 30.0, 500.0]),
        "after_s": st.sampled_from([60.0, 60.0, 60.0, 0.0, 1_000.0]),
        "answer": st.integers(1, 20) | unknown,
        "obeyed": st.booleans(),
        "orders": st.sampled_from(
            [
                Directives(),
                Directives(),
                Directives(pause=Pause("a", "b")),
                Directives(pin=Pin(6, "a", "b")),
                Directives(blackout=Blackout("a", scale_out_allowed=True)),
                Directives(foreign_edit=False),
                Directives(resumed_at_s=300.0),
            ]
        ),
    }
)


@effort(max_examples=120, deadline=None)
@given(
    st.lists(observations, min_size=1, max_size=15),
    st.sampled_from(["observe", "recommend", "apply"]),
    st.sampled_from(["live", "restart"]),
    st.sampled_from([(), (2, 4, 8)]),
)
def test_whatever_is_seen(events: list[dict[str, Any]], mode: Any, path: Any, candidates: Any) -> None:
    """No sequence of observations breaks control, scales against its rules, or is told apart by JSON."""
    answers: list[Any] = []

    def decide(situation: Situation) -> Answer:
        return Answer(answers[-1])

    settings = agreed(
        mode=mode, path=path, candidates=candidates, decide=decide, min_scale_out=2, scale_in_window_s=120.0
    )
    state, now, declared = start(settings), 0.0, 4
    for event in events:
        now += event["after_s"]
        answers.append(event["answer"])
        at_s, behind_s = now - event["age_s"], event["behind_s"]
        seen = Observation(
            at_s=at_s,
            scale_out=declared if event["obeyed"] else event["scale_out"],
            last_commit_at_s=behind_s if isinstance(behind_s, Unknown) else at_s - behind_s,
            **{
                k: event[k]
                for k in ("arrival_rps", "throughput_rps", "lag_records", "run_id", "executors_alive")
            },
        )
        orders: Directives = event["orders"]
        before = state
        state, instructions = step(state.with_directives(orders), seen, now)
        again = codec.from_json(
            State, codec.loads(codec.dumps("data", codec.to_json(before))), settings=settings
        )
        assert step(again.with_directives(orders), seen, now) == (state, instructions)
        repeated, nothing = step(state, seen, now)
        assert repeated is state
        assert [type(i) for i in nothing] == [Hold]

        first, *rest = instructions
        assert isinstance(first, Scale | Hold)
        assert first.reason
        assert all(isinstance(i, Alarm | Learn) for i in rest)
        if not isinstance(first, Scale):
            continue
        assert mode == "apply"
        assert not isinstance(seen.scale_out, Unknown)
        assert orders.pause is None
        assert first.to != seen.scale_out
        if state.change.origin in ("decision", "emergency"):
            assert first.to in settings.sizes
        if state.change.origin == "decision" and first.to < seen.scale_out:
            assert not isinstance(seen.lag_records, Unknown)
            assert before.recovering is None
            assert orders.blackout is None
            assert isinstance(seen.executors_alive, Unknown) or seen.executors_alive >= seen.scale_out
        declared = first.to
