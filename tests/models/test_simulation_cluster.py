"""The queueing twin: nothing is lost, nothing takes less time than it can, and the models agree with it."""

from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.errors import HeadroomError, NotReady
from models.recovery import batch_recovery_seconds, recovered_at
from models.simulation.batches import Behaviour, Platform
from models.simulation.cluster import CAUSED_HERE, Cluster

QUICK = Platform(driver_start_s=4.0, executor_start_s=2.0)


@dataclass(frozen=True)
class Plan:
    name: str = "orders"
    job: str = "orders"
    role: str = "live"
    scale_out: int = 2
    inputs: dict = field(default_factory=lambda: {"events": "in"})
    outputs: dict = field(default_factory=lambda: {"alerts": "out"})
    checkpoint: str = "/checkpoints/orders"
    trigger_s: float = 0.0
    max_offsets_per_trigger: int | None = 6000


def running(*, rate=1000.0, partitions=4, shares=None, behaviour=None, platform=QUICK, **plan):
    cluster = Cluster({"orders": behaviour or Behaviour(warm_up_s=0.0)}, platform)
    cluster.topics.create("in", partitions=partitions, at_s=0.0)
    cluster.topics.create("out", partitions=2, at_s=0.0)
    cluster.topics.flow("in", rate, at_s=0.0, shares=shares)
    cluster.launch(Plan(**plan))
    cluster.advance(60.0)
    return cluster


def head(cluster, topic="in"):
    return int(cluster.topics[topic].end(cluster.now_s).sum())


def committed(cluster, name="orders"):
    return int(sum(ends.sum() for ends in cluster.job(name).checkpoint.committed.values()))


def lag_s(cluster, rate):
    return (head(cluster) - committed(cluster)) / rate


class TestThroughput:
    @pytest.mark.parametrize(("overhead_s", "limit", "trigger_s"), [(0.5, 1000, 0.0), (0.2, 3000, 5.0)])
    def test_it_sustains_what_the_design_of_batches_allows(self, overhead_s, limit, trigger_s):
        capacity = 1428.0
        behaviour = Behaviour(lambda s: capacity, overhead_s=overhead_s, warm_up_s=0.0)
        most = limit / max(overhead_s + limit / capacity, trigger_s)
        cluster = running(
            rate=5000.0, behaviour=behaviour, max_offsets_per_trigger=limit, trigger_s=trigger_s
        )
        before = committed(cluster)
        cluster.advance(600.0)
        assert (committed(cluster) - before) / 600.0 == pytest.approx(most, rel=0.01)

    def test_batches_start_at_the_boundaries_of_the_trigger(self):
        cluster = running(rate=100.0, trigger_s=10.0)
        cluster.advance(100.0)
        o, n = 0.3, 1000 / Behaviour().rate(2)
        times = [c.at_s % 10.0 for c in cluster.job("orders").checkpoint.commits[2:]]
        assert times == pytest.approx([o + n] * len(times), abs=0.05)

    def test_without_data_there_is_no_batch(self):
        cluster = running(rate=0.0)
        assert cluster.job("orders").checkpoint.batch == -1
        cluster.topics.produce("in", {0: 5}, at_s=cluster.now_s)
        cluster.advance(1.0)
        assert committed(cluster) == 5

    def test_an_idle_partition_holds_nobody_up(self):
        cluster = running(shares=(1, 1, 0, 0))
        assert cluster.topics["in"].end(60.0).tolist()[2:] == [0, 0]
        assert lag_s(cluster, 1000.0) < 10.0

    def test_growing_costs_a_slow_first_batch(self):
        cluster = running(rate=1000.0, behaviour=Behaviour(warm_up_s=8.0))
        cluster.advance(200.0)
        before = lag_s(cluster, 1000.0)
        rescaled = cluster.scale("orders", 4, epoch=1)
        assert (rescaled.path, rescaled.before, rescaled.after) == ("live", 2, 4)
        assert rescaled.took_s == pytest.approx(QUICK.executor_start_s)
        cluster.advance(8.0)
        assert lag_s(cluster, 1000.0) > before + 4.0
        cluster.advance(60.0)
        assert lag_s(cluster, 1000.0) < 2.0

    def test_how_time_is_cut_makes_no_difference(self):
        whole, pieces = running(rate=700.0), running(rate=700.0)
        whole.advance(50.0)
        for _ in range(500):
            pieces.advance(0.1)
        ours, theirs = (c.job("orders").checkpoint.commits for c in (whole, pieces))
        assert len(ours) == len(theirs)
        assert [c.at_s for c in ours] == pytest.approx([c.at_s for c in theirs], abs=0.05)


class TestFailures:
    def test_a_frozen_executor_is_missed_after_its_time_out(self):
        cluster = running(behaviour=Behaviour(warm_up_s=0.0), rate=1000.0, scale_out=4)
        cluster.inject("orders", "executor_freeze")
        at = cluster.now_s
        cluster.advance(QUICK.executor_timeout_s - 1.0)
        assert cluster.job("orders").checkpoint.committed_at_s < at + 2.0
        assert cluster.status("orders").executors_alive == 4
        cluster.advance(3.0)
        assert cluster.job("orders").checkpoint.committed_at_s > at + QUICK.executor_timeout_s
        cluster.advance(30.0)
        assert cluster.status("orders").executors_alive == 4

    def test_a_dead_driver_repeats_its_batch_with_the_same_offsets(self):
        cluster = running(rate=500.0)
        planned = cluster.job("orders").checkpoint.planned
        while planned is None:
            cluster.advance(0.05)
            planned = cluster.job("orders").checkpoint.planned
        cluster.inject("orders", "driver_kill")
        number = cluster.job("orders").checkpoint.batch + 1
        cluster.advance(20.0)
        again = next(c for c in cluster.job("orders").checkpoint.commits if c.batch == number)
        assert again.after["in"].tolist() == planned["in"].tolist()

    @pytest.mark.parametrize("load", [0.3, 0.6])
    @pytest.mark.parametrize("overhead_s", [0.2, 1.0])
    def test_recovery_is_what_the_batch_model_predicts(self, load, overhead_s):
        capacity, limit = 1000.0, 4000
        rate = load * capacity
        behaviour = Behaviour(lambda s: capacity, overhead_s=overhead_s, warm_up_s=0.0)
        cluster = running(rate=rate, partitions=1, behaviour=behaviour, max_offsets_per_trigger=limit)
        failed_at, lag = cluster.now_s, head(cluster) - committed(cluster)
        cluster.inject("orders", "driver_kill")
        down_s = QUICK.driver_notice_s + QUICK.driver_start_s + QUICK.executor_start_s
        times, curve = [], []
        for _ in range(1500):
            times.append(cluster.now_s)
            curve.append(lag_s(cluster, rate))
            cluster.advance(0.1)
        measured = recovered_at(times, curve, failed_at_s=failed_at, band_s=6.0, hold_s=15.0) - failed_at
        (predicted,) = batch_recovery_seconds(
            np.full((1, 300), rate),
            capacity_rps=capacity,
            overhead_s=overhead_s,
            limit_records=limit,
            trigger_s=0.0,
            downtime_s=down_s,
            lag_records=lag,
            band_s=6.0,
        )
        # The repeated batch is smaller than the model's first one: one overhead more, and a short batch.
        assert measured == pytest.approx(predicted, abs=2.0 * overhead_s + 1.0)

    @settings(deadline=None, max_examples=20)
    @given(
        story=st.lists(
            st.one_of(
                st.sampled_from(CAUSED_HERE),
                st.tuples(st.just("scale"), st.integers(1, 5)),
                st.tuples(st.just("wait"), st.floats(0.0, 40.0)),
                st.just("clear"),
            ),
            max_size=8,
        )
    )
    def test_whatever_happens_nothing_is_lost_and_it_recovers(self, story):
        cluster = running(rate=600.0, behaviour=Behaviour(warm_up_s=3.0, overhead_s=1.0))
        kept = cluster.job("orders").checkpoint
        seen, epoch, refusals = committed(cluster), 0, set()
        for what in story:
            try:
                if isinstance(what, str) and what != "clear":
                    cluster.inject("orders", what)
                elif what == "clear":
                    for injection in cluster.active():
                        cluster.clear(injection.id)
                elif what[0] == "scale":
                    epoch += 1
                    cluster.scale("orders", what[1], epoch=epoch)
                else:
                    cluster.advance(what[1])
            except HeadroomError as refused:
                refusals.add(type(refused))
                cluster.advance(5.0)
            assert committed(cluster) >= seen
            seen = committed(cluster)
        assert refusals <= {NotReady}
        for injection in cluster.active():
            cluster.clear(injection.id)
        cluster.advance(60.0)
        cluster.scale("orders", 5, epoch=epoch + 1)
        cluster.advance(300.0)
        assert lag_s(cluster, 600.0) < 6.0
        for one, other in zip(kept.commits, kept.commits[1:], strict=False):
            assert other.batch == one.batch + 1
            assert other.before["in"].tolist() == one.after["in"].tolist()
        assert head(cluster, "out") >= committed(cluster)  # at least once


class TestDeployments:
    def test_retention_that_is_quicker_than_the_job_fails_it(self):
        cluster = running(rate=1000.0, partitions=1)
        cluster.stop("orders")
        done = committed(cluster)
        cluster.advance(60.0)
        cluster.topics.expire("in", {0: 100_000}, at_s=cluster.now_s)
        cluster.launch(Plan())
        cluster.advance(15.0)
        status = cluster.status("orders")
        assert status.state == "failed"
        assert f"offsets {done} to 100000 of in-0" in status.reason
        assert committed(cluster) == done

    def test_retention_of_what_was_read_is_no_matter(self):
        cluster = running(rate=1000.0, partitions=1)
        cluster.topics.expire("in", {0: committed(cluster)}, at_s=cluster.now_s)
        cluster.advance(15.0)
        assert lag_s(cluster, 1000.0) < 3.0
