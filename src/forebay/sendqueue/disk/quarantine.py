"""Bytes that could not be read, kept as they were. Nothing of Forebay's reads or deletes them again."""

from __future__ import annotations

import contextlib
from pathlib import Path

from forebay.clock import Clock
from forebay.filesystem import Filesystem, write_fully
from forebay.sendqueue.disk.chunks import COPY_BYTES, Chunks, chunk_name

FOLDER = "quarantine"


class Quarantine:
    """The folder `quarantine/` of a queue's directory."""

    def __init__(self, filesystem: Filesystem, directory: Path, clock: Clock) -> None:
        self._filesystem = filesystem
        self._directory = directory
        self._clock = clock

    def keep_bytes(self, chunks: Chunks, start: int, end: int) -> str:
        """Copy a range of the chunks, and say where to; or why that was not possible (a full disk, say)."""
        name = f"{FOLDER}/{chunk_name(start)}-{end - start}.{self._clock.now_us()}"
        with contextlib.suppress(OSError):
            self._copy(chunks, start, end, self._directory / name)
            return name
        return f"{name} (which could not be written)"

    def _copy(self, chunks: Chunks, start: int, end: int, target: Path) -> None:
        self._filesystem.make_directory(target.parent)
        file = self._filesystem.open(target, write=True, create=True)
        try:
            place = start
            while place < end:
                piece = chunks.read(place, min(COPY_BYTES, end - place))
                if not piece:
                    behind = chunks.start_behind(place)
                    place = end if behind is None else behind
                    continue
                write_fully(file, [piece], place - start)
                place += len(piece)
            file.sync()
        finally:
            file.close()

    def keep_file(self, name: str) -> str:
        """Copy a file of the queue's directory, and say where to."""
        kept = f"{FOLDER}/{name}.{self._clock.now_us()}"
        with contextlib.suppress(OSError):
            source = self._filesystem.open(self._directory / name)
            try:
                content = source.read_at(source.size(), 0)
            finally:
                source.close()
            self._write(self._directory / kept, content)
            return kept
        return f"{kept} (which could not be written)"

    def _write(self, target: Path, content: bytes) -> None:
        self._filesystem.make_directory(target.parent)
        file = self._filesystem.open(target, write=True, create=True)
        try:
            write_fully(file, [content], 0)
            file.sync()
        finally:
            file.close()
