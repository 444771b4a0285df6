"""A change is ordered by one tick and carried out later: what became of it is told to control."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from models.control import Models, Settings, Situation, State, begun, refused, start, step, withdrawn
from models.observation import Observation
from models.promise import Promise
from models.quantities import Alarm, Hold, Instruction, Interval, Learn, RecoveryEvent, Scale

pytestmark = pytest.mark.fast


@dataclass(frozen=True)
class Answer:
    scale_out: int
    reason: str = "because"
    feasible: bool = True
    alarm: str | None = None


@dataclass(frozen=True)
class Linear:
    def predict(self, scale_out: int) -> Interval:
        return Interval(900.0 * scale_out, 1_000.0 * scale_out, 1_100.0 * scale_out, 0.9)


def always(size: int) -> Any:
    def decide(situation: Situation) -> Answer:
        return Answer(size)

    return decide


def agreed(size: int = 6, mode: Any = "apply") -> Settings:
    return Settings(
        promise=Promise(180.0),
        max_scale_out=12,
        mode=mode,
        models=Models(capacity=Linear()),
        decide=always(size),
    )


def healthy(at_s: float, *, size: int = 4) -> Observation:
    return Observation(
        at_s=at_s,
        scale_out=size,
        arrival_rps=2_000.0,
        throughput_rps=2_000.0,
        lag_records=10_000.0,
        run_id="a",
        executors_alive=size,
        last_commit_at_s=at_s - 3.0,
        commits_at_s=tuple(at_s - 3.0 - 10.0 * k for k in range(6))[::-1],
    )


def ordered() -> State:
    """Two ticks; the second orders 6 instead of 4 executors."""
    state, _ = step(start(agreed(4)), healthy(60.0), 60.0)
    state, instructions = step(state.with_settings(agreed(6)), healthy(120.0), 120.0)
    assert instructions[0] == Scale(6, "because")
    return state


def tick(state: State, at_s: float, *, size: int = 4) -> tuple[State, list[Instruction]]:
    return step(state, healthy(at_s, size=size), at_s)


def test_what_was_never_begun_leaves_no_trace() -> None:
    state = withdrawn(ordered())
    assert (state.change, state.recovering, state.applied) == (None, None, 4)
    state, instructions = tick(state.with_settings(agreed(4)), 180.0)
    assert [type(i) for i in instructions] == [Hold]
    assert state.quarantined == ()


def test_a_change_that_is_refused_is_taken_back_at_the_next_tick() -> None:
    state = refused(ordered(), why="spark.slots: only 5 are free")
    state, instructions = tick(state, 180.0)
    assert instructions[0] == Scale(4, "rolled back, 6 executors failed: spark.slots: only 5 are free")
    alarms = [i.reason for i in instructions if isinstance(i, Alarm)]
    assert "scale-out failed: spark.slots: only 5 are free" in alarms[0]
    assert [q.scale_out for q in state.quarantined] == [6]


def test_what_began_late_has_as_long_as_ever_to_take_effect() -> None:
    late = begun(ordered(), at_s=170.0)
    for at_s in (180.0, 240.0, 300.0, 345.0):
        late, instructions = tick(late, at_s)
        assert isinstance(instructions[0], Hold), at_s
    _, instructions = tick(late, 360.0)
    assert isinstance(instructions[0], Scale)


def test_what_began_late_is_measured_from_then() -> None:
    learnt: list[RecoveryEvent] = []
    state = begun(ordered(), at_s=170.0)
    for at_s in (180.0, 240.0, 300.0, 360.0):
        state, instructions = tick(state, at_s, size=6)
        learnt += [i.fact for i in instructions if isinstance(i, Learn) and isinstance(i.fact, RecoveryEvent)]
    assert [(e.kind, e.failed_at_s) for e in learnt] == [("live_out", 170.0)]
    assert learnt[0].downtime_s == 7.0


def test_nothing_is_told_of_a_change_that_is_not_there() -> None:
    state = start(agreed())
    assert begun(state, at_s=1.0) is state
    assert refused(state, why="x") is state
    assert withdrawn(state) is state
