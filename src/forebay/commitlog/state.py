"""What a log is at one moment, as a value: writers replace it whole, readers take it once and are never confused."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from forebay.commitlog.layout import first_seq_of
from forebay.commitlog.manifest import Entries, Entry, Manifest
from forebay.commitlog.scan import CHUNK_BYTES
from forebay.model.histogram import Histogram


@dataclass(frozen=True, slots=True)
class LogTimes:
    """How long appends took until they were durable, and the disk's part of that. Logs of one thread may share it."""

    append: Histogram = field(default_factory=Histogram)
    sync: Histogram = field(default_factory=Histogram)


@dataclass(frozen=True, slots=True)
class LogOptions:
    """How a log is kept. None of it is stored in the log: it may change from one opening to the next."""

    segment_bytes: int = 512 << 20
    """A segment that would grow past this is sealed and a new one is started."""
    roll_daily: bool = True
    """Also start a new segment when the UTC day changes, so that retention by days frees whole files."""
    record_bytes: int = 4 << 20
    """Appends that wait together become records of up to this size."""
    read_chunk_bytes: int = CHUNK_BYTES
    """How much of a segment a reader holds in memory."""
    compress: bool = True
    """Snappy for records that shrink by a third or more."""
    times: LogTimes = field(default_factory=LogTimes, compare=False, repr=False)


class RecordPosition(NamedTuple):
    """Where a record stands: its messages, and its position in the segment that holds them."""

    first_seq: int
    last_seq: int
    position: int


class LogState(NamedTuple):
    """Everything up to `position` of the active segment is durable; that is all a reader ever sees."""

    entries: Entries
    path: str
    position: int
    next_seq: int
    file_seq: int

    @property
    def start_seq(self) -> int:
        """Seq of the active segment's first message."""
        return first_seq_of(self.path)

    @property
    def first_seq(self) -> int:
        """The oldest message that is kept."""
        return self.entries[0].start_seq if len(self.entries) else self.start_seq

    def active_entry(self) -> Entry:
        """What the active segment would be if it were sealed now."""
        return Entry(self.start_seq, self.next_seq - 1, self.position, self.path)

    def manifest(self, generation: int) -> Manifest:
        return Manifest(
            next_seq=self.next_seq,
            generation=generation,
            file_seq=self.file_seq,
            write_pos=self.position,
            msg_count=self.next_seq - self.start_seq,
            path=self.path,
            entries=self.entries,
        )


@dataclass(slots=True)
class LogCounters:
    """Counts since the log was opened."""

    messages: int = 0
    record_bytes: int = 0
    records: int = 0
    """As many as groups, and as many as syncs."""
    rolls: int = 0
    failed_appends: int = 0
    failed_syncs: int = 0
    segments_removed: int = 0
    bytes_removed: int = 0
