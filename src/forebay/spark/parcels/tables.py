"""Rows into a table of Spark, before their parcels are completed: at least once.

A worker that is killed between the two leaves rows that come again with the parcel. Two ways make that harmless:
`did` among the columns, by which a reader can tell repeats; and, for files, `partitionBy: [did, …]`, where the folder
of each parcel is replaced when its rows come again, so that they are there once.

Files in a file system of the driver's machine are written beside the table and moved into it whole (`exact_files`), so
that a reader never sees half of what a killed job has written.
"""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import DataFrame, DataFrameWriter

from forebay.flows.definition import Table
from forebay.spark.exact_files import FORMATS, exact_root, publish
from forebay.spark.record_sides import DID


def write_table(frame: DataFrame, table: Table, lease_id: str) -> None:
    """Append the rows."""
    if is_replaced(table):
        _save(_writer(frame, table).option("partitionOverwriteMode", "dynamic").mode("overwrite"), table)
        return
    root = exact_root(frame.sparkSession, table)
    if root is None:
        _save(_writer(frame, table).mode("append"), table)
        return

    def write(folder: Path) -> None:
        _writer(frame, table).save(str(folder))

    # Each lease is a query of its own with one batch: what a killed one left is never published.
    publish(root, lease_id, 0, write, is_last=True)


def is_replaced(table: Table) -> bool:
    """Whether rows of a parcel take the place of those that were written for it before."""
    return DID in table.partition_by and table.format.lower() in FORMATS


def _writer(frame: DataFrame, table: Table) -> DataFrameWriter:
    writer = frame.write.format(table.format).options(**table.options)
    return writer.partitionBy(*table.partition_by) if table.partition_by else writer


def _save(writer: DataFrameWriter, table: Table) -> None:
    if table.path is not None:
        writer.save(table.path)
    else:
        writer.saveAsTable(table.name or "")
