"""Partitions: one per job, and one per measured point of a job.

JOBS: one partition per `[job.NAME]`. The assets are declared with the name alone; `of` fixes the keys to the
jobs of headroom.toml when the definitions are built, so a job that is not there cannot be launched.
POINTS: one partition per point that a search asks for, `orders/e4/r30000`: 4 executors at 30,000 records/s.
ByJob: a model of `orders` depends on every point whose key begins with `orders/`.
Search: while a run waits for a search, each point that is asked for becomes a partition, and each that was
measured is reported as materialised. What Dagster shows as missing is still to be measured, and models that
wait until nothing is missing are fitted once, at the end.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import dagster as dg

# Private modules of Dagster: the reason why everything that needs them is in this file.
from dagster._core.definitions.partitions.context import partition_loading_context
from dagster._core.definitions.partitions.mapping.partition_mapping import UpstreamPartitionsResult
from dagster._core.definitions.partitions.subset.partitions_subset import PartitionsSubset

from models import codec
from models.ports import Store
from models.probing import State
from models.quantities import Misuse
from profiling_jobs.experiments import profiling_record

from .metadata import Shown, figures

if TYPE_CHECKING:
    from dagster._core.instance import DynamicPartitionsStore

JOBS = dg.DynamicPartitionsDefinition(name="jobs")
POINTS = dg.DynamicPartitionsDefinition(name="points")
POINT_KEY = re.compile(
    r"(?P<job>[a-z][a-z0-9-]{0,38})/e(?P<scale_out>[1-9][0-9]*)/r(?P<rate>[0-9]+(\.[0-9]+)?)"
)


@dataclass(frozen=True)
class Point:
    """One scale-out at one rate; `key` is the name of its partition."""

    job: str
    scale_out: int
    rate_rps: float

    @property
    def key(self) -> str:
        """Rates of three digits and more without decimals: measurements are not more precise."""
        digits = 0 if self.rate_rps >= 100.0 else 2
        rate = f"{self.rate_rps:.{digits}f}"
        return f"{self.job}/e{self.scale_out}/r{rate.rstrip('0').rstrip('.') if '.' in rate else rate}"

    @classmethod
    def of(cls, key: str) -> Self:
        """The point of a partition; a key that names none is Misuse."""
        found = POINT_KEY.fullmatch(key)
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
        with partition_loading_context(current_time, dynamic_partitions_store):
            return UpstreamPartitionsResult(
                partitions_subset=_matching(downstream_partitions_subset, upstream_partitions_def),
                required_but_nonexistent_subset=upstream_partitions_def.empty_subset(),
            )

    @property
    def description(self) -> str:
        return "every point whose key begins with the job's name"


def _matching(these: PartitionsSubset | None, others: dg.PartitionsDefinition) -> PartitionsSubset:
    jobs = {job_of(key) for key in these.get_partition_keys()} if these else set()
    return others.subset_with_partition_keys([k for k in others.get_partition_keys() if job_of(k) in jobs])


KEY = dg.AssetKey("profiling_points")


class Search:
    """One search of one job, as partitions of `profiling_points`."""

    def __init__(self, instance: dg.DagsterInstance, store: Store, job: str) -> None:
        self._instance, self._store, self._job = instance, store, job
        self._name = POINTS.name or ""
        self._reported = 0
        # A search that goes on after an interruption reports its earlier results again.
        shown, state = instance.get_materialized_partitions(KEY), self._state()
        earlier = () if state is None or state.done else state.results
        keys = {Point(job, one.probe.scale_out, one.probe.rate_rps).key for one in earlier}
        self._shown = keys & set(shown)

    def seen(self, order: Mapping[str, Any]) -> None:
        """Report what is new: the next points come first, so that one is missing until the search ends."""
        facts = order.get("facts") or ()
        state = self._state()
        asked = () if state is None else state.pending
        self._add([Point(self._job, one.scale_out, one.rate_rps).key for one in asked])
        for fact in facts[self._reported :]:
            key = fact["key"]
            self._add([key])
            if fact["verdict"] == "invalid" or key in self._shown:
                self._shown.discard(key)
                continue
            self._instance.report_runless_asset_event(
                dg.AssetMaterialization(
                    KEY, partition=key, description=f"probe {fact['number']}", metadata=of_fact(fact)
                )
            )
        self._reported = len(facts)

    def end(self) -> int:
        """Delete the partitions of points that were not measured; the number of those that are."""
        measured = self._instance.get_materialized_partitions(KEY)
        ours = [key for key in self._instance.get_dynamic_partitions(self._name) if job_of(key) == self._job]
        for key in ours:
            if key not in measured:
                self._instance.delete_dynamic_partition(self._name, key)
        return sum(key in measured for key in ours)

    def _state(self) -> State | None:
        document = self._store.document(self._job, profiling_record.DOCUMENT)
        return None if document is None else codec.from_json(State, document["state"])

    def _add(self, keys: list[str]) -> None:
        if keys:
            self._instance.add_dynamic_partitions(self._name, keys)


def of_fact(fact: Mapping[str, Any]) -> Shown:
    """What one probe has measured, under the names that points have."""
    names = ("scale_out", "offered_rps", "throughput_rps", "executor_seconds", "duration_s")
    measured = figures(p95_latency_ms=fact["latency_ms"], **{name: fact[name] for name in names})
    return {"verdict": dg.MetadataValue.text(str(fact["verdict"])), **measured}
