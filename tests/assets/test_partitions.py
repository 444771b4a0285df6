"""A model of a job stands on the job's points, and on nobody else's; seen from both ends."""

import dagster as dg
import pytest

from assets import partitions
from assets.partitions import JOBS, POINTS, ByJob, Point
from models.quantities import Misuse

KEYS = ["orders/e1/r100", "orders/e4/r30000", "orders-old/e1/r100"]


@dg.asset(name="profiling_points", partitions_def=POINTS)
def points() -> dg.MaterializeResult:
    return dg.MaterializeResult()


@dg.asset(partitions_def=JOBS, deps=[dg.AssetDep("profiling_points", partition_mapping=ByJob())])
def model() -> dg.MaterializeResult:
    return dg.MaterializeResult()


@pytest.fixture
def instance():
    with dg.DagsterInstance.ephemeral() as found:
        found.add_dynamic_partitions("points", KEYS)
        yield found


@pytest.mark.fast
@pytest.mark.parametrize(
    ("point", "key"),
    [
        (Point("orders", 4, 30_000.0), "orders/e4/r30000"),
        (Point("orders", 4, 30_000.4), "orders/e4/r30000"),
        (Point("a-b", 12, 99.5), "a-b/e12/r99.5"),
        (Point("orders", 1, 100.0), "orders/e1/r100"),
        (Point("orders", 1, 0.25), "orders/e1/r0.25"),
        (Point("orders", 1, 20.0), "orders/e1/r20"),
    ],
)
def test_a_point_has_a_name_that_a_person_can_read_and_write(point, key):
    assert point.key == key
    assert Point.of(key).key == key


@pytest.mark.fast
@pytest.mark.parametrize(
    "key", ["orders", "orders/e0/r5", "orders/e4", "orders/e4/r", "orders/e4/r0", "Orders/e1/r1", "o/e1/r1/x"]
)
def test_what_is_no_point_is_said_to_be_none(key):
    with pytest.raises(Misuse, match="orders/e4/r30000"):
        Point.of(key)


FIXED = dg.StaticPartitionsDefinition(["orders", "orders-old"])


def test_upstream_of_a_job_are_its_points(instance):
    found = ByJob().get_upstream_mapped_partitions_result_for_partitions(
        FIXED.subset_with_partition_keys(["orders"]), FIXED, POINTS, dynamic_partitions_store=instance
    )
    assert set(found.partitions_subset.get_partition_keys()) == {"orders/e1/r100", "orders/e4/r30000"}
    assert list(found.required_but_nonexistent_partition_keys) == []


def test_downstream_of_a_point_is_its_job(instance):
    upstream = POINTS.subset_with_partition_keys(["orders-old/e1/r100"])
    found = ByJob().get_downstream_partitions_for_partitions(
        upstream, POINTS, FIXED, dynamic_partitions_store=instance
    )
    assert set(found.get_partition_keys()) == {"orders-old"}


def test_points_stand_on_the_recording_of_their_job(instance):
    found = ByJob().get_upstream_mapped_partitions_result_for_partitions(
        POINTS.subset_with_partition_keys(KEYS[:2]), POINTS, FIXED, dynamic_partitions_store=instance
    )
    assert set(found.partitions_subset.get_partition_keys()) == {"orders"}


def test_points_of_a_job_that_is_gone_lead_nowhere(instance):
    upstream = POINTS.subset_with_partition_keys(["gone/e1/r100"])
    found = ByJob().get_downstream_partitions_for_partitions(
        upstream, POINTS, FIXED, dynamic_partitions_store=instance
    )
    assert set(found.get_partition_keys()) == set()


def test_the_mapping_needs_points_at_one_end():
    with pytest.raises(dg.DagsterInvalidDefinitionError):
        ByJob().validate_partition_mapping(FIXED, FIXED)


def test_jobs_are_fixed_when_the_definitions_are_put_together(instance):
    found = partitions.of([points, model, dg.AssetSpec("topic", partitions_def=JOBS)], ["orders"])
    by_key = {spec.key.to_user_string(): spec for one in found for spec in getattr(one, "specs", [one])}
    assert by_key["model"].partitions_def == by_key["topic"].partitions_def
    assert list(by_key["model"].partitions_def.get_partition_keys()) == ["orders"]
    assert by_key["profiling_points"].partitions_def == POINTS
    assert dg.materialize(found[:2], selection=[model], partition_key="orders", instance=instance).success
    dg.Definitions.validate_loadable(dg.Definitions(assets=found))
    dg.Definitions.validate_loadable(dg.Definitions(assets=partitions.of([points, model], [])))
