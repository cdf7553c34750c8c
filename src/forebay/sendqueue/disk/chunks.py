"""Chunk files as one stream of bytes: write at its end, read anywhere, sync, drop what is consumed.

A chunk is named by the offset of its first byte and ends where the next one begins, or at the end of its file if that
comes first. Nothing here knows what is in them.
"""

from __future__ import annotations

import errno
import re
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from pathlib import Path

from forebay.filesystem import File, Filesystem, Kind, write_fully

CHUNK_NAME = re.compile(r"[0-9a-f]{16}")
COPY_BYTES = 4 << 20


def chunk_name(start: int) -> str:
    return f"{start:016x}"


class Chunks:
    """The chunk files of one directory. Not thread-safe; its queue has a lock."""

    def __init__(self, filesystem: Filesystem, directory: Path, chunk_bytes: int) -> None:
        self._filesystem = filesystem
        self._directory = directory
        self._chunk_bytes = chunk_bytes
        names = filesystem.list_directory(directory)
        self.starts = sorted(int(name, 16) for name in names if CHUNK_NAME.fullmatch(name))
        self._known_sizes: dict[int, int] = {}
        while self.starts and filesystem.status(self._path(self.starts[-1])).kind is not Kind.FILE:
            self.starts.pop()
        self._writer: File | None = None
        self._reader: tuple[int, File] | None = None
        self._unsynced: dict[int, File] = {}
        self._syncing: dict[int, File] = {}
        self._is_name_new = False
        self._half_written: set[int] = set()
        """Chunks that `write_again` has begun to write."""

    def _size(self, start: int) -> int:
        """Of a chunk's file. Read when it is needed: opening a queue of a thousand chunks needs the last one's."""
        size = self._known_sizes.get(start)
        if size is None:
            status = self._filesystem.status(self._path(start))
            size = self._known_sizes[start] = status.size if status.kind is Kind.FILE else 0
        return size

    def _path(self, start: int) -> Path:
        return self._directory / chunk_name(start)

    # where things are

    @property
    def first(self) -> int:
        """The offset of the first byte that is there; 0 without any chunk."""
        return self.starts[0] if self.starts else 0

    @property
    def end(self) -> int:
        """The offset behind the last byte that is there."""
        return self.end_of(self.starts[-1]) if self.starts else 0

    @property
    def disk_bytes(self) -> int:
        return sum(map(self._size, self.starts))

    def end_of(self, start: int) -> int:
        """Where the chunk that begins at `start` ends."""
        index = bisect_right(self.starts, start)
        end = start + self._size(start)
        return min(end, self.starts[index]) if index < len(self.starts) else end

    def chunk_at(self, offset: int) -> int | None:
        """The start of the chunk that holds this byte, None if none does."""
        index = bisect_right(self.starts, offset) - 1
        if index < 0 or offset >= self.end_of(self.starts[index]):
            return None
        return self.starts[index]

    def start_behind(self, offset: int) -> int | None:
        """The first chunk that begins behind this offset."""
        index = bisect_right(self.starts, offset)
        return self.starts[index] if index < len(self.starts) else None

    # reading

    def read(self, offset: int, size: int) -> bytes:
        """Up to `size` bytes from this offset on, of one chunk; none where there is no chunk."""
        start = self.chunk_at(offset)
        if start is None:
            return b""
        size = min(size, self.end_of(start) - offset)
        return self._reading(start).read_at(size, offset - start)

    def _reading(self, start: int) -> File:
        if (opened := self._opened().get(start)) is not None:  # whatever became of its name
            return opened
        if self._reader is None or self._reader[0] != start:
            self._close_reader()
            self._reader = (start, self._filesystem.open(self._path(start)))
        return self._reader[1]

    # writing

    def append(self, pieces: Sequence[bytes], offset: int) -> None:
        """Write at the end of the stream, in a new chunk if the last one would become too large.

        If it raises, nothing counts: the next append overwrites what this one may have left.
        """
        size = sum(map(len, pieces))
        start = self.starts[-1] if self.starts else None
        if start is None or offset != self.end_of(start) or self._is_full(start, size):
            start = self._begin(offset)
        file = self._writing(start)
        self._unsynced.setdefault(start, file)
        write_fully(file, pieces, offset - start)
        self._known_sizes[start] = offset + size - start

    def _is_full(self, start: int, size: int) -> bool:
        """Whether the chunk would become too large. One block alone always fits."""
        return self._size(start) > 0 and self._size(start) + size > self._chunk_bytes

    def _begin(self, offset: int) -> int:
        self._filesystem.open(self._path(offset), write=True, create=True).close()
        self._leave_writer()
        self._is_name_new = True
        self.starts.append(offset)
        self._known_sizes[offset] = 0
        return offset

    def _opened(self) -> dict[int, File]:
        """The chunks that are open for writing."""
        last = {self.starts[-1]: self._writer} if self._writer is not None else {}
        return {**self._syncing, **self._unsynced, **last}

    def is_last_gone(self) -> bool:
        """Whether another program has removed the chunk that is written to."""
        return bool(self.starts) and self._filesystem.status(self._path(self.starts[-1])).kind is not Kind.FILE

    def write_again(self) -> list[int]:
        """Chunks were removed: write those that are open to where they were, and forget the others, which are returned.

        May be called again after it raised.
        """
        self._close_reader()
        lost = []
        for start in list(self.starts):
            if self._filesystem.status(self._path(start)).kind is Kind.FILE and start not in self._half_written:
                continue
            old = self._opened().get(start)
            if old is None:
                lost.append(start)
                self.starts.remove(start)
                self._known_sizes.pop(start, None)
            else:
                self._write_chunk_again(start, old)
        self._is_name_new = True
        return lost

    def _write_chunk_again(self, start: int, old: File) -> None:
        self._half_written.add(start)
        new = self._filesystem.open(self._path(start), write=True, create=True)
        done, size = 0, self._size(start)
        try:
            while done < size and (piece := old.read_at(min(COPY_BYTES, size - done), done)):
                done += write_fully(new, [piece], done)
        except BaseException:
            new.close()
            raise
        self._half_written.discard(start)
        if old is self._writer:
            self._writer = new
        self._syncing.pop(start, None)
        self._unsynced[start] = new
        old.close()

    def _leave_writer(self) -> None:
        """Nothing more is written to the last chunk. Its file stays open while it is not synced."""
        if self._writer is not None and self._writer not in [*self._unsynced.values(), *self._syncing.values()]:
            self._writer.close()
        self._writer = None

    def _writing(self, start: int) -> File:
        if self._writer is None:
            self._writer = self._unsynced.get(start) or self._filesystem.open(self._path(start), write=True)
        return self._writer

    def unsynced(self) -> tuple[dict[int, File], bool]:
        """The files that were written to since the last call, and whether names are new, for `sync_files`."""
        files, self._unsynced = self._unsynced, {}
        self._syncing = files
        is_name_new, self._is_name_new = self._is_name_new, False
        return files, is_name_new

    def sync_files(self, files: dict[int, File], *, is_name_new: bool) -> None:
        """Make them durable. Touches no state: may run beside reading and writing."""
        for file in files.values():
            file.sync()
        if is_name_new:
            self._filesystem.sync_directory(self._directory)

    def synced(self, files: dict[int, File]) -> None:
        """They are durable: close those that nothing more is written to."""
        self._syncing = {}
        for start, file in files.items():
            if file is not self._writer and start not in self._unsynced:
                file.close()

    def doubt(self, offset: int) -> None:
        """Take what stands from this offset on as not durable: another process wrote it."""
        for start in self.starts[max(bisect_right(self.starts, offset) - 1, 0) :]:
            if self.end_of(start) > offset:
                self._unsynced.setdefault(start, self._filesystem.open(self._path(start), write=True))
                self._is_name_new = True

    def truncate(self, offset: int) -> None:
        """Drop everything from this offset on: what is there is no data."""
        for start in [start for start in self.starts if start >= offset]:
            self.remove([start])
        if self.starts and self.end_of(self.starts[-1]) > offset:
            start = self.starts[-1]
            self._writing(start).truncate(offset - start)
            self._known_sizes[start] = offset - start

    def rewrite_from(self, offset: int, end: int) -> None:
        """Copy the bytes of this range to a chunk of their own and make that durable: their sync had failed."""
        temporary = self._directory / (chunk_name(offset) + ".tmp")
        file = self._filesystem.open(temporary, write=True, create=True)
        try:
            file.truncate(0)
            done = offset
            while done < end and (piece := self.read(done, min(COPY_BYTES, end - done))):
                done += write_fully(file, [piece], done - offset)
            if done < end:
                raise OSError(errno.EIO, f"only {done - offset} of {end - offset} bytes can be read back")
            file.sync()
        finally:
            file.close()
        self._close_reader()
        for old in [*self._unsynced.values(), *([self._writer] if self._writer else [])]:
            old.close()
        self._unsynced, self._writer = {}, None
        self._filesystem.replace(temporary, self._path(offset))
        later = [start for start in self.starts if start > offset]
        self.starts = [*(start for start in self.starts if start < offset), offset]
        self._known_sizes[offset] = end - offset
        self._filesystem.sync_directory(self._directory)
        for start in later:
            self._known_sizes.pop(start, None)
            self._filesystem.remove(self._path(start))

    def remove(self, starts: Iterable[int]) -> None:
        """Unlink chunks that nothing needs any more."""
        for start in list(starts):
            if self._reader is not None and self._reader[0] == start:
                self._close_reader()
            if start == self.starts[-1]:
                self._leave_writer()
            if (file := self._unsynced.pop(start, None)) is not None:
                file.close()
            self._filesystem.remove(self._path(start))
            self.starts.remove(start)
            self._known_sizes.pop(start, None)

    def close(self) -> None:
        self._close_reader()
        for file in {id(file): file for file in [*self._unsynced.values(), self._writer] if file}.values():
            file.close()
        self._unsynced, self._writer = {}, None

    def _close_reader(self) -> None:
        if self._reader is not None:
            self._reader[1].close()
            self._reader = None
