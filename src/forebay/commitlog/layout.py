"""Where things are in a log's directory, and how they are called.

::

    base/
      lock                               held by the process that has the log open; its text names that process
      manifest.1  manifest.2             the two slots
      manifest.current                   one byte, 0x01 or 0x02: the slot in force
      YYYY/MM/DD/<16 hex digits>.data    segments: UTC day of their creation, seq of their first message
      quarantine/                        bytes that could not be read: kept, never read again

A log may stand in a store's directory, as `<directory>/queues/<number>`. Then the process that holds `<directory>/lock`
has it, and holds no lock on the log itself: there may be more queues than file handles.

Everything else in the directory is foreign: left alone, and named by `forebay log inspect`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from forebay.filesystem import Filesystem, Kind

LOCK = "lock"
QUEUES = "queues"
POINTER = "manifest.current"
SLOTS = {1: "manifest.1", 2: "manifest.2"}
QUARANTINE = "quarantine"
SUFFIX = ".data"

PATH_BYTES = 32
"""Length of a segment's path relative to the base: `YYYY/MM/DD/` and 16 digits and `.data`."""

_SEGMENT_PATH = re.compile(r"[0-9]{4}/[0-9]{2}/[0-9]{2}/[0-9a-f]{16}\.data", re.ASCII)
_SEGMENT_NAME = re.compile(r"[0-9a-f]{16}\.data", re.ASCII)
_DATE_PARTS = (
    re.compile(r"[0-9]{4}", re.ASCII),
    re.compile(r"[0-9]{2}", re.ASCII),
    re.compile(r"[0-9]{2}", re.ASCII),
)
_MICROSECONDS = 1_000_000
_DAY_SECONDS = 86_400


def day_of(now_us: int) -> str:
    """The directory for segments made now: `YYYY/MM/DD`."""
    return datetime.fromtimestamp(now_us // _MICROSECONDS, UTC).strftime("%Y/%m/%d")


def end_of_day(path: str) -> int:
    """When the day of a segment is over, in microseconds since 1970."""
    start = datetime.strptime(f"{day_of_path(path)} +0000", "%Y/%m/%d %z")
    return (int(start.timestamp()) + _DAY_SECONDS) * _MICROSECONDS


def segment_path(day: str, first_seq: int) -> str:
    return f"{day}/{first_seq:016x}{SUFFIX}"


def is_segment_path(path: str) -> bool:
    return _SEGMENT_PATH.fullmatch(path) is not None


def first_seq_of(path: str) -> int:
    return int(path[-len(SUFFIX) - 16 : -len(SUFFIX)], 16)


def day_of_path(path: str) -> str:
    return path[:10]


def ensure_directory(filesystem: Filesystem, base: Path, relative: str) -> None:
    """Make `base/relative` level by level, each name durable before something is put into it.

    Levels that exist are synced too: the process that made them may have failed or died before it could.
    """
    path = base
    for part in relative.split("/"):
        parent, path = path, path / part
        filesystem.make_directory(path)
        filesystem.sync_directory(parent)


def days(filesystem: Filesystem, base: Path, *, since: str = "") -> Iterator[str]:
    """The day directories from `since` on, in order."""

    def walk(prefix: str, level: int) -> Iterator[str]:
        for name in filesystem.list_directory(base / prefix):
            path = f"{prefix}/{name}" if prefix else name
            if not _DATE_PARTS[level].fullmatch(name) or path < since[: len(path)]:
                continue
            if filesystem.status(base / path).kind is Kind.DIRECTORY:
                if level == 2:
                    yield path
                else:
                    yield from walk(path, level + 1)

    yield from walk("", 0)


def segments(filesystem: Filesystem, base: Path) -> list[str]:
    """Paths of all files that are named like segments, in the order of their first seq.

    Walks the whole tree: for salvage and inspection, never for opening.
    """
    found = [
        f"{day}/{name}"
        for day in days(filesystem, base)
        for name in filesystem.list_directory(base / day)
        if _SEGMENT_NAME.fullmatch(name)
    ]
    return sorted(found, key=lambda path: (first_seq_of(path), path))


def store_around(filesystem: Filesystem, base: Path) -> Path | None:
    """The directory of the store that the log belongs to; None for a log that stands by itself."""
    base = base.absolute()
    if base.parent.name != QUEUES or not base.name.isdecimal():
        return None
    store = base.parent.parent
    return store if filesystem.status(store / LOCK).kind is Kind.FILE else None


def foreign_names(filesystem: Filesystem, base: Path) -> list[str]:
    """Names in the directory that are not the log's own."""
    ours = {LOCK, POINTER, QUARANTINE, *SLOTS.values()}
    names = [n for n in filesystem.list_directory(base) if n not in ours and not _DATE_PARTS[0].fullmatch(n)]
    for day in days(filesystem, base):
        names += [f"{day}/{n}" for n in filesystem.list_directory(base / day) if not _SEGMENT_NAME.fullmatch(n)]
    return names
