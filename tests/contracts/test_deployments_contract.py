"""What every place where jobs run promises: the computed one and the local Spark say the same."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from models.errors import Misconfigured, NotReady, Unsafe
from models.quantities import Unknown


def test_a_life(world: Any) -> None:
    """It starts, runs, is stopped between two batches, and goes on where it was."""
    plan = world.plan(scale_out=1)
    name, topic, out = plan.name, f"{plan.name}-in", f"{plan.name}-out"
    assert name not in world.deployments.names()
    world.flow(topic, 100.0)
    world.deployments.launch(plan)
    assert name in world.deployments.names()
    status = world.deployments.status(name)
    assert (status.state, status.declared_scale_out) == ("starting", 1)
    assert isinstance(status.run_id, Unknown)

    world.settle(name)
    status = world.answered(name)
    assert (status.state, status.executors_alive, status.declared_scale_out) == ("running", 1, 1)
    first_run = status.run_id
    assert isinstance(first_run, str)

    world.deployments.stop(name)
    status = world.deployments.status(name)
    assert (status.state, status.executors_alive) == ("stopped", 0)
    # Spark gives up a batch that has just begun; then it is written again, and that is said.
    assert status.reason in ("stopped between batches", "stopped within a batch")
    again = world.plan(name=name).max_offsets_per_trigger if status.reason.endswith("within a batch") else 0
    assert isinstance(status.run_id, Unknown)
    assert name not in world.deployments.names()
    done = world.committed(name)
    assert done <= world.count(out) <= done + again  # nothing was lost, or written twice unsaid
    with pytest.raises(NotReady, match=name):
        world.deployments.scale(name, 1, epoch=1)
    world.deployments.stop(name)
    assert world.deployments.plan(name) == plan
    with pytest.raises(Misconfigured, match=r"checkpoint.*another query"):
        world.deployments.launch(replace(world.plan(), checkpoint=plan.checkpoint))
    world.until(lambda: world.behind(name) > 200)
    assert world.committed(name) == done

    world.flow(topic, 0.0)
    world.deployments.launch(replace(plan, scale_out=2))
    world.settle(name, behind=0)
    status = world.answered(name)
    assert status.executors_alive == 2
    assert status.run_id != first_run
    assert world.count(topic) <= world.count(out) <= world.count(topic) + again
    world.deployments.stop(name)


class TestLaunching:
    def test_twice_is_unsafe_and_changes_nothing(self, world: Any, settled: str) -> None:
        run_id = world.answered(settled).run_id
        with pytest.raises(Unsafe, match=rf"{settled} was launched already"):
            world.deployments.launch(world.plan(name=settled, scale_out=1))
        status = world.answered(settled)
        assert (status.run_id, status.declared_scale_out) == (run_id, 2)

    @pytest.mark.parametrize(
        ("changes", "error", "setting"),
        [
            ({"scale_out": 0}, Misconfigured, "scale_out"),
            ({"scale_out": 99}, Misconfigured, r"spark\.slots"),
            ({"scale_out": 3}, Misconfigured, r"spark\.slots"),  # two of four are taken
            ({"inputs": {}}, Misconfigured, "inputs"),
            ({"checkpoint": ""}, Misconfigured, "checkpoint"),
            ({"trigger_s": -1.0}, Misconfigured, "trigger_s"),
            ({"max_offsets_per_trigger": 0}, Misconfigured, "max_offsets_per_trigger"),
        ],
    )
    def test_what_cannot_run_is_refused_with_the_setting(
        self, world: Any, settled: str, changes: dict[str, Any], error: type[Exception], setting: str
    ) -> None:
        plan = world.plan(**changes)
        with pytest.raises(error, match=setting):
            world.deployments.launch(plan)
        assert plan.name not in world.deployments.names()

    def test_a_profiling_copy_must_not_touch_the_live_job(self, world: Any, settled: str) -> None:
        live = world.plan(name=settled)
        copy = replace(world.plan(), job=settled, role="profile")
        for shared in (
            {"outputs": live.outputs},
            {"outputs": {"alerts": f"{settled}-in"}},
            {"checkpoint": live.checkpoint},
            {"checkpoint": f"{live.checkpoint}/inside"},
        ):
            with pytest.raises(Unsafe, match=r"outputs|checkpoint"):
                world.deployments.launch(replace(copy, **shared))
        assert copy.name not in world.deployments.names()

    def test_two_jobs_never_share_a_checkpoint(self, world: Any, settled: str) -> None:
        plan = replace(world.plan(), checkpoint=world.plan(name=settled).checkpoint)
        with pytest.raises((Unsafe, Misconfigured), match="checkpoint"):
            world.deployments.launch(plan)

    def test_a_topic_that_is_not_there_fails_the_job_and_is_named(self, world: Any) -> None:
        plan = world.plan(inputs={"events": "nowhere"})
        world.deployments.launch(plan)
        world.until(lambda: world.deployments.status(plan.name).state == "failed")
        status = world.deployments.status(plan.name)
        assert "nowhere" in status.reason
        assert isinstance(status.run_id, Unknown)
        assert status.executors_alive == 0
        with pytest.raises(NotReady, match=plan.name):
            world.deployments.scale(plan.name, 1, epoch=1)
        world.deployments.stop(plan.name)
        assert plan.name not in world.deployments.names()

    @pytest.mark.parametrize("question", ["status", "stop"])
    def test_an_unknown_name_is_misconfigured(self, world: Any, question: str) -> None:
        with pytest.raises(Misconfigured, match="nobody"):
            getattr(world.deployments, question)("nobody")
        with pytest.raises(Misconfigured, match="nobody"):
            world.deployments.scale("nobody", 1, epoch=1)


class TestScaling:
    def test_what_was_asked_for_is_there_when_it_returns(self, world: Any, settled: str) -> None:
        run_id = world.answered(settled).run_id
        for epoch, before, after in ((11, 2, 4), (12, 4, 1), (13, 1, 2)):
            done = world.deployments.scale(settled, after, epoch=epoch)
            assert (done.path, done.before, done.after) == ("live", before, after)
            assert 0.0 <= done.took_s < 120.0
            status = world.answered(settled)
            assert (status.executors_alive, status.declared_scale_out) == (after, after)
            assert status.run_id == run_id
        world.settle(settled)

    def test_a_size_that_we_have_set_is_marked_as_ours(self, world: Any, settled: str) -> None:
        assert world.deployments.status(settled).ours is True

    def test_an_older_epoch_is_unsafe_and_the_same_one_a_retry(self, world: Any, settled: str) -> None:
        world.deployments.scale(settled, 2, epoch=21)
        with pytest.raises(Unsafe, match=r"20 is older than 21"):
            world.deployments.scale(settled, 3, epoch=20)
        assert world.deployments.status(settled).declared_scale_out == 2
        again = world.deployments.scale(settled, 2, epoch=21)
        assert (again.before, again.after) == (2, 2)

    def test_by_a_restart_the_query_runs_anew_with_what_was_asked_for_once(
        self, world: Any, settled: str
    ) -> None:
        run_id = world.answered(settled).run_id
        done = world.deployments.scale(settled, 3, epoch=25, path="restart")
        assert (done.path, done.before, done.after) == ("restart", 2, 3)
        status = world.answered(settled)
        assert (status.executors_alive, status.declared_scale_out) == (3, 3)
        assert status.run_id != run_id
        again = world.deployments.scale(settled, 3, epoch=25, path="restart")  # a retry: nothing is stopped
        assert (again.before, again.after) == (3, 3)
        assert world.answered(settled).run_id == status.run_id
        assert world.deployments.scale(settled, 2, epoch=26).path == "live"  # and under the query again
        world.settle(settled)

    @pytest.mark.parametrize(("size", "setting"), [(0, "scale_out"), (-1, "scale_out"), (5, r"spark\.slots")])
    def test_a_size_that_cannot_be_is_refused_with_the_setting(
        self, world: Any, settled: str, size: int, setting: str
    ) -> None:
        with pytest.raises(Misconfigured, match=setting):
            world.deployments.scale(settled, size, epoch=31)
        status = world.answered(settled)
        assert (status.declared_scale_out, status.executors_alive) == (2, 2)
        world.deployments.scale(settled, 2, epoch=30)  # nothing was carried out as 31
