"""Which points has a search asked for, and what was measured at each? As partitions, while it goes on.

The owner keeps the search in the store after every step (profiling_jobs.probing.profiling_record). While a
run waits for it, each point that is asked for becomes a partition, and each that is measured is reported as
materialised, without a run of its own. So what Dagster shows as missing is what is still being measured, and
models that wait for nothing to be missing are fitted once, at the end. A point that has shown nothing is
taken out again when the search is over.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import dagster as dg

from models import codec
from models.probing import Result, State
from profiling_jobs.ports import Store
from profiling_jobs.probing import profiling_record

from .figures import Shown, figures
from .partitions import POINTS, Point, job_of

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
