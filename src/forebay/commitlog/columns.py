"""From a record's body to an Arrow record batch and back, without copying: columns are read and written where they lie.

The bytes were checked by their CRC before they come here. What a CRC cannot promise is that the writer was ours, so
every length is checked against the body before a buffer is made of it; whatever does not fit is `BodyRefused`, which
the scanner reports as damage.
"""

from __future__ import annotations

from collections.abc import Iterator
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
    TextColumn,
    encoded_body,
)
from forebay.commitlog.chunk import Chunk

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

_HAS_CREATED, _HAS_FLAGS = 0b01, 0b10
_VARIABLE = [1 << bit for bit in range(FIXED_COLUMNS, 7)]
"""Bits in the body's list of columns."""
_OFFSET = Struct("<i")
_ALIGNMENT = 8
_BODY_START = HEADER_BYTES % _ALIGNMENT
"""A body starts 36 bytes into its record, 4 past a multiple of 8; its columns are aligned only if it stays so."""


class BodyRefused(Exception):
    """The body cannot be one of ours; the message says what does not fit."""


def decode(chunk: Chunk, offset: int, header: Header) -> tuple[bytes, pa.RecordBatch]:
    """The record's tag and its messages. `chunk` holds the record at `offset` and lives as long as the batch."""
    chunk, start, end = _body(chunk, offset, header)
    count = header.message_count
    tag, places = described(chunk.body, chunk.integers, start, end, count)
    batch = chunk.batch(SCHEMA, header.first_seq, count, places)
    if not header.has_crc:
        _validate(batch)
    return tag, batch


def described(
    data: bytes | memoryview, integers: memoryview[int], start: int, end: int, count: int
) -> tuple[bytes, list[int]]:
    """The tag of the body at `start` to `end` of `data`, and offset and length of each buffer of its columns.

    They are in the order of `SCHEMA`, without seq; the first buffer of each column is empty. `integers` are the bytes
    of `data`, four at a time. Offsets count from its start; that of a column which is absent is 0.
    """
    if end - start < BODY_BYTES_MIN:
        raise BodyRefused(f"a body of {end - start} bytes is under {BODY_BYTES_MIN}")
    version, present, zero, tag = BODY_PREFIX.unpack_from(data, start)
    if version != BODY_VERSION or zero or present >> 7 or not present & _HAS_CREATED:
        raise BodyRefused(f"body version {version}, columns {present:#x}, reserved {zero} are not known")
    return tag, _places(integers, present, count, start + BODY_PREFIX.size, end)


def _places(integers: memoryview[int], present: int, count: int, position: int, end: int) -> list[int]:
    flags_at = position + 8 * count
    texts_at = flags_at + (((count + 7) & -8) if present & _HAS_FLAGS else 0)
    if texts_at > end:
        raise BodyRefused(f"{count} times and flags reach past the body's end")
    # What is absent is found among the zeros that a chunk's body starts with.
    places = [0, 0, position, 8 * count, 0, 0, flags_at if present & _HAS_FLAGS else 0, count]
    position = texts_at
    size = 4 * (count + 1)
    padded_size = (size + 7) & -8
    for bit in _VARIABLE:
        if not present & bit:
            places += (0, 0, 0, size, 0, 0)
            continue
        values_at = position + padded_size
        if values_at > end:
            raise BodyRefused(f"{count} offsets reach past the body's end")
        first, values_size = integers[position >> 2], integers[(position >> 2) + count]
        if not 0 <= first <= values_size <= end - values_at:
            raise BodyRefused(f"a column of bytes {first} to {values_size} reaches past the body's end")
        places += (0, 0, position, size, values_at, values_size)
        position = values_at + ((values_size + 7) & -8)
    return places


def _body(chunk: Chunk, offset: int, header: Header) -> tuple[Chunk, int, int]:
    """A chunk in which the record's body can be read in place, and where it starts and ends there."""
    start = offset + HEADER_BYTES
    end = offset + header.size - (CRC_BYTES if header.has_crc else 0)
    if header.is_snappy:
        return _unpacked(chunk.body[start:end], header)
    if offset % _ALIGNMENT or not chunk.has_room_for(header.first_seq, header.message_count):
        # Behind a compressed record the next one stands at any address; Arrow wants its integers aligned.
        moved = Chunk.of(chunk.body[offset:end], header.first_seq, header.message_count)
        return moved, moved.data_at + HEADER_BYTES, moved.data_at + end - offset
    return chunk, start, end


def _unpacked(packed: memoryview, header: Header) -> tuple[Chunk, int, int]:
    size = _unpacked_size(packed)
    chunk = Chunk(_BODY_START + size, header.first_seq, header.message_count)
    start = chunk.data_at + _BODY_START
    _unpack(packed, chunk.body[start : start + size])
    return chunk, start, start + size


def unpacked(packed: bytes) -> tuple[bytes, int, int]:
    """The body that was compressed, inside bytes in which it is aligned as it should be, and where it is there."""
    size = _unpacked_size(packed)
    room = bytearray(_BODY_START + size)
    _unpack(packed, memoryview(room)[_BODY_START:])
    return bytes(room), _BODY_START, _BODY_START + size


def _unpacked_size(packed: bytes | memoryview) -> int:
    try:
        size: int = cramjam.snappy.decompress_raw_len(packed)
    except cramjam.DecompressionError as error:
        raise BodyRefused(f"not Snappy: {error}") from None
    if size > DATA_BYTES_MAX:
        raise BodyRefused(f"a body of {size} bytes is over {DATA_BYTES_MAX}")
    return size


def _unpack(packed: bytes | memoryview, room: memoryview) -> None:
    try:
        cramjam.snappy.decompress_raw_into(packed, room)
    except cramjam.DecompressionError as error:
        raise BodyRefused(f"not Snappy: {error}") from None


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
        texts = [text.written() if text.size or text is self._texts[-1] else None for text in self._texts]
        return encoded_body(tag, created_us.to_bytes(8, "little") * count, _values(self._flags, 1), count, texts)


class _Text:
    """One column of variable length: where its bytes are, however its array was cut out of another."""

    def __init__(self, column: pa.Array) -> None:
        self.column = column
        self._start, self._end = _ends(column)
        self.size = self._end - self._start

    def written(self) -> TextColumn:
        values = memoryview(data)[self._start : self._end] if (data := self.column.buffers()[2]) is not None else b""
        count = len(self.column)
        return TextColumn(self._ends(), [PADDING[(count + 1) % 2 * 4], values], self.size)

    def _ends(self) -> Piece:
        column = self.column
        if not len(column):
            return bytes(4)
        found = pa.Array.from_buffers(pa.int32(), len(column) + 1, [None, column.buffers()[1]], offset=column.offset)
        if self._start:
            import pyarrow.compute as pc  # as in the reader: a third of pyarrow's import time

            found = pc.subtract(found, pa.scalar(self._start, pa.int32()))
        return _values(found, 4)


def _ends(column: pa.Array) -> tuple[int, int]:
    offsets = column.buffers()[1]
    if offsets is None or not len(column):
        return 0, 0
    (start,) = _OFFSET.unpack_from(offsets, 4 * column.offset)
    (end,) = _OFFSET.unpack_from(offsets, 4 * (column.offset + len(column)))
    return start, end


def _values(column: pa.Array, width: int) -> Piece:
    """The bytes of a column of fixed width."""
    return memoryview(column.buffers()[1])[width * column.offset : width * (column.offset + len(column))]
