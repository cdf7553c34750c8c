"""The seam between Forebay and the disk: every byte and every name of the rooms that keep files goes through it.

Two reasons. Tests put a filesystem here that loses unsynced writes, tears them, fills up or answers with an error
(`forebay.testing`), so that every crash point can be visited. And the few system calls with sharp edges have their
edges documented in one place:

- `write_at` may write less than it was given, as `pwritev` may (a full tmpfs does): callers use `write_fully`.
- `sync` is `fdatasync`; `write_durably_at` is the same for the bytes it writes (`RWF_DSYNC`). After either failed, the
  kernel may have dropped the dirty pages and report success next time: the bytes must be taken as lost, and never
  synced again.
- A new, renamed or removed name is durable only after `sync_directory` of its parent.
- Links are never followed: a link in place of one of our files is an error, not a way out of the directory.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import io
import os
import stat
from collections.abc import Callable, Sequence
from enum import Enum
from pathlib import Path
from typing import Any, NamedTuple, Protocol

Buffers = Sequence[bytes | bytearray | memoryview]

FILE_MODE, FOLDER_MODE = 0o600, 0o700
"""Messages are their owner's business: no other user of the machine reads them from the disk."""
SEARCH_BYTES = 1 << 20
"""How much of a file is read at once where the next whole record is looked for behind damage."""

_BUFFERS_PER_CALL = 512
"""`pwritev` takes at most IOV_MAX (1024 on Linux) buffers."""


class Kind(Enum):
    ABSENT = "absent"
    FILE = "file"
    DIRECTORY = "directory"
    LINK = "symbolic link"
    OTHER = "special file"


class Status(NamedTuple):
    kind: Kind
    size: int


class File(Protocol):
    def read_at(self, size: int, position: int) -> bytes:
        """Up to `size` bytes; fewer only at the end of the file."""

    def read_into(self, room: memoryview, position: int) -> int:
        """`read_at` into memory that is there already: fill it and tell how many bytes there were."""

    def write_at(self, buffers: Buffers, position: int) -> int:
        """Write some of the bytes and tell how many."""

    def write_durably_at(self, buffers: Buffers, position: int) -> int:
        """`write_at` and `sync` in one: the bytes that it counts are on the disk."""

    def truncate(self, size: int) -> None: ...

    def sync(self) -> None: ...

    def size(self) -> int: ...

    def close(self) -> None: ...


class Lock(Protocol):
    def release(self) -> None: ...


class AlreadyLocked(Exception):
    """Another process holds the lock; `owner` is what it wrote into it."""

    def __init__(self, owner: str) -> None:
        super().__init__(owner)
        self.owner = owner


class Filesystem(Protocol):
    def open(self, path: Path, *, write: bool = False, create: bool = False, append: bool = False) -> File:
        """`append`: what is written goes to the end, whatever its position says and whatever else writes."""

    def status(self, path: Path) -> Status: ...

    def list_directory(self, path: Path) -> list[str]: ...

    def make_directory(self, path: Path) -> None: ...

    def sync_directory(self, path: Path) -> None: ...

    def replace(self, source: Path, target: Path) -> None: ...

    def remove(self, path: Path) -> None: ...

    def remove_directory(self, path: Path) -> None: ...

    def lock(self, path: Path, owner: str) -> Lock: ...

    def lock_owner(self, path: Path) -> str | None:
        """The holder of the lock, without touching it; None when there is none."""

    def wait_for_lock(self, path: Path) -> Lock:
        """A lock that is held for moments: the second to come waits."""

    def lock_if_free(self, path: Path) -> Lock | None:
        """The same lock, for callers that cannot wait."""

    def free_bytes(self, path: Path) -> int: ...


def make_directories(filesystem: Filesystem, *paths: Path) -> None:
    """Make what is missing of each path, and have the names on the disk."""
    for path in paths:
        for folder in (*reversed(path.parents), path):
            if filesystem.status(folder).kind is Kind.ABSENT:
                filesystem.make_directory(folder)
                filesystem.sync_directory(folder.parent)


def remove_tree(filesystem: Filesystem, path: Path) -> None:
    """A directory with all that is in it, as far as the disk lets go of it: `status` tells what is left."""
    with contextlib.suppress(OSError):
        for name in filesystem.list_directory(path):
            if filesystem.status(path / name).kind is Kind.DIRECTORY:
                remove_tree(filesystem, path / name)
            else:
                with contextlib.suppress(OSError):
                    filesystem.remove(path / name)
    # One that is empty goes without a file handle, should that be what is missing.
    with contextlib.suppress(OSError):
        filesystem.remove_directory(path)


class Sink(io.RawIOBase):
    """A file to be written from its beginning to its end, for libraries that write to a stream."""

    def __init__(self, file: File) -> None:
        self._file = file
        self._end = 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        size = write_fully(self._file, [memoryview(data)], self._end)
        self._end += size
        return size


def write_fully(file: File, buffers: Buffers, position: int) -> int:
    """Write all the bytes, however many calls it takes, and return how many there were."""
    total = sum(map(len, buffers))
    written = file.write_at(buffers, position)
    return total if written == total else _rest_of(file.write_at, buffers, position, written, total)


def write_durably(file: File, buffers: Buffers, position: int) -> int:
    """Write all the bytes and have them on the disk."""
    total = sum(map(len, buffers))
    written = file.write_durably_at(buffers, position)
    return total if written == total else _rest_of(file.write_durably_at, buffers, position, written, total)


def _rest_of(write: Callable[[Buffers, int], int], buffers: Buffers, position: int, written: int, total: int) -> int:
    rest = memoryview(b"".join(buffers))
    while written < total:
        more = write([rest[written:]], position + written)
        if more <= 0:
            raise OSError(errno.EIO, f"the disk took {written} of {total} bytes and then no more")
        written += more
    return total


def is_disk_full(error: OSError) -> bool:
    return error.errno in (errno.ENOSPC, errno.EDQUOT)


class RealFile:
    __slots__ = ("_fd",)

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def read_at(self, size: int, position: int) -> bytes:
        data = os.pread(self._fd, size, position)
        if len(data) == size or not data:
            return data
        # A signal or a network filesystem may cut a read short of the end of the file.
        parts = [data]
        got = len(data)
        while got < size and (data := os.pread(self._fd, size - got, position + got)):
            parts.append(data)
            got += len(data)
        return b"".join(parts)

    def read_into(self, room: memoryview, position: int) -> int:
        size = len(room)
        got = os.preadv(self._fd, [room], position)
        while 0 < got < size and (more := os.preadv(self._fd, [room[got:]], position + got)):
            got += more
        return got

    def write_at(self, buffers: Buffers, position: int) -> int:
        return os.pwritev(self._fd, buffers[:_BUFFERS_PER_CALL], position)

    def write_durably_at(self, buffers: Buffers, position: int) -> int:
        # One call and not two: each gives up the interpreter's lock, and getting it back costs more than the call.
        return os.pwritev(self._fd, buffers[:_BUFFERS_PER_CALL], position, os.RWF_DSYNC)

    def truncate(self, size: int) -> None:
        os.ftruncate(self._fd, size)

    def sync(self) -> None:
        os.fdatasync(self._fd)

    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class RealLock:
    """An advisory lock on an open file. The kernel drops it when its process ends, however it ends."""

    def __init__(self, fd: int, *, names_owner: bool = True) -> None:
        self._fd = fd
        self._names_owner = names_owner

    def release(self) -> None:
        if self._fd >= 0:
            if self._names_owner:
                with contextlib.suppress(OSError):
                    os.ftruncate(self._fd, 0)
            os.close(self._fd)
            self._fd = -1


class RealFilesystem:
    """The operating system's own. Only this user may look into directories and files that it makes."""

    def open(self, path: Path, *, write: bool = False, create: bool = False, append: bool = False) -> RealFile:
        flags = os.O_RDWR if write or create or append else os.O_RDONLY
        flags |= (os.O_CREAT if create else 0) | (os.O_APPEND if append else 0)
        return RealFile(os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW, FILE_MODE))

    def status(self, path: Path) -> Status:
        try:
            found = os.lstat(path)
        except (FileNotFoundError, NotADirectoryError):
            return Status(Kind.ABSENT, 0)
        if stat.S_ISREG(found.st_mode):
            return Status(Kind.FILE, found.st_size)
        if stat.S_ISDIR(found.st_mode):
            return Status(Kind.DIRECTORY, 0)
        return Status(Kind.LINK if stat.S_ISLNK(found.st_mode) else Kind.OTHER, 0)

    def list_directory(self, path: Path) -> list[str]:
        return sorted(os.listdir(path))  # noqa: PTH208 -- names, not paths: there may be thousands

    def make_directory(self, path: Path) -> None:
        path.mkdir(FOLDER_MODE, exist_ok=True)

    def sync_directory(self, path: Path) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def replace(self, source: Path, target: Path) -> None:
        source.replace(target)

    def remove(self, path: Path) -> None:
        path.unlink()

    def remove_directory(self, path: Path) -> None:
        path.rmdir()

    def lock(self, path: Path, owner: str) -> RealLock:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, FILE_MODE)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # The owner's name is a courtesy to the next one; on a full disk the lock holds without it.
            with contextlib.suppress(OSError):
                os.ftruncate(fd, 0)
                os.pwrite(fd, owner.encode(), 0)
        except BlockingIOError:
            found = os.pread(fd, 4096, 0).decode(errors="replace")
            os.close(fd)
            raise AlreadyLocked(found or "a process that did not leave its name") from None
        except BaseException:
            os.close(fd)
            raise
        return RealLock(fd)

    def lock_owner(self, path: Path) -> str | None:
        # Trying to lock would show it as well, and would turn away a process that opens the log in that moment.
        inode = f":{path.stat().st_ino} "
        lines = Path("/proc/locks").read_text().splitlines()
        if not any(" FLOCK " in line and inode in line and " -> " not in line for line in lines):
            return None
        return path.read_text(errors="replace") or "a process that did not leave its name"

    def wait_for_lock(self, path: Path) -> RealLock:
        return self._locked(path, fcntl.LOCK_EX)

    def lock_if_free(self, path: Path) -> RealLock | None:
        try:
            return self._locked(path, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return None

    def _locked(self, path: Path, operation: int) -> RealLock:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, FILE_MODE)
        try:
            fcntl.flock(fd, operation)
        except BaseException:
            os.close(fd)
            raise
        return RealLock(fd, names_owner=False)

    def free_bytes(self, path: Path) -> int:
        figures = os.statvfs(path)
        return figures.f_bavail * figures.f_frsize
