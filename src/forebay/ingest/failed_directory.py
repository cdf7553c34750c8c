"""`failed/`: events that the store refuses although it is there, and bytes that are no events."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from forebay.errors import StoreUnavailable
from forebay.filesystem import Filesystem, Kind
from forebay.ingest.buffer_writes import Appended, BufferFull, BufferKind, write_or_take_back
from forebay.ingest.frames import Damage


class FailedFile(NamedTuple):
    path: Path
    kind: BufferKind
    size: int


_NAME = re.compile(r"(?P<kind>failover|qos0)_\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{6})?\.buf")
_OTHER_ENDS = (".damaged", ".pos", ".pos.new")


class FailedDirectory:
    def __init__(self, filesystem: Filesystem, path: Path) -> None:
        self._filesystem = filesystem
        self.path = path

    def files(self) -> list[FailedFile]:
        """Oldest first."""
        return [
            FailedFile(self.path / name, BufferKind(found["kind"]), self._filesystem.status(self.path / name).size)
            for name in self._filesystem.list_directory(self.path)
            if (found := _NAME.fullmatch(name))
        ]

    def size_bytes(self) -> int:
        return sum(file.size for file in self.files())

    def append(self, path: Path, frames: Sequence[bytes]) -> Appended:
        """Move refused events here, durably; or raise, and leave the file as it was, as far as the disk allows that.

        A crash before their old place is given up leaves them twice: ids tell.
        """
        data = b"".join(frames)
        file = self._filesystem.open(path, create=True, append=True)
        try:
            start = file.size()
            try:
                write_or_take_back(file, data, start, path)
                file.sync()
                self._filesystem.sync_directory(self.path)
            except (OSError, BufferFull, StoreUnavailable):
                # They stay where they were and are moved again: what is here of them would be here twice.
                with suppress(OSError):
                    if start:
                        file.truncate(start)
                    else:
                        self._filesystem.remove(path)
                raise
        finally:
            file.close()
        return Appended(start, start + len(data))

    def set_aside(self, kind: BufferKind, source: Path, damage: Damage, now_us: int) -> Path:
        """Keep damaged bytes where an operator can look at them. A crash in the drain may leave them twice."""
        file = self._filesystem.open(source)
        try:
            data = file.read_at(damage.size, damage.position)
        finally:
            file.close()
        path = self.new_file(kind, now_us).with_suffix(".damaged")
        self.append(path, [data])
        return path

    def new_file(self, kind: BufferKind, now_us: int) -> Path:
        """A name that sorts behind all others of its kind."""
        while True:
            path = self.path / f"{kind}_{datetime.fromtimestamp(now_us / 1e6, UTC):%Y-%m-%dT%H:%M:%S.%f}.buf"
            taken = [self._filesystem.status(path.with_suffix(end)).kind for end in (".buf", ".damaged")]
            if taken == [Kind.ABSENT, Kind.ABSENT]:
                return path
            now_us += 1

    def damaged(self) -> list[Path]:
        return [self.path / name for name in self._filesystem.list_directory(self.path) if name.endswith(".damaged")]

    def strangers(self) -> list[str]:
        """Names that are none of ours."""
        names = self._filesystem.list_directory(self.path)
        return [name for name in names if not _NAME.fullmatch(name) and not name.endswith(_OTHER_ENDS)]
