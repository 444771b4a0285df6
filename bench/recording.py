"""Speed of a recording: at 50 000 records a second on two cores, and at most.

Kafka's own producer writes at that rate while it is being recorded on the same machine. How far behind it is
shows when the stated time is over: it ends a slice later, or much later.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterable

from pipelines.environments.local.tasks import LocalTask
from pipelines.environments.replay import record
from profiling_jobs.recording.recorded import Recorded
from profiling_jobs.recording.recorder import Request

from . import Figure
from ._local_kafka import kafka, missing_java, producer

RATE_RPS = 50_000
SECONDS = 20
HEAD_START_S = 10  # of the producer, so that it is at its rate when the recording begins


def measure() -> Iterable[Figure]:
    if missing_java("recording"):
        return
    with kafka({"live": {"message.timestamp.type": "LogAppendTime"}}) as (owner, brokers):
        records = RATE_RPS * (SECONDS + 2 * HEAD_START_S)
        command = producer(brokers, "live", records=records, bytes_each=100, rate_rps=RATE_RPS)
        live = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        try:
            task = LocalTask(owner, "recording.bench")
            request = Request("live", owner.folder / "recording", duration_s=float(SECONDS))
            record(task, request, brokers, timeout_s=150.0)
            over_s = time.time()
        finally:
            live.terminate()
            live.wait()
        kept = Recorded.read(owner.folder / "recording")
        rate = kept.rate_rps()
        # The same again, of what lies there: as fast as it can.
        began_s = time.time()
        again = record(
            task,
            Request("live", owner.folder / "again", float(SECONDS), from_s=kept.from_s),
            brokers,
            timeout_s=150.0,
        )
        first = (again.folder / "recording.json").stat().st_mtime
        at_most_rps = again.records / (time.time() - first)
    assert isinstance(rate, tuple), rate
    yield Figure("arrival rate that was recorded", float(rate[1].mean()), "records/s")
    yield Figure("still recording after the stated time was over", over_s - kept.until_s, "s", at_most=10.0)
    yield Figure("records kept of those in the topic", kept.records / float(rate[1].sum()), "", at_least=1.0)
    yield Figure("recording at most, from a backlog", at_most_rps, "records/s", at_least=50_000)
    yield Figure("start of the recording until its first question", first - began_s, "s")
    yield Figure("Parquet on the disk per record of 100 bytes", kept.bytes / kept.records, "bytes")
    yield Figure(
        "load of the machine meanwhile (per processor)", os.getloadavg()[0] / (os.cpu_count() or 1), ""
    )
