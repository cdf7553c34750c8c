"""`CommitLog`: the one object that the rest of Forebay knows of this room."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

import pyarrow as pa

from forebay.clock import Clock, SystemClock
from forebay.commitlog import layout
from forebay.commitlog.access import not_accessible, take_lock
from forebay.commitlog.block import DATA_BYTES_MAX, MESSAGES_MAX, NO_TAG, TAG_BYTES, size_max
from forebay.commitlog.columns import ColumnBatch
from forebay.commitlog.group_commit import GroupCommit
from forebay.commitlog.kept_open import KeptOpen, share_of_handles
from forebay.commitlog.manifest import ManifestStore
from forebay.commitlog.plain import PlainRecord
from forebay.commitlog.reader import LogReader, OnDamage
from forebay.commitlog.recovery import RecoveryReport, recover
from forebay.commitlog.runs import RunBatch
from forebay.commitlog.scan import Record
from forebay.commitlog.state import LogCounters, LogOptions, LogState, RecordPosition
from forebay.commitlog.writer import Append, LogWriter
from forebay.errors import BatchRefused, LogClosed
from forebay.filesystem import Filesystem, Kind, Lock, RealFilesystem
from forebay.model.message import MessageBatch, SeqRange

_kept = KeptOpen(share_of_handles)


class CommitLog:
    """A durable, numbered log of messages in a directory. Open it with `CommitLog.open`, close it with `close`.

    Any number of threads may append and read at the same time.
    """

    def __init__(
        self,
        base: Path,
        options: LogOptions,
        lock: Lock | None,
        writer: LogWriter,
        reader: LogReader,
        report: RecoveryReport,
    ) -> None:
        self.base = base
        self.recovery = report
        self._lock_file = lock
        self._writer = writer
        self._reader = reader
        self._mutex = threading.Lock()
        self._is_closed = False
        self._group: GroupCommit[Append, SeqRange] = GroupCommit(
            self._commit,
            group_bytes_max=options.record_bytes,
            # A group is one record, and a record has one tag. With two records in one write a power cut could take
            # the first and leave the second, which would look like a damaged disk.
            may_join=lambda first, other: first[1] == other[1],
        )

    @classmethod
    def open(
        cls,
        base: Path | str,
        options: LogOptions | None = None,
        *,
        filesystem: Filesystem | None = None,
        clock: Clock | None = None,
        is_owned: bool = False,
    ) -> CommitLog:
        """Open the log in `base`, making it if the directory is empty or absent, and recover what a crash left.

        `is_owned`: the caller holds a lock on a directory around it (`layout`), so that the log needs none.
        """
        base = Path(base)
        options = options or LogOptions()
        filesystem = filesystem or RealFilesystem()
        clock = clock or SystemClock()
        try:
            _make_base(filesystem, base)
            lock = None if is_owned else take_lock(filesystem, base)
            try:
                store = ManifestStore(filesystem, base)
                day = layout.day_of(clock.now_us())
                found = recover(filesystem, base, store, day, options.read_chunk_bytes)
            except BaseException:
                if lock is not None:
                    lock.release()
                raise
        except OSError as error:
            raise not_accessible(base, error) from error
        writer = LogWriter(
            filesystem,
            base,
            options,
            clock,
            store,
            found.state,
            found.generation,
            found.file,
            must_seal=found.is_of_old_version and found.state.position > 0,
        )
        reader = LogReader(filesystem, base, options, lambda: writer.state)
        log = cls(base, options, lock, writer, reader, found.report)
        _kept.add(log)
        return log

    def append(self, batch: MessageBatch, *, tag: bytes = NO_TAG) -> SeqRange:
        """Add the messages, all or none. On return they are durable and numbered; they never share a seq."""
        return self._group.submit((batch, tag), _checked(len(batch.payloads), batch.variable_bytes, tag))

    def append_record(self, batch: MessageBatch, *, tag: bytes = NO_TAG) -> RecordPosition:
        """Append as one record of its own and say where it stands, for callers that keep an index of records."""
        _checked(len(batch.payloads), batch.variable_bytes, tag)
        with self._mutex:
            self._check_open()
            (seqs,) = self._writer.commit([(batch, tag)])
            place = RecordPosition(*seqs, self._writer.last_position)
        _kept.add(self)
        return place

    def append_columns(self, batch: ColumnBatch | RunBatch, created_us: int, *, tag: bytes = NO_TAG) -> RecordPosition:
        """`append_record` for messages that are columns already, all of one time."""
        _checked(len(batch), batch.variable_bytes, tag)
        with self._mutex:
            self._check_open()
            seqs = self._writer.commit_columns(batch, created_us, tag)
            place = RecordPosition(*seqs, self._writer.last_position)
        _kept.add(self)
        return place

    def read_record(self, first_seq: int, position: int) -> PlainRecord:
        """The record that `append_record` or `read_records` found there."""
        self._check_open()
        return self._reader.record(first_seq, position)

    def read(
        self,
        from_seq: int,
        to_seq: int | None = None,
        *,
        limit: int | None = None,
        on_damage: OnDamage | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Messages `from_seq` to `to_seq` (included), at most `limit`, as batches of `columns.SCHEMA`.

        Reads what was durable at the call. A record that cannot be read raises `SegmentDamaged`, or is given to
        `on_damage` and stepped over. A `from_seq` that retention has removed raises `RangeGone`.
        """
        self._check_open()
        return self._reader.batches(from_seq, to_seq, limit, on_damage)

    def read_records(
        self, from_seq: int, to_seq: int | None = None, *, on_damage: OnDamage | None = None
    ) -> Iterator[Record]:
        """The records that hold those messages, with tag and position, for callers that keep an index of them."""
        self._check_open()
        return self._reader.records(from_seq, to_seq, on_damage)

    def read_created_between(
        self, from_us: int, to_us: int, *, on_damage: OnDamage | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Messages created at `from_us` or later and before `to_us`, in seq order."""
        self._check_open()
        return self._reader.batches_created_between(from_us, to_us, on_damage)

    def truncate_before(self, seq: int) -> int:
        """Remove whole segments that end before `seq` and return the oldest seq kept. Disk space is free at once."""
        with self._mutex:
            self._check_open()
            try:
                self._writer.truncate_before(seq)
            except OSError as error:
                raise not_accessible(self.base, error) from error
            finally:
                self._reader.let_go()
            return self._writer.state.first_seq

    def roll(self) -> None:
        """Seal the active segment now."""
        with self._mutex:
            self._check_open()
            try:
                self._writer.roll()
            except OSError as error:
                raise not_accessible(self.base, error) from error

    def skip_to(self, seq: int) -> None:
        """Give the next message at least this seq: the ones before it are known to have been given out already.

        For a caller that knows that the log has lost its end. Durable on return; the gap stays between two segments.
        """
        with self._mutex:
            self._check_open()
            try:
                self._writer.skip_to(seq)
            except OSError as error:
                raise not_accessible(self.base, error) from error

    def close(self) -> None:
        """Record the final state and let go of the directory. Appends that wait are failed, reads may go on."""
        with self._mutex:
            if self._is_closed:
                return
            self._is_closed = True
            try:
                self._reader.let_go()
                self._writer.close()
            finally:
                _kept.remove(self)
                if self._lock_file is not None:
                    self._lock_file.release()

    @property
    def first_seq(self) -> int:
        """The oldest message kept; equal to `next_seq` when there is none."""
        return self._writer.state.first_seq

    @property
    def next_seq(self) -> int:
        """The seq that the next message gets."""
        return self._writer.state.next_seq

    @property
    def state(self) -> LogState:
        return self._writer.state

    @property
    def counters(self) -> LogCounters:
        return self._writer.counters

    def __enter__(self) -> CommitLog:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _commit(self, appends: list[Append]) -> list[SeqRange]:
        with self._mutex:
            if self._is_closed:
                raise LogClosed(self.base)
            ranges = self._writer.commit(appends)
        _kept.add(self)
        return ranges

    def let_go_of_file(self) -> None:
        """Close the active segment's file until something is appended: nothing was for longest."""
        if self._mutex.acquire(blocking=False):  # else it is in use, and tells so when that is done
            try:
                self._writer.let_go_of_file()
            finally:
                self._mutex.release()

    def _check_open(self) -> None:
        if self._is_closed:
            raise LogClosed(self.base)


def _checked(count: int, variable_bytes: int, tag: bytes) -> int:
    """Refuse here what could not be written, so that a bad batch fails alone and not with its group."""
    size = size_max(count, variable_bytes)
    if not (0 < count <= MESSAGES_MAX and size <= DATA_BYTES_MAX):
        limits = f"1-{MESSAGES_MAX} messages of {DATA_BYTES_MAX} bytes together"
        raise BatchRefused(f"a batch of {count} messages and {size} bytes is outside {limits}")
    if len(tag) != TAG_BYTES:
        raise BatchRefused(f"a tag has {TAG_BYTES} bytes, not {len(tag)}")
    return size


def _make_base(filesystem: Filesystem, base: Path) -> None:
    """Have the log's directory, its name durable all the way down: a log is no safer than the path to it."""
    if filesystem.status(base / layout.POINTER).kind is not Kind.ABSENT:
        return
    for path in [*reversed(base.parents), base]:
        if filesystem.status(path).kind is Kind.ABSENT:
            filesystem.make_directory(path)
        with contextlib.suppress(PermissionError):  # a parent that is not ours was there before us
            filesystem.sync_directory(path.parent)
