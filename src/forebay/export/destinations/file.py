"""A file, a line for each message or batch: `messages` as NDJSON, OTLP and remote write as JSON of their requests.

A batch is written at the end and synced before it is confirmed. One that is written again after a crash is there twice:
its lines can be distinguished by `seq` (`format: envelopes`). What a crash left of a line is ended with a line feed at
the next opening, so that the next line is whole. A file that has grown to `max_size` is renamed to `<name>.<time>`, and
a new one begun. That another program renames, removes or cuts the file (`logrotate`, say) is noticed with the next
batch.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from google.protobuf import json_format

from forebay.clock import Clock
from forebay.export.batch import ExportBatch, MessageBatch
from forebay.export.destination import TAKEN, Prepared, Receipt
from forebay.export.destinations.http import Format, lines_of
from forebay.export.outcome import ErrorClass, SendFailed
from forebay.filesystem import File, Filesystem, Status, is_disk_full, write_fully
from forebay.filesystem import Kind as FileKind
from forebay.otlp.kinds import Kind
from forebay.otlp.protobufs import parsed


class FileDestination:
    """A `Destination` that appends to a file."""

    kinds = frozenset(Kind)
    is_in_order = True
    is_prepared_inline = False

    def __init__(
        self,
        name: str,
        path: Path,
        filesystem: Filesystem,
        clock: Clock,
        *,
        body_format: Format = "ndjson",
        size_max: int = 1 << 30,
    ) -> None:
        self.name = name
        self._path = path
        self._filesystem = filesystem
        self._clock = clock
        self._format: Format = body_format
        self._size_max = size_max
        self._file: File | None = None
        self._end = 0

    async def open(self) -> None:
        """The file is made when the first batch is written."""

    def prepare(self, batch: ExportBatch) -> Prepared:
        if isinstance(batch, MessageBatch):
            return Prepared(batch, lines_of(batch, self._format))
        try:
            text = json_format.MessageToJson(parsed(batch.kind, batch.body), indent=None)
        except ValueError as error:
            raise SendFailed(ErrorClass.CLIENT_ERROR, str(error), is_of_content=True) from error
        return Prepared(batch, text.encode() + b"\n")

    async def send(self, prepared: Prepared) -> Receipt:
        try:
            await asyncio.to_thread(self._write, prepared.body)
        except OSError as error:
            self._leave()
            message = f"{self._path}: {error.strerror or error}"
            raise SendFailed(ErrorClass.SERVER_ERROR if is_disk_full(error) else ErrorClass.NETWORK, message) from error
        return TAKEN

    def _write(self, body: bytes) -> None:
        file = self._file if self._file is not None and self._is_still_there() else self._opened()
        if self._end and self._end + len(body) > self._size_max:
            self._leave()
            self._filesystem.replace(self._path, self._path.with_name(f"{self._path.name}.{self._clock.now_us()}"))
            file = self._opened()
        write_fully(file, [body], self._end)
        file.sync()
        self._end += len(body)

    def _is_still_there(self) -> bool:
        """A line that is written to a file without a name is confirmed and lost."""
        return self._filesystem.status(self._path) == Status(FileKind.FILE, self._end)

    def _opened(self) -> File:
        self._leave()
        file = self._filesystem.open(self._path, write=True, create=True)
        self._filesystem.sync_directory(self._path.parent)
        self._end = file.size()
        if self._end and file.read_at(1, self._end - 1) != b"\n":
            self._end += write_fully(file, [b"\n"], self._end)
        self._file = file
        return file

    def _leave(self) -> None:
        """After an error nothing is known of the file's end: it is looked at again."""
        if self._file is not None:
            self._file.close()
            self._file = None

    async def close(self) -> None:
        self._leave()
