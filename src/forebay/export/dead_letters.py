"""Dead letters of a destination that is fed by a send queue: a file for each, in `dead/` of the queue's directory.

A file is named `<time in microseconds>-<key>.dead` and holds a line of JSON (why, when, how often it was tried), a line
feed, and the batch as it is in a queue. It is written to a temporary file, synced and renamed, so that a file with that
name is whole. Purging and replaying remove files; nothing else does.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path

from forebay.clock import Clock
from forebay.errors import Permanent
from forebay.export.batch import ExportBatch, decode, encode
from forebay.export.outcome import SendFailed
from forebay.filesystem import Filesystem, Kind, write_fully

FOLDER = "dead"
SUFFIX = ".dead"
HEAD_BYTES_MAX = 64 << 10
_NAME = re.compile(r"\d{1,20}-[0-9A-Za-z._-]{1,120}")


class UnknownDeadLetter(Permanent):
    """There is no dead letter of that name. `forebay exports dead list DESTINATION` lists them."""


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A batch that its destination will not take, and why. `id` names it in commands."""

    id: str
    error: str
    message: str
    attempts: int
    buried_us: int
    kind: str
    items: int
    size: int


class DeadLetters:
    """The dead letters of one destination."""

    def __init__(self, filesystem: Filesystem, directory: Path, clock: Clock) -> None:
        self._filesystem = filesystem
        self._folder = directory / FOLDER
        self._clock = clock

    def add(self, batch: ExportBatch, failed: SendFailed, attempts: int) -> str:
        """Keep a batch. When this returns it is durable. Raises OSError."""
        now_us = self._clock.now_us()
        name = f"{now_us}-{re.sub('[^0-9A-Za-z._-]', '_', batch.key)[:100]}"
        head = {
            "error": failed.error.value,
            "message": failed.message,
            "attempts": attempts,
            "buried_us": now_us,
            "kind": batch.kind.value,
            "items": batch.items,
            "size": len(batch.body),
        }
        self._make_folder()
        temporary = self._folder / (name + ".tmp")
        file = self._filesystem.open(temporary, write=True, create=True)
        try:
            file.truncate(0)
            write_fully(file, [json.dumps(head).encode() + b"\n", encode(batch)], 0)
            file.sync()
        finally:
            file.close()
        self._filesystem.replace(temporary, self._folder / (name + SUFFIX))
        self._filesystem.sync_directory(self._folder)
        return name

    def _make_folder(self) -> None:
        """A queue in memory has no directory before its first dead letter, and neither need those above it be there."""
        for folder in reversed([self._folder, *self._folder.parents]):
            if self._filesystem.status(folder).kind is Kind.ABSENT:
                self._filesystem.make_directory(folder)
                self._filesystem.sync_directory(folder.parent)

    def ids(self) -> list[str]:
        """Of all dead letters, the oldest first."""
        if self._filesystem.status(self._folder).kind is not Kind.DIRECTORY:
            return []
        names = self._filesystem.list_directory(self._folder)
        found = [name.removesuffix(SUFFIX) for name in names if name.endswith(SUFFIX)]
        return sorted(found, key=lambda name: (len(name.partition("-")[0]), name))

    def letters(self) -> list[DeadLetter]:
        """All of them that can be read, the oldest first."""
        return [self.letter(name) for name in self.ids()]

    def letter(self, name: str) -> DeadLetter:
        """What is known of one, without its batch. Raises UnknownDeadLetter."""
        return _letter(name, self._read(name, HEAD_BYTES_MAX))

    def batch(self, name: str) -> ExportBatch:
        """The batch itself. Raises UnknownDeadLetter."""
        _, _, data = self._read(name, self._filesystem.status(self._path(name)).size).partition(b"\n")
        return decode(data)

    def remove(self, name: str) -> None:
        """Raises UnknownDeadLetter."""
        self._read(name, 1)
        self._filesystem.remove(self._path(name))

    def _path(self, name: str) -> Path:
        if not _NAME.fullmatch(name):
            raise UnknownDeadLetter(f"no dead letter {name!r}")
        return self._folder / (name + SUFFIX)

    def _read(self, name: str, size: int) -> bytes:
        try:
            file = self._filesystem.open(self._path(name))
        except FileNotFoundError:
            raise UnknownDeadLetter(f"no dead letter {name!r}") from None
        try:
            return file.read_at(size, 0)
        finally:
            file.close()


def _letter(name: str, raw: bytes) -> DeadLetter:
    try:
        head = json.loads(raw.partition(b"\n")[0])
        return DeadLetter(id=name, **head)
    except (ValueError, TypeError):
        return DeadLetter(name, "unknown", "its file is damaged", 0, 0, "", 0, 0)
