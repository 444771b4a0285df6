"""The benchmark of many jobs, for some minutes of two."""

from __future__ import annotations

from pathlib import Path

from bench.scale import owned


def test_every_job_is_evaluated_every_minute_with_decisions(tmp_path: Path) -> None:
    found = owned(tmp_path, jobs=2, minutes=4)
    assert len(found.ticks_s) == 8
    assert [len(hour) for hour in found.memory_mb] == [4]
    assert found.store_mb[0] > 0.0
    assert found.worked_s > 0.0
    assert found.changes > 0, "four executors are not the smallest size for this load"
