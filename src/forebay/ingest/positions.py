"""How far buffer files are drained, noted beside each of them.

A note is `120 of 400`: so many bytes are drained, and the file had so many at that time.
"""

from __future__ import annotations

import re
from pathlib import Path

from forebay.filesystem import Filesystem, Kind, write_fully


class Positions:
    def __init__(self, filesystem: Filesystem) -> None:
        self._filesystem = filesystem

    def of(self, path: Path) -> int:
        """0 when the note is missing or unreadable: ids tell what is stored already.

        A failed file may have grown since.
        """
        note = path.with_suffix(".pos")
        if self._filesystem.status(note).kind is not Kind.FILE:
            return 0
        file = self._filesystem.open(note)
        try:
            text = file.read_at(64, 0)
        finally:
            file.close()
        found = re.fullmatch(rb"(\d+) of (\d+)\n", text)
        return int(found[1]) if found and int(found[1]) <= int(found[2]) <= self._size(path) else 0

    def note(self, path: Path, position: int) -> None:
        """Replaced as a whole: a crash leaves the old note or the new one."""
        note = path.with_suffix(".pos")
        written = note.with_suffix(".pos.new")
        file = self._filesystem.open(written, create=True)
        try:
            file.truncate(0)
            write_fully(file, [b"%d of %d\n" % (position, self._size(path))], 0)
            file.sync()
        finally:
            file.close()
        self._filesystem.replace(written, note)

    def forget(self, path: Path) -> bool:
        """Whether there was one. The caller syncs the directory."""
        note = path.with_suffix(".pos")
        if self._filesystem.status(note).kind is Kind.ABSENT:
            return False
        self._filesystem.remove(note)
        return True

    def _size(self, path: Path) -> int:
        return self._filesystem.status(path).size
