"""The Spark driver of a replay: hundreds of thousands of records a second at a commanded rate.

`python -m profiling_jobs.replay.driver FOLDER/replay.json` runs one long batch job on local[N]: its
`mapInArrow` yields each slice when it is due, and the Kafka sink writes it. (A job per slice costs 70 ms, and
a Python producer ends at 30 000 records/s.) The process ends by itself with its schedule.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from models.errors import HeadroomError, Misconfigured
from models.quantities import Misuse

from ..driver.launch_file import say
from ..recording.driver import session
from ..telemetry.offsets import LogOffsets
from . import event_time, replay_plan
from .director import Director
from .replay_plan import Replay
from .sources import open_source
from .tape import WANTED, Tape
from .tasks import Work

SPARK_TYPES = {
    "key": "key binary",
    "value": "value binary",
    "headers": "headers array<struct<key:string,value:binary>>",
    "partition": "partition int",
}
SINK = {  # as the Java producer's defaults, but for a batch that is worth sending
    "kafka.linger.ms": "5",
    "kafka.batch.size": "131072",
}


def prepared(replay: Replay, partitions: int) -> Work:
    """The plan with its records found and checked, before Spark is started."""
    source = open_source(replay.source, folder=replay.folder, seed=replay.seed)
    if replay.event_time and "timestamp" not in source.columns:
        raise Misconfigured(
            "event_time", f"{replay.source} has no column `timestamp`, by which event times would be moved"
        )
    if isinstance(replay.event_time, str):
        shift = event_time.shift_by(replay.event_time, unit=replay.event_time_unit)
        if isinstance(shift, event_time.JsonField):
            for records in Tape(source).take(np.arange(min(source.records, event_time.SAMPLE))):
                shift.check(records.batch.column("value"))
                break
    # A record goes to the partition that it came from where there are as many of them.
    dropped = set() if source.partitions == partitions else {"partition"}
    return Work(replay, source, tuple(name for name in WANTED if name in source.columns - dropped))


class WithoutPandas:
    """A finder of modules for which pandas is not installed.

    `pyarrow.array` imports it only to see whether it was given a series, and it takes 30 MB.
    """

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> None:
        if name == "pandas":
            raise ModuleNotFoundError(f"No module named '{name}'", name=name)


def in_a_task(work: Work) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The work as a function, as Spark wants it, to be called in the process of a task."""

    def records(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        if ":" not in (work.replay.event_time or ""):  # a function of the user's own may need pandas
            sys.meta_path.insert(0, WithoutPandas)
        return work(batches)

    return records


def send(spark: Any, work: Work, offsets: LogOffsets) -> None:
    """Run the replay on this session, until it is over."""
    director = Director(work.replay, offsets)
    director.start()
    try:
        tasks = work.replay.tasks
        spelt = ", ".join(SPARK_TYPES[name] for name in work.columns)
        frame = spark.range(0, tasks, 1, tasks).mapInArrow(in_a_task(work), spelt)
        writer = frame.write.format("kafka").options(**work.replay.brokers.spark()).options(**SINK)
        if "headers" in work.columns:
            writer = writer.option("includeHeaders", "true")
        writer.option("topic", work.replay.topic).save()
    finally:
        director.finish()


def conf(replay: Replay) -> dict[str, str]:
    """What the session needs, beside its settings."""
    return {
        "spark.master": f"local[{replay.tasks}]",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        **replay.conf,
        # Otherwise a slice would wait in Python until 64 kB have come together.
        "spark.sql.execution.pandas.udf.buffer.size": "64",
    }


def main(arguments: list[str]) -> int:
    """Replay what the plan says."""
    replay = Replay.read(Path(arguments[0]))
    try:
        offsets = LogOffsets(replay.brokers, topic=replay.topic)
        work = prepared(replay, len(offsets.ends()))
        pa.default_memory_pool().release_unused()  # of a generator, which is not asked again
        say(f"{work.source.records:,} records of {replay.source} to {replay.topic}, {replay.tasks} tasks")
        send(session(f"replay-{replay.topic}", conf(replay)), work, offsets)
    except (HeadroomError, Misuse) as error:
        replay_plan.end(replay.folder, "refused", str(error))
        say(str(error))
        return 1
    except Exception as error:  # noqa: BLE001 - anything that Spark or Kafka throws is the end of it
        reason = f"{type(error).__name__}: {error}"[:2000]
        replay_plan.end(replay.folder, "threw", reason)
        say(reason)
        return 1
    replay_plan.end(replay.folder, "finished", "the schedule is over")
    return 0


if __name__ == "__main__":
    code = main(sys.argv[1:])
    sys.stdout.flush()
    os._exit(code)  # threads that Spark has left behind
