"""What the loop recommends for an attached job, whose offsets and commits are all it sees."""

from __future__ import annotations

import pytest

from models.control.state import by_optimise
from models.errors import Unsafe
from models.quantities import Unknown
from profiling_jobs.control_loop.applying import apply
from profiling_jobs.control_loop.evaluation import Evaluation
from profiling_jobs.explain.explanation import explained
from tests.stories.test_loop_stories import Story, World, jump


def recommended(story: Story, *, after: int = 0) -> list[int]:
    """The sizes that were recommended, but for the first ticks."""
    ticks = story.ticks["orders"][after:]
    return [e.instruction["would"] for e in ticks if e.instruction["would"] is not None]


def test_a_load_that_rises_gets_a_recommendation_and_nothing_is_touched() -> None:
    world = World().launch(load=jump(6, 3_400.0)).attach(decide=by_optimise, candidates=(4, 6, 8))
    calm, story = world.run(minutes=5), world.run(minutes=8)
    assert recommended(calm) == []
    assert max(recommended(story)) > 4
    last = story.last()
    assert "would scale to" in last.reason
    assert all(e.apply is None and e.instruction["do"] == "hold" for e in story.ticks["orders"])
    assert world.cluster.job("orders").declared == 4
    assert last.observation["hottest_share"].reason.startswith("another system runs it")
    said = explained(Evaluation.from_json(last.to_json()), shown=str)
    assert "would go from 4 to" in said.done
    assert "It runs outside Headroom: give it" in said.would_change[0]
    assert not any("Mode apply" in one for one in said.would_change)
    assert ("executors", "4 declared, how many are alive is unknown") in said.seen


def test_a_size_that_its_owner_has_changed_is_the_new_size_and_teaches_nothing() -> None:
    world = World().launch(load=jump(6, 3_400.0)).attach()
    before = world.run(minutes=12)
    world.cluster.scale("orders", 8, epoch=1, path="live")  # by its owner
    story = world.attach(8).run(minutes=8)
    assert story.sizes() == [8] * 8
    assert all(e.foreign is None and e.recovering is None for e in story.ticks["orders"][1:])
    assert [e.learnt for e in (*before.ticks["orders"], *story.ticks["orders"]) if e.learnt] == []
    assert (before.alarms(), story.alarms()) == ([], [])


def test_commits_that_stop_are_said_at_once_and_nothing_is_done() -> None:
    world = World().launch().attach()
    world.run(minutes=6)
    world.cluster.stop("orders")
    down = world.run(minutes=6)
    assert any("orders stands still, and is not ours to start: no commit for" in one for one in down.alarms())
    assert world.deployments.status("orders").state == "stalled"
    assert (recommended(down, after=1), down.sizes()) == ([], [4] * 6)
    assert down.last().recovering["kind"] == "standstill"
    assert "nothing is committed yet, more executors would not help" in down.last().reason
    assert all(e.apply is None for e in down.ticks["orders"])
    world.cluster.job("orders").start(world.clock.now_s())  # by its owner
    back = world.run(minutes=15)
    assert back.last().recovering is None
    assert world.deployments.status("orders").state == "running"
    assert [e.learnt for e in back.ticks["orders"] if e.learnt] == [], "which failure it was is not known"


@pytest.mark.parametrize("mode", ["observe", "recommend"])
def test_without_its_size_every_evaluation_holds_and_names_the_key(mode: str) -> None:
    unknown = Unknown("job.orders.executors is not set")
    story = World().launch(load=jump(6, 3_400.0)).attach(unknown, mode=mode).run(minutes=8)
    assert recommended(story) == []
    assert all(isinstance(e.scale_out, Unknown) for e in story.ticks["orders"])
    assert story.last().observation["arrival_rps"] == pytest.approx(3_400.0, rel=0.05)
    (alarm,) = story.alarms()
    assert alarm.startswith(
        "the job cannot be observed for 300 s: its size is held, scale_out (job.orders.executors is not"
    )
    assert ("job.orders.executors is not set" in story.last().reason) is (mode == "recommend")


def test_an_order_of_an_earlier_life_is_not_carried_out() -> None:
    world = World().launch().attach()
    world.run(minutes=3)
    agreed, loop = world.agreed["orders"], world.daemon.loop
    assert apply("orders", epoch=10**9, settings=agreed, loop=loop, holder="us").did == "nothing"
    with pytest.raises(Unsafe, match=r"job\.orders\.attach"):
        world.deployments.scale("orders", 8, epoch=1)
    assert world.cluster.job("orders").declared == 4
