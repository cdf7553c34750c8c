"""Files and directories that a setting or an argument names, and that cannot be used: said with the path and a remedy.

Two ways lead here. Directories that a server or worker writes to are tried before it begins (`writable_directory`). Any
other path is tried where it is used; the operating system's refusal then ends the command, and `as_unusable` puts it
into words. Both are the machine's fault or the user's, never Forebay's.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

from forebay.errors import PathUnusable

_REMEDIES = {
    errno.EACCES: "Let user {user} read and write it, or name another path",
    errno.EPERM: "Let user {user} read and write it, or name another path",
    errno.EROFS: "Its file system is mounted read-only: mount it for writing, or name another path",
    errno.ENOENT: "Make it, or name another path",
    errno.ENOTDIR: "A part of it is a file and no directory: name another path",
    errno.EISDIR: "It is a directory: name a file",
    errno.EEXIST: "It is a file: name a directory",
    errno.ENOSPC: "Its disk is full: make room, or name another path",
    errno.EDQUOT: "The disk quota of user {user} is used up: make room, or name another path",
    errno.ENAMETOOLONG: "Name a shorter path",
    errno.ELOOP: "Its symbolic links lead in a circle: name another path",
}


def writable_directory(path: Path, setting: str) -> None:
    """Make the directory if need be, and see that files can be made in it."""
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        probe = path / f".forebay-writable-{os.getpid()}"
        probe.touch()
        probe.unlink()
    except OSError as error:
        known = as_unusable(error)
        if known is None:
            raise
        reason = f"{setting} {str(path)!r} cannot be written: {error.strerror}"
        raise PathUnusable(reason, remedy=f"{known.remedy}, with {setting}") from error


def as_unusable(error: OSError) -> PathUnusable | None:
    """The refusal in words; None for one that is about no path."""
    remedy = _REMEDIES.get(error.errno or 0)
    if remedy is None or not isinstance(error.filename, str | bytes | os.PathLike):
        return None
    name = os.fsdecode(error.filename)
    return PathUnusable(f"{name}: {error.strerror}", remedy=remedy.format(user=os.geteuid()))
