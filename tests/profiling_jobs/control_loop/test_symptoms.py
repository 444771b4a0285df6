"""Signs of failures in samples that are made up here."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from samples import offsets, sample

from models.observation import DriverLoss, ExecutorLoss, Symptoms
from models.ports import ExecutorSample, Sample
from models.quantities import Unknown
from profiling_jobs.control_loop.observe import symptoms
from profiling_jobs.telemetry.timeline import Timeline

pytestmark = pytest.mark.fast


def seen(at_s: float, *names: str, run: str | Unknown = "a", driver: Any = "up", **read: Any) -> Sample:
    """With executors of these names, each as busy as the time, so that every reading is another."""
    found = tuple(ExecutorSample(name, "running", 0.1, at_s / 1e3, 1.0) for name in names)
    executors = found if names else Unknown("the driver does not answer")
    return sample(at_s, offsets(int(at_s)), run_id=run, executors=executors, driver=driver, **read)


def shown(*samples: Sample, since_s: float = 0.0) -> Symptoms:
    timeline = Timeline()
    for one in samples:
        timeline.add(one)
    found = symptoms(timeline, since_s=since_s)
    assert isinstance(found, Symptoms)
    return found


def test_a_quiet_minute_shows_nothing() -> None:
    found = shown(*(seen(float(at_s), "1", "2") for at_s in range(1, 60)))
    assert found == Symptoms(watched_since_s=1.0)


def test_an_executor_that_is_replaced_at_once_was_lost() -> None:
    found = shown(seen(1.0, "1", "2"), seen(5.0, "1", "2"), seen(9.0, "1", "3"), seen(13.0, "1", "3"))
    assert [loss.at_s for loss in found.executors_lost] == [7.0]
    assert found.drivers_lost == ()


def gone(name: str, lost_at_s: float) -> ExecutorSample:
    unknown = Unknown("the executor is lost")
    return ExecutorSample(name, "lost", unknown, unknown, unknown, loss=ExecutorLoss(lost_at_s, 0.0))


@pytest.mark.parametrize(("said_s", "lost_at_s"), [(5.25, 5.25), (2.0, 5.0), (60.0, 9.0)])
def test_a_loss_is_where_its_driver_says_that_it_was_if_that_was_between_the_readings(
    said_s: float, lost_at_s: float
) -> None:
    """Its clock may be another's."""
    after = seen(9.0, "1", "3")
    assert not isinstance(after.executors, Unknown)
    after = replace(after, executors=(*after.executors, gone("2", said_s)))
    found = shown(seen(1.0, "1", "2"), seen(5.0, "1", "2"), after)
    assert found.executors_lost == (ExecutorLoss(lost_at_s, 0.0),)


def test_another_run_has_other_executors_and_has_lost_its_driver_only() -> None:
    away: dict[str, Any] = {"run": Unknown("dead"), "driver": "gone"}
    found = shown(seen(1.0, "1"), seen(5.0, "1"), seen(9.0, **away), seen(13.0, "7", run="b"))
    assert found.executors_lost == ()
    assert found.drivers_lost == (DriverLoss(7.0, "a", 0.0),)


def test_a_driver_that_was_silent_before_it_was_ended_was_frozen() -> None:
    mute: dict[str, Any] = {"run": Unknown("silent"), "driver": "silent"}
    silent = [seen(5.0 + at_s, **mute) for at_s in range(4, 124, 4)]
    end = seen(131.0, run=Unknown("dead"), driver="gone")
    found = shown(seen(1.0, "1"), seen(5.0, "1"), *silent, end, seen(140.0, "7", run="b"), since_s=60.0)
    assert found.drivers_lost == (DriverLoss(7.0, "a", 122.0),)


def test_a_broker_that_answers_late_was_silent() -> None:
    found = shown(seen(1.0, "1"), seen(2.0, "1"), seen(11.0, "1", broker_waited_s=8.5), seen(12.0, "1"))
    assert found.brokers_silent_s == ((2.5, 11.0),)


def test_brokers_that_answer_late_after_not_at_all_were_silent_all_the_while() -> None:
    timeline = Timeline()
    timeline.add(seen(1.0, "1"))
    timeline.miss(11.5, "does not answer", broker=True)
    timeline.add(seen(15.0, "1", broker_waited_s=3.5))
    found = symptoms(timeline, since_s=0.0)
    assert isinstance(found, Symptoms)
    assert found.brokers_silent_s == ((1.0, 15.0),)


def test_a_pause_of_ours_is_told_from_a_silence_of_the_brokers() -> None:
    timeline = Timeline()
    timeline.add(seen(1.0, "1"))
    timeline.miss(30.0, "does not answer", broker=True)
    timeline.add(seen(90.0, "1"))
    found = symptoms(timeline, since_s=0.0)
    assert found == Symptoms(watched_since_s=1.0, brokers_silent_s=((1.0, 90.0),))
    assert shown(seen(1.0, "1"), seen(90.0, "1")).watched_since_s == 90.0
