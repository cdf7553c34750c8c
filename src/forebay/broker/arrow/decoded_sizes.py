"""How large rows become when they are decoded, found out before any of them is.

A small body can stand for a great many bytes: a compressed buffer says itself how long it becomes, a dictionary's value
is repeated by every index, and views may all be of the same bytes. `announced` reads what an IPC stream says of its
buffers, without decompressing one; `decoded_bytes` adds up what a batch's values come to, without copying one.

The buffers' places and lengths are in the flatbuffer in front of each batch. Arrow verifies it when it hands out the
message; only four of its fields are of interest here:

    Message      { 1: header type, 2: header }          header type 3: RecordBatch, 2: DictionaryBatch
    RecordBatch  { 0: rows, 2: buffers, 3: compression }
    Dictionary   { 1: RecordBatch }
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

ROW_BYTES = 64
"""What a row takes beside its values: id, flags, name of the default partition, five offsets."""

_DICTIONARY, _RECORD_BATCH = 2, 3
_PREFIX_BYTES = 8
"""A compressed buffer begins with its length when decompressed, or -1 if it is not compressed after all."""


class Announced(NamedTuple):
    """What all batches of a stream hold according to their metadata: bytes of decompressed buffers, and rows."""

    buffer_bytes: int
    rows: int

    @property
    def size_bytes(self) -> int:
        return self.buffer_bytes + self.rows * ROW_BYTES


def announced(body: bytes) -> Announced:
    """Raises what pyarrow raises where this is no IPC stream."""
    size = rows = 0
    try:
        for message in pa.ipc.MessageReader.open_stream(pa.py_buffer(body)):
            found = _batch_of(bytes(message.metadata))
            if found is not None:
                is_dictionary, batch = found
                size += sum(_buffer_sizes(batch, message.body))
                rows += 0 if is_dictionary else batch.int64(0)
    except (struct.error, IndexError) as error:
        raise pa.ArrowInvalid("the metadata of a batch is damaged") from error
    return Announced(size, rows)


class _Table:
    """A table of a flatbuffer: its fields are found by way of a list of offsets, 0 for those that are left out."""

    __slots__ = ("_data", "_place", "_vtable")

    def __init__(self, data: bytes, place: int) -> None:
        self._data = data
        self._place = place
        self._vtable = place - struct.unpack_from("<i", data, place)[0]

    def _field(self, number: int) -> int | None:
        entry = 4 + 2 * number
        if entry >= struct.unpack_from("<H", self._data, self._vtable)[0]:
            return None
        offset = struct.unpack_from("<H", self._data, self._vtable + entry)[0]
        return self._place + offset if offset else None

    def _target(self, number: int) -> int | None:
        """Where the field points to."""
        place = self._field(number)
        return None if place is None else place + struct.unpack_from("<I", self._data, place)[0]

    def uint8(self, number: int) -> int:
        place = self._field(number)
        return 0 if place is None else self._data[place]

    def int64(self, number: int) -> int:
        place = self._field(number)
        return 0 if place is None else int(struct.unpack_from("<q", self._data, place)[0])

    def table(self, number: int) -> _Table | None:
        target = self._target(number)
        return None if target is None else _Table(self._data, target)

    def pairs(self, number: int) -> Iterator[tuple[int, int]]:
        """A list of structs of two int64."""
        target = self._target(number)
        if target is not None:
            count = struct.unpack_from("<I", self._data, target)[0]
            yield from struct.iter_unpack("<qq", self._data[target + 4 : target + 4 + 16 * count])


def _batch_of(metadata: bytes) -> tuple[bool, _Table] | None:
    """Whether it is a dictionary's, and the batch; None for any other message."""
    message = _Table(metadata, struct.unpack_from("<I", metadata)[0])
    kind, header = message.uint8(1), message.table(2)
    if header is None or kind not in (_DICTIONARY, _RECORD_BATCH):
        return None
    batch = header.table(1) if kind == _DICTIONARY else header
    return None if batch is None else (kind == _DICTIONARY, batch)


def _buffer_sizes(batch: _Table, body: pa.Buffer) -> Iterator[int]:
    is_compressed = batch.table(3) is not None
    view = memoryview(body) if is_compressed and body is not None else memoryview(b"")
    for offset, length in batch.pairs(2):
        if not is_compressed or length < _PREFIX_BYTES:
            yield max(length, 0)
        else:
            if offset < 0:
                raise pa.ArrowInvalid("a buffer begins before its body")
            whole = int(struct.unpack_from("<q", view, offset)[0])
            yield whole if whole >= 0 else length


def decoded_bytes(batch: pa.RecordBatch) -> int:
    """The bytes of all its values, each counted as often as it occurs."""
    return int(batch.num_rows) * ROW_BYTES + sum(map(_column_bytes, batch.columns))


def _column_bytes(column: pa.Array) -> int:
    if isinstance(column, pa.DictionaryArray):
        return int(pc.sum(pc.take(_lengths(column.dictionary), column.indices)).as_py() or 0)
    return int(pc.sum(_lengths(column)).as_py() or 0)


def _lengths(column: pa.Array) -> pa.Array:
    if pa.types.is_null(column.type):
        return pa.nulls(len(column), pa.int64())
    if not pa.types.is_string_view(column.type) and not pa.types.is_binary_view(column.type):
        return pc.binary_length(column).cast(pa.int64())
    # A view is 16 bytes, of which the first four are the length. Arrow has no function that says it.
    words = memoryview(column.buffers()[1]).cast("i")[4 * column.offset : 4 * (column.offset + len(column)) : 4]
    lengths = pa.array(words.tolist(), pa.int64())
    return lengths if not column.null_count else pc.if_else(pc.is_valid(column), lengths, 0)
