"""pandas, 30 MB in every process, is not imported by what does not use it, and is there for what does."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

ROOT = Path(__file__).parents[2]


def printed(program: str, *arguments: object) -> object:
    """By a process of its own, whose imports nobody else has made."""
    done = subprocess.run(
        [sys.executable, "-c", program, *map(str, arguments)], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_arrow_makes_its_arrays_without_it_and_converts_to_it_all_the_same() -> None:
    program = """
import json, sys
import numpy as np, pyarrow as pa
from profiling_jobs import without_pandas
without_pandas.answer_arrow()
made = pa.table({"n": pa.array(np.arange(3)), "b": pa.array([b"a", None, b"c"])})
before = "pandas" in sys.modules
frame = made.to_pandas()
print(json.dumps([before, frame["n"].tolist(), pa.table(frame)["n"].to_pylist()]))
"""
    assert printed(program) == [False, [0, 1, 2], [0, 1, 2]]


def test_what_it_is_that_asks() -> None:
    """If this fails, pyarrow has given up asking, and `answer_arrow` can go."""
    program = "import json, sys, pyarrow as pa; pa.array([]); print(json.dumps('pandas' in sys.modules))"
    assert printed(program) is True


@pytest.mark.parametrize("event_time", ["at", None])
def test_a_task_of_a_replay_runs_without_it(tmp_path: Path, event_time: str | None) -> None:
    """As Spark's worker runs it, through PySpark's own reading and writing; also when records are parsed."""
    rows = range(1000)
    table = pa.table(
        {
            "key": pa.array([b"k%d" % (row % 50) for row in rows], pa.binary()),
            "value": pa.array([b'{"m":{},"n":%d,"at":%d}' % (row, 1_700_000_000_000) for row in rows]),
            "timestamp": pa.array([1_700_000_000_000 + row for row in rows], pa.timestamp("ms", tz="UTC")),
        }
    )
    pq.write_table(table, tmp_path / "source.parquet")
    numbers = pa.StructArray.from_arrays([pa.array([0], pa.int64())], names=["id"])
    given = pa.RecordBatch.from_arrays([numbers], names=["_0"])
    with pa.OSFile(str(tmp_path / "given"), "wb") as file, pa.ipc.new_stream(file, given.schema) as stream:
        stream.write_batch(given)
    program = """
import io, json, sys, time
from pathlib import Path
from pyspark.sql.conversion import ArrowBatchTransformer
from pyspark.sql.pandas.serializers import ArrowStreamSerializer
from profiling_jobs.brokers import Brokers
from profiling_jobs.driver.orders import write_json
from profiling_jobs.replay.driver import mapped
from profiling_jobs.replay.rates import Schedule
from profiling_jobs.replay.replay_plan import Replay
from profiling_jobs.replay.sources import open_source
from profiling_jobs.replay.tasks import Work

folder, event_time = Path(sys.argv[1]), sys.argv[2] or None
source = str(folder / "source.parquet")
plan = Replay("t", source, Schedule.constant(1000, duration_s=0.3), Brokers("127.0.0.1:1"),
    folder / "replay", tasks=2, event_time=event_time)
plan.write()
work = Work(plan, open_source(source, folder=plan.folder), ("key", "value"))
write_json(plan.folder / "start.json", {"schema": 1, "start_us": int(time.time() * 1e6)})
spark, sent = ArrowStreamSerializer(write_start_stream=True), io.BytesIO()
with (folder / "given").open("rb") as given:
    batches = map(ArrowBatchTransformer.flatten_struct, spark.load_stream(given))
    spark.dump_stream(map(ArrowBatchTransformer.wrap_struct, mapped(work)(batches)), sent)
loaded = [name for name in ("pandas", "kafka") if name in sys.modules]
sent.seek(4)  # a mark of Spark's
print(json.dumps([sum(batch.num_rows for batch in spark.load_stream(sent)) > 0, loaded]))
"""
    assert printed(program, tmp_path, event_time or "") == [True, []]
