"""A record's messages as Python values, for callers that want single records and not a whole range.

Arrow is the way to read many messages. For one record its arrays cost more than the values that are taken out of them;
here the bytes of a value are cut out of the record where they lie, and a column is decoded when it is first used.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

from forebay.commitlog.block import CRC_BYTES, HEADER_BYTES, Header
from forebay.commitlog.columns import described, unpacked

PARTITION, TRANSACTION_ID, TRACE_ID, HEADERS, PAYLOAD = range(5)
"""The columns of variable length."""
_CREATED_AT, _FLAGS_AT, _TEXTS_AT, _PER_TEXT = 2, 6, 8, 6
"""Where `described` tells of a column: of a text first where its offsets are, then where its values are."""


class Packed(NamedTuple):
    """Values one behind the other: the first from `start + offsets[0]` to `start + offsets[1]`, and so on."""

    data: bytes
    start: int
    offsets: list[int]


class PlainRecord:
    """The bytes of one record whose CRC was right. Raises `BodyRefused` if they cannot be one of ours."""

    __slots__ = ("_data", "_places", "count", "created_range", "first_seq", "tag")

    def __init__(self, data: bytes, offset: int, header: Header) -> None:
        """`data` has all of the record, from its header to its CRC, at `offset`, a multiple of 4."""
        start, end = offset + HEADER_BYTES, offset + header.size - (CRC_BYTES if header.has_crc else 0)
        if header.is_snappy:
            data, start, end = unpacked(data[start:end])
        self.count = header.message_count
        self.first_seq = header.first_seq
        self.created_range = header.created_min_us, header.created_max_us
        self.tag, self._places = described(data, _integers(data), start, end, self.count)
        self._data = data

    @property
    def size(self) -> int:
        """Bytes of memory."""
        return len(self._data)

    def created_us(self) -> list[int]:
        low, high = self.created_range
        if low == high:
            return [low] * self.count
        at = self._places[_CREATED_AT]
        return memoryview(self._data)[at : at + 8 * self.count].cast("q").tolist()

    def flags(self) -> bytes:
        """One byte each."""
        at = self._places[_FLAGS_AT]
        return self._data[at : at + self.count] if at else bytes(self.count)

    def has(self, column: int) -> bool:
        """Whether any message has something there."""
        return bool(self._places[_TEXTS_AT + _PER_TEXT * column + 2])

    def texts(self, column: int) -> list[str]:
        offsets, values_at, size = self._text(column, 0, self.count)
        values = self._data[values_at : values_at + size]
        if values.isascii():
            text = values.decode("ascii")
            return [text[a:b] for a, b in pairwise(offsets)]
        return [values[a:b].decode() for a, b in pairwise(offsets)]

    def payloads(self, start: int, stop: int) -> Packed:
        """Of the messages at these places."""
        offsets, values_at, _ = self._text(PAYLOAD, start, stop)
        return Packed(self._data, values_at, offsets)

    def payload_sizes(self) -> list[int]:
        offsets, _, _ = self._text(PAYLOAD, 0, self.count)
        return [b - a for a, b in pairwise(offsets)]

    def _text(self, column: int, start: int, stop: int) -> tuple[list[int], int, int]:
        """The offsets of values and the last one's end; where the values begin; how many bytes all of them have."""
        at = _TEXTS_AT + _PER_TEXT * column
        offsets_at, values_at, size = self._places[at + 2], self._places[at + 4], self._places[at + 5]
        if not offsets_at:
            return [0] * (stop - start + 1), 0, 0
        view = memoryview(self._data)[offsets_at + 4 * start : offsets_at + 4 * (stop + 1)]
        return view.cast("i").tolist(), values_at, size


def _integers(data: bytes) -> memoryview[int]:
    return memoryview(data)[: len(data) & -4].cast("i")
