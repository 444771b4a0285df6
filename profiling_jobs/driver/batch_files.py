"""A sink that publishes every batch exactly once, however often it is run.

Kafka's sink is at least once: a batch that was cut short by a failure is run again, and what it had written
stays. Here a batch is one folder of Parquet files, FOLDER/batch=N/, and running it again replaces it:

    written to      FOLDER/.draft-N-…      by all executors, seen by no reader (a dot in front)
    published as    FOLDER/batch=N         by one rename; one of an earlier run is put aside first

After a failure the checkpoint gives batch N the same records as before. That holds for one checkpoint only,
so FOLDER/_headroom.json names the query whose batches these are, and another one is refused: with a fresh
checkpoint batches count from 0 again, and would replace what is something else. So is a batch whose
successor is there: it comes from a driver that was taken for dead, or from a checkpoint that was set back.

    outputs = {results = "files:/data/answers"}                                 # topics.write("results", …)
    frame.writeStream.foreachBatch(BatchFiles("/data/answers"))                 # in a script

Driver and executors must share the folder. Readers (Spark, pandas, `read_batches`) take all batch=*.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import uuid
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from models.errors import Misconfigured, Unsafe

from .launch_file import write_once

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

OWNER = "_headroom.json"
BATCH = re.compile(r"batch=(\d+)")
LEFT_OVER = (".draft-*", ".replaced-*")
QUERY = "sql.streaming.queryId"  # as Spark names it among the properties of the thread that runs a batch


class BatchFiles:
    """A sink for `DataStreamWriter.foreachBatch`: each batch one folder, replaced when it is run again."""

    def __init__(self, folder: str | Path, *, setting: str = "outputs") -> None:
        """`setting` is the key of the configuration that names the folder, for messages."""
        self.folder = os.fspath(folder)
        self._setting = setting
        self._claimed = False

    def __call__(self, frame: DataFrame, batch: int) -> None:
        """Write this batch. Nothing of it is visible until all of it is."""
        folder = Path(self.folder)
        if not self._claimed:
            query = frame.sparkSession.sparkContext.getLocalProperty(QUERY)
            claim(folder, str(query), setting=self._setting)
            sweep(folder)
            self._claimed = True
        draft = folder / f".draft-{batch}-{uuid.uuid4().hex}"
        # The scheme, or a cluster's default file system would be taken instead of the one we rename in.
        frame.write.parquet(f"file://{draft}")
        publish(draft, batch, setting=self._setting)


def claim(folder: Path, query: str, *, setting: str) -> None:
    """Make the folder this query's, or refuse if it is another's."""
    folder.mkdir(parents=True, exist_ok=True)
    check_owner(folder, query, setting=setting)
    write_once(folder / OWNER, json.dumps({"schema": 1, "query": query}))
    check_owner(folder, query, setting=setting)  # a second driver may have been quicker


def check_owner(folder: Path, query: str | None, *, setting: str) -> None:
    """Refuse a folder with batches of another query. None is a checkpoint that has not begun yet."""
    owner = owner_of(folder)
    if owner is None:
        if folder.is_dir() and any(not entry.name.startswith(".") for entry in folder.iterdir()):
            raise Misconfigured(setting, f"{folder} holds something else than batches: name a new folder")
    elif owner != query:
        mine = "is new" if query is None else f"is of query {query}"
        raise Misconfigured(
            setting,
            f"{folder} holds batches of query {owner}, but the checkpoint {mine}, and counts its batches "
            "differently: name a new folder, or go back to the checkpoint that the folder was written with",
        )


def owner_of(folder: Path) -> str | None:
    """The query whose batches lie here; None where there are none yet."""
    try:
        return str(json.loads((folder / OWNER).read_bytes())["query"])
    except FileNotFoundError:
        return None


def sweep(folder: Path) -> None:
    """Remove what drivers that were killed have left."""
    for pattern in LEFT_OVER:
        for left in folder.glob(pattern):
            shutil.rmtree(left, ignore_errors=True)
            left.unlink(missing_ok=True)


def publish(draft: Path, batch: int, *, setting: str) -> None:
    """Let the draft be the batch, in place of what an earlier run of it has written."""
    folder = draft.parent
    if not any(draft.glob("*.parquet")):
        raise Misconfigured(
            setting,
            f"nothing of batch {batch} has arrived in {folder}: the executors have written it elsewhere; "
            "name a folder that they share with the driver",
        )
    final = folder / f"batch={batch}"
    while True:
        if (folder / f"batch={batch + 1}").exists():
            raise Unsafe(
                f"{setting}: batch {batch + 1} lies in {folder} already, while batch {batch} is written: "
                "another driver runs the same query, which goes on, or the checkpoint was set back; then "
                f"delete batch={batch} and all later ones"
            )
        aside = folder / f".replaced-{batch}-{uuid.uuid4().hex}"
        with suppress(FileNotFoundError):  # the usual case: it is the first run
            final.rename(aside)
        try:
            draft.rename(final)
        except OSError:
            if not final.exists():  # else: another driver was between our two steps
                raise
            continue
        finally:
            shutil.rmtree(aside, ignore_errors=True)
        return


def read_batches(folder: str | Path) -> Iterator[tuple[int, pa.Table]]:
    """What has come out so far: number and records of each batch, in order."""
    import pyarrow.parquet as pq

    found = {
        int(match[1]): path for path in Path(folder).glob("batch=*") if (match := BATCH.fullmatch(path.name))
    }
    for batch, path in sorted(found.items()):
        yield batch, pq.read_table(path, partitioning=None)
