"""Writing into buffer files: all of it or nothing, and the reason in the words of those that push."""

from __future__ import annotations

import errno
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

from forebay.errors import StoreUnavailable
from forebay.filesystem import File, is_disk_full, write_fully


class BufferKind(StrEnum):
    """The two kinds of buffer files."""

    FAILOVER = "failover"
    QOS0 = "qos0"


class BufferFull(Exception):
    """There is no room for the events, and nothing of them was kept."""


class Appended(NamedTuple):
    """Where the events are in the file."""

    start: int
    end: int


def write_or_take_back(file: File, data: bytes, start: int, path: Path) -> None:
    try:
        write_fully(file, [data], start)
    except OSError as error:
        try:
            file.truncate(start)
        except OSError as again:
            # Whole frames of it may stay, and be drained.
            message = f"{path}: {error}, and what was written could not be taken back: {again}"
            raise StoreUnavailable(message, is_outcome_unknown=True) from again
        raise refusal(path, error) from error


def refusal(path: Path, error: OSError) -> BufferFull | StoreUnavailable:
    """Why nothing was appended."""
    reason = f"{path}: {error.strerror or error}"
    is_full = is_disk_full(error) or error.errno == errno.EFBIG
    return BufferFull(reason) if is_full else StoreUnavailable(reason)
