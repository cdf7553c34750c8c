"""Which columns of a frame become what of a message, and packing other columns as JSON.

`payload` (binary or string) must be there, `partition`, `transaction_id`, `trace_id` and `headers` (strings) may be.
With `payloadAs=json` all columns but those four become the payload, one JSON object per row, without the fields that
are null. Spark's own `to_json(struct(*))` does the same in the JVM and is faster; this is for when there is no place
for it.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable
from datetime import UTC, date, datetime
from math import isfinite
from typing import Any

import pyarrow as pa
from pyspark.sql import types as spark_types
from pyspark.sql.types import ArrayType, BinaryType, DataType, StringType, StructType

from forebay.errors import Permanent

OPTIONAL = ("partition", "transaction_id", "trace_id", "headers")
_READ_ONLY = ("seq", "created_at")
_PACKED = (
    spark_types.BooleanType,
    spark_types.ByteType,
    spark_types.ShortType,
    spark_types.IntegerType,
    spark_types.LongType,
    spark_types.FloatType,
    spark_types.DoubleType,
    StringType,
    BinaryType,
    spark_types.DateType,
    spark_types.TimestampType,
    spark_types.NullType,
)

Packing = Callable[[pa.RecordBatch], pa.RecordBatch]


def packing(schema: StructType, payload_as: str | None) -> Packing:
    """What turns a batch of the frame into one of messages; refuses columns that have no place in a message."""
    kinds = {field.name: field.dataType for field in schema}
    wrong = [f"{name} is {kinds[name].simpleString()}, not string" for name in OPTIONAL if _is_other(kinds.get(name))]
    if payload_as == "json":
        packed = [name for name in kinds if name not in OPTIONAL]
        wrong += [f"{name} is {kinds[name].simpleString()}" for name in packed if not _is_packed(kinds[name])]
        if wrong:
            raise Permanent(f"these columns cannot be packed as JSON: {'; '.join(wrong)}", remedy="Use to_json")
        return Packer([name for name in OPTIONAL if name in kinds], packed)
    unknown = [name for name in kinds if name not in ("payload", *OPTIONAL)]
    if "payload" not in kinds:
        wrong.append("payload is missing")
    elif not isinstance(kinds["payload"], (BinaryType, StringType)):
        wrong.append(f"payload is {kinds['payload'].simpleString()}, not binary or string")
    if unknown:
        wrong.append(f"{', '.join(unknown)} {'has' if len(unknown) == 1 else 'have'} no place in a message")
    if wrong:
        raise Permanent(
            f"the columns of a message are payload, {', '.join(OPTIONAL)}; but {'; '.join(wrong)}",
            remedy=_advice(unknown, "payload" in kinds),
        )
    return Chooser(list(kinds))


def _advice(unknown: list[str], has_payload: bool) -> str:
    if has_payload and unknown and set(unknown) <= set(_READ_ONLY):
        return f"Leave out what the new queue gives anew: .drop({', '.join(repr(name) for name in unknown)})"
    return 'Pack what belongs to the payload: .selectExpr("to_json(struct(*)) AS payload"), or set payloadAs=json'


def _is_other(kind: DataType | None) -> bool:
    return kind is not None and not isinstance(kind, StringType)


def _is_packed(kind: DataType) -> bool:
    if isinstance(kind, ArrayType):
        return _is_packed(kind.elementType)
    if isinstance(kind, StructType):
        return all(_is_packed(field.dataType) for field in kind)
    return isinstance(kind, _PACKED)


class Chooser:
    """The columns as they are; Spark's large types, if it was set to use them, as plain ones."""

    def __init__(self, names: list[str]) -> None:
        self._names = names

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays([_plain(batch.column(name)) for name in self._names], names=self._names)


class Packer:
    """The message's own columns as they are, all others as one JSON object."""

    def __init__(self, own: list[str], packed: list[str]) -> None:
        self._own = own
        self._packed = packed

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        rows = batch.select(self._packed).to_pylist()
        payloads = pa.array([json.dumps(json_value(row), separators=(",", ":")) for row in rows], pa.string())
        own = [_plain(batch.column(name)) for name in self._own]
        return pa.RecordBatch.from_arrays([payloads, *own], names=["payload", *self._own])


def _plain(column: pa.Array) -> pa.Array:
    if pa.types.is_large_string(column.type):
        return column.cast(pa.string())
    return column.cast(pa.binary()) if pa.types.is_large_binary(column.type) else column


def json_value(value: Any) -> Any:
    """A value in JSON's terms, as Spark's to_json has it where that is JSON: a number that is none becomes null."""
    if isinstance(value, dict):
        return {name: json_value(inner) for name, inner in value.items() if inner is not None}
    if isinstance(value, list):
        return [json_value(inner) for inner in value]
    if isinstance(value, datetime):
        zoned = value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
        return zoned.isoformat(timespec="microseconds").replace("+00:00", "Z")
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, bytes):
        return b64encode(value).decode()
    if isinstance(value, float) and not isfinite(value):
        return None
    return value
