"""The way in: an Arrow IPC stream from any client becomes columns that can be trusted.

Nothing of the stream is believed: offsets, lengths and UTF-8 are checked before a value is looked at. What comes out
(`STAGED_SCHEMA`) has the columns of a record of the log but for `seq` and `created_at`, which a commit gives.

| column           | type                    | may be absent | null means    | limit               |
|------------------|-------------------------|---------------|---------------|---------------------|
| `payload`        | binary or string        | no            | refused       | 10 MiB              |
| `partition`      | string                  | yes           | `Default`     | 1 to 255 characters |
| `transaction_id` | string                  | yes           | an id is made | 1 to 255 characters |
| `trace_id`       | string                  | yes           | none          | 255 characters      |
| `headers`        | string                  | yes           | none          | a JSON object       |

The large and view forms of these types do as well. Any of them may be dictionary-encoded, and buffers may be
compressed (LZ4, ZSTD). Whatever form they come in, they may not become larger than `bytes_max` (`decoded_sizes`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from forebay.broker.arrow import decoded_sizes
from forebay.broker.arrow.json_payloads import binary_marks
from forebay.broker.arrow.staged_rows import STAGED_SCHEMA, minted_ids
from forebay.errors import Permanent
from forebay.model.message import PAYLOAD_IS_BINARY, TRANSACTION_ID_IS_MINTED
from forebay.model.queue import DEFAULT_PARTITION, NAME_CHARACTERS_MAX

COLUMNS = ("payload", "partition", "transaction_id", "trace_id", "headers")
_PIECE_ROWS = 10_000
"""Rows that are looked at in one go, so that other threads get their turn. As many as Spark sends in a batch."""
_NO_STREAM = (pa.ArrowException, OSError, UnicodeDecodeError)
_decode_object = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


class ArrowRefused(Permanent):
    """The rows cannot be messages. `column` says which part of them is wrong; nothing was stored."""

    def __init__(self, column: str | None, message: str, *, is_too_large: bool = False) -> None:
        super().__init__(message)
        self.column = column
        self.is_too_large = is_too_large


def memory_bytes(body: bytes, bytes_max: int) -> int:
    """How much memory `accepted` may need beside the body. `ArrowRefused` if the body itself says that it is too much.

    What is repeated, by dictionaries and views, is found out only when the rows are decoded: then it may be all.
    """
    try:
        size = decoded_sizes.announced(body).size_bytes
        with pa.ipc.open_stream(pa.py_buffer(body)) as reader:
            is_repeating = any(_is_repeating(field.type) for field in reader.schema)
    except _NO_STREAM as error:
        raise _no_stream(error) from error
    if size > bytes_max:
        raise _too_large(size, bytes_max)
    return bytes_max if is_repeating else size


def accepted(body: bytes, stage_id: str, *, payload_bytes_max: int, bytes_max: int) -> list[pa.RecordBatch]:
    """The rows of an IPC stream as batches of `STAGED_SCHEMA`, or `ArrowRefused`."""
    memory_bytes(body, bytes_max)
    found: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in _received(body):
        for start in range(0, batch.num_rows, _PIECE_ROWS):
            piece = batch.slice(start, _PIECE_ROWS)
            size += decoded_sizes.decoded_bytes(piece)
            if size > bytes_max:
                raise _too_large(size, bytes_max)
            found.append(_checked(piece, stage_id, rows, payload_bytes_max))
            rows += found[-1].num_rows
    return found


def _is_repeating(kind: pa.DataType) -> bool:
    return bool(pa.types.is_dictionary(kind) or pa.types.is_string_view(kind) or pa.types.is_binary_view(kind))


def _too_large(size: int, bytes_max: int) -> ArrowRefused:
    return ArrowRefused(
        None, f"the rows have {size} bytes or more when decoded, allowed are {bytes_max}", is_too_large=True
    )


def _no_stream(error: Exception) -> ArrowRefused:
    return ArrowRefused(None, f"the body is no Arrow IPC stream: {str(error).splitlines()[0]}")


def _received(body: bytes) -> Iterator[pa.RecordBatch]:
    try:
        with pa.ipc.open_stream(pa.py_buffer(body)) as reader:
            _check_names(reader.schema.names)
            for field in reader.schema:
                _check_type(field.name, field.type)
            for batch in reader:
                batch.validate(full=True)
                yield batch
    except _NO_STREAM as error:
        raise _no_stream(error) from error
    if not body.endswith(b"\xff\xff\xff\xff\0\0\0\0"):
        raise ArrowRefused(None, "the Arrow IPC stream has no end marker: it was cut short")


def _check_names(names: Sequence[str]) -> None:
    unknown = [name for name in names if name not in COLUMNS]
    if unknown:
        raise ArrowRefused(unknown[0], f"no such column; there are {', '.join(COLUMNS)}")
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise ArrowRefused(twice[0], "the column is there twice")
    if "payload" not in names:
        raise ArrowRefused("payload", "the column is missing")


def _checked(batch: pa.RecordBatch, stage_id: str, rows_before: int, payload_bytes_max: int) -> pa.RecordBatch:
    payloads = _plain(batch.column("payload"), pa.binary())
    if payloads.null_count:
        raise ArrowRefused("payload", "null is no payload")
    longest = pc.max(pc.binary_length(payloads)).as_py()
    if longest > payload_bytes_max:
        detail = f"a payload has {longest} bytes, allowed are {payload_bytes_max}"
        raise ArrowRefused("payload", detail, is_too_large=True)
    partitions = _names(batch, "partition", pa.scalar(DEFAULT_PARTITION))
    trace_ids = _texts(batch, "trace_id", lambda given: _check_length(given, "trace_id", 0))
    headers = _texts(batch, "headers", _check_headers)
    ids, minted = _ids(batch, stage_id, rows_before)
    flags = pc.bit_wise_or(_flags(binary_marks(payloads), PAYLOAD_IS_BINARY), _flags(minted, TRANSACTION_ID_IS_MINTED))
    return pa.RecordBatch.from_arrays(
        [flags, partitions, ids, trace_ids, headers, payloads],
        schema=STAGED_SCHEMA,
    )


def _flags(is_set: pa.Array, flag: int) -> pa.Array:
    return pc.multiply(is_set, pa.scalar(flag, pa.uint8()))


def _check_type(name: str, kind: pa.DataType) -> None:
    """Before a column is touched: Arrow has types that pyarrow cannot hold."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    is_text = pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
    is_bytes = pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind)
    if not (is_text or pa.types.is_null(kind) or (is_bytes and name == "payload")):
        wanted = "binary or string" if name == "payload" else "string"
        raise ArrowRefused(name, f"the column is {kind}, not {wanted}")


def _plain(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """The column as one of two types, whatever form of text or bytes it came in."""
    if isinstance(column, pa.DictionaryArray):
        column = column.dictionary_decode()
    return column if column.type == kind else column.cast(kind)


def _texts(batch: pa.RecordBatch, name: str, check: Callable[[pa.Array], None]) -> pa.Array:
    if name not in batch.schema.names:
        return pa.repeat(pa.scalar(""), batch.num_rows)
    given = pc.fill_null(_plain(batch.column(name), pa.string()), "")
    check(given)
    return given


def _names(batch: pa.RecordBatch, name: str, default: pa.Scalar) -> pa.Array:
    if name not in batch.schema.names:
        return pa.repeat(default, batch.num_rows)
    found = pc.fill_null(_plain(batch.column(name), pa.string()), default)
    _check_length(found, name, 1)
    for value in pc.unique(found).to_pylist():
        if "\0" in value or not {".", ".."}.isdisjoint(value.replace("\\", "/").split("/")):
            raise ArrowRefused(name, f"{value[:100]!r} is no name: it holds a NUL, or has '.' or '..' as a part")
    return found


def _check_length(texts: pa.Array, name: str, lowest: int) -> None:
    bounds = pc.min_max(pc.utf8_length(texts)).as_py()
    if bounds["min"] < lowest or bounds["max"] > NAME_CHARACTERS_MAX:
        found = bounds["min"] if bounds["min"] < lowest else bounds["max"]
        raise ArrowRefused(name, f"a value has {found} characters, allowed are {lowest} to {NAME_CHARACTERS_MAX}")
    if pc.any(pc.match_substring(texts, "\0")).as_py():
        raise ArrowRefused(name, "a value holds a NUL character")


def _check_headers(headers: pa.Array) -> None:
    for text in pc.unique(headers).to_pylist():
        if text:
            try:
                _decode_object(text)
            except (msgspec.DecodeError, RecursionError) as error:
                raise ArrowRefused("headers", f"{text[:100]!r} is no JSON object: {error}") from error


def _ids(batch: pa.RecordBatch, stage_id: str, rows_before: int) -> tuple[pa.Array, pa.Array]:
    """The ids, and 1 for each that was made here."""
    count = batch.num_rows
    if "transaction_id" not in batch.schema.names:
        return minted_ids(stage_id, rows_before, count), pa.repeat(pa.scalar(1, pa.uint8()), count)
    given = _plain(batch.column("transaction_id"), pa.string())
    is_missing = pc.is_null(given)
    if given.null_count < count:
        _check_length(given.drop_null(), "transaction_id", 1)
    if given.null_count:
        given = pc.if_else(is_missing, minted_ids(stage_id, rows_before, count), given)
    return given, is_missing.cast(pa.uint8())
