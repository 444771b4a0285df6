"""Which job, and which measured point, does a run of an asset concern?

JOBS: one partition per `[job.NAME]`. The assets are declared with the name alone; `of` fixes the keys to the
jobs of headroom.toml when the definitions are put together, so a job that is not there cannot be asked for.
POINTS: one partition per point that a search has asked for, `orders/e4/r30000`: 4 executors at 30 000
records/s. What is missing of a search is then what Dagster shows as missing.
ByJob: a model of `orders` depends on every point whose key begins with `orders/`:
`deps=[dg.AssetDep("profiling_points", partition_mapping=ByJob())]`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import dagster as dg
from dagster._core.definitions.partitions.context import partition_loading_context

# Private, and the reason why everything that knows of it is in this file.
from dagster._core.definitions.partitions.mapping.partition_mapping import UpstreamPartitionsResult
from dagster._core.definitions.partitions.subset.partitions_subset import PartitionsSubset

from models.quantities import Misuse

if TYPE_CHECKING:
    from dagster._core.instance import DynamicPartitionsStore

JOBS = dg.DynamicPartitionsDefinition(name="jobs")
POINTS = dg.DynamicPartitionsDefinition(name="points")
KEY = re.compile(r"(?P<job>[a-z][a-z0-9-]{0,38})/e(?P<scale_out>[1-9][0-9]*)/r(?P<rate>[0-9]+(\.[0-9]+)?)")


@dataclass(frozen=True)
class Point:
    """One scale-out at one rate; `key` is the name of its partition."""

    job: str
    scale_out: int
    rate_rps: float

    @property
    def key(self) -> str:
        """Rates of three digits and more without decimals: nobody measures closer than that."""
        digits = 0 if self.rate_rps >= 100.0 else 2
        rate = f"{self.rate_rps:.{digits}f}"
        return f"{self.job}/e{self.scale_out}/r{rate.rstrip('0').rstrip('.') if '.' in rate else rate}"

    @classmethod
    def of(cls, key: str) -> Self:
        """The point of a partition; a key that names none is Misuse."""
        found = KEY.fullmatch(key)
        if found is None or not float(found["rate"]) > 0.0:
            raise Misuse("point", f"must be JOB/eEXECUTORS/rRATE, for example orders/e4/r30000, got {key!r}")
        return cls(found["job"], int(found["scale_out"]), float(found["rate"]))


def job_of(key: str) -> str:
    """`orders/e4/r30000` -> orders."""
    return key.partition("/")[0]


def of(assets: Iterable[Any], jobs: Sequence[str]) -> list[dg.AssetsDefinition | dg.AssetSpec]:
    """The same assets, with these jobs as their partitions."""
    fixed = dg.StaticPartitionsDefinition(list(jobs))

    def fix(spec: dg.AssetSpec) -> dg.AssetSpec:
        return spec.replace_attributes(partitions_def=fixed) if spec.partitions_def == JOBS else spec

    return [fix(one) if isinstance(one, dg.AssetSpec) else one.map_asset_specs(fix) for one in assets]


class ByJob(dg.PartitionMapping, NamedTuple("_ByJob", [])):
    """Points and jobs, matched by what stands before the first slash; either may be upstream.

    A named tuple, as Dagster's own mappings are: two of them are equal. The daemon cannot evaluate a mapping
    that is not Dagster's, so our automation sensor evaluates in this code instead (use_user_code_server).
    """

    def validate_partition_mapping(
        self,
        upstream_partitions_def: dg.PartitionsDefinition,
        downstream_partitions_def: dg.PartitionsDefinition | None,
    ) -> None:
        """One of the two must be the points, the other something with partitions."""
        if downstream_partitions_def is None or POINTS not in (
            upstream_partitions_def,
            downstream_partitions_def,
        ):
            raise dg.DagsterInvalidDefinitionError("ByJob stands between the points and an asset of jobs")

    def get_downstream_partitions_for_partitions(
        self,
        upstream_partitions_subset: PartitionsSubset,
        upstream_partitions_def: dg.PartitionsDefinition,
        downstream_partitions_def: dg.PartitionsDefinition,
        current_time: datetime | None = None,
        dynamic_partitions_store: DynamicPartitionsStore | None = None,
    ) -> PartitionsSubset:
        """What is downstream of these."""
        with partition_loading_context(current_time, dynamic_partitions_store):
            return _matching(upstream_partitions_subset, downstream_partitions_def)

    def get_upstream_mapped_partitions_result_for_partitions(
        self,
        downstream_partitions_subset: PartitionsSubset | None,
        downstream_partitions_def: dg.PartitionsDefinition | None,
        upstream_partitions_def: dg.PartitionsDefinition,
        current_time: datetime | None = None,
        dynamic_partitions_store: DynamicPartitionsStore | None = None,
    ) -> UpstreamPartitionsResult:
        """What is upstream of these."""
        with partition_loading_context(current_time, dynamic_partitions_store):
            return UpstreamPartitionsResult(
                partitions_subset=_matching(downstream_partitions_subset, upstream_partitions_def),
                required_but_nonexistent_subset=upstream_partitions_def.empty_subset(),
            )

    @property
    def description(self) -> str:
        """As the UI shows it."""
        return "every point whose key begins with the job's name"


def _matching(these: PartitionsSubset | None, others: dg.PartitionsDefinition) -> PartitionsSubset:
    jobs = {job_of(key) for key in these.get_partition_keys()} if these else set()
    return others.subset_with_partition_keys([k for k in others.get_partition_keys() if job_of(k) in jobs])
