"""From a record's body to an Arrow record batch and back, without copying: columns are read and written where they lie.

The bytes were checked by their CRC before they come here. What a CRC cannot promise is that the writer was ours, so
every length is checked against the body before a buffer is made of it; whatever does not fit is `BodyRefused`, which
the scanner reports as damage.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from functools import lru_cache
from struct import Struct

import cramjam
import pyarrow as pa

from forebay.commitlog.block import (
    BODY_BYTES_MIN,
    BODY_PREFIX,
    BODY_VERSION,
    CRC_BYTES,
    DATA_BYTES_MAX,
    FIXED_COLUMNS,
    HEADER_BYTES,
    PADDING,
    Header,
    Piece,
)

SCHEMA = pa.schema(
    [
        pa.field("seq", pa.int64(), nullable=False),
        pa.field("created_at", pa.timestamp("us", tz="UTC"), nullable=False),
        pa.field("flags", pa.uint8(), nullable=False),
        pa.field("partition", pa.string(), nullable=False),
        pa.field("transaction_id", pa.string(), nullable=False),
        pa.field("trace_id", pa.string(), nullable=False),
        pa.field("headers", pa.string(), nullable=False),
        pa.field("payload", pa.binary(), nullable=False),
    ]
)
"""What `CommitLog.read` yields. Nothing is null: a message without a trace id has an empty one."""

_INT64, _UINT8 = pa.int64(), pa.uint8()
_FIXED = [(0b01, SCHEMA.field("created_at").type, 8), (0b10, _UINT8, 1)]
"""Bit in the body's list of columns, type, bytes per message."""
_VARIABLE = [(1 << bit, SCHEMA.field(bit + 1).type) for bit in range(2, 7)]
_LAST_OFFSET = Struct("<i")
_ALIGNMENT = 8
_array = pa.Array.from_buffers
_BODY_START = HEADER_BYTES % _ALIGNMENT
"""A body starts 36 bytes into its record, 4 past a multiple of 8; its columns are aligned only if it stays so."""


class BodyRefused(Exception):
    """The body cannot be one of ours; the message says what does not fit."""


def decode(chunk: pa.Buffer, offset: int, header: Header) -> tuple[bytes, pa.RecordBatch]:
    """The record's tag and its messages. `chunk` holds the record at `offset` and lives as long as the batch."""
    buffer, start, end = _body(chunk, offset, header)
    if end - start < BODY_BYTES_MIN:
        raise BodyRefused(f"a body of {end - start} bytes is under {BODY_BYTES_MIN}")
    version, present, zero, tag = BODY_PREFIX.unpack_from(buffer, start)
    if version != BODY_VERSION or zero or present >> 7 or not present & 1:
        raise BodyRefused(f"body version {version}, columns {present:#x}, reserved {zero} are not known")
    count = header.message_count
    position = start + BODY_PREFIX.size
    columns = [_sequence(header.first_seq, count)]
    for bit, kind, width in _FIXED:
        if not present & bit:
            columns.append(_empty(kind, count))
            continue
        size = width * count
        if position + size > end:
            raise BodyRefused(f"{count} values of {kind} reach past the body's end")
        columns.append(_array(kind, count, [None, buffer.slice(position, size)]))
        position += (size + 7) & -8
    size = 4 * (count + 1)
    for bit, kind in _VARIABLE:
        if not present & bit:
            columns.append(_empty(kind, count))
            continue
        values_at = position + ((size + 7) & -8)
        if values_at > end:
            raise BodyRefused(f"{count} offsets reach past the body's end")
        (values_size,) = _LAST_OFFSET.unpack_from(buffer, position + size - 4)
        if not 0 <= values_size <= end - values_at:
            raise BodyRefused(f"a column of {values_size} bytes reaches past the body's end")
        columns.append(_array(kind, count, [None, buffer.slice(position, size), buffer.slice(values_at, values_size)]))
        position = values_at + ((values_size + 7) & -8)
    batch = pa.RecordBatch.from_arrays(columns, schema=SCHEMA)
    if not header.has_crc:
        _validate(batch)
    return tag, batch


def _body(chunk: pa.Buffer, offset: int, header: Header) -> tuple[pa.Buffer, int, int]:
    start = offset + HEADER_BYTES
    end = offset + header.size - (CRC_BYTES if header.has_crc else 0)
    if header.is_snappy:
        buffer = _unpacked(chunk.slice(start, end - start))
        return buffer, _BODY_START, buffer.size
    if (chunk.address + offset) % _ALIGNMENT:
        # Behind a compressed record the next one stands at any address; Arrow wants its integers aligned.
        moved = pa.allocate_buffer(end - offset, resizable=False)
        memoryview(moved)[:] = memoryview(chunk)[offset:end]
        return moved, HEADER_BYTES, end - offset
    return chunk, start, end


def _unpacked(packed: pa.Buffer) -> pa.Buffer:
    try:
        size = cramjam.snappy.decompress_raw_len(packed)
        if size > DATA_BYTES_MAX:
            raise BodyRefused(f"a body of {size} bytes is over {DATA_BYTES_MAX}")
        buffer = pa.allocate_buffer(_BODY_START + size, resizable=False)
        cramjam.snappy.decompress_raw_into(packed, memoryview(buffer)[_BODY_START:])
    except cramjam.DecompressionError as error:
        raise BodyRefused(f"not Snappy: {error}") from None
    return buffer


def _sequence(first_seq: int, count: int) -> pa.Array:
    """first_seq, first_seq + 1, …: a ramp that was made once, raised in one addition of two long integers."""
    ramp, ones = _ramp(count)
    values = (ramp + first_seq * ones).to_bytes(8 * count, "little")
    return _array(_INT64, count, [None, pa.py_buffer(values)])


@lru_cache(maxsize=128)
def _ramp(count: int) -> tuple[int, int]:
    """0, 1, 2, … and 1, 1, 1, … as 64-bit numbers side by side in one integer each."""
    ramp, ones = array("q", range(count)).tobytes(), array("q", [1]) * count
    return int.from_bytes(ramp, "little"), int.from_bytes(ones.tobytes(), "little")


@lru_cache(maxsize=256)
def _empty(kind: pa.DataType, count: int) -> pa.Array:
    """A column that is not stored: zero, or nothing, for every message."""
    zeros = pa.py_buffer(bytes(8 * (count + 1)))
    parts = [None, zeros] if kind == _UINT8 else [None, zeros, zeros]
    return _array(kind, count, parts)


def _validate(batch: pa.RecordBatch) -> None:
    try:
        batch.validate(full=True)
    except pa.ArrowInvalid as error:
        raise BodyRefused(f"columns that do not fit: {error}") from None


class ColumnBatch:
    """Messages on their way into a log that are Arrow columns already: `flags` and the texts of `SCHEMA`, no nulls."""

    def __init__(self, batch: pa.RecordBatch) -> None:
        self._flags: pa.Array = batch.column("flags")
        self._texts = [_Text(batch.column(name)) for name in SCHEMA.names[FIXED_COLUMNS + 1 :]]
        self.variable_bytes = sum(text.size for text in self._texts)

    def __len__(self) -> int:
        return len(self._flags)

    @property
    def payloads(self) -> Iterator[bytes]:
        return (payload.as_py() for payload in self._texts[-1].column)

    def body(self, created_us: int, tag: bytes) -> list[Piece]:
        """The body of their record (`block`), in pieces. A text column that is empty throughout is left out."""
        count = len(self)
        present = 0b11
        pieces: list[Piece] = [created_us.to_bytes(8, "little") * count, _values(self._flags, 1), PADDING[-count % 8]]
        for bit, text in enumerate(self._texts, FIXED_COLUMNS):
            if text.size or text is self._texts[-1]:
                present |= 1 << bit
                pieces += (text.offsets(), PADDING[(count + 1) % 2 * 4], text.values(), PADDING[-text.size % 8])
        return [BODY_PREFIX.pack(BODY_VERSION, present, 0, tag), *pieces, PADDING[4]]


class _Text:
    """One column of variable length: where its bytes are, however its array was cut out of another."""

    def __init__(self, column: pa.Array) -> None:
        self.column = column
        self._start, self._end = _ends(column)
        self.size = self._end - self._start

    def offsets(self) -> Piece:
        column = self.column
        if not len(column):
            return bytes(4)
        found = _array(pa.int32(), len(column) + 1, [None, column.buffers()[1]], offset=column.offset)
        if self._start:
            import pyarrow.compute as pc  # as in the reader: a third of pyarrow's import time

            found = pc.subtract(found, pa.scalar(self._start, pa.int32()))
        return _values(found, 4)

    def values(self) -> Piece:
        data = self.column.buffers()[2]
        return memoryview(data)[self._start : self._end] if data is not None else b""


def _ends(column: pa.Array) -> tuple[int, int]:
    offsets = column.buffers()[1]
    if offsets is None or not len(column):
        return 0, 0
    (start,) = _LAST_OFFSET.unpack_from(offsets, 4 * column.offset)
    (end,) = _LAST_OFFSET.unpack_from(offsets, 4 * (column.offset + len(column)))
    return start, end


def _values(column: pa.Array, width: int) -> Piece:
    """The bytes of a column of fixed width."""
    return memoryview(column.buffers()[1])[width * column.offset : width * (column.offset + len(column))]
