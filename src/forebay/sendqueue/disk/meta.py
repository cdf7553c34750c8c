"""`fastqueue.meta`: from where to read, to where the data is durable, and how much that is.

    {"name": "fastqueue", "reader_offset": 1048576, "writer_offset": 2097152, "version": 2, "entry_count": 150,
     "total_bytes": 524288, "checked_from": 0, "confirmed": [[1050000, 1060000]]}

| key | meaning |
|---|---|
| `reader_offset` | the first block that is not confirmed |
| `writer_offset` | the end of the blocks that were durable when this file was written |
| `entry_count`, `total_bytes` | unconfirmed batches between the two, and their bytes uncompressed; since version 2 |
| `checked_from` | from here on every block has a CRC; a file without this key is not Forebay's: none need have one |
| `confirmed` | ranges between the two that are confirmed, if there are any |

Version 1 has neither counts nor `confirmed`: opening reads every block to count them, however long that takes.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from forebay.errors import UnsupportedSendQueueVersion
from forebay.filesystem import Filesystem, Kind, write_fully

META_FILE = "fastqueue.meta"
META_BYTES_MAX = 1 << 20
VERSION = 2
NAME = "fastqueue"

Range = tuple[int, int]


class MetaUnreadable(Exception):
    """The meta file is there and cannot be trusted; the message says why."""


@dataclass(frozen=True, slots=True)
class Meta:
    reader_offset: int
    writer_offset: int
    entry_count: int
    total_bytes: int
    confirmed: tuple[Range, ...] = ()
    checked_from: int = 0
    version: int = VERSION


def read_meta(filesystem: Filesystem, directory: Path) -> Meta | None:
    """The meta file of a queue, None if there is none.

    Raises MetaUnreadable for what is no meta file, and UnsupportedSendQueueVersion for one of a newer Forebay.
    """
    path = directory / META_FILE
    status = filesystem.status(path)
    if status.kind is Kind.ABSENT:
        return None
    if status.kind is not Kind.FILE or status.size > META_BYTES_MAX:
        raise MetaUnreadable(f"it is a {status.kind.value} of {status.size} bytes")
    file = filesystem.open(path)
    try:
        raw = file.read_at(status.size, 0)
    finally:
        file.close()
    try:
        found = json.loads(raw)
    except ValueError as error:
        raise MetaUnreadable(f"it is no JSON ({error})") from error
    if not isinstance(found, dict):
        raise MetaUnreadable("it is no JSON object")
    return _judged(found, path)


def _judged(found: dict[str, object], path: Path) -> Meta:
    version = _number(found, "version")
    if version > VERSION:
        raise UnsupportedSendQueueVersion(path, version, VERSION)
    reader, writer = _number(found, "reader_offset"), _number(found, "writer_offset")
    if reader > writer:
        raise MetaUnreadable(f"reader_offset {reader} is behind writer_offset {writer}")
    if version < VERSION:
        return Meta(reader, writer, 0, 0, (), writer, version)
    confirmed = _ranges(found.get("confirmed", []), reader, writer)
    checked_from = _number(found, "checked_from") if "checked_from" in found else writer
    counts = _number(found, "entry_count"), _number(found, "total_bytes")
    return Meta(reader, writer, *counts, confirmed, checked_from, version)


def _number(found: dict[str, object], key: str) -> int:
    value = found.get(key)
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise MetaUnreadable(f"{key} is {value!r}")
    return value


def _ranges(found: object, reader: int, writer: int) -> tuple[Range, ...]:
    ranges: list[Range] = []
    last = reader
    for item in found if isinstance(found, list) else [found]:
        match item:
            case [int(start), int(end)] if last <= start < end <= writer:
                ranges.append((start, end))
                last = end
            case _:
                raise MetaUnreadable(f"confirmed holds {item!r}")
    return tuple(ranges)


def write_meta(filesystem: Filesystem, directory: Path, meta: Meta) -> None:
    """Replace the meta file; when this returns, the new one is durable."""
    content: dict[str, object] = {
        "name": NAME,
        "reader_offset": meta.reader_offset,
        "writer_offset": meta.writer_offset,
        "version": meta.version,
        "entry_count": meta.entry_count,
        "total_bytes": meta.total_bytes,
        "checked_from": meta.checked_from,
    }
    if meta.confirmed:
        content["confirmed"] = [list(pair) for pair in meta.confirmed]
    raw = (json.dumps(content, indent=2) + "\n").encode()
    temporary = directory / (META_FILE + ".tmp")
    file = filesystem.open(temporary, write=True, create=True)
    try:
        file.truncate(0)
        write_fully(file, [raw], 0)
        file.sync()
    finally:
        file.close()
    filesystem.replace(temporary, directory / META_FILE)
    filesystem.sync_directory(directory)
