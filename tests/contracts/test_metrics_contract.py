"""What every source of metrics promises: computed or measured, a sample means the same."""

from __future__ import annotations

from typing import Any

import pytest

from models.errors import Misconfigured
from models.ports import Sample
from models.quantities import Unknown


def total(offsets: Any) -> int:
    assert not isinstance(offsets, Unknown), offsets.reason
    return sum(offsets.values())


def counted(sample: Sample) -> int:
    """Lag from the sample's own offsets."""
    assert not isinstance(sample.committed, Unknown), sample.committed.reason
    return sum(
        max(0, end - max(sample.committed.get(part, 0), sample.log_start[part]))
        for part, end in sample.head.items()
    )


class TestProgress:
    def test_a_sample_agrees_with_itself_and_with_the_clock(self, world: Any, settled: str) -> None:
        before_s = world.now_s()
        sample = world.metrics.sample(settled)
        assert before_s - 1.0 <= sample.at_s <= world.now_s() + 1.0
        assert sample.lag_records == counted(sample)
        assert 0 <= sample.lag_records <= 3000
        assert sample.committed_source in ("checkpoint", "group")
        assert set(sample.head) == set(sample.log_start) == {(f"{settled}-in", part) for part in range(4)}
        assert not isinstance(sample.last_batch, Unknown)
        assert sample.last_batch >= 0
        assert sample.last_commit_at_s <= sample.at_s + 1.0
        run_id = world.answered(settled).run_id
        world.until(lambda: not isinstance(world.metrics.sample(settled).run_id, Unknown))
        assert world.metrics.sample(settled).run_id == run_id

    def test_rates_come_from_offsets(self, world: Any, settled: str) -> None:
        before = world.metrics.sample(settled)
        world.pass_time(10.0)
        world.until(lambda: world.metrics.sample(settled).last_batch > before.last_batch + 2)
        after = world.metrics.sample(settled)
        arrived = total(after.head) - total(before.head)
        done = total(after.committed) - total(before.committed)
        assert arrived / (after.at_s - before.at_s) == pytest.approx(100.0, rel=0.2)
        assert arrived - done == after.lag_records - before.lag_records
        assert done > 0

    def test_every_commit_is_told_once_and_in_order(self, world: Any, settled: str) -> None:
        world.metrics.sample(settled)
        told: list[Any] = []
        while len(told) < 2:
            for _ in range(4):
                world.pass_time(2.0)
                sample = world.metrics.sample(settled)
                told += list(sample.commits)
        batches = [commit.batch for commit in told]
        assert batches == list(range(batches[0], batches[0] + len(batches)))
        assert [commit.at_s for commit in told] == sorted(commit.at_s for commit in told)
        ends = [total(commit.ends) for commit in told]
        assert ends == sorted(ends)
        assert ends[-1] <= total(sample.head)
        assert told[-1].batch == sample.last_batch

    def test_latency_is_plausible(self, world: Any) -> None:
        plan = world.plan()  # a job of its own: one that nobody looked at for a while has two minutes to wait
        world.flow(f"{plan.name}-in", 100.0)
        name = world.launch(plan)

        def is_known() -> bool:
            return not isinstance(world.metrics.sample(name).latency_p95_ms, Unknown)

        world.until(is_known)
        found_ms = world.metrics.sample(name).latency_p95_ms
        assert not isinstance(found_ms, Unknown), found_ms
        assert 0.0 < found_ms < 60_000.0
        world.flow(f"{plan.name}-in", 0.0)
        world.deployments.stop(name)

    def test_an_unknown_job_is_misconfigured(self, world: Any) -> None:
        with pytest.raises(Misconfigured, match="nobody"):
            world.metrics.sample("nobody")


class TestExecutors:
    def test_shares_of_time_and_rates_add_up(self, world: Any, settled: str) -> None:
        samples: list[Sample] = []

        def enough() -> bool:
            world.pass_time(5.0)
            sample = world.metrics.sample(settled)
            if is_known(sample):  # a busy machine does not answer every time
                samples.append(sample)
            return len(samples) == 3

        world.until(enough)
        rates = []
        for sample in samples:
            alive = [one for one in sample.executors if one.state != "lost"]
            assert len({one.executor for one in sample.executors}) == len(sample.executors)
            assert {one.state for one in alive} <= {"warming_up", "running"}
            for one in alive:
                assert 0.0 <= one.cpu <= 1.0
                assert 0.0 <= one.busy <= 1.0
                assert one.records_rps >= 0.0
            rates.append(sum(one.records_rps for one in alive))
        assert 20.0 < sum(rates) / len(rates) < 500.0  # batches come in lumps


def is_known(sample: Sample) -> bool:
    """Whether both executors have been read twice."""
    if isinstance(sample.executors, Unknown):
        return False
    alive = [one for one in sample.executors if one.state != "lost"]
    return len(alive) == 2 and not any(
        isinstance(value, Unknown) for one in alive for value in (one.cpu, one.busy, one.records_rps)
    )


def test_lag_is_true_also_while_nobody_runs(world: Any) -> None:
    """Before the first batch, while it is stopped, and afterwards: what arrives, expires and grows counts."""
    plan = world.plan(scale_out=1)
    name, topic = plan.name, f"{plan.name}-in"
    world.produce(topic, {0: 10, 1: 10})  # partitions 2 and 3 stay idle
    world.deployments.launch(plan)
    sample = world.metrics.sample(name)
    assert total(sample.head) == 20
    assert isinstance(sample.last_batch, Unknown)
    assert isinstance(sample.last_commit_at_s, Unknown)
    assert isinstance(sample.lag_records, Unknown) or sample.lag_records == 20
    assert isinstance(sample.latency_p95_ms, Unknown)
    assert sample.commits == ()

    world.settle(name, behind=0)
    world.deployments.stop(name)
    sample = world.metrics.sample(name)
    assert sample.lag_records == 0
    assert isinstance(world.deployments.status(name).run_id, Unknown)
    assert total(sample.committed) == 20
    last_batch = sample.last_batch

    world.produce(topic, {0: 5, 2: 7})
    assert world.metrics.sample(name).lag_records == 12
    world.grow(topic, 6)
    world.pass_time(1.1)
    world.produce(topic, {5: 4})
    sample = world.metrics.sample(name)
    assert sample.head[topic, 5] == 4
    assert sample.lag_records == 12 + 4
    assert sample.last_batch == last_batch
    assert sample.commits == ()

    world.deployments.launch(plan)
    world.settle(name, behind=0)
    sample = world.metrics.sample(name)
    assert sample.committed[topic, 5] == 4
    assert sample.last_batch > last_batch
    world.deployments.stop(name)

    done = total(world.metrics.sample(name).committed)
    assert done == 36
    world.produce(topic, {0: 10})
    world.expire(topic, {0: 18})  # three that were never read are gone
    sample = world.metrics.sample(name)
    assert sample.log_start[topic, 0] == 18
    assert sample.lag_records == 7
    assert total(sample.committed) == done

    world.deployments.launch(plan)  # Spark's source does not skip what it has not read
    world.until(lambda: world.deployments.status(name).state == "failed")
    assert world.metrics.sample(name).lag_records == 7
    world.deployments.stop(name)
