"""Single records by the place where they stand, as consumers that follow a log want them: one, then one behind it.

The segment that was read last stays open, and so does the window that was read of it: small records next to each other
are read from the disk together, and the kernel sees a process that reads on, and reads ahead. A window ends where the
segment's durable bytes ended when it was read, so what is in it never changes. Behind a record that is larger than a
window others of its kind are expected: of such a one the header is read, and then all of it, and nothing twice.

A process may have thousands of logs, so only those that were read last keep something open.

Only what is as it should be is found here. Whatever is odd about a record is left to a scan, which can tell what it is.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from forebay.commitlog.block import HEADER_BYTES, Header, checksum_of_path, crc_holds, parse_header
from forebay.commitlog.columns import BodyRefused
from forebay.commitlog.kept_open import FEW_FILES, KeptOpen
from forebay.commitlog.manifest import Entry
from forebay.commitlog.plain import PlainRecord
from forebay.filesystem import File

_WINDOW_BYTES = 128 << 10


_kept = KeptOpen(lambda: FEW_FILES)


class SingleReads:
    """Of one log, for any thread."""

    def __init__(self, open_segment: Callable[[Entry], File]) -> None:
        self._open = open_segment
        self._lock = threading.Lock()
        self._file: File | None = None
        self._path = ""
        self._path_checksum = 0
        self._window = b""
        self._window_at = 0
        self._was_large = False
        """Whether the record that was read last was larger than a window."""

    def record(self, entry: Entry, first_seq: int, position: int) -> PlainRecord | None:
        """The record that starts with `first_seq` at `position` of the segment; None if something is odd about it."""
        with self._lock:
            found = self._found(entry, position)
            path_checksum = self._path_checksum
            if len(self._window) > _WINDOW_BYTES:
                self._window = b""  # of a large record, which has it now
        _kept.add(self)
        if found is None:
            return None
        data, offset, header = found
        if header.first_seq != first_seq or header.is_filler or not header.has_crc:
            return None
        if not crc_holds(data, offset, header, path_checksum):
            return None
        if 2 * header.size < len(data) or offset % 4:
            # A copy: else the record would keep the whole window in memory, or its integers are not where they should.
            data, offset = data[offset : offset + header.size], 0
        try:
            return PlainRecord(data, offset, header)
        except BodyRefused:
            return None

    def let_go(self) -> None:
        """Close the segment, which may have been removed: its space is free when no process has it open."""
        self.let_go_of_file()
        _kept.remove(self)

    def let_go_of_file(self) -> None:
        with self._lock:
            self._close()

    def _close(self) -> None:
        if self._file is not None:
            self._file.close()
        self._file, self._path, self._window = None, "", b""

    def _found(self, entry: Entry, position: int) -> tuple[bytes, int, Header] | None:
        """A window that has all of the record, where in it, and its header, which makes sense."""
        if self._file is None or self._path != entry.path:
            self._close()
            self._file, self._path = self._open(entry), entry.path
            self._path_checksum = checksum_of_path(entry.path)
        offset = position - self._window_at
        if not 0 <= offset <= len(self._window) - HEADER_BYTES:
            size = HEADER_BYTES if self._was_large else _WINDOW_BYTES
            offset = self._read(self._file, entry, position, size)
        if len(self._window) < offset + HEADER_BYTES:
            return None
        header = parse_header(self._window, offset, position)
        if isinstance(header, str):
            return None
        self._was_large = header.size > _WINDOW_BYTES
        if offset + header.size > len(self._window):
            offset = self._read(self._file, entry, position, max(header.size, _WINDOW_BYTES))
        return (self._window, offset, header) if offset + header.size <= len(self._window) else None

    def _read(self, file: File, entry: Entry, position: int, size: int) -> int:
        """Move the window to `position`; returns where that is in it."""
        self._window = b""
        self._window = file.read_at(max(min(size, entry.size - position), 0), position)
        self._window_at = position
        return 0
