"""Which latencies are normal?"""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.latency import ALL_NORMAL, FACTOR_APART, two_clusters

pytestmark = pytest.mark.fast

STEADY = [900.0, 950.0, 1_000.0, 1_050.0, 1_100.0, 980.0, 1_020.0, 1_010.0]


@pytest.mark.parametrize(
    ("story", "latencies", "abnormal"),
    [
        ("nothing was measured", [], []),
        ("one point is no cluster", [90_000.0], []),
        ("all alike", [1_000.0] * 9, []),
        ("twice as slow is not another kind", [*STEADY, 2_100.0, 2_300.0], []),
        (
            "saturated ones are minutes late",
            [*STEADY, 30_000.0, 60_000.0, 200_000.0],
            [30_000.0, 60_000.0, 200_000.0],
        ),
        ("a single saturated one", [*STEADY, 30_000.0], [30_000.0]),
        (
            "an hour late does not excuse eight seconds",
            [*STEADY, 8_000.0, 9_000.0, 3.6e6],
            [8_000.0, 9_000.0, 3.6e6],
        ),
        ("a stray low reading leaves the rest normal", [*STEADY, *STEADY, 1.0], []),
        ("zero is a value", [*STEADY, 0.0, 60_000.0], [60_000.0]),
        (
            "most are abnormal",
            [1_000.0, 1_100.0, 50_000.0, 60_000.0, 70_000.0],
            [50_000.0, 60_000.0, 70_000.0],
        ),
        ("normal ones that wander by themselves", [100.0 * 1.15**k for k in range(20)], []),
    ],
)
def test_the_upper_cluster_is_abnormal(story, latencies, abnormal):
    clusters = two_clusters(latencies)
    assert [v for v in latencies if not clusters.is_normal(v)] == abnormal


@given(st.lists(st.floats(1.0, 1e7), min_size=0, max_size=40), st.floats(1.0, 1_000.0), st.randoms())
def test_clusters_know_neither_unit_nor_order(latencies, factor, random):
    clusters = two_clusters(latencies)
    labels = {v: clusters.is_normal(v) for v in latencies}
    shuffled = [v * factor for v in latencies]
    random.shuffle(shuffled)
    rescaled = two_clusters(shuffled)
    if labels and not math.isinf(clusters.normal_up_to_ms):
        assert rescaled.abnormal_from_ms == pytest.approx(clusters.abnormal_from_ms * factor, rel=1e-6)
    assert all(labels[a] >= labels[b] for a in latencies for b in latencies if a <= b)


@given(st.lists(st.floats(1_000.0, 1_000.0 * FACTOR_APART * 0.999), max_size=40))
def test_within_the_factor_everything_is_normal(latencies):
    assert two_clusters(latencies) == ALL_NORMAL
