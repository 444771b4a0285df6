"""Recordings of simulated topics: as many records as arrived, at the moments they did.

Keys and values are empty, offsets and timestamps are exact.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from models.ports import Broker
from profiling_jobs.recording.recorder import Copy, Ends

from .time import SharedCluster


class TopicOffsets:
    """The offsets of one topic of the simulated broker, as a recorder asks for them."""

    def __init__(self, broker: Broker, topic: str) -> None:
        self._broker, self._topic = broker, topic

    def starts(self) -> dict[int, int]:
        return {part: at for (_, part), at in self._broker.starts([self._topic]).items()}

    def ends(self) -> dict[int, int]:
        return {part: at for (_, part), at in self._broker.ends([self._topic]).items()}

    def at(self, at_s: float) -> dict[int, int]:
        return {part: at for (_, part), at in self._broker.offsets_at(self._topic, at_s).items()}


def copier(cluster: SharedCluster, topic: str) -> Copy:
    """What writes a range of offsets into a folder that is not there yet."""

    def copy(starts: Ends, ends: Ends, target: Path) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        with cluster.turn:
            found, now_s = cluster.topics[topic], cluster.now_s
            times_s = np.asarray([*found.times_s, now_s])
            reached = np.asarray([*found.ends, found.reached(now_s)])
        parts, offsets, arrived = [], [], []
        for part, start in starts.items():
            own = np.arange(start, ends[part])
            parts.append(np.full(own.size, part, dtype=np.int32))
            offsets.append(own)
            arrived.append(np.interp(own + 1.0, reached[:, part], times_s))
        micros = (np.concatenate(arrived) * 1e6).astype(np.int64)
        empty = pa.array([b""] * micros.size, type=pa.binary())
        table = pa.table(
            {
                "key": empty,
                "value": empty,
                "timestamp": pa.array(micros, type=pa.timestamp("us", tz="UTC")),
                "partition": np.concatenate(parts),
                "offset": np.concatenate(offsets),
            }
        )
        target.mkdir(parents=True)
        pq.write_table(table, target / "part-0.parquet")

    return copy
