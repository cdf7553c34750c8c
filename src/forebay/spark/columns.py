"""The columns of a message in Spark, and how the server's batches become exactly them.

    seq BIGINT, partition STRING, transaction_id STRING, trace_id STRING, headers STRING, created_at TIMESTAMP,
    payload BINARY                                  with payloadAs=binary
    payload STRING                                  with payloadAs=string: the same bytes, not checked to be UTF-8
    <the columns of schema>, _corrupt STRING        with payloadAs=json

`trace_id` and `headers` are null where there are none. Spark demands its own Arrow schema to the letter, so batches are
put under it without a copy of their buffers.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from forebay.errors import Permanent
from forebay.spark.json_columns import CORRUPT, JsonColumns, refuse_unreadable
from forebay.spark.options import ReadOptions

OWN_COLUMNS = ("seq", "partition", "transaction_id", "trace_id", "headers", "created_at")
_OWN_DDL = "seq BIGINT, partition STRING, transaction_id STRING, trace_id STRING, headers STRING, created_at TIMESTAMP"

Shaping = Callable[[pa.RecordBatch], pa.RecordBatch]


def ddl(options: ReadOptions) -> str:
    """The schema as Spark's SQL writes it."""
    if options.payload_as == "json":
        return f"{_OWN_DDL}, {options.schema}, {CORRUPT} STRING"
    return f"{_OWN_DDL}, payload {options.payload_as.upper()}"


def check_schema(schema: StructType, options: ReadOptions) -> None:
    """Refuse a schema that is not ours: one given with `.schema(…)`, or columns that hide the message's own."""
    names = schema.fieldNames()
    is_json = options.payload_as == "json"
    is_ours = tuple(names[: len(OWN_COLUMNS)]) == OWN_COLUMNS and (
        names[-1:] == [CORRUPT] if is_json else names[len(OWN_COLUMNS) :] == ["payload"]
    )
    if not is_ours:
        raise Permanent(
            f"the columns of a queue are {', '.join(OWN_COLUMNS)} and the payload, not {', '.join(names)}",
            remedy="Leave out .schema(…); the columns of a JSON payload go into the option schema",
        )
    doubled = sorted({name for name in names if [other.lower() for other in names].count(name.lower()) > 1})
    if doubled:
        raise Permanent(
            f"the option schema names {', '.join(doubled)}, which a message has already or twice",
            remedy="Leave the column out, or read the payload as a string and use from_json under another name",
        )
    if is_json:
        refuse_unreadable(schema.fields[len(OWN_COLUMNS) : -1])


def shaping(schema: StructType, options: ReadOptions) -> Shaping:
    """What turns a batch of the server into one of Spark's."""
    wanted = to_arrow_schema(schema, timezone="UTC")
    if options.payload_as == "json":
        parse = JsonColumns(pa.schema(list(wanted)[len(OWN_COLUMNS) : -1]))
        return lambda batch: _put_under(wanted, [*_own(batch), *parse(batch.column("payload"))])
    if options.payload_as == "string":
        return lambda batch: _put_under(wanted, [*_own(batch), batch.column("payload").view(pa.string())])
    return lambda batch: _put_under(wanted, [*_own(batch), batch.column("payload")])


def _own(batch: pa.RecordBatch) -> list[pa.Array]:
    return [batch.column(name) for name in OWN_COLUMNS]


def _put_under(schema: pa.Schema, columns: list[pa.Array]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(columns, schema=schema)
