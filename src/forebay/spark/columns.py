"""The columns of a message in Spark, and how the server's batches become exactly them.

    seq BIGINT, partition STRING, transaction_id STRING, trace_id STRING, headers STRING, created_at TIMESTAMP,
    payload BINARY                                  with payloadAs=binary
    payload STRING                                  with payloadAs=string: the same bytes, not checked to be UTF-8

`trace_id` and `headers` are null where there are none. With `payloadAs=json` the reader puts columns in the place
of the bytes: see `json_frames`. Spark demands its own Arrow schema to the letter, so batches are put under it without a
copy of their buffers.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import BinaryType, LongType, StringType, StructType, TimestampType

from forebay.errors import Permanent
from forebay.spark.options import ReadOptions

_OWN = StructType()
for _name, _kind in {
    "seq": LongType(),
    "partition": StringType(),
    "transaction_id": StringType(),
    "trace_id": StringType(),
    "headers": StringType(),
    "created_at": TimestampType(),
}.items():
    _OWN.add(_name, _kind)
OWN_COLUMNS = tuple(_OWN.fieldNames())

Shaping = Callable[[pa.RecordBatch], pa.RecordBatch]


def ddl(options: ReadOptions) -> str:
    """The schema as Spark's SQL writes it."""
    return _written(message_schema(options))


def message_schema(options: ReadOptions) -> StructType:
    """The columns that a reader gives. All are nullable: Java believes a NOT NULL without looking."""
    payload = StringType() if options.payload_as == "string" else BinaryType()
    return StructType([*_OWN.fields]).add("payload", payload)


def check_schema(schema: StructType, options: ReadOptions) -> None:
    """Refuse a schema that is not ours, given with `.schema(…)`."""
    wanted = message_schema(options)
    given = [(field.name, field.dataType, field.nullable) for field in schema]
    if given != [(field.name, field.dataType, field.nullable) for field in wanted]:
        raise Permanent(
            f"the columns of a queue are {_written(wanted)}, not {_written(schema)}",
            remedy="Leave out .schema(…); with payloadAs=json it names the columns of the payload",
        )


def shaping(schema: StructType, options: ReadOptions) -> Shaping:
    """What turns a batch of the server into one of Spark's."""
    wanted = to_arrow_schema(schema, timezone="UTC")
    if options.payload_as == "string":
        return lambda batch: _put_under(wanted, [*_own(batch), batch.column("payload").view(pa.string())])
    return lambda batch: _put_under(wanted, [*_own(batch), batch.column("payload")])


def _written(schema: StructType) -> str:
    return ", ".join(
        f"{field.name} {field.dataType.simpleString()}{'' if field.nullable else ' not null'}" for field in schema
    )


def _own(batch: pa.RecordBatch) -> list[pa.Array]:
    return [batch.column(name) for name in OWN_COLUMNS]


def _put_under(schema: pa.Schema, columns: list[pa.Array]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(columns, schema=schema)
