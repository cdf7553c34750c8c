"""What `forebay flows check` finds beyond what a plan can tell: the flow is started over a stream without messages.

Spark judges only when a query starts whether its plan can be a stream at all (a sum without a watermark), and whether
format, output mode and partitions of a table go together. So it is started, into an empty folder and with a checkpoint
that is thrown away. No request is made to a server, and nothing of the flow's own is touched.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from forebay.flows.definition import Flow, TableSink, source_options
from forebay.spark.flow_plan import DoesNotCompile, cause_text, compiled_on

QUERY_SECONDS_MAX = 60


def check_flow(spark: SparkSession, flow: Flow) -> None:
    """Raise DoesNotCompile with what a worker would find."""
    with tempfile.TemporaryDirectory(prefix="forebay-check-") as scratch:
        output, bad = compiled_on(spark, flow, lambda: _empty_stream(spark, flow, Path(scratch) / "input"))
        _started("sink", lambda: _query(output, flow, Path(scratch)))
        if bad is not None:
            _started("source", lambda: _into_nowhere(bad, Path(scratch) / "errors-checkpoint"))


def _empty_stream(spark: SparkSession, flow: Flow, folder: Path) -> DataFrame:
    """The columns of a queue, and no message."""
    folder.mkdir(exist_ok=True)
    schema = spark.readStream.format("forebay").options(**source_options(flow)).load().schema
    return spark.readStream.schema(schema).parquet(str(folder))


def _query(output: DataFrame, flow: Flow, scratch: Path) -> StreamingQuery:
    checkpoint = scratch / "checkpoint"
    [sink] = flow.all_sinks
    if not isinstance(sink, TableSink):
        return _into_nowhere(output, checkpoint)
    table = sink.table
    if table.path is None:
        # A table of the catalogue cannot be tried without making it.
        return _into_nowhere(output, checkpoint, table.mode)
    writer = output.writeStream.format(table.format).outputMode(table.mode).options(**table.options)
    if table.partition_by:
        writer = writer.partitionBy(*table.partition_by)
    writer = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
    return writer.start(str(scratch / "table"))


def _into_nowhere(output: DataFrame, checkpoint: Path, mode: str = "append") -> StreamingQuery:
    writer = output.writeStream.format("noop").outputMode(mode).option("checkpointLocation", str(checkpoint))
    return writer.trigger(availableNow=True).start()


def _started(key: str, start: Callable[[], StreamingQuery]) -> None:
    try:
        query = start()
        query.awaitTermination(QUERY_SECONDS_MAX)
        query.stop()
    except Exception as fault:
        raise DoesNotCompile(key, cause_text(fault)) from fault
