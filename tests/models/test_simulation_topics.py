"""Arrivals at a simulated broker are exact at every moment."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.errors import NotReady
from models.simulation.topics import Topics

pytestmark = pytest.mark.fast

STRETCHES = st.lists(
    st.tuples(st.sampled_from([0.0, 0.3, 7.0, 1000.0]), st.floats(0.1, 30.0), st.integers(0, 5)), max_size=6
)


def flowing(stretches, *, at_s):
    """A topic with two partitions that gets a rate for a while, then a handful at once, and so on."""
    topics = Topics()
    topics.create("in", partitions=2, at_s=at_s)
    for rate, seconds, handful in stretches:
        topics.flow("in", rate, shares=(3, 1), at_s=at_s)
        at_s += seconds
        topics.produce("in", {1: handful}, at_s=at_s)
    return topics["in"], at_s


class TestArrivals:
    @given(stretches=STRETCHES, share=st.floats(0, 1), part=st.sampled_from([0, 1]))
    def test_a_record_is_there_from_its_arrival_on_and_not_before(self, stretches, share, part):
        for epoch in (0.0, 1.7e9):
            topic, now = flowing(stretches, at_s=epoch)
            count = int(topic.end(now)[part])
            if count:
                record = int(share * (count - 1))
                arrived = topic.arrived_s(part, record)
                assert epoch <= arrived <= now
                assert topic.end(arrived)[part] >= record + 1
                assert topic.end(arrived - 1e-3)[part] <= record + 1

    @given(stretches=STRETCHES)
    def test_ends_never_shrink(self, stretches):
        topic, now = flowing(stretches, at_s=0.0)
        ends = np.array([topic.end(t) for t in np.linspace(-1.0, now + 1.0, 50)])
        assert (np.diff(ends, axis=0) >= 0).all()

    def test_records_that_will_never_come(self):
        topic, _ = flowing([(0.0, 1.0, 3)], at_s=0.0)
        assert topic.arrived_s(1, 2) == 1.0
        assert topic.arrived_s(1, 3) == math.inf


class TestAwayBroker:
    def test_producers_wait_and_hand_over_everything_at_its_return(self):
        topics = Topics()
        topics.create("in", partitions=2, at_s=0.0)
        topics.flow("in", 100.0, at_s=0.0)
        topics.leave(at_s=10.0)
        assert topics["in"].end(15.0).sum() == 1000
        topics.flow("in", 200.0, at_s=15.0)
        assert topics["in"].arrived_s(0, 500) == math.inf
        with pytest.raises(NotReady, match="does not answer"):
            topics.ends(["in"], at_s=15.0)
        topics.come_back(at_s=20.0)
        assert topics["in"].end(20.0).sum() == 1000 + 500 + 1000
        assert topics["in"].arrived_s(0, 500) == 20.0
        assert topics["in"].end(21.0).sum() == 2700
