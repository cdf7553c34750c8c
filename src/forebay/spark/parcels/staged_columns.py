"""The columns that the staging wants, of messages and of counts.

As SQL and not as `Column`s: each call on one of those is a trip to Java and back, and a lease would make hundreds.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import DataFrame

from forebay.spark.outgoing import PAYLOAD
from forebay.spark.packing import OPTIONAL
from forebay.spark.parcels.staging import NAMES
from forebay.spark.record_sides import DID


def as_staged(messages: DataFrame, target: int, is_text: bool) -> DataFrame:
    """The columns that the staging wants."""
    names = messages.columns
    found = {name: f"`{name}`" for name in (*OPTIONAL, DID) if name in names}
    found["text" if is_text else "bytes"] = f"`{PAYLOAD}`"
    return _in_order(messages, str(target), found, "CAST(NULL AS BIGINT)")


def as_counts(sides: DataFrame, target: str) -> DataFrame:
    """Filtered records and annotations, as the staging wants them. `target` is SQL."""
    found = {"did": DID if DID in sides.columns else "NULL", "note": "text"}
    return _in_order(sides, target, found, "count")


def _in_order(frame: DataFrame, target: str, found: Mapping[str, str], count: str) -> DataFrame:
    kinds = {"bytes": "BINARY"}
    columns = [f"CAST({found.get(name, 'NULL')} AS {kinds.get(name, 'STRING')}) AS `{name}`" for name in NAMES[1:-1]]
    return frame.selectExpr(f"{target} AS target", *columns, f"{count} AS count")
