"""Which job, and which measured point, does a run of an asset concern?

JOBS: one partition per `[job.NAME]`. The assets are declared with the name alone; `of` fixes the keys to the
jobs of headroom.toml when the definitions are put together, so a job that is not there cannot be asked for.
POINTS: one partition per point that a search has asked for, `orders/e4/r30000`: 4 executors at 30 000
records/s. What is missing of a search is then what Dagster shows as missing.
ByJob: a model of `orders` depends on every point whose key begins with `orders/`:
`deps=[dg.AssetDep("profiling_points", partition_mapping=ByJob())]`.

Which points has a search asked for, and what was measured at each? As partitions, while it goes on.

The owner keeps the search in the store after every step (experiments.profiling_record). While a
run waits for it, each point that is asked for becomes a partition, and each that is measured is reported as
materialised, without a run of its own. So what Dagster shows as missing is what is still being measured, and
models that wait for nothing to be missing are fitted once, at the end. A point that has shown nothing is
taken out again when the search is over.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import dagster as dg
from dagster._core.definitions.partitions.context import partition_loading_context
from dagster._core.definitions.partitions.mapping.partition_mapping import UpstreamPartitionsResult
from dagster._core.definitions.partitions.subset.partitions_subset import PartitionsSubset

from models import codec
from models.ports import Store
from models.probing import Result, State
from models.quantities import Misuse
from profiling_jobs.experiments import profiling_record

from .metadata import Shown, figures

if TYPE_CHECKING:
    from dagster._core.instance import DynamicPartitionsStore


# Private, and the reason why everything that knows of it is in this file.


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
        """Rates of three digits and more without decimals: nobody measures closer than that."""
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


KEY = dg.AssetKey("profiling_points")


class Search:
    """One search of one job, as partitions of `profiling_points`."""

    def __init__(self, instance: dg.DagsterInstance, store: Store, job: str) -> None:
        self._instance, self._store, self._job = instance, store, job
        self._name = POINTS.name or ""
        self._lines = -1
        shown = instance.get_materialized_partitions(KEY)
        self._told = {number for number, key in self._numbers().items() if key in shown}
        """Session and number of the results that are shown already."""

    def seen(self, order: Mapping[str, Any]) -> None:
        """Look at the search again, if it has said something since."""
        if order["next"] != self._lines:
            self._lines = order["next"]
            self.look()

    def look(self) -> None:
        """Report what is new: what is asked next comes first, so that something is missing until the end."""
        session, state = self._kept()
        if state is None:
            return
        asked = [point(self._job, probe.scale_out, probe.rate_rps) for probe in state.pending]
        self._add(asked)
        for result in state.results:
            if (session, result.probe.number) not in self._told:
                self._told.add((session, result.probe.number))
                self._report(session, result)

    def end(self) -> dict[str, int]:
        """The last look; what was asked for and has shown nothing is taken out. How many are measured."""
        self.look()
        measured = self._instance.get_materialized_partitions(KEY)
        ours = [key for key in self._instance.get_dynamic_partitions(self._name) if job_of(key) == self._job]
        for key in ours:
            if key not in measured:
                self._instance.delete_dynamic_partition(self._name, key)
        return {"points": sum(key in measured for key in ours)}

    def _report(self, session: str, result: Result) -> None:
        key = point(self._job, result.probe.scale_out, result.probe.rate_rps)
        self._add([key])
        if not result.valid:  # it has shown nothing: the point stays missing until it is measured
            return
        self._instance.report_runless_asset_event(
            dg.AssetMaterialization(
                KEY,
                partition=key,
                description=f"probe {result.probe.number} of search {session}",
                metadata=of_result(result),
            )
        )

    def _kept(self) -> tuple[str, State | None]:
        document = self._store.document(self._job, profiling_record.DOCUMENT)
        return (
            ("", None)
            if document is None
            else (str(document["session"]), codec.from_json(State, document["state"]))
        )

    def _numbers(self) -> dict[tuple[str, int], str]:
        session, state = self._kept()
        if state is None:
            return {}
        return {
            (session, one.probe.number): point(self._job, one.probe.scale_out, one.probe.rate_rps)
            for one in state.results
        }

    def _add(self, keys: list[str]) -> None:
        if keys:
            self._instance.add_dynamic_partitions(self._name, keys)


def point(job: str, scale_out: int, rate_rps: float) -> str:
    """The partition of this point."""
    return Point(job, scale_out, rate_rps).key


def of_result(result: Result) -> Shown:
    """What was measured, under the names that points have."""
    return of_measured(
        verdict=result.verdict,
        scale_out=result.probe.scale_out,
        offered_rps=result.rate_rps,
        throughput_rps=result.throughput_rps,
        p95_latency_ms=result.latency_ms,
        executor_seconds=result.cost,
        duration_s=result.duration_s,
    )


def of_fact(fact: Mapping[str, Any]) -> Shown:
    """The same of a single probe, as the owner tells it."""
    return of_measured(
        verdict=str(fact["verdict"]),
        p95_latency_ms=fact["latency_ms"],
        **{name: fact[name] for name in _SAME},
    )


_SAME = ("scale_out", "offered_rps", "throughput_rps", "executor_seconds", "duration_s")


def of_measured(*, verdict: str, **measured: Any) -> Shown:
    """One probe."""
    return {"verdict": dg.MetadataValue.text(verdict), **figures(**measured)}
