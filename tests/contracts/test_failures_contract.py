"""What every way to cause failures promises: it happens, it is seen, it is put right, and nothing is lost."""

from __future__ import annotations

from typing import Any

import pytest

from models.errors import Misconfigured, NotReady
from models.quantities import FAILURE_KINDS, Unknown


@pytest.fixture(autouse=True)
def nothing_is_lost(world: Any, settled: str) -> Any:
    """Whatever a test does: afterwards nothing is left of it, and all that came in has gone out."""
    yield
    for injection in world.failures.active():
        world.failures.clear(injection.id)
    assert world.failures.active() == ()
    world.settle(settled)
    world.flow(f"{settled}-in", 0.0)
    world.settle(settled, behind=0)
    out, came = f"{settled}-out", f"{settled}-in"
    world.until(lambda: world.count(out) >= world.count(came))  # Kafka's sink: at least once
    world.flow(f"{settled}-in", 100.0)


def inject(world: Any, name: str, kind: str) -> Any:
    before_s = world.now_s()
    injection = world.failures.inject(name, kind)
    assert (injection.deployment, injection.kind) == (name, kind)
    assert before_s <= injection.at_s <= world.now_s()
    assert injection.victim
    assert injection in world.failures.active()
    assert injection not in world.failures.left_over()  # it is in our hands
    return injection


def clear(world: Any, injection: Any) -> None:
    world.failures.clear(injection.id)
    assert injection not in world.failures.active()
    world.failures.clear(injection.id)  # twice is not an error


def alive(world: Any, name: str) -> Any:
    return world.deployments.status(name).executors_alive


def living(world: Any, name: str) -> set[str]:
    """The executors that run, by name: a replacement may be there before a status shows the loss."""
    found = world.metrics.sample(name).executors
    return set() if isinstance(found, Unknown) else {one.executor for one in found if one.state != "lost"}


def test_kinds_are_spelt_as_everywhere(world: Any) -> None:
    assert world.failures.kinds() <= set(FAILURE_KINDS)
    assert {"executor_kill", "executor_freeze", "driver_kill", "driver_freeze", "broker_restart"} <= (
        world.failures.kinds()
    )


def test_a_killed_executor_is_replaced(world: Any, settled: str) -> None:
    run_id = world.answered(settled).run_id
    before = living(world, settled)
    injection = inject(world, settled, "executor_kill")
    world.until(lambda: len(now := living(world, settled)) == 2 and now != before)
    world.until(lambda: alive(world, settled) == 2)
    clear(world, injection)
    assert world.answered(settled).run_id == run_id


def test_a_frozen_executor_that_is_woken_in_time_goes_on(world: Any, settled: str) -> None:
    injection = inject(world, settled, "executor_freeze")
    world.pass_time(3.0)
    assert world.answered(settled).executors_alive == 2  # nobody has noticed
    clear(world, injection)
    world.settle(settled)


def test_a_frozen_executor_is_given_up_and_replaced(world: Any, settled: str) -> None:
    injection = inject(world, settled, "executor_freeze")
    world.until(lambda: world.behind(settled) > 500)
    world.settle(settled)
    assert world.now_s() - injection.at_s > 5.0
    clear(world, injection)
    world.settle(settled)


def test_a_dead_driver_is_started_again_from_its_checkpoint(world: Any, settled: str) -> None:
    run_id = world.answered(settled).run_id
    done = world.committed(settled)
    injection = inject(world, settled, "driver_kill")
    world.until(lambda: world.deployments.status(settled).state == "restarting")
    sample = world.metrics.sample(settled)
    assert not isinstance(sample.lag_records, Unknown)  # also now
    assert world.committed(settled) >= done
    world.settle(settled)
    clear(world, injection)
    status = world.answered(settled)
    assert status.run_id not in (run_id, "")
    assert status.declared_scale_out == 2


def test_a_frozen_driver_commits_nothing_until_it_is_woken(world: Any, settled: str) -> None:
    run_id = world.answered(settled).run_id
    injection = inject(world, settled, "driver_freeze")
    world.pass_time(1.0)
    done = world.committed(settled)
    world.pass_time(3.0)
    assert world.committed(settled) == done
    assert isinstance(world.deployments.status(settled).run_id, Unknown)
    clear(world, injection)
    world.until(lambda: world.committed(settled) > done)
    assert world.answered(settled).run_id == run_id


def test_a_restarted_broker_is_back_with_all_it_had(world: Any, settled: str) -> None:
    done = world.committed(settled)
    injection = inject(world, settled, "broker_restart")

    def answers() -> bool:
        try:
            return world.committed(settled) > done
        except NotReady:
            return False

    world.until(answers)
    clear(world, injection)


@pytest.mark.parametrize("kind", ["meteorite", "", "executor-kill"])
def test_a_kind_that_is_none_is_misconfigured(world: Any, settled: str, kind: str) -> None:
    with pytest.raises(Misconfigured, match="executor_kill"):  # what there is
        world.failures.inject(settled, kind)


def test_an_unknown_deployment_is_misconfigured(world: Any) -> None:
    with pytest.raises(Misconfigured, match="nobody"):
        world.failures.inject("nobody", "executor_kill")


def test_what_does_not_run_cannot_fail(world: Any) -> None:
    plan = world.plan()
    world.deployments.launch(plan)
    world.deployments.stop(plan.name)
    with pytest.raises(NotReady, match=plan.name):
        world.failures.inject(plan.name, "executor_kill")
    assert world.failures.active() == ()
