"""Blocks and records: how a group of messages becomes bytes, and bytes become Arrow columns again.

A **block** is a frame, little-endian throughout::

    offset  size  field
    0       8     header u64: bits 0-60 length of the data, bit 61 the CRC covers the place, bit 62 a CRC follows,
                  bit 63 the body is Snappy
    8       n     data
    8+n     4     CRC-32C (Castagnoli) u32 of header and data, present when bit 62 is set. With bit 61 it is that of the
                  segment's path (32 bytes, as in the manifest), the block's position in it (u64), header and data

The writer always sets bits 61 and 62. So bytes of a payload that look like a record are none: they are not where their
CRC says, whichever log they were copied from. Segments of version 1 have bit 61 clear throughout. A reader accepts bit
62 clear, and then checks what it can: lengths, ranges, offsets.

A **record** is a block whose data starts with fields that are never compressed, so that a scan reads headers only::

    offset  size  field
    8       8     first_seq u64       seq of the first message, at least 1
    16      4     count u32           number of messages; 0 marks a filler, see below
    20      8     created_min_us u64  smallest and
    28      8     created_max_us u64  largest creation time in the record, microseconds since 1970 UTC
    36      m     body, raw Snappy when bit 63 is set

A body of another version, with a CRC that is right, is reported as unreadable and left as it is. A new version of it
raises the manifest's version too: then an older Forebay does not open the log at all.

The **body** holds the messages as columns in Arrow's own buffer layout. Offsets below count from the body's start::

    0       1     body version, 1
    1       1     columns present, one bit each in the order below; an absent column is empty for every message
    2       2     zero
    4       16    tag: 16 bytes that the writer of the record chose, all zero for none
    20            columns, each part zero-padded so that the next one starts at a multiple of 8 from the record's start:
                    bit 0  created_us      count x i64
                    bit 1  flags           count x u8
                    bit 2  partition       (count + 1) x i32 offsets, then the UTF-8 bytes
                    bit 3  transaction_id  likewise
                    bit 4  trace_id        likewise
                    bit 5  headers         likewise
                    bit 6  payload         likewise, any bytes
    end-4   4     zero, so that an uncompressed record is a multiple of 8 long and the next one is aligned too

A **filler** (count 0) stands where salvage found unreadable bytes: `first_seq` is the first seq lost, `created_min_us`
and `created_max_us` hold the first and the last seq lost, and the body is whatever stood there. Readers step over it.

Limits: a record's data is at most 64 MiB, its count at most 1,048,576, so every int32 offset fits.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence, Sized
from functools import lru_cache
from itertools import accumulate, chain, islice
from struct import Struct
from typing import Any, NamedTuple

import cramjam
from crc32c import crc32c

from forebay.model.message import SEQ_MAX, MessageBatch, Payload

Piece = bytes | memoryview
Columns = Sequence[Any]
"""`MessageBatch.columns`: created_us, flags, then the variable-length ones; None for one that is absent."""
Ends = Sequence[list[int] | None]
"""For each variable-length column where its values end, or None if that is not known yet."""

if sys.byteorder != "little":
    raise ImportError("Forebay's files are little-endian and are read in place: this machine is big-endian")

DATA_BYTES_MAX = 64 << 20
MESSAGES_MAX = 1 << 20

CRC_FOLLOWS = 1 << 62
BODY_IS_SNAPPY = 1 << 63
CRC_COVERS_PLACE = 1 << 61
LENGTH_MASK = CRC_COVERS_PLACE - 1
NO_PLACE = 0
"""In place of a place's checksum, for records of version 1."""

HEADER = Struct("<QQIQQ")
HEADER_BYTES = HEADER.size
FIELDS_BYTES = HEADER_BYTES - 8
CRC = Struct("<I")
CRC_BYTES = CRC.size

BODY_VERSION = 1
BODY_PREFIX = Struct("<BBH16s")
BODY_BYTES_MIN = BODY_PREFIX.size + 4

NO_TAG = bytes(16)
TAG_BYTES = 16

FIXED_COLUMNS = 2
"""created_us and flags; the variable-length columns follow."""

_BYTES_PER_MESSAGE = 8 + 1 + 5 * 4
"""What a message costs in a record beside its own bytes: creation time, flags, five offsets."""
_RECORD_OVERHEAD_BYTES = 256
"""Header, prefix and padding of a record, generously."""
_new_tuple = tuple.__new__
_HOLD_LOCK, _RELEASE_LOCK = 0, 1
_CHECKSUM_HOLDS_LOCK_BYTES = 256 << 10
PADDING = [bytes(n) for n in range(8)]
_NO_ENDS: Ends = (None,) * 5
_EMPTY = (0, 0, b"", b"", b"", b"", b"")
_KEPT_MESSAGES_MAX = 4096
"""Up to so many messages the offsets of a column with one value for all are kept for the next record."""
_SAMPLE_MESSAGES = 16
_SAMPLE_BYTES = 4096
_SAMPLE_BYTES_MIN = 256
"""Below this a record is header and offsets mostly: compressing it costs more than it saves."""


class Header(NamedTuple):
    """A record's first 36 bytes, checked for sense, and where the record stands in its segment."""

    position: int
    size: int
    """The whole record: header, body and CRC."""
    first_seq: int
    message_count: int
    created_min_us: int
    created_max_us: int
    is_snappy: bool
    has_crc: bool
    is_placed: bool
    """Whether its CRC covers where it stands."""

    @property
    def is_filler(self) -> bool:
        return self.message_count == 0

    @property
    def next_seq(self) -> int:
        """The seq that the following record starts with."""
        return self.first_seq + self.message_count if self.message_count else self.created_max_us + 1


def parse_header(data: bytes | memoryview, offset: int, position: int) -> Header | str:
    """Read the header at `offset` of `data`; a string is the reason why it can't be one."""
    word, first_seq, count, low, high = HEADER.unpack_from(data, offset)
    length = word & LENGTH_MASK
    if not FIELDS_BYTES <= length <= DATA_BYTES_MAX:
        return f"a record of {length} bytes is outside {FIELDS_BYTES}-{DATA_BYTES_MAX}"
    if not 1 <= first_seq <= SEQ_MAX:
        return f"first_seq {first_seq} is not possible"
    if count > MESSAGES_MAX:
        return f"a record of {count} messages is over {MESSAGES_MAX}"
    if not low <= high <= SEQ_MAX:
        return f"the created range {low}-{high} is not possible"
    has_crc = bool(word & CRC_FOLLOWS)
    size = 8 + length + (CRC_BYTES if has_crc else 0)
    # Not `Header(...)`: its constructor is written in Python, and a scan makes one for every record.
    flags = bool(word & BODY_IS_SNAPPY), has_crc, bool(word & CRC_COVERS_PLACE)
    return _new_tuple(Header, (position, size, first_seq, count, low, high, *flags))


def _checksum(data: bytes | memoryview, before: int = 0) -> int:
    # Holding the interpreter's lock for the few microseconds that this takes is cheaper than getting it back.
    return int(crc32c(data, before, _RELEASE_LOCK if len(data) > _CHECKSUM_HOLDS_LOCK_BYTES else _HOLD_LOCK))


def checksum_of_path(path: str) -> int:
    """Of a segment; what all checksums of places in it begin with."""
    return int(crc32c(path.encode()))


def checksum_of_place(path_checksum: int, position: int) -> int:
    """What the CRC of a record at this position of a segment begins with."""
    return int(crc32c(position.to_bytes(8, "little"), path_checksum))


def crc_holds(data: bytes | memoryview, offset: int, header: Header, path_checksum: int) -> bool:
    if not header.has_crc:
        return True
    end = offset + header.size - CRC_BYTES
    computed = _checksum(memoryview(data)[offset:end], _place_of(header, path_checksum))
    return bool(computed == CRC.unpack_from(data, end)[0])


def flag_was_lost(data: bytes | memoryview, offset: int, header: Header, path_checksum: int) -> bool:
    """Whether the record says that it has no CRC, but is followed by the one it had when bit 62 was set."""
    word = int.from_bytes(data[offset : offset + 8], "little") | CRC_FOLLOWS
    end = offset + header.size
    head = crc32c(word.to_bytes(8, "little"), _place_of(header, path_checksum))
    computed = crc32c(memoryview(data)[offset + 8 : end], head)
    return bool(computed == CRC.unpack_from(data, end)[0])


def _place_of(header: Header, path_checksum: int) -> int:
    return checksum_of_place(path_checksum, header.position) if header.is_placed else NO_PLACE


def size_max(count: int, variable_bytes: int) -> int:
    """The most bytes that so many messages can take as a record."""
    return _RECORD_OVERHEAD_BYTES + _BYTES_PER_MESSAGE * count + variable_bytes


def encode(
    batches: Sequence[MessageBatch],
    first_seq: int,
    *,
    tag: bytes = NO_TAG,
    compress: bool = False,
    is_placed: bool = True,
) -> list[Piece]:
    """One record with the messages of all batches, in pieces to be written one after the other, but for its CRC.

    The caller has checked the size. Not `is_placed`: as version 1 has it.
    """
    columns: Columns
    ends: Ends
    if len(batches) == 1:
        (batch,) = batches
        columns, ends, (low, high) = batch.columns, batch.ends, batch.created_range
    else:
        is_of_one_kind = len({batch.present for batch in batches}) == 1
        columns, ends = _merged(batches, is_of_one_kind=is_of_one_kind), _NO_ENDS
        low, high = min(columns[0]), max(columns[0])
    count = len(columns[0])
    body = _body(columns, ends, tag, created_us=low if low == high else None)
    return framed([body], first_seq, count, (low, high), compress=compress, is_placed=is_placed)


def framed(
    body: Sequence[Piece],
    first_seq: int,
    count: int,
    created_range: tuple[int, int],
    *,
    compress: bool,
    is_placed: bool = True,
) -> list[Piece]:
    """`encode` for a body that is there already: what is not compressed is not copied either."""
    flag = CRC_FOLLOWS | (CRC_COVERS_PLACE if is_placed else 0)
    if compress and (packed := _snappy(body[0] if len(body) == 1 else b"".join(body))):
        body, flag = [packed], flag | BODY_IS_SNAPPY
    head = HEADER.pack((FIELDS_BYTES + sum(map(len, body))) | flag, first_seq, count, *created_range)
    return [head, *body]


def sealed(pieces: Sequence[Piece], place: int) -> list[Piece]:
    """The record with its CRC. `place`: the checksum of the place where it will stand, or `NO_PLACE`."""
    checksum = place
    for piece in pieces:
        checksum = _checksum(piece, checksum)
    return [*pieces, CRC.pack(checksum)]


def encode_filler(first_lost: int, last_lost: int, unreadable: bytes, *, is_placed: bool) -> list[Piece]:
    """Turn unreadable bytes of at least `HEADER_BYTES + CRC_BYTES` into a record of the same size that says so.

    Without its CRC, as `encode`. It is of the version of its neighbours.
    """
    length = len(unreadable) - 8 - CRC_BYTES
    flag = CRC_FOLLOWS | (CRC_COVERS_PLACE if is_placed else 0)
    # Stray bytes that never held a message have lost none: then last_lost is the seq before first_lost.
    head = HEADER.pack(length | flag, first_lost, 0, min(first_lost, last_lost), last_lost)
    return [head, unreadable[HEADER_BYTES:-CRC_BYTES]]


class TextColumn(NamedTuple):
    """A column of variable length, as it is written."""

    ends: Piece
    """Where its values end, padded."""
    values: Sequence[Piece]
    size: int


def encoded_body(
    tag: bytes, created: bytes, flags: Piece | None, count: int, texts: Sequence[TextColumn | None]
) -> list[Piece]:
    """The body of a record, in pieces. What its columns come from is none of its business; it puts nothing together."""
    present = 0b1
    pieces: list[Piece] = [b"", created]
    if flags is not None:
        present |= 0b10
        pieces += (flags, PADDING[-count % 8])
    for bit, text in enumerate(texts, FIXED_COLUMNS):
        if text is not None:
            present |= 1 << bit
            pieces += (text.ends, *text.values, PADDING[-text.size % 8])
    pieces[0] = BODY_PREFIX.pack(BODY_VERSION, present, 0, tag)
    pieces.append(PADDING[4])
    return pieces


def _body(columns: Columns, ends: Ends, tag: bytes, *, created_us: int | None) -> bytes:
    """`created_us`: when all messages were created, if that is one time for all of them, as it often is."""
    created, flags = columns[0], columns[1]
    count = len(created)
    if created_us is None:
        created_bytes = Struct(f"<{count}q").pack(*created)
    else:
        created_bytes = created_us.to_bytes(8, "little") * count
    texts = list(map(_text_column, columns[FIXED_COLUMNS:], ends))
    return b"".join(encoded_body(tag, created_bytes, None if flags is None else bytes(flags), count, texts))


def _text_column(column: Sequence[bytes] | None, places: list[int] | None) -> TextColumn | None:
    if column is None:
        return None
    count, value = len(column), column[0]
    if count > 1 and value == column[-1] and column.count(value) == count:
        # One value for all, as the partition often is.
        return TextColumn(even_offsets(count, len(value)), [bytes(value) * count], len(value) * count)
    if places is None:
        places = [*accumulate(map(len, column), initial=0)]
    return TextColumn(offsets(count).pack(*places), column, places[-1])


def even_offsets(count: int, value_size: int) -> bytes:
    """The offsets, and their padding, of so many values of one size."""
    return (_kept_offsets if count <= _KEPT_MESSAGES_MAX else _even_offsets)(count, value_size)


def _even_offsets(count: int, value_size: int) -> bytes:
    return offsets(count).pack(*[value_size * number for number in range(count + 1)])


_kept_offsets = lru_cache(maxsize=64)(_even_offsets)


def offsets(count: int) -> Struct:
    """(count + 1) x 4 bytes, padded to a multiple of 8."""
    return Struct(f"<{count + 1}i{(count + 1) % 2 * 4}x")


def _merged(batches: Sequence[MessageBatch], *, is_of_one_kind: bool) -> Columns:
    """The columns of several batches as one set. It is the hot path of every group, so hardly a step is in Python.

    `is_of_one_kind`: all of them have the same columns.
    """
    together = list(zip(*[batch.columns for batch in batches], strict=True))
    if not is_of_one_kind:
        together = [_filled(column, empty, batches) for column, empty in zip(together, _EMPTY, strict=True)]
    if sum(map(len, together[0])) == len(batches):
        # One message each, as in most groups. No batch is empty.
        return [None if column[0] is None else [value for (value,) in column] for column in together]
    return [None if column[0] is None else list(chain.from_iterable(column)) for column in together]


def _filled(
    column: tuple[Sequence[Any] | None, ...], empty: object, batches: Sequence[MessageBatch]
) -> tuple[Sequence[Any] | None, ...]:
    """Empty values for the batches that do not have the column, if others do."""
    if all(part is None for part in column):
        return column
    return tuple([[empty] * len(batch) if part is None else part for part, batch in zip(column, batches, strict=True)])


def sample_shrinks(payloads: Iterable[Payload]) -> bool:
    """Whether a sample of the payloads says that Snappy would make the record smaller by a third."""
    sample = b"".join(islice(payloads, _SAMPLE_MESSAGES))[:_SAMPLE_BYTES]
    return len(sample) >= _SAMPLE_BYTES_MIN and _shrinks(sample, cramjam.snappy.compress_raw(sample))


def _snappy(body: Piece) -> bytes | None:
    """The body compressed, or None when it does not shrink by a third after all."""
    packed = cramjam.snappy.compress_raw(body)
    return bytes(packed) if _shrinks(body, packed) else None


def _shrinks(data: Sized, packed: Sized) -> bool:
    return 3 * len(packed) <= 2 * len(data)
