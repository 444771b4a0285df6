"""The Spark driver that copies one topic into Parquet for a stated time.

`python -m profiling_jobs.recording.driver FOLDER/orders.json`. Each slice is a batch read with its offsets
spelt out, so Spark neither subscribes nor commits, and no consumer group is touched. Exit code 0: complete,
or the size limit was reached (ended.json says which). 1: it can be run again to go on.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from models import codec
from models.errors import HeadroomError

from ..brokers import Brokers
from ..driver.launch_file import say, write_json
from ..telemetry.offsets import LogOffsets
from .recorder import Ends, Recorder, Request

FILES = 2  # of each slice, written in parallel
COLUMNS = ("key", "value", "headers", "timestamp", "partition", "offset")


@dataclass(frozen=True)
class RecordingFile:
    """What one recording process has to do."""

    schema: ClassVar[int] = 1
    request: Request
    brokers: Brokers
    conf: Mapping[str, str] = field(default_factory=dict)
    """Spark's."""

    def write(self, path: Path) -> Path:
        write_json(path, codec.to_json(self))
        return path

    @classmethod
    def read(cls, path: Path) -> RecordingFile:
        return codec.from_json(cls, json.loads(path.read_text()))


def copier(spark: Any, brokers: Brokers, *, topic: str) -> Any:
    """What copies a range of offsets into a folder that is not there yet."""

    def copy(starts: Ends, ends: Ends, target: Path) -> None:
        reader = spark.read.format("kafka").options(**brokers.spark())
        reader = reader.option("assign", json.dumps({topic: sorted(starts)})).option("includeHeaders", "true")
        for option, offsets in (("startingOffsets", starts), ("endingOffsets", ends)):
            spelt = {str(part): offset for part, offset in offsets.items()}
            reader = reader.option(option, json.dumps({topic: spelt}))
        reader.load().select(*COLUMNS).coalesce(FILES).write.parquet(str(target.resolve()))

    return copy


def session(name: str, conf: Mapping[str, str]) -> Any:
    """A Spark session of this process."""
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName(name)
    # The default is a form that other readers have given up.
    builder = builder.config("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
    for key, value in conf.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def main(arguments: list[str]) -> int:
    """Record what the file says."""
    orders = RecordingFile.read(Path(arguments[0]))
    request = orders.request
    try:
        offsets = LogOffsets(orders.brokers, topic=request.topic)
        offsets.ends()  # before the seconds that a session takes
        spark = session(f"recording-{request.topic}", orders.conf)
        copy = copier(spark, orders.brokers, topic=request.topic)
        recorded = Recorder(request, offsets=offsets, copy=copy, say=say).run()
    except HeadroomError as error:
        say(str(error))
        return 1
    say(f"{recorded.ended}: {recorded.records:,} records of {request.topic}, {recorded.bytes / 1e6:,.1f} MB")
    return 0


if __name__ == "__main__":
    code = main(sys.argv[1:])
    sys.stdout.flush()
    os._exit(code)  # threads that Spark has left behind
