"""What `forebay flows check` finds of a flow on parcels beyond what a plan can tell.

Whether a table's format is there, and whether its partitions and options go with it and with the columns, Spark judges
when it writes. So every table is written with no rows into a folder that is thrown away. No server is needed for
anything, and nothing of the flow's own is touched.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from msgspec.structs import replace
from pyspark.sql import DataFrame, SparkSession

from forebay.flows.definition import Flow, Table, TableSink
from forebay.spark.flow_plan import DoesNotCompile, cause_text
from forebay.spark.parcels.chain_plan import ChainPlan
from forebay.spark.parcels.known_flows import compiled_chains
from forebay.spark.parcels.messages import message_columns
from forebay.spark.parcels.tables import write_table


def check_parcel_flow(spark: SparkSession, flow: Flow) -> None:
    """Raise DoesNotCompile with what a worker would find."""
    last = compiled_chains(spark, flow)[-1]
    if not any(isinstance(sink, TableSink) for sink in flow.all_sinks):
        return
    nothing = spark.createDataFrame([], message_columns())
    with ChainPlan(spark, last.chain, nothing, row_schema=last.row_schema) as plan:
        for sink, frame in plan.tables:
            key = "sink" if flow.sink is not None else f"sinks.{flow.all_sinks.index(sink)}"
            _write_nothing(key, frame, sink.table)


def _write_nothing(key: str, frame: DataFrame, table: Table) -> None:
    if table.path is None:
        return  # one of the catalogue cannot be tried without making it
    with tempfile.TemporaryDirectory(prefix="forebay-check-") as scratch:
        try:
            write_table(frame, replace(table, path=str(Path(scratch) / "table")), "check")
        except Exception as fault:
            raise DoesNotCompile(key, cause_text(fault)) from fault
