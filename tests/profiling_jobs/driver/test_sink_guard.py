"""What a profiling copy may read and write."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import pytest

from models.errors import HeadroomError, Misconfigured, Unsafe
from models.ports import Plan, Script
from profiling_jobs.driver.batch_files import BatchFiles
from profiling_jobs.driver.sink_guard import (
    Limits,
    _check_loads,
    _check_starts,
    _watch_functions,
    described,
    watch_options,
)

pytestmark = pytest.mark.fast

COPY = Plan(
    name="orders-copy",
    job="orders",
    role="profile",
    program=Script("job.py"),
    scale_out=1,
    inputs={"events": "scratch-in"},
    outputs={"alerts": "scratch-out", "files": "files:/data/given"},
    checkpoint="/data/copy",
)
LIMITS = Limits(COPY, "h:1,h:2", "/data/scratch")
KAFKA = {"topic": "scratch-out", "kafka.bootstrap.servers": "h:2,h:1", "checkpointlocation": "/data/copy"}
LIVE = Limits(replace(COPY, role="live"), "h:1", "/data/scratch")
HERE = {**KAFKA, "kafka.bootstrap.servers": "h:1"}
DECLARED = Limits(replace(COPY, side_effects="none"), "h:1", "/data/scratch")


@pytest.mark.parametrize(
    ("form", "options"),
    [
        ("kafka", KAFKA),
        ("KAFKA", {**KAFKA, "checkpointlocation": "file:///data/copy/one-of-two"}),
        ("console", {}),
        ("noop", {"checkpointlocation": "/data/copy"}),
        ("parquet", {"path": "/data/scratch/alerts", "checkpointlocation": "/data/copy"}),
    ],
)
def test_scratch_is_allowed(form: str, options: dict[str, str]) -> None:
    LIMITS.check_write(form, options)


@pytest.mark.parametrize(
    ("form", "change", "key"),
    [
        ("kafka", {"topic": "alerts"}, "job.orders.outputs.*'alerts'"),
        ("kafka", {"topic": None}, "job.orders.outputs.*column"),
        ("kafka", {"kafka.bootstrap.servers": "elsewhere:1"}, "brokers.bootstrap"),
        ("kafka", {"kafka.bootstrap.servers": None}, "brokers.bootstrap"),
        ("kafka", {"checkpointlocation": "/data/live"}, "job.orders.checkpoint"),
        ("kafka", {"checkpointlocation": "/data/copy/../live"}, "job.orders.checkpoint"),
        ("kafka", {"checkpointlocation": None}, "job.orders.checkpoint"),
        ("parquet", {"path": "/warehouse/alerts"}, "job.orders.outputs.*warehouse"),
        ("parquet", {"path": "/data/scratch/../live"}, "job.orders.outputs"),
        ("parquet", {"path": None}, "job.orders.outputs"),
        ("delta", {}, "profiling_side_effects"),
        ("jdbc", {}, "profiling_side_effects"),
    ],
)
def test_everything_else_is_refused_with_the_setting_to_change(
    form: str, change: dict[str, str | None], key: str
) -> None:
    options = {name: value for name, value in {**KAFKA, **change}.items() if value is not None}
    with pytest.raises(HeadroomError, match=key):
        LIMITS.check_write(form, options)


def test_a_function_of_the_script_cannot_be_judged_unless_declared_harmless() -> None:
    with pytest.raises(Unsafe, match=r"foreachBatch.*job\.orders.profiling_side_effects"):
        LIMITS.check_write("parquet", KAFKA, function="foreachBatch")
    DECLARED.check_write("parquet", KAFKA, function="foreachBatch")
    DECLARED.check_write("delta", KAFKA)
    DECLARED.check_write("kafka", {name: value for name, value in HERE.items() if name != "topic"})
    LIVE.check_write("parquet", KAFKA, function="foreachBatch")


def test_what_can_be_judged_is_judged_whatever_is_declared() -> None:
    DECLARED.check_write("kafka", HERE)
    DECLARED.check_write("parquet", {"path": "/data/scratch/alerts", "checkpointlocation": "/data/copy"})
    with pytest.raises(Unsafe, match=r"job\.orders\.outputs.*'alerts'"):
        DECLARED.check_write("kafka", {**HERE, "topic": "alerts"})
    with pytest.raises(Unsafe, match=r"brokers\.bootstrap.*elsewhere:1"):
        DECLARED.check_write("kafka", {**HERE, "kafka.bootstrap.servers": "elsewhere:1"})
    with pytest.raises(Unsafe, match=r"job\.orders\.outputs.*warehouse"):
        DECLARED.check_write("parquet", {**HERE, "path": "/warehouse/alerts"})


def test_what_is_trusted_is_said() -> None:
    assert "checked at every DataStreamWriter.start" in described(COPY)
    assert "trusted: whatever" in described(COPY)
    assert "declared" in described(DECLARED.plan)
    assert "every DataStreamWriter.start" not in described(DECLARED.plan)


@pytest.mark.parametrize("limits", [LIMITS, LIVE, DECLARED])
def test_the_declared_checkpoint_is_asked_of_everybody(limits: Limits) -> None:
    with pytest.raises(Unsafe, match=r"job\.orders\.checkpoint.*/data/other"):
        limits.check_write("kafka", {**KAFKA, "checkpointlocation": "/data/other"})
    with pytest.raises(Misconfigured, match="no checkpointLocation"):
        limits.check_write("kafka", {"topic": "scratch-out"})


@pytest.mark.parametrize(
    ("options", "key"),
    [
        ({"subscribe": "orders"}, "job.orders.inputs.*orders"),
        ({"subscribe": "scratch-in,orders"}, "job.orders.inputs"),
        ({"subscribepattern": ".*"}, "job.orders.inputs.*by itself"),
        ({"assign": '{"orders":[0]}'}, "job.orders.inputs"),
        ({"subscribe": "scratch-in", "kafka.group.id": "headroom.orders"}, "headroom.orders"),
        ({"subscribe": "scratch-in", "groupidprefix": "billing"}, "billing"),
    ],
)
def test_a_copy_reads_its_own_topics_in_no_foreign_group(options: dict[str, str], key: str) -> None:
    with pytest.raises(Unsafe, match=key):
        LIMITS.check_read("kafka", options)
    LIVE.check_read("kafka", options)


def test_a_copy_may_read_what_it_was_given() -> None:
    LIMITS.check_read("kafka", {"subscribe": " scratch-in ", "kafka.group.id": "headroom.orders-copy.x"})
    LIMITS.check_read("rate", {})


@pytest.mark.parametrize(
    ("declared", "found", "told"),
    [
        (2000, "2000", None),
        (None, None, None),
        (2000, "many", None),
        (2000, "500", "is 2000, but the program reads at most 500 .*: set it to 500"),
        (2000, None, "is 2000, but the program does not limit its batches: remove the key"),
        (None, "500", "is not set, but .*: set it to 500"),
    ],
)
def test_a_copy_reads_batches_as_large_as_declared(
    declared: int | None, found: str | None, told: str | None
) -> None:
    """Predictions step batches of the declared size: other ones recover in another time."""
    options = {"subscribe": "scratch-in", **({} if found is None else {"maxoffsetspertrigger": found})}
    plan = replace(COPY, max_offsets_per_trigger=declared)
    with pytest.raises(Misconfigured, match=told) if told else nullcontext():
        replace(LIMITS, plan=plan).check_read("kafka", options)
    replace(LIVE, plan=replace(plan, role="live")).check_read("kafka", options)


class Stream:
    """As much of Spark's reader and writer as is looked over."""

    def __init__(self) -> None:
        self.done: list[Any] = []

    def option(self, key: str, value: Any) -> Stream:
        return self

    def options(self, **options: Any) -> Stream:
        return self

    def format(self, source: str) -> Stream:
        return self

    def foreach(self, f: Any) -> Stream:
        return self

    def foreachBatch(self, func: Any) -> Stream:
        return self

    def trigger(self, *, processingTime: str | None = None, availableNow: bool | None = None) -> Stream:
        return self

    def start(self, path: Any = None, format: Any = None, *more: Any, **options: Any) -> str:
        return "started"

    def toTable(self, tableName: str, **options: Any) -> str:
        return "started"

    def load(self, path: Any = None, format: Any = None, schema: Any = None, **options: Any) -> str:
        return "loaded"


@pytest.fixture
def stream() -> Stream:
    return watched(LIMITS)


def watched(limits: Limits) -> Stream:
    kind = type("Watched", (Stream,), {})
    for name, method in vars(Stream).items():
        if not name.startswith("_"):
            setattr(kind, name, method)
    watch_options(kind)
    _watch_functions(kind)
    _check_starts(kind, limits)
    _check_loads(kind, LIMITS)
    return kind()


def test_options_count_however_they_are_given(stream: Stream) -> None:
    writer = (
        stream.format("kafka")
        .option("TOPIC", "scratch-out")
        .options(**{"kafka.bootstrap.servers": "h:1,h:2"})
    )
    assert writer.start(checkpointLocation="/data/copy") == "started"
    with pytest.raises(Unsafe, match="'alerts'"):
        writer.start(checkpointLocation="/data/copy", topic="alerts")
    with pytest.raises(Unsafe, match="jdbc"):
        writer.start(None, "jdbc", checkpointLocation="/data/copy")


def test_a_path_in_start_counts(stream: Stream) -> None:
    assert stream.start("/data/scratch/a", checkpointLocation="/data/copy", queryName="q") == "started"
    with pytest.raises(Unsafe, match="/warehouse"):
        stream.start("/warehouse", checkpointLocation="/data/copy")


@pytest.mark.parametrize(
    ("declared_s", "trigger", "refused"),
    [
        (0.0, {}, ""),
        (0.0, {"processingTime": "0 seconds"}, ""),
        (90.0, {"processingTime": "1 minute 30 seconds"}, ""),
        (0.25, {"processingTime": "interval 250 milliseconds"}, ""),
        (
            0.0,
            {"processingTime": "1 second"},
            "trigger_s: is 0, but the query is triggered every 1 s: set it to 1",
        ),
        (5.0, {}, "trigger_s: is 5, but the query has no trigger interval: set it to 0"),
        (5.0, {"processingTime": "PT5S"}, ""),  # a spelling that is not known is not judged
        (5.0, {"availableNow": True}, ""),
    ],
)
def test_a_copy_has_the_trigger_interval_that_was_declared(
    declared_s: float, trigger: dict[str, Any], refused: str
) -> None:
    writer = watched(replace(LIMITS, plan=replace(COPY, trigger_s=declared_s))).format("noop")
    if trigger:
        writer = writer.trigger(**trigger)
    live = watched(replace(LIVE, plan=replace(LIVE.plan, trigger_s=declared_s))).format("noop")
    assert (live.trigger(**trigger) if trigger else live).start() == "started", "it runs already"
    with pytest.raises(Misconfigured, match=refused) if refused else nullcontext():
        assert writer.start() == "started"


def test_functions_and_tables_are_noticed(stream: Stream) -> None:
    with pytest.raises(Unsafe, match="toTable"):
        stream.toTable("orders", checkpointLocation="/data/copy")
    with pytest.raises(Unsafe, match="foreachBatch"):
        stream.format("noop").foreachBatch(print).start(checkpointLocation="/data/copy")
    with pytest.raises(Unsafe, match="foreach"):
        stream.foreach(print).start(checkpointLocation="/data/copy")


@pytest.mark.parametrize("folder", ["/data/scratch/alerts", "/data/given/deeper"])
def test_our_own_sink_may_write_where_the_copy_may(stream: Stream, folder: str) -> None:
    writer = stream.foreachBatch(BatchFiles(folder))
    assert writer.start(checkpointLocation="/data/copy") == "started"


@pytest.mark.parametrize("folder", ["/warehouse/alerts", "/data/scratch/../live", "/data/givenness"])
def test_our_own_sink_is_kept_to_the_scratch_folders(stream: Stream, folder: str) -> None:
    writer = stream.foreachBatch(BatchFiles(folder)).option("path", "/data/scratch")
    with pytest.raises(Unsafe, match=rf"job\.orders\.outputs.*{folder}"):
        writer.start(checkpointLocation="/data/copy")
    with pytest.raises(Unsafe, match="outputs"):
        writer.start("/data/scratch", checkpointLocation="/data/copy")


def test_what_only_looks_like_our_own_sink_cannot_be_judged(stream: Stream) -> None:
    class Mine(BatchFiles):
        pass

    harmless = BatchFiles("/data/scratch")
    for sink in (Mine("/data/scratch"), harmless.__call__):
        with pytest.raises(Unsafe, match="profiling_side_effects"):
            stream.foreachBatch(harmless).foreachBatch(sink).start(checkpointLocation="/data/copy")


def test_reads_are_looked_over(stream: Stream) -> None:
    assert stream.format("kafka").option("subscribe", "scratch-in").load() == "loaded"
    with pytest.raises(Unsafe, match="orders"):
        stream.load(format="kafka", subscribe="orders")
