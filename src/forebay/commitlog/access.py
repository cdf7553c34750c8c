"""Which process owns a log, and what the operating system says when it is opened."""

from __future__ import annotations

import errno
import os
import socket
import sys
from datetime import UTC, datetime
from pathlib import Path

from forebay.commitlog import layout
from forebay.errors import DiskFull, ForebayError, LogLocked, LogNotAccessible, TooManyOpenFiles
from forebay.filesystem import AlreadyLocked, Filesystem, Kind, Lock, is_disk_full

_NO_HANDLES = (errno.EMFILE, errno.ENFILE)


class _Locks:
    """Of a log, and of the store around it."""

    def __init__(self, locks: list[Lock]) -> None:
        self._locks = locks

    def release(self) -> None:
        while self._locks:
            self._locks.pop().release()


def take_lock(filesystem: Filesystem, base: Path) -> Lock:
    """Own the log, or raise `LogLocked` with the name of the process that does."""
    store = layout.store_around(filesystem, base)
    if store is None:
        return take_lock_of(filesystem, base)
    around = take_lock_of(filesystem, store)
    try:
        return _Locks([around, take_lock_of(filesystem, base)])
    except BaseException:
        around.release()
        raise


def lock_owner(filesystem: Filesystem, base: Path) -> str | None:
    """The process that has the log open, if there is one."""
    for directory in (base, layout.store_around(filesystem, base)):
        if directory is not None and filesystem.status(directory / layout.LOCK).kind is not Kind.ABSENT:
            owner = filesystem.lock_owner(directory / layout.LOCK)
            if owner is not None:
                return owner
    return None


def take_lock_of(filesystem: Filesystem, base: Path) -> Lock:
    """Own the directory, whatever is around it."""
    program = " ".join([Path(sys.argv[0]).name, *sys.argv[1:2]]).strip() or "python"
    since = datetime.now(UTC).isoformat(timespec="seconds")
    try:
        return filesystem.lock(
            base / layout.LOCK, f"process {os.getpid()} ({program}) on {socket.gethostname()} since {since}"
        )
    except AlreadyLocked as locked:
        raise LogLocked(base, locked.owner) from None


def not_accessible(base: Path, error: OSError) -> ForebayError:
    """What the operating system refused, by its name: no file handle, no space, or no permission."""
    path = Path(os.fsdecode(error.filename)) if error.filename else base
    if error.errno in _NO_HANDLES:
        return TooManyOpenFiles(path)
    if is_disk_full(error):
        return DiskFull(path, f"{error.strerror or error}")
    return LogNotAccessible(
        path,
        f"{error.strerror or error}",
        remedy=f"The process (user {os.geteuid()}) must be able to read and write everything in {base}",
    )
