"""What a failure that nobody announced teaches: under which name, or why nothing.

The failures happen on the simulated cluster; the loop is not told of them, and has to name them by what its
samples show.
"""

from __future__ import annotations

import math
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from stand_ins import Answer

from models.ports import Sample
from models.quantities import RecoveryEvent, Unknown
from models.recovery import recovered_at, recovery_band_s
from profiling_jobs.control_loop.evaluation import Evaluation
from tests.stories.test_loop_stories import TRIGGER_S, World

KINDS = ("executor_kill", "executor_freeze", "driver_kill", "driver_freeze", "broker_restart")
LOAD_RPS = 2_000.0
LATE_S = 21.0  # after a tick, when the failure happens
TAUGHT = {
    "executor_kill": 20.0,
    "executor_freeze": 45.0,
    "driver_kill": 35.0,
    "driver_freeze": 55.0,
    "broker_restart": 25.0,
}
"""Kind -> downtime that is not exceeded."""


def watched(**agreed: Any) -> World:
    """A job whose loop reads it every two seconds and does not know what fails."""
    world = World(sample_s=2.0)
    world.failures = None
    world.daemon = world.restarted()
    return world.launch(**{"decide": held, **agreed})


def held(situation: Any) -> Any:
    return Answer(situation.current)


def strike(world: World, kind: str, *, after_s: float = LATE_S) -> float:
    """Let it fail so long after now; when that was."""
    world.pass_time(world.at_s + after_s)
    world.cluster.inject("orders", kind)
    return world.cluster.now_s


def learnt(world: World) -> list[RecoveryEvent]:
    return [event for event, _ in world.store.events("orders")]


def back_at_s(world: World, event: RecoveryEvent) -> float:
    """The first commit after this failure."""
    commits = world.cluster.job("orders").checkpoint.commits
    return next(commit.at_s for commit in commits if commit.at_s > event.failed_at_s)


def reasons(story: Any) -> list[str]:
    """Why nothing was learnt from the recoveries of this story."""
    return [
        line for e in story.ticks["orders"] for line in e.trouble if line.startswith("nothing was learnt")
    ]


@pytest.mark.parametrize("kind", KINDS)
def test_a_failure_of_a_steady_job_is_learnt_under_its_own_name(kind: str) -> None:
    world = watched()
    world.run(minutes=5)
    failed_at_s = strike(world, kind)
    story = world.run(minutes=6)
    (event,) = learnt(world)
    assert event.kind == kind
    assert event.scale_out == 4
    assert event.failed_at_s == pytest.approx(failed_at_s, abs=6.0)
    assert event.failed_at_s + event.downtime_s == pytest.approx(back_at_s(world, event), abs=0.1)
    assert 1.0 < event.downtime_s < TAUGHT[kind]
    assert reasons(story) == []


def ticks(world: World, *, seconds: float, every_s: float = 10.0) -> list[Evaluation]:
    """Evaluations that follow each other more closely than a failure lasts."""
    found = []
    until_s = world.at_s + seconds
    while world.at_s < until_s:
        world.pass_time((world.at_s // every_s + 1.0) * every_s)
        found.append(world.daemon.tick())
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_a_failure_that_lasts_for_several_evaluations_is_learnt_as_well(kind: str) -> None:
    world = watched(interval_s=10.0)
    ticks(world, seconds=120.0)
    failed_at_s = strike(world, kind, after_s=3.0)
    after = ticks(world, seconds=120.0)
    assert [line for e in after for line in e.trouble if line.startswith("nothing was learnt")] == []
    (event,) = learnt(world)
    assert event.kind == kind
    assert event.failed_at_s == pytest.approx(failed_at_s, abs=6.0)
    assert event.failed_at_s + event.downtime_s == pytest.approx(back_at_s(world, event), abs=0.1)


class ReadNowAndThen:
    """Metrics that ask drivers and executors every four seconds only, as the real ones do."""

    def __init__(self, metrics: Any) -> None:
        self._metrics = metrics
        self._slow: dict[str, Any] = {"at_s": -math.inf}

    def sample(self, name: str) -> Sample:
        found: Sample = self._metrics.sample(name)
        if found.at_s - self._slow["at_s"] >= 4.0:
            self._slow = {part: getattr(found, part) for part in ("at_s", "run_id", "executors", "driver")}
        return replace(found, **{part: value for part, value in self._slow.items() if part != "at_s"})


@pytest.mark.parametrize("kind", ["executor_kill", "executor_freeze"])
def test_a_loss_that_is_counted_before_it_is_read_is_one_failure(kind: str) -> None:
    """The size is asked at the tick, each executor some seconds before or after it."""
    world = watched(interval_s=10.0)
    world.sample_s, world.metrics = 1.0, ReadNowAndThen(world.metrics)
    world.daemon = world.restarted()
    ticks(world, seconds=90.0)
    failed_at_s = strike(world, kind, after_s=9.5)
    after = ticks(world, seconds=90.0)
    (event,) = learnt(world)
    assert event.kind == kind
    assert event.failed_at_s == pytest.approx(failed_at_s, abs=1.0)
    assert [line for e in after for line in e.trouble if line.startswith("nothing was learnt")] == []


@pytest.mark.parametrize("kind", ["executor_kill", "executor_freeze"])
def test_without_a_word_of_the_driver_a_frozen_executor_is_known_by_its_batch(kind: str) -> None:
    class Mute(dict[str, Any]):
        def __setitem__(self, executor: str, loss: Any) -> None:
            """Nothing is said of it."""

    world = watched()
    world.cluster.job("orders").losses = Mute()
    world.run(minutes=2)
    strike(world, kind)
    world.run(minutes=3)
    assert [event.kind for event in learnt(world)] == [kind]


def watching_the_lag(world: World) -> list[tuple[float, float]]:
    """The lag of the job in seconds of input, whenever the loop reads it."""
    found: list[tuple[float, float]] = []
    sample = world.daemon.sampler.round

    def and_note_it() -> None:
        sample()
        with world.daemon.sampler.reading("orders") as timeline:
            last = timeline.last
        if not isinstance(last, Unknown) and not isinstance(last.sample.lag_records, Unknown):
            found.append((last.at_s, last.sample.lag_records / LOAD_RPS))

    world.daemon.sampler.round = and_note_it  # type: ignore[method-assign]
    return found


@pytest.mark.parametrize("kind", ["executor_kill", "executor_freeze", "driver_kill"])
def test_a_recovery_is_learnt_as_precisely_as_the_job_is_read(kind: str) -> None:
    """Not as coarsely as it is evaluated: most recoveries are shorter than the time between two ticks."""
    world = watched()
    lags = watching_the_lag(world)
    world.run(minutes=3)
    failed_at_s = strike(world, kind)
    world.run(minutes=3)
    (event,) = learnt(world)
    usual_s = max(lag_s for at_s, lag_s in lags if failed_at_s - 120.0 < at_s < failed_at_s)
    times_s, lag_s = zip(*lags, strict=True)
    seen_s = recovered_at(
        times_s,
        lag_s,
        failed_at_s=event.failed_at_s + event.downtime_s,
        band_s=recovery_band_s(usual_s, trigger_s=TRIGGER_S, longest_s=90.0),
        hold_s=15.0,
    )
    assert event.failed_at_s + event.recovery_s == pytest.approx(seen_s, abs=2.0 * world.sample_s)


def changing(world: World) -> None:
    """A change of the size is ordered and carried out."""
    world.agreed["orders"] = replace(world.agreed["orders"], decide=lambda situation: Answer(6))
    world.run(minutes=1)


@pytest.mark.parametrize("kind", KINDS)
def test_a_failure_during_a_change_teaches_neither_its_own_name_nor_that_of_the_change(kind: str) -> None:
    world = watched()
    world.run(minutes=5)
    changing(world)
    strike(world, kind)
    story = world.run(minutes=8)
    assert learnt(world) == []
    assert any(kind in e.recovering["kind"] for e in story.ticks["orders"] if e.recovering)
    assert len(reasons(story)) == 1


@pytest.mark.parametrize("kind", KINDS)
def test_of_two_failures_that_overlap_neither_is_learnt(kind: str) -> None:
    world = watched(load=3_600.0)
    world.run(minutes=5)
    strike(world, "driver_kill")
    world.run(minutes=1)
    strike(world, kind)
    story = world.run(minutes=10)
    assert learnt(world) == []
    assert len(reasons(story)) == 1
    assert "while it was still recovering from driver_kill" in reasons(story)[0]


NOBODY = SimpleNamespace(sampler=SimpleNamespace(round=lambda: None))


@pytest.mark.parametrize("when", ["while it was away", "in its first minute"])
@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_learnt_from_before_headroom_has_watched_for_a_whole_interval(
    kind: str, when: str
) -> None:
    world = watched()
    world.run(minutes=5)
    if when == "while it was away":
        strike(world, kind, after_s=5.0)
    world.pass_time(world.at_s + 20.0, (NOBODY,))
    world.daemon = world.restarted()
    if when == "in its first minute":
        strike(world, kind, after_s=5.0)
    story = world.run(minutes=5)
    assert learnt(world) == []
    assert all("Headroom itself did not watch it" in line for line in reasons(story))
    failed_at_s = strike(world, kind)
    world.run(minutes=5)
    (event,) = learnt(world)
    assert event.kind == kind
    assert event.failed_at_s == pytest.approx(failed_at_s, abs=6.0)


@pytest.mark.parametrize("kind", KINDS)
def test_a_failure_without_input_teaches_nothing(kind: str) -> None:
    world = watched(load=lambda at_s: 2_000.0 if at_s < 240.0 else 0.0)
    world.run(minutes=8)
    strike(world, kind)
    world.run(minutes=5)
    assert learnt(world) == []
