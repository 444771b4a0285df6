"""Kafka as a job sees it, by names of its own: `topics.read("events")`, `topics.write("alerts", frame)`.

The deployment sets topics, brokers, the largest batch, the trigger and the checkpoint, so that the same
function runs as the live job and as a profiling copy.

    def build(spark, topics):
        events = topics.read("events")                  # Kafka's own columns: key, value, timestamp, …
        return topics.write("alerts", events.selectExpr("key", "upper(cast(value as string)) as value"))
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from models.errors import Misconfigured
from models.ports import Plan

from .brokers import Brokers
from .driver.batch_files import BatchFiles
from .plans import FILES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import DataStreamWriter


class Topics:
    """The topics of one deployment, by the job's names for them."""

    def __init__(self, spark: SparkSession, plan: Plan, brokers: Brokers) -> None:
        self._spark = spark
        self._plan = plan
        self._brokers = brokers

    def read(self, name: str, **options: str) -> DataFrame:
        """A stream of Kafka records: key, value, topic, partition, offset, timestamp.

        A new checkpoint begins at the earliest record. `options` are the Kafka source's own and come last.
        """
        stream = self._spark.readStream.format("kafka").options(**self._brokers.spark())
        stream = stream.option("subscribe", self._topic(self._plan.inputs, "inputs", name))
        stream = stream.option("startingOffsets", "earliest")
        if self._plan.max_offsets_per_trigger is not None:
            stream = stream.option("maxOffsetsPerTrigger", self._plan.max_offsets_per_trigger)
        return stream.options(**options).load()

    def write(
        self, name: str, frame: DataFrame, *, output_mode: str = "append", **options: Any
    ) -> DataStreamWriter:
        """A configured sink, not yet started. The frame has a column `value` and may have `key`.

        To a topic at least once; to an output `files:FOLDER` exactly once (batch_files.py).
        """
        if "value" not in frame.columns:
            raise Misconfigured(
                f"job.{self._plan.job}.build",
                f"writes {frame.columns} to '{name}': Kafka wants a column `value`",
            )
        output = self.output(name)
        if output.startswith(FILES):
            setting = f"job.{self._plan.job}.outputs.{name}"
            writer = frame.writeStream.foreachBatch(BatchFiles(output.removeprefix(FILES), setting=setting))
        else:
            writer = frame.writeStream.format("kafka").options(**self._brokers.spark())
            writer = writer.option("topic", output)
        return self.configured(writer, output_mode=output_mode, **options)

    def configured(
        self, writer: DataStreamWriter, *, output_mode: str = "append", **options: Any
    ) -> DataStreamWriter:
        """Any other sink with the deployment's checkpoint, trigger and query name."""
        return (
            writer.options(**options)
            .option("checkpointLocation", self._plan.checkpoint)
            .queryName(self._plan.name)
            .outputMode(output_mode)
            .trigger(processingTime=f"{round(self._plan.trigger_s * 1000)} milliseconds")
        )

    def output(self, name: str) -> str:
        """Where an output goes: for sinks that are not Kafka."""
        return self._topic(self._plan.outputs, "outputs", name)

    def _topic(self, topics: Any, setting: str, name: str) -> str:
        if name not in topics:
            known = ", ".join(topics) or "none"
            raise Misconfigured(
                f"job.{self._plan.job}.{setting}", f"the job asks for '{name}', there is {known}: add it"
            )
        return str(topics[name])
