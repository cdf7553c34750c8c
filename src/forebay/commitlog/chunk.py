"""A part of a segment in memory, laid out so that Arrow makes a record batch of a record in one call.

Making eight arrays and a batch of them takes eight calls and a dozen objects, which cost more than reading the bytes
and checking their CRC. Arrow's own message format does it in one: metadata that says where each buffer lies, and a
body in which they lie. So a chunk is such a message, all in one buffer::

    metadata    of the record that is read; written anew for each
    zeros       the offsets and flags of columns that are absent
    seqs        where the numbers of the messages are written, each at its distance from the chunk's first
    data        the bytes of the segment, as read

Everything behind the metadata is the body. Batches hold on to the buffer and share it; what a batch has seen is never
written again, except with the same values.
"""

from __future__ import annotations

import threading
from array import array
from collections.abc import Sequence
from functools import lru_cache
from struct import Struct

import pyarrow as pa
from pyarrow.ipc import read_record_batch

_COLUMNS = 8
_BUFFERS = 3 * 2 + 5 * 3
"""Of a fixed column two, of a variable one three; the first of each tells of nulls, and is always empty."""
_PREFIX = Struct("<iI")
_MESSAGE = Struct("<II 6H i x B H I q 2x 5H i I I")
"""Two flatbuffer tables, `Message` and `RecordBatch` of Arrow's format, up to the fields that differ by record."""
_RECORD = Struct(f"<q 4x I {2 * _BUFFERS}q 4x I {2 * _COLUMNS}q")
"""The batch's length; each buffer's offset and length; each column's length and number of nulls."""
_RECORD_AT = _PREFIX.size + _MESSAGE.size
_METADATA_BYTES = _MESSAGE.size + _RECORD.size
_BODY_AT = _PREFIX.size + _METADATA_BYTES
_ZEROS = memoryview(bytes(128 << 10))
_NUMBERED_AT_ONCE = 1024
_CONTINUES = -1
_VERSION_5, _IS_RECORD_BATCH = 4, 3


class Chunk:
    """Room for `size` bytes of a segment, with up to `messages_max` messages that are numbered from `first_seq` on."""

    __slots__ = (
        "_buffer",
        "_first_seq",
        "_lock",
        "_messages_max",
        "_numbered",
        "_seqs_at",
        "body",
        "data_at",
        "integers",
    )

    def __init__(self, size: int, first_seq: int, messages_max: int) -> None:
        self._first_seq = first_seq
        self._messages_max = messages_max
        self._numbered = 0
        self._seqs_at = (4 * (messages_max + 1) + 7) & -8
        self.data_at = self._seqs_at + 8 * messages_max
        """Where in the body the bytes of the segment start."""
        body_bytes = (self.data_at + size + 7) & -8
        self._buffer = pa.allocate_buffer(_BODY_AT + body_bytes, resizable=False)
        view = memoryview(self._buffer).cast("B")
        view[:_RECORD_AT] = _fixed_metadata(body_bytes)
        self.body = view[_BODY_AT:]
        zeros_bytes = self._seqs_at
        self.body[:zeros_bytes] = _ZEROS[:zeros_bytes] if zeros_bytes <= len(_ZEROS) else bytes(zeros_bytes)
        self.integers = self.body.cast("i")
        # The metadata is the chunk's, and records of a chunk may be decoded in several threads.
        self._lock = threading.Lock()

    @classmethod
    def of(cls, data: bytes | memoryview, first_seq: int, message_count: int) -> Chunk:
        """A chunk that holds a copy of these bytes, and nothing else."""
        chunk = cls(len(data), first_seq, message_count)
        chunk.body[chunk.data_at : chunk.data_at + len(data)] = data
        return chunk

    def has_room_for(self, first_seq: int, count: int) -> bool:
        """Whether these messages are among those that the chunk has zeros and numbers for."""
        return 0 <= first_seq - self._first_seq <= self._messages_max - count

    def batch(self, schema: pa.Schema, first_seq: int, count: int, places: Sequence[int]) -> pa.RecordBatch:
        """The batch whose buffers, but for those of seq, lie at these offsets and have these lengths, in turn.

        Offsets count from the start of the body, where the zeros are.
        """
        place = first_seq - self._first_seq
        if place + count > self._numbered:
            self._number_until(place + count)
        seqs_at = self._seqs_at + 8 * place
        lengths = (count, 0) * _COLUMNS
        with self._lock:
            _RECORD.pack_into(
                self._buffer, _RECORD_AT, count, _BUFFERS, 0, 0, seqs_at, 8 * count, *places, _COLUMNS, *lengths
            )
            return read_record_batch(self._buffer, schema)

    def _number_until(self, place: int) -> None:
        """Write numbers for the records up to there, and for some more that may follow."""
        start = self._numbered
        count = min(max(_NUMBERED_AT_ONCE, place - start), self._messages_max - start)
        ramp, ones = _ramp(count)
        # A ramp that was made once, raised in one addition of two long integers.
        numbers = (ramp + (self._first_seq + start) * ones).to_bytes(8 * count, "little")
        at = self._seqs_at + 8 * start
        self.body[at : at + 8 * count] = numbers
        self._numbered = start + count


@lru_cache(maxsize=16)
def _fixed_metadata(body_bytes: int) -> bytes:
    """A message's metadata up to the fields of its record. Numbers are distances, as flatbuffers have them."""
    vtable_of_message = (12, 22, 6, 5, 8, 12)
    vtable_of_batch = (10, 24, 12, 4, 8)
    nodes_at = 8 + _RECORD.size - 16 * _COLUMNS - 4
    return _PREFIX.pack(_CONTINUES, _METADATA_BYTES) + _MESSAGE.pack(
        20, 0, *vtable_of_message, 12, _IS_RECORD_BATCH, _VERSION_5, 24, body_bytes, *vtable_of_batch, 10, nodes_at, 16
    )


@lru_cache(maxsize=128)
def _ramp(count: int) -> tuple[int, int]:
    """0, 1, 2, … and 1, 1, 1, … as 64-bit numbers side by side in one integer each."""
    ramp, ones = array("q", range(count)).tobytes(), array("q", [1]) * count
    return int.from_bytes(ramp, "little"), int.from_bytes(ones.tobytes(), "little")
