"""JSON payloads as columns, parsed by Arrow many at a time.

A payload that is no JSON object of the given columns gives null in all of them, and its text in `_corrupt`; the others
are not touched by it. Fields that the schema does not name are left out, fields that are missing are null, and `null`
as a payload is a row of nulls.

All payloads of a batch go through Arrow's parser as one text. To be sure that row n of what comes out is payload n,
each payload is wrapped in an object with its number under a name that was drawn for this batch: a broken payload
cannot fake it. Where anything does not fit, the batch is halved until the payloads that are to blame stand alone.

A payload such as `{"n":1},"x":2` would fit into its wrapping, as two members of it. So payloads that have a comma
behind an object are parsed once more, bare, where a comma between two values is a fault.

Arrow's parser takes times with as many digits behind the second as the column has, and Spark's columns have six. Go and
OpenTelemetry write nine. So what cannot be parsed is tried once more with nine, of which six are kept; that way around,
because with nine a time has to be between the years 1678 and 2261.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable

import pyarrow as pa
from pyspark.sql import types as spark_types
from pyspark.sql.types import ArrayType, DataType, StructField, StructType

from forebay.errors import Permanent

CORRUPT = "_corrupt"
_COMMA_BEHIND_A_VALUE = r'(?:\}|null)\s*,\s*"'
_READABLE = (
    spark_types.BooleanType,
    spark_types.ByteType,
    spark_types.ShortType,
    spark_types.IntegerType,
    spark_types.LongType,
    spark_types.FloatType,
    spark_types.DoubleType,
    spark_types.StringType,
    spark_types.TimestampType,
)


def refuse_unreadable(fields: Iterable[StructField]) -> None:
    """Refuse columns of types that are not read here."""
    wrong = [f"{field.name} {field.dataType.simpleString()}" for field in fields if not _is_readable(field.dataType)]
    if wrong:
        raise Permanent(
            f"the option schema has columns that are not read from JSON: {', '.join(wrong)}; what is read: boolean, "
            "tinyint, smallint, int, bigint, float, double, string, timestamp, and arrays and structs of them",
            remedy="Read the payload as a string and use from_json",
        )


def _is_readable(kind: DataType) -> bool:
    if isinstance(kind, ArrayType):
        return _is_readable(kind.elementType)
    if isinstance(kind, StructType):
        return all(_is_readable(field.dataType) for field in kind)
    return isinstance(kind, _READABLE)


class JsonColumns:
    """Parses a column of payloads into the columns of the schema and one with what could not be parsed."""

    def __init__(self, schema: pa.Schema) -> None:
        self._struct = pa.struct(list(schema))
        self._shapes = [self._struct]
        """As which it is tried to parse, the one that fitted last being the first."""
        precise = _precise(self._struct)
        if precise != self._struct:
            self._shapes.append(precise)

    def __call__(self, payloads: pa.Array) -> list[pa.Array]:
        parts = list(self._parsed(payloads))
        documents = pa.concat_arrays([documents for documents, _ in parts]) if parts else self._nulls(0)
        corrupt = pa.concat_arrays([corrupt for _, corrupt in parts]) if parts else pa.nulls(0, pa.string())
        return [*documents.flatten(), corrupt]

    def _parsed(self, payloads: pa.Array) -> Iterable[tuple[pa.Array, pa.Array]]:
        count = len(payloads)
        if not count:
            return
        documents = self._in_any_shape(payloads)
        if documents is not None:
            yield documents, pa.nulls(count, pa.string())
        elif count == 1:
            text = (payloads[0].as_py() or b"").decode(errors="replace")
            yield self._nulls(1), pa.array([text], pa.string())
        else:
            yield from self._parsed(payloads.slice(0, count // 2))
            yield from self._parsed(payloads.slice(count // 2))

    def _in_any_shape(self, payloads: pa.Array) -> pa.Array | None:
        for shape in self._shapes:
            documents = self._all_or_none(payloads, shape)
            if documents is not None:
                if shape is not self._shapes[0]:
                    self._shapes.reverse()
                return documents
        return None

    def _all_or_none(self, payloads: pa.Array, shape: pa.StructType) -> pa.Array | None:
        # Not at the top: a process that plans a stream parses nothing, and their import is a tenth of its start.
        import pyarrow.compute as pc
        import pyarrow.json as pj

        mark = secrets.token_hex(8)
        numbers = _numbers(len(payloads))
        counted = numbers.cast(pa.string()).cast(pa.binary())
        before, between, after, nothing = b'{"payload":', f',"{mark}":'.encode(), b"}\n", b""
        joined = pc.binary_join_element_wise(before, payloads, between, counted, after, nothing)
        text = joined.buffers()[2]
        explicit = pa.schema([("payload", shape), (mark, pa.int64())])
        try:
            # Arrow's parser takes text that is not UTF-8 as it is, and Spark would have strings that are none.
            joined.cast(pa.string())
            table = pj.read_json(
                pa.BufferReader(text),
                read_options=pj.ReadOptions(use_threads=False, block_size=text.size + 1),
                parse_options=pj.ParseOptions(
                    explicit_schema=explicit, newlines_in_values=True, unexpected_field_behavior="ignore"
                ),
            )
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            return None
        if table.num_rows != len(payloads) or not table.column(mark).combine_chunks().equals(numbers):
            return None
        if not _is_each_one_value(payloads):
            return None
        found = table.column("payload").combine_chunks()
        # Unsafe: three digits of a time are cut off.
        return found if found.type == self._struct else found.cast(self._struct, safe=False)

    def _nulls(self, count: int) -> pa.Array:
        return pa.nulls(count, self._struct)


def _precise(kind: pa.DataType) -> pa.DataType:
    """The same with nanoseconds."""
    if pa.types.is_timestamp(kind):
        return pa.timestamp("ns", kind.tz)
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_precise(kind.value_type)))
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_precise(field.type)) for field in kind])
    return kind


def _is_each_one_value(payloads: pa.Array) -> bool:
    """Whether no payload is several values in a row, all of them being well-formed otherwise."""
    import pyarrow.compute as pc
    import pyarrow.json as pj

    suspicious = payloads.filter(pc.match_substring_regex(payloads, _COMMA_BEHIND_A_VALUE))
    objects = suspicious.filter(pc.match_substring_regex(suspicious, r"^\s*\{"))
    if len(objects) < len(suspicious):
        return False
    if not len(objects):
        return True
    text = pc.binary_join_element_wise(objects, b"\n", b"").buffers()[2]
    try:
        bare = pj.read_json(
            pa.BufferReader(text),
            read_options=pj.ReadOptions(use_threads=False, block_size=text.size + 1),
            parse_options=pj.ParseOptions(
                explicit_schema=pa.schema([]), newlines_in_values=True, unexpected_field_behavior="ignore"
            ),
        )
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return False
    return bool(bare.num_rows == len(objects))


def _numbers(count: int) -> pa.Array:
    """0, 1, 2 … without NumPy, whose arrays make Arrow import pandas."""
    import pyarrow.compute as pc

    return pc.cumulative_sum(pa.repeat(pa.scalar(1, pa.int64()), count), start=-1)
