"""Reading a segment from front to back, whatever state it is in.

A scan yields whole records, and in their place a `DamagedRange` wherever there is none. It holds one chunk of the file
in memory, larger only when a single record is. Behind damage it finds its way again: first at the place where the
damaged record says that it ends (its header may well be good), else at the next place whose bytes are a record, CRC
and all. At most the damaged record is lost. What a payload holds is not taken for a record: its CRC would have to cover
the place where it stands (`block`); nor is one whose first seq is higher than the bytes before it can account for.

Inside a segment seqs are contiguous: a record that starts higher than expected tells which messages the damage before
it took; one that starts lower is bytes of another time, and damage itself.

Zeros from a record to the end of the file are the end: space that a writer made ready (`active_file`) and did not come
to use. Only where messages are known to be missing they are damage.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import pyarrow as pa

from forebay.commitlog.block import (
    CRC_BYTES,
    CRC_COVERS_PLACE,
    HEADER_BYTES,
    Header,
    checksum_of_path,
    crc_holds,
    flag_was_lost,
    parse_header,
)
from forebay.commitlog.chunk import Chunk
from forebay.commitlog.columns import BodyRefused, decode
from forebay.commitlog.plain import PlainRecord
from forebay.errors import DamagedRange
from forebay.filesystem import SEARCH_BYTES, File

CHUNK_BYTES = 1 << 20
"""As much as a core's own cache holds: the CRC and the columns are read from there, not from memory."""
_BYTES_PER_MESSAGE = 64
"""A chunk has room for the numbers of so many messages; behind that many a record is read all the same, as a copy."""
_NO_CHUNK = Chunk(0, 1, 0)
_new_tuple = tuple.__new__
"""Makes a named tuple without its constructor, which is written in Python: a scan makes two for every record."""
_WINDOW_BYTES = 4096
_PLACED_ENDS = (b"\x00\x60", b"\x00\xe0")
_PLAIN_ENDS = (b"\x00\x40", b"\x00\xc0")
"""The last two bytes of every record's first word: bit 62 set, bit 61 or not, and a length far below 2^48."""
_MESSAGES_PER_BYTE = 3
"""More are in no record: each has at least the eight bytes of its time, which Snappy packs into a twenty-first part."""


class Record(NamedTuple):
    """A record as it stands in a chunk of its segment; its CRC was right."""

    header: Header
    chunk: Chunk
    offset: int

    def batch(self) -> pa.RecordBatch:
        return decode(self.chunk, self.offset, self.header)[1]

    def plain(self) -> PlainRecord:
        return PlainRecord(bytes(self.chunk.body[self.offset : self.offset + self.header.size]), 0, self.header)

    def tag_and_batch(self) -> tuple[bytes, pa.RecordBatch]:
        return decode(self.chunk, self.offset, self.header)


class SegmentScan:
    """One pass over the bytes `position` to `end` of a segment, by its path, whose next message is `next_seq`.

    `last_seq` is the last message that is known to be in the segment, where that is known. After the pass `position`
    is the end of the last good record and `next_seq` the seq behind it.
    """

    def __init__(
        self,
        file: File,
        name: str,
        *,
        position: int,
        end: int,
        next_seq: int,
        last_seq: int | None = None,
        chunk_bytes: int = CHUNK_BYTES,
    ) -> None:
        self._file = file
        self._name = name
        self._path_checksum = checksum_of_path(name)
        self._is_placed = False
        """Whether a record whose CRC covers its place was met: then all of the segment are of this kind."""
        self._end = end
        self._last_seq = last_seq
        self._chunk_bytes = chunk_bytes
        self._chunk = _NO_CHUNK
        self._chunk_at = position
        self._chunk_end = position
        self.position = position
        self.next_seq = next_seq

    def __iter__(self) -> Iterator[Record | DamagedRange]:
        """Records in order, fillers included, with damage in between. What cannot be read at the end comes last."""
        position = self.position
        while position < self._end:
            found = self._record_at(position)
            if isinstance(found, Record):
                header = found.header
                self._is_placed = self._is_placed or header.is_placed
                self.next_seq = header.next_seq
                self.position = position = position + header.size
                yield found
                continue
            following = self._find_after(position)
            stop = following.header.position if following else self._end_of_data(position)
            if stop == position:
                return
            last = following.header.first_seq - 1 if following else self._last_seq
            yield DamagedRange(self._name, position, stop - position, self.next_seq, last, found)
            if following is None:
                return
            position = self._advance(following)
            yield following

    def _advance(self, record: Record) -> int:
        self.next_seq = record.header.next_seq
        self.position = record.header.position + record.header.size
        return self.position

    def _record_at(self, position: int, *, first_seq_max: int | None = None) -> Record | str:
        """The good record at `position`, or the reason why there is none."""
        if self._end - position < HEADER_BYTES + CRC_BYTES:
            return f"{self._end - position} bytes are too few for a record"
        offset = self._load(position, HEADER_BYTES)
        if offset is None:
            return "the file ends inside a header"
        header = parse_header(self._chunk.body, offset, position)
        if isinstance(header, str):
            return header
        if position + header.size > self._end:
            return f"a record of {header.size} bytes reaches past the end"
        # Within a pass every record follows on the last; only a search behind damage may meet a later one.
        highest = self.next_seq if first_seq_max is None else first_seq_max
        if not self.next_seq <= header.first_seq <= highest:
            return f"first_seq is {header.first_seq}, expected {self.next_seq}"
        if position + header.size > self._chunk_end:
            offset = self._load(position, header.size, header.message_count)
            if offset is None:
                return "the file ends inside a record"
        chunk = self._chunk
        if not crc_holds(chunk.body, offset, header, self._path_checksum):
            return "CRC does not match"
        record: Record = _new_tuple(Record, (header, chunk, offset))
        return record if header.has_crc else self._checked_without_crc(record)

    def _checked_without_crc(self, record: Record) -> Record | str:
        """A record may come without a CRC from another writer. Ours always has one: then bit 62 was damaged."""
        header = record.header
        offset = self._load(header.position, header.size + CRC_BYTES, header.message_count)
        if offset is not None and flag_was_lost(self._chunk.body, offset, header, self._path_checksum):
            return "its CRC flag is clear, although its CRC follows"
        try:
            if not header.is_filler:
                record.batch()
        except BodyRefused as refused:
            return str(refused)
        return record

    def _load(self, position: int, size: int, message_count: int = 0) -> int | None:
        """Have `size` bytes from `position` in the chunk; returns where in its body, None when the file is shorter."""
        if position < self._chunk_at or position + size > self._chunk_end:
            wanted = min(max(size, self._chunk_bytes), self._end - position)
            messages_max = max(wanted // _BYTES_PER_MESSAGE, message_count)
            self._chunk = chunk = Chunk(wanted, self.next_seq, messages_max)
            self._chunk_at = position
            self._chunk_end = position + self._file.read_into(chunk.body[chunk.data_at :][:wanted], position)
        if position + size > self._chunk_end:
            return None
        return self._chunk.data_at + position - self._chunk_at

    def _find_after(self, damaged: int) -> Record | None:
        """The first good record behind the one at `damaged`."""
        offset = self._load(damaged, HEADER_BYTES)
        if offset is not None:
            header = parse_header(self._chunk.body, offset, damaged)
            if isinstance(header, Header) and header.first_seq == self.next_seq:
                record = self._record_at(damaged + header.size, first_seq_max=header.next_seq)
                if isinstance(record, Record) and record.header.first_seq == header.next_seq:
                    return record
        # Where nothing tells which kind the segment has, its own are looked for before those that payloads can bring.
        for ends in (_PLACED_ENDS,) if self._has_placed(damaged) else (_PLACED_ENDS, _PLAIN_ENDS):
            for candidate in self._candidates(damaged + 1, ends):
                possible = self.next_seq + _MESSAGES_PER_BYTE * (candidate - damaged)
                record = self._record_at(candidate, first_seq_max=min(self._last_seq or possible, possible))
                if isinstance(record, Record) and record.header.has_crc:
                    return record
        return None

    def _has_placed(self, damaged: int) -> bool:
        """Whether anything tells that the CRCs of this segment cover their places: a record, or what is left of one."""
        words = [int.from_bytes(self._file.read_at(8, position), "little") for position in (0, damaged)]
        return self._is_placed or any(word & CRC_COVERS_PLACE for word in words)

    def _end_of_data(self, position: int) -> int:
        """The end without the zeros that a writer made ready, where no more messages are known to be."""
        if self._last_seq is not None and self.next_seq <= self._last_seq:
            return self._end
        return end_of_data(self._file, position, self._end)

    def _candidates(self, start: int, ends: Sequence[bytes]) -> Iterator[int]:
        """Places from `start` on whose eight bytes look like the first word of a record."""
        position = start
        while position + HEADER_BYTES + CRC_BYTES <= self._end:
            window = self._file.read_at(min(SEARCH_BYTES, self._end - position), position)
            found = sorted(at - 6 for ending in ends for at in _occurrences(window, ending) if at >= 6)
            yield from (position + at for at in found)
            if len(window) < 8:
                return
            position += len(window) - 7


def end_of_data(file: File, position: int, end: int) -> int:
    """Behind the last byte between `position` and `end` that is not zero; `position` when there is none."""
    while position < end:
        start = max(position, end - SEARCH_BYTES)
        if data := file.read_at(end - start, start).rstrip(b"\0"):
            return start + len(data)
        end = start
    return position


def _occurrences(data: bytes, pattern: bytes) -> Iterator[int]:
    at = data.find(pattern)
    while at >= 0:
        yield at
        at = data.find(pattern, at + 1)


def walk_headers(file: File, *, position: int, next_seq: int, end: int) -> Iterator[Header]:
    """Headers only, without reading the bodies, as long as each follows on the one before.

    Ends early at a header that does not; a scan from there sorts out what it is.
    """
    window, window_at = b"", position
    while end - position >= HEADER_BYTES:
        offset = position - window_at
        if offset + HEADER_BYTES > len(window):
            window, window_at, offset = file.read_at(_WINDOW_BYTES, position), position, 0
            if len(window) < HEADER_BYTES:
                return
        header = parse_header(window, offset, position)
        if isinstance(header, str) or header.first_seq != next_seq or position + header.size > end:
            return
        yield header
        position += header.size
        next_seq = header.next_seq
