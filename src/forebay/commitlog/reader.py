"""The reading side of a log: ranges of seq or of time, as Arrow batches, a chunk of a segment at a time.

A reader takes the log's state once and reads what was durable then, however the log grows, rolls or is truncated
meanwhile. Finding a seq inside a segment walks record headers from the nearest mark; marks are remembered every
mebibyte or so as reading and writing pass by, so that a consumer which comes back finds its place at once.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from forebay.commitlog.access import not_accessible
from forebay.commitlog.block import Header
from forebay.commitlog.columns import BodyRefused, decode
from forebay.commitlog.layout import is_segment_path
from forebay.commitlog.manifest import Entry
from forebay.commitlog.plain import PlainRecord
from forebay.commitlog.scan import Record, SegmentScan, walk_headers
from forebay.commitlog.seek_marks import MARK_EVERY_BYTES, SeekMarks
from forebay.commitlog.single_reads import SingleReads
from forebay.commitlog.state import LogOptions, LogState
from forebay.errors import DamagedRange, ManifestCorrupted, RangeGone, SegmentDamaged, SegmentMissing
from forebay.filesystem import File, Filesystem
from forebay.model.message import SEQ_MAX

OnDamage = Callable[[DamagedRange], None]
_NO_SUCH_FILE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EISDIR)
"""What opening a segment says when there is none. Anything else, such as too many open files, is no loss."""


class _Span(NamedTuple):
    """The part of the log that one read covers, as it was when the read began."""

    state: LogState
    from_seq: int
    last_seq: int


class LogReader:
    def __init__(
        self, filesystem: Filesystem, base: Path, options: LogOptions, current: Callable[[], LogState]
    ) -> None:
        self._filesystem = filesystem
        self._base = base
        self._options = options
        self._current = current
        self._marks = SeekMarks()
        self._created_ranges: dict[str, tuple[int, int]] = {}
        self._singles = SingleReads(self._open)

    def batches(
        self, from_seq: int, to_seq: int | None, limit: int | None, on_damage: OnDamage | None
    ) -> Iterator[pa.RecordBatch]:
        found = self._batches(self._span(from_seq, to_seq), on_damage)
        return found if limit is None else _limited(found, limit)

    def _batches(self, span: _Span, on_damage: OnDamage | None) -> Iterator[pa.RecordBatch]:
        _, from_seq, last_seq = span
        for entry in self._segments(span):
            for record in self._segment_records(span, entry, on_damage):
                try:
                    batch = decode(record.chunk, record.offset, record.header)[1]
                except BodyRefused as refused:
                    self._refused(record, refused, on_damage)
                    continue
                first, count = record.header.first_seq, record.header.message_count
                if from_seq <= first and first + count - 1 <= last_seq:
                    yield batch
                else:
                    start = max(from_seq - first, 0)
                    yield batch.slice(start, min(last_seq - first + 1, count) - start)

    def records(self, from_seq: int, to_seq: int | None, on_damage: OnDamage | None) -> Iterator[Record]:
        """Whole records that hold some of the requested messages."""
        return self._records(self._span(from_seq, to_seq), on_damage)

    def record(self, first_seq: int, position: int) -> PlainRecord:
        """The record at a place that is known from before."""
        state = self._span(first_seq, first_seq).state
        entry = self._entry_of(state, first_seq)
        if entry is None:
            raise RangeGone(self._base, first_seq, state.first_seq)
        return self._singles.record(entry, first_seq, position) or self._scanned(entry, first_seq, position)

    def let_go(self) -> None:
        """Close what is kept open, because segments were removed, or nothing will be read any more."""
        self._singles.let_go()

    def _scanned(self, entry: Entry, first_seq: int, position: int) -> PlainRecord:
        """The same by a scan, which finds out what is wrong."""
        file = self._open(entry)
        try:
            scan = SegmentScan(
                file, entry.path, position=position, end=entry.size, next_seq=first_seq, last_seq=entry.end_seq
            )
            found = next((each for each in scan if isinstance(each, Record) or not each.is_stray), None)
        finally:
            file.close()
        if isinstance(found, DamagedRange):
            raise SegmentDamaged(self._base, found)
        if found is None:
            lost = DamagedRange(entry.path, position, 0, first_seq, entry.end_seq, "the segment ends early")
            raise SegmentDamaged(self._base, lost)
        if found.header.is_filler:
            raise SegmentDamaged(self._base, _damage(found.header, entry.path, "lost before a salvage"))
        try:
            return found.plain()
        except BodyRefused as refused:
            raise SegmentDamaged(self._base, _damage(found.header, entry.path, str(refused))) from None

    def _entry_of(self, state: LogState, seq: int) -> Entry | None:
        """The segment that holds a message that is kept; None when no message has this seq yet."""
        if seq >= state.next_seq:
            return None
        if seq >= state.start_seq:
            return state.active_entry()
        index = state.entries.first_ending_at_or_after(seq)
        following = state.entries[index] if index < len(state.entries) else state.active_entry()
        if following.start_seq <= seq:
            return following
        first = state.entries[index - 1].end_seq + 1 if index else state.first_seq
        lost = DamagedRange("no segment", 0, 0, first, following.start_seq - 1, "no segment holds them any more")
        raise SegmentDamaged(self._base, lost)

    def batches_created_between(self, from_us: int, to_us: int, on_damage: OnDamage | None) -> Iterator[pa.RecordBatch]:
        """Messages with `from_us <= created < to_us`, in seq order; segments and records outside are not decoded."""
        state = self._current()
        for entry in self._segments(_Span(state, state.first_seq, state.next_seq - 1)):
            low, high = self._created_range(state, entry)
            if high < from_us or low >= to_us:
                continue
            span = _Span(state, entry.start_seq, entry.end_seq)
            for record in self._segment_records(span, entry, on_damage):
                header = record.header
                if header.created_max_us < from_us or header.created_min_us >= to_us:
                    continue
                batch = self._decoded(record, on_damage)
                if batch is not None:
                    inside = from_us <= header.created_min_us and header.created_max_us < to_us
                    yield batch if inside else _created_between(batch, from_us, to_us)

    def _span(self, from_seq: int, to_seq: int | None) -> _Span:
        state = self._current()
        if from_seq < state.first_seq:
            raise RangeGone(self._base, from_seq, state.first_seq)
        last = state.next_seq - 1
        return _Span(state, from_seq, last if to_seq is None else min(to_seq, last))

    def _records(self, span: _Span, on_damage: OnDamage | None) -> Iterator[Record]:
        for entry in self._segments(span):
            yield from self._segment_records(span, entry, on_damage)

    def _segments(self, span: _Span) -> Iterator[Entry]:
        entries = span.state.entries
        for index in range(entries.first_ending_at_or_after(span.from_seq), len(entries)):
            entry = entries[index]
            if entry.start_seq > span.last_seq:
                return
            yield entry
        if span.state.position and span.last_seq >= span.state.start_seq:
            yield span.state.active_entry()

    def _segment_records(self, span: _Span, entry: Entry, on_damage: OnDamage | None) -> Iterator[Record]:
        file = self._opened(entry, span, on_damage)
        if file is None:
            return
        try:
            position, next_seq = self._seek(file, entry, span.from_seq)
            scan = SegmentScan(
                file,
                entry.path,
                position=position,
                end=entry.size,
                next_seq=next_seq,
                last_seq=entry.end_seq,
                chunk_bytes=self._options.read_chunk_bytes,
            )
            _, from_seq, last_seq = span
            mark_at = position + MARK_EVERY_BYTES
            for found in scan:
                if isinstance(found, DamagedRange):
                    self._report(found, span, on_damage)
                    continue
                header = found.header
                if header.first_seq > last_seq:
                    return
                if header.position >= mark_at:
                    self._marks.note(entry.path, header.first_seq, header.position)
                    mark_at = header.position + MARK_EVERY_BYTES
                if header.message_count and header.first_seq + header.message_count > from_seq:
                    yield found
                if header.next_seq > last_seq:
                    # Before the next record is read, which may be large, only to see that it is not wanted.
                    return
        finally:
            file.close()

    def _opened(self, entry: Entry, span: _Span, on_damage: OnDamage | None) -> File | None:
        """The segment's file; None when it is missing and that was reported."""
        try:
            return self._open(entry)
        except SegmentMissing as missing:
            if on_damage is None:
                raise
            self._report(missing.damage, span, on_damage)
            return None

    def _seek(self, file: File, entry: Entry, seq: int) -> tuple[int, int]:
        """Where to start scanning for `seq`: a record's position and its first seq."""
        if seq <= entry.start_seq:
            return 0, entry.start_seq
        next_seq, position = start_seq, start = self._marks.before(entry.path, seq) or (entry.start_seq, 0)
        for header in walk_headers(file, position=position, next_seq=next_seq, end=entry.size):
            if header.next_seq > seq:
                return position, next_seq
            self._marks.note(entry.path, header.first_seq, header.position)
            position, next_seq = header.position + header.size, header.next_seq
        # One of the headers lies. Which one, and where its record ends, only a scan of whole records finds out.
        return (position, next_seq) if next_seq > entry.end_seq else (start, start_seq)

    def _report(self, damage: DamagedRange, span: _Span, on_damage: OnDamage | None) -> None:
        """Report damage that took messages which were requested; stray bytes between records took none."""
        last = damage.last_seq
        if last is not None and last < max(damage.first_seq, span.from_seq):
            return
        if damage.first_seq > span.last_seq:
            return
        if on_damage is None:
            raise SegmentDamaged(self._base, damage)
        on_damage(damage)

    def _decoded(self, record: Record, on_damage: OnDamage | None) -> pa.RecordBatch | None:
        try:
            return record.batch()
        except BodyRefused as refused:
            self._refused(record, refused, on_damage)
            return None

    def _refused(self, record: Record, refused: BodyRefused, on_damage: OnDamage | None) -> None:
        """A record whose CRC is right and whose body is none of ours."""
        damage = _damage(record.header, "a record", str(refused))
        if on_damage is None:
            raise SegmentDamaged(self._base, damage) from None
        on_damage(damage)

    def _open(self, entry: Entry) -> File:
        if not is_segment_path(entry.path):
            raise ManifestCorrupted(self._base, entry.path, "is not the path of a segment")
        try:
            return self._filesystem.open(self._base / entry.path)
        except OSError as error:
            first_seq = self._current().first_seq
            if first_seq > entry.end_seq:
                raise RangeGone(self._base, entry.start_seq, first_seq) from None
            if error.errno not in _NO_SUCH_FILE:
                raise not_accessible(self._base, error) from error
            fault = f"cannot open the segment: {error.strerror or error}"
            damage = DamagedRange(entry.path, 0, entry.size, entry.start_seq, entry.end_seq, fault)
            raise SegmentMissing(self._base, entry.path, fault, damage) from error

    def _created_range(self, state: LogState, entry: Entry) -> tuple[int, int]:
        """Smallest and largest creation time in a segment, from its headers; kept for sealed segments."""
        known = self._created_ranges.get(entry.path)
        if known is not None:
            return known
        low, high, next_seq = SEQ_MAX, 0, entry.start_seq
        try:
            file = self._open(entry)
        except SegmentMissing:
            return 0, SEQ_MAX  # its reader gets the error
        try:
            header: Header
            for header in walk_headers(file, position=0, next_seq=next_seq, end=entry.size):
                next_seq = header.next_seq
                if not header.is_filler:
                    low, high = min(low, header.created_min_us), max(high, header.created_max_us)
        finally:
            file.close()
        if next_seq <= entry.end_seq:
            return 0, SEQ_MAX  # a damaged header ended the walk: anything may be behind it
        if entry.path != state.path:
            self._created_ranges[entry.path] = low, high
        return low, high


def _damage(header: Header, segment: str, reason: str) -> DamagedRange:
    return DamagedRange(segment, header.position, header.size, header.first_seq, header.next_seq - 1, reason)


def _limited(batches: Iterator[pa.RecordBatch], limit: int) -> Iterator[pa.RecordBatch]:
    """The first `limit` messages."""
    while limit > 0 and (batch := next(batches, None)) is not None:
        yield batch if batch.num_rows <= limit else batch.slice(0, limit)
        limit -= batch.num_rows


def _created_between(batch: pa.RecordBatch, from_us: int, to_us: int) -> pa.RecordBatch:
    import pyarrow.compute as pc  # a third of pyarrow's import time, and only needed here

    created = batch.column("created_at").cast(pa.int64())
    return batch.filter(pc.and_(pc.greater_equal(created, from_us), pc.less(created, to_us)))
