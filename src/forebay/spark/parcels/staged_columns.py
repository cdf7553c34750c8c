"""The columns that the staging wants, of messages and of counts."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from forebay.spark.outgoing import PAYLOAD, column
from forebay.spark.packing import OPTIONAL
from forebay.spark.parcels.staging import NAMES
from forebay.spark.record_sides import DID


def as_staged(messages: DataFrame, target: int, is_text: bool) -> DataFrame:
    """The columns that the staging wants."""
    found = {name: column(name) for name in (*OPTIONAL, DID) if name in messages.columns}
    found["text" if is_text else "bytes"] = column(PAYLOAD)
    return _in_order(messages, f.lit(target), found, f.lit(None).cast("bigint"))


def as_counts(sides: DataFrame, target: Column) -> DataFrame:
    """Filtered records and annotations, as the staging wants them."""
    found = {"did": f.col(DID) if DID in sides.columns else f.lit(None), "note": f.col("text")}
    return _in_order(sides, target, found, f.col("count"))


def _in_order(frame: DataFrame, target: Column, found: Mapping[str, Column], count: Column) -> DataFrame:
    names = NAMES[1:-1]
    kinds = {"bytes": "binary"}
    columns = [found.get(name, f.lit(None)).cast(kinds.get(name, "string")).alias(name) for name in names]
    return frame.select(target.alias("target"), *columns, count.alias("count"))
