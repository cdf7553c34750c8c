"""Rows from one chain to the next: JSON in an internal queue, read again with the columns that they had.

A type for which JSON has no words is refused when the flow is checked.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f
from pyspark.sql.types import ArrayType, DataType, MapType, StringType, StructType

from forebay.errors import Permanent
from forebay.spark.message_marks import HIDDEN, unmarked_schema
from forebay.spark.outgoing import PAYLOAD, column
from forebay.spark.record_sides import DID

_WRITTEN = {
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}
_READ = {**_WRITTEN, "mode": "FAILFAST"}
_NO_JSON = frozenset({"variant", "void", "udt", "geometry", "geography", "time", "calendar_interval"})


def handed_on(frame: DataFrame) -> DataFrame:
    """Messages for the next chain, with `did` beside them. Raises Permanent for columns that it cannot have."""
    if DID not in frame.columns:
        raise Permanent(
            f"column {DID!r} is missing in front of an action that stands by itself: it says whose a row is",
            remedy=f"Keep it in the SELECT: `SELECT {DID}, …`",
        )
    refuse_without_json(row_schema_of(frame))
    others: list[Column] = [column(name) for name in frame.columns if name != DID]
    return frame.select(f.to_json(f.struct(*others), _WRITTEN).alias(PAYLOAD), DID)


def row_schema_of(frame: DataFrame) -> StructType:
    """The columns that the next chain gets, beside `did`."""
    return unmarked_schema(StructType([field for field in frame.schema.fields if field.name != DID]))


def refuse_without_json(kind: DataType, path: str = "") -> None:
    """Raise Permanent for columns whose values JSON cannot carry."""
    if isinstance(kind, StructType):
        for inner in kind.fields:
            refuse_without_json(inner.dataType, f"{path}.{inner.name}" if path else inner.name)
    elif isinstance(kind, ArrayType):
        refuse_without_json(kind.elementType, path)
    elif isinstance(kind, MapType):
        if not isinstance(kind.keyType, StringType):
            raise Permanent(f"column {path} is {kind.simpleString()}: keys have to be strings to be handed on")
        refuse_without_json(kind.valueType, path)
    elif kind.typeName() in _NO_JSON or "interval" in kind.typeName():
        raise Permanent(f"column {path} is {kind.simpleString()}, which cannot be handed on to another chain")


def rows_of(messages: DataFrame, schema: StructType) -> DataFrame:
    """Rows that the chain before handed on; hidden columns of `message_marks` stay beside them."""
    row = f.from_json(f.col(PAYLOAD).cast("string"), schema, _READ).alias("_forebay_row")
    kept = [DID, *[name for name in HIDDEN if name in messages.columns]]
    return messages.select(*kept, row).select(*kept, "_forebay_row.*")
