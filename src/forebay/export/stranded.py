"""Send queues on disk that no destination of the settings drains any more: renamed, or no longer fed by a receiver.

What waits in them was accepted, so it is logged at every start, until the name is back or the directory is moved away.
Nothing here changes anything.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import NamedTuple

from forebay.errors import UnsupportedSendQueueVersion
from forebay.filesystem import Filesystem, Kind
from forebay.sendqueue.disk.meta import META_FILE, MetaUnreadable, read_meta
from forebay.sendqueue.inspection import PARTS

FOLDERS_MAX = 10_000

_log = logging.getLogger("forebay.export")


class Stranded(NamedTuple):
    directory: Path
    batches: int | None
    """As its meta file says; None if that cannot be read."""


def stranded(filesystem: Filesystem, bases: Iterable[Path], known: Collection[Path]) -> list[Stranded]:
    """Directories of send queues in `bases` that hold batches and are none of the known ones."""
    found = []
    for base in sorted(set(bases)):
        if filesystem.status(base).kind is not Kind.DIRECTORY:
            continue
        for name in filesystem.list_directory(base)[:FOLDERS_MAX]:
            directory = base / name
            if directory in known:
                continue
            queues = [one for one in (directory, *(directory / part for part in PARTS)) if _is_queue(filesystem, one)]
            counts = [_batches(filesystem, one) for one in queues]
            if any(count != 0 for count in counts):
                known_counts = [count for count in counts if count is not None]
                found.append(Stranded(directory, sum(known_counts) if len(known_counts) == len(counts) else None))
    return found


def _is_queue(filesystem: Filesystem, directory: Path) -> bool:
    return filesystem.status(directory / META_FILE).kind is Kind.FILE


def _batches(filesystem: Filesystem, directory: Path) -> int | None:
    try:
        meta = read_meta(filesystem, directory)
    except (MetaUnreadable, UnsupportedSendQueueVersion, OSError):
        return None
    return meta.entry_count if meta is not None and meta.version > 1 else None


def tell_stranded(filesystem: Filesystem, bases: Iterable[Path], known: Collection[Path]) -> None:
    """A line in the log for each."""
    try:
        found = stranded(filesystem, bases, known)
    except OSError as error:
        _log.warning("send queues cannot be looked for: %s", error, extra={"action": "sendqueues_not_listed"})
        return
    for directory, batches in found:
        message = "%s: %s wait here that nothing sends, for no receiver feeds a destination %r; see `forebay sendqueue`"
        count = "batches" if batches is None else f"{batches} batches"
        _log.warning(message, directory, count, directory.name, extra={"action": "sendqueue_stranded"})
