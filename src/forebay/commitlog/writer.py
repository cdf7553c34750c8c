"""The writing side of a log: one active segment, one manifest, and what to do when the disk says no.

Not for two threads at once; `CommitLog` holds a lock around it. Its promises:

- `commit` returns when everything it was given is durable. When it raises, nothing of it is part of the log: the
  position and the next seq are what they were, and the segment is cut back to them. Where the disk refuses that as
  well, the error says that the outcome is unknown: a crash may leave the bytes to the next opening.
- A failed sync seals the segment at the last byte that was synced before. The bytes behind it may or may not have
  reached the disk; no later sync can tell, so they are never part of the log, and the next append goes into a new file.
- A full disk changes nothing: cut back, raise `DiskFull`, try afresh at the next append.
- A new segment exists, empty, and is named by a durable manifest before its first byte is written. So a crash never
  leaves messages that no manifest knows of.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from time import perf_counter

from forebay.clock import Clock
from forebay.commitlog import block, layout
from forebay.commitlog.active_file import ActiveFile
from forebay.commitlog.columns import ColumnBatch
from forebay.commitlog.manifest import ManifestStore
from forebay.commitlog.runs import RunBatch
from forebay.commitlog.state import LogCounters, LogOptions, LogState
from forebay.errors import AppendFailed, DiskFull, SyncFailed
from forebay.filesystem import File, Filesystem, Kind, is_disk_full
from forebay.model.message import MessageBatch, SeqRange

logger = logging.getLogger(__name__)

_SAMPLE_EVERY_RECORDS = 16
_new_tuple = tuple.__new__


Append = tuple[MessageBatch, bytes]
"""What one appender wants written: its messages, all or none of them, and the tag of their record."""


class LogWriter:
    def __init__(
        self,
        filesystem: Filesystem,
        base: Path,
        options: LogOptions,
        clock: Clock,
        store: ManifestStore,
        state: LogState,
        generation: int,
        file: File,
        *,
        must_seal: bool = False,
    ) -> None:
        """`must_seal`: nothing more may be written to the active segment."""
        self._filesystem = filesystem
        self._base = base
        self._options = options
        self._clock = clock
        self._store = store
        self._generation = generation
        self._file: ActiveFile | None = ActiveFile(file, state.position, options.segment_bytes)
        """None while nothing is written, so that an idle log has no file open."""
        # Records of two versions never share a segment: a search behind damage knows which to look for.
        self._must_seal = must_seal
        self._manifest_is_current = True
        self._path_checksum = block.checksum_of_path(state.path)
        self._day_ends_us = layout.end_of_day(state.path)
        self._records_until_sample = 0
        self._last_sample_shrank = False
        self.state = state
        self.last_position = 0
        """Where the last commit's first record stands in its segment."""
        self.counters = LogCounters()

    def commit(self, appends: Sequence[Append]) -> list[SeqRange]:
        """Make all of them durable as one record with one sync. They have one tag."""
        began = perf_counter()
        batches = [batch for batch, _ in appends]
        first_seq, tag = self.state.next_seq, appends[0][1]
        is_compressed = self._is_worth_compressing(batches)
        ranges = _ranges(first_seq, batches)
        pieces = block.encode(batches, first_seq, tag=tag, compress=is_compressed)
        try:
            self._write(pieces, ranges[-1].last_seq + 1, began)
        except AppendFailed:
            self.counters.failed_appends += len(appends)
            raise
        return ranges

    def commit_columns(self, batch: ColumnBatch | RunBatch, created_us: int, tag: bytes) -> SeqRange:
        """Make messages that are columns already durable as one record, without a copy of theirs."""
        began = perf_counter()
        first_seq, count = self.state.next_seq, len(batch)
        is_compressed = self._is_worth_compressing([batch])
        body = batch.body(created_us, tag)
        pieces = block.framed(body, first_seq, count, (created_us, created_us), compress=is_compressed)
        try:
            self._write(pieces, first_seq + count, began)
        except AppendFailed:
            self.counters.failed_appends += 1
            raise
        return SeqRange(first_seq, first_seq + count - 1)

    def _write(self, pieces: Sequence[block.Piece], next_seq: int, began: float) -> None:
        size = sum(map(len, pieces)) + block.CRC_BYTES
        file = self._ready_for(size)
        entries, path, position, first_seq, file_seq = self.state
        record = block.sealed(pieces, block.checksum_of_place(self._path_checksum, position))
        write_began = perf_counter()
        try:
            file.write(record, size, position)
        except OSError as error:
            raise self._failed(error, file, size) from error
        ended = perf_counter()
        times = self._options.times
        times.sync.note(ended - write_began)
        times.append.note(ended - began)
        self.last_position = position
        # Not `LogState(...)`: its constructor is written in Python, and every group goes through here.
        self.state = _new_tuple(LogState, (entries, path, position + size, next_seq, file_seq))
        self._manifest_is_current = False
        counters = self.counters
        counters.messages += next_seq - first_seq
        counters.record_bytes += size
        counters.records += 1

    def _is_worth_compressing(self, batches: Sequence[MessageBatch | ColumnBatch | RunBatch]) -> bool:
        """What the last sample said; a new one is taken every few records, for payloads change slowly."""
        if not self._options.compress:
            return False
        if self._records_until_sample == 0:
            self._records_until_sample = _SAMPLE_EVERY_RECORDS
            payloads = chain.from_iterable(batch.payloads for batch in batches)
            self._last_sample_shrank = block.sample_shrinks(payloads)
        self._records_until_sample -= 1
        return self._last_sample_shrank

    def _ready_for(self, size: int) -> ActiveFile:
        """The file of an active segment that may be written to and has room for `size` more bytes."""
        state = self.state
        is_full = state.position > 0 and state.position + size > self._options.segment_bytes
        is_new_day = self._options.roll_daily and self._clock.now_us() >= self._day_ends_us
        if is_full or is_new_day or self._must_seal:
            try:
                self.roll()
            except OSError as error:
                raise self._refusal(error, "starting a new segment failed") from error
        if self._file is None:
            try:
                file = self._filesystem.open(self._base / self.state.path, write=True)
            except OSError as error:
                raise self._refusal(error, "opening the active segment failed") from error
            self._file = ActiveFile(file, self.state.position, self._options.segment_bytes)
        return self._file

    def let_go_of_file(self) -> None:
        """Close the active segment's file until it is written to again."""
        self._close_file(self.state.position)

    def _close_file(self, position: int) -> None:
        """`position`: where the records of its segment end, which need not be the active one any more."""
        file, self._file = self._file, None
        if file is not None:
            file.close(position)

    def skip_to(self, seq: int) -> None:
        """Go on with this seq, or where the log is if that is behind it."""
        if seq > self.state.next_seq:
            self._roll_to(seq)

    def roll(self) -> None:
        """Seal the active segment where it stands and go on in a new one."""
        self._roll_to(self.state.next_seq)

    def _roll_to(self, next_seq: int) -> None:
        state = self.state
        # A clock that steps back must not reopen an old day: segments stay in the order of their days.
        day = max(layout.day_of(self._clock.now_us()), layout.day_of_path(state.path))
        path = layout.segment_path(day, next_seq)
        # Its file is replaced: if that fails halfway, the one that is open may have no name any more.
        self._must_seal = self._must_seal or path == state.path
        file = self._create_segment(path)
        is_empty = state.position == 0
        rolled = LogState(
            entries=state.entries if is_empty else state.entries.with_entry(state.active_entry()),
            path=path,
            position=0,
            next_seq=next_seq,
            file_seq=state.file_seq + 1,
        )
        try:
            self._put_in_force(rolled)
        except BaseException:
            # The disk may have either state in force. In one of them the old segment ends here: nothing more goes into
            # it, or the next opening would not find it.
            self._must_seal = True
            file.close()
            raise
        self._close_file(state.position)
        self._file = ActiveFile(file, 0, self._options.segment_bytes)
        self._must_seal = False
        self._path_checksum = block.checksum_of_path(path)
        self._day_ends_us = layout.end_of_day(path)
        self.counters.rolls += 1
        if is_empty and state.path != path:
            with contextlib.suppress(OSError):
                self._filesystem.remove(self._base / state.path)

    def _create_segment(self, path: str) -> File:
        target = self._base / path
        layout.ensure_directory(self._filesystem, self._base, layout.day_of_path(path))
        status = self._filesystem.status(target)
        if path == self.state.path:
            # The active segment is empty and its file is not to be trusted any more: another file, the same name.
            spare = target.with_suffix(".new")
            file = self._filesystem.open(spare, write=True, create=True)
            file.truncate(0)
            self._filesystem.replace(spare, target)
        elif status.kind is Kind.ABSENT or (status.kind is Kind.FILE and status.size == 0):
            file = self._filesystem.open(target, write=True, create=True)
        else:
            raise AppendFailed(
                target, f"a {status.kind.value} of {status.size} bytes stands where a new segment goes",
                remedy="Move it out of the log's directory",
            )  # fmt: skip
        self._filesystem.sync_directory(target.parent)
        return file

    def truncate_before(self, seq: int) -> None:
        """Remove whole segments that hold nothing but messages before `seq`."""
        if seq >= self.state.next_seq and self.state.position > 0:
            self.roll()
        state = self.state
        count = state.entries.first_ending_at_or_after(seq)
        removed = [state.entries[index] for index in range(count)]
        if removed:
            self._put_in_force(state._replace(entries=state.entries.without_first(count)))
        for entry in removed:
            self._remove(entry.path)
            self.counters.segments_removed += 1
            self.counters.bytes_removed += entry.size
        self._sweep()

    def _sweep(self) -> None:
        """Remove what a crash between the manifest and the removal of files left behind, and days that are empty."""
        state = self.state
        oldest = state.entries[0].path if len(state.entries) else state.path
        for day in list(layout.days(self._filesystem, self._base)):
            if day > layout.day_of_path(oldest):
                break
            names = self._filesystem.list_directory(self._base / day)
            paths = [f"{day}/{name}" for name in names]
            left_over = [p for p in paths if layout.is_segment_path(p) and layout.first_seq_of(p) < state.first_seq]
            for path in left_over:
                self._remove(path)
            if len(left_over) == len(paths) and day != layout.day_of_path(state.path):
                with contextlib.suppress(OSError):
                    self._filesystem.remove_directory(self._base / day)

    def _remove(self, path: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            self._filesystem.remove(self._base / path)

    def checkpoint(self) -> None:
        """Write the manifest if it tells less than is known."""
        if not self._manifest_is_current:
            self._put_in_force(self.state)

    def close(self) -> None:
        """Record the final state. If the disk refuses, the next opening finds it by scanning."""
        try:
            if self._must_seal:
                self.roll()
            self.checkpoint()
        except (OSError, AppendFailed) as error:
            logger.warning("%s: manifest not written at close: %s", self._base, error, extra={"action": "log_close"})
        finally:
            self.let_go_of_file()

    def _put_in_force(self, state: LogState) -> None:
        self._store.write(state.manifest(self._generation + 1))
        self._generation += 1
        self.state = state
        self._manifest_is_current = True

    def _failed(self, error: OSError, file: ActiveFile, size: int) -> AppendFailed:
        """After a failed write: what reached the file must never be taken for part of the log."""
        what = f"writing and syncing {size} bytes at {self.state.position} failed"
        refusal = self._refusal(error, what, SyncFailed)
        try:
            file.cut(self.state.position)
            self._must_seal = not is_disk_full(error)
        except OSError:
            self._must_seal = True
        if self._must_seal:
            self.counters.failed_syncs += 1
            logger.error("%s", refusal, extra={"action": "log_sync_failed"})
            # At once where the disk lets us, so that the next append need not; it tries again if not. Until it is
            # sealed, a crash leaves to the next opening whatever the failed write has left.
            try:
                self.roll()
            except (OSError, AppendFailed):
                refusal.is_outcome_unknown = True
        return refusal

    def _refusal(self, error: OSError, what: str, kind: type[AppendFailed] = AppendFailed) -> AppendFailed:
        path = self._base / self.state.path
        if is_disk_full(error):
            free = "unknown"
            with contextlib.suppress(OSError):
                free = str(self._filesystem.free_bytes(self._base))
            return DiskFull(path, f"{what}, {free} bytes are free")
        return kind(path, f"{what}: {error.strerror or error}")


def _ranges(first_seq: int, batches: Sequence[MessageBatch]) -> list[SeqRange]:
    """The numbers that each batch of a record got."""
    # As above: a group makes one for each of its appenders.
    counts = [len(batch.payloads) for batch in batches]
    if sum(counts) == len(counts):
        # One message each, as in most groups. No batch is empty.
        return [_new_tuple(SeqRange, (seq, seq)) for seq in range(first_seq, first_seq + len(counts))]
    ranges = []
    for count in counts:
        ranges.append(_new_tuple(SeqRange, (first_seq, first_seq + count - 1)))
        first_seq += count
    return ranges
