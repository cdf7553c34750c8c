"""A disk in memory that remembers what was synced, and can give every state a crash may leave it in.

It implements the commit log's `Filesystem`. Every change goes into a journal. A power cut after the n-th change leaves:

- all bytes of a file up to its last `sync`, and all names of a directory up to its last `sync_directory`;
- of the changes since then any subset: a name made or not, a truncation done or not, a write lost, whole, or torn
  (cut short, holes of zeros, only its end): the order in which a kernel writes back is no promise.

`crash_states(n)` yields those disks. A process that is killed loses nothing that it wrote: that is `killed(n)`.

What it does not model: damage to bytes that were synced (tests flip those themselves).
"""

from __future__ import annotations

import errno
import itertools
import os
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import NamedTuple

from forebay.filesystem import AlreadyLocked, Buffers, Kind, Status

ROOT = Path("/")


class Change(NamedTuple):
    """One entry of the journal. `inode` is the file or directory that is changed."""

    action: str
    inode: int
    name: str = ""
    target: int = 0
    position: int = 0
    data: bytes = b""


@dataclass(slots=True)
class _Inode:
    is_directory: bool
    content: bytearray = field(default_factory=bytearray)
    names: dict[str, int] = field(default_factory=dict)

    def apply(self, change: Change) -> None:
        """Do to this inode what the change says."""
        if change.action == "write":
            end = change.position + len(change.data)
            if len(self.content) < end:
                self.content.extend(bytes(end - len(self.content)))
            self.content[change.position : end] = change.data
        elif change.action == "truncate":
            del self.content[change.position :]
            self.content.extend(bytes(change.position - len(self.content)))
        elif change.action == "link":
            self.names[change.name] = change.target
        elif change.action == "unlink":
            self.names.pop(change.name, None)
        elif change.action == "rename":
            old, new = change.name.split("\0")
            self.names.pop(old, None)
            self.names[new] = change.target


class SimulatedFile:
    def __init__(self, disk: SimulatedDisk, inode: int, path: Path) -> None:
        self._disk = disk
        self._inode = inode
        self.path = path

    def read_at(self, size: int, position: int) -> bytes:
        return bytes(self._disk.inodes[self._inode].content[position : position + size])

    def read_into(self, room: memoryview, position: int) -> int:
        data = self.read_at(len(room), position)
        room[: len(data)] = data
        return len(data)

    def write_at(self, buffers: Buffers, position: int) -> int:
        data = b"".join(buffers)
        self._disk.do(Change("write", self._inode, position=position, data=data))
        return len(data)

    def write_durably_at(self, buffers: Buffers, position: int) -> int:
        written = self.write_at(buffers, position)
        self.sync()
        return written

    def truncate(self, size: int) -> None:
        if len(self._disk.inodes[self._inode].content) != size:
            self._disk.do(Change("truncate", self._inode, position=size))

    def sync(self) -> None:
        self._disk.do(Change("sync", self._inode))

    def lose_unsynced(self) -> None:
        """What a failed sync does: the pages count as clean, but never reached the disk. The size is still to come."""
        self._disk.do(Change("lose", self._inode))

    def size(self) -> int:
        return len(self._disk.inodes[self._inode].content)

    def close(self) -> None:
        pass


class SimulatedLock:
    def __init__(self, disk: SimulatedDisk, path: Path) -> None:
        self._disk, self._path = disk, path

    def release(self) -> None:
        self._disk.locks.pop(self._path, None)


class SimulatedDisk:
    def __init__(self) -> None:
        self.journal: list[Change] = []
        self.locks: dict[Path, str] = {}
        self.inodes: dict[int, _Inode] = {0: _Inode(is_directory=True)}
        self._origin: dict[int, _Inode] = {0: _Inode(is_directory=True)}
        """What is on the disk before the first entry of the journal."""

    def do(self, change: Change) -> None:
        self.journal.append(change)
        _replay(self.inodes, change)

    # --- Filesystem ---

    def open(self, path: Path, *, write: bool = False, create: bool = False, append: bool = False) -> SimulatedFile:
        inode = self._find(path)
        if inode is None:
            if not create:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
            inode = self._new(path, "file")
        if self.inodes[inode].is_directory:
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        return SimulatedFile(self, inode, path)

    def status(self, path: Path) -> Status:
        inode = self._find(path)
        if inode is None:
            return Status(Kind.ABSENT, 0)
        if self.inodes[inode].is_directory:
            return Status(Kind.DIRECTORY, 0)
        return Status(Kind.FILE, len(self.inodes[inode].content))

    def list_directory(self, path: Path) -> list[str]:
        return sorted(self.inodes[self._existing(path)].names)

    def make_directory(self, path: Path) -> None:
        if self._find(path) is None:
            self._new(path, "directory")

    def sync_directory(self, path: Path) -> None:
        self.do(Change("sync", self._existing(path)))

    def replace(self, source: Path, target: Path) -> None:
        if source.parent != target.parent:
            raise OSError(errno.EXDEV, "the simulated disk renames within one directory only")
        inode = self._existing(source)
        self.do(Change("rename", self._existing(source.parent), f"{source.name}\0{target.name}", inode))

    def remove(self, path: Path) -> None:
        self._existing(path)
        self.do(Change("unlink", self._existing(path.parent), path.name))

    def remove_directory(self, path: Path) -> None:
        if self.inodes[self._existing(path)].names:
            raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), str(path))
        self.do(Change("unlink", self._existing(path.parent), path.name))

    def lock(self, path: Path, owner: str) -> SimulatedLock:
        if path in self.locks:
            raise AlreadyLocked(self.locks[path])
        self.locks[path] = owner
        return SimulatedLock(self, path)

    def lock_owner(self, path: Path) -> str | None:
        return self.locks.get(path)

    def wait_for_lock(self, path: Path) -> SimulatedLock:
        return self.lock(path, "")

    def lock_if_free(self, path: Path) -> SimulatedLock | None:
        return None if path in self.locks else self.lock(path, "")

    def free_bytes(self, path: Path) -> int:
        return 1 << 40

    # --- crashes ---

    def killed(self, changes: int | None = None) -> SimulatedDisk:
        """The disk as the next process sees it when this one is killed after so many changes.

        What was not synced is still visible and still not synced: a power cut may take it from the next process.
        """
        disk = self._started_from(_copied(self._origin))
        for change in self.journal[:changes]:
            disk.do(change)
        return disk

    def crash_states(self, changes: int, *, at_most: int = 256, seed: int = 0) -> Iterator[SimulatedDisk]:
        """Every disk that a power cut after so many changes may leave, or a sample if there are more than `at_most`."""
        synced = _copied(self._origin)
        unsynced: list[Change] = []
        for change in self.journal[:changes]:
            if change.action == "sync":
                for waiting in [c for c in unsynced if c.inode == change.inode]:
                    unsynced.remove(waiting)
                    synced[waiting.inode].apply(waiting)
            elif change.action == "lose":
                unsynced = [c for c in unsynced if c.inode != change.inode or c.action != "write"]
            elif change.action == "create":
                synced[change.inode] = _Inode(is_directory=change.name == "directory")
            else:
                unsynced.append(change)
        for chosen in _choices([_fates(change) for change in unsynced], at_most, seed):
            inodes = _copied(synced)
            for fate in chosen:
                if fate is not None:
                    inodes[fate.inode].apply(fate)
            yield self._started_from(inodes)

    def fingerprint(self) -> tuple[tuple[str, bytes | None], ...]:
        """The visible tree as a value: two disks with the same one behave the same."""
        return tuple(self._tree(0, PurePath("/")))

    def _tree(self, inode: int, path: PurePath) -> Iterator[tuple[str, bytes | None]]:
        for name, target in sorted(self.inodes[inode].names.items()):
            found = self.inodes[target]
            yield str(path / name), None if found.is_directory else bytes(found.content)
            if found.is_directory:
                yield from self._tree(target, path / name)

    def _started_from(self, inodes: dict[int, _Inode]) -> SimulatedDisk:
        disk = SimulatedDisk()
        disk.inodes = inodes
        disk._origin = _copied(inodes)
        return disk

    def _find(self, path: Path) -> int | None:
        inode = 0
        for part in path.relative_to(ROOT).parts:
            found = self.inodes[inode]
            if not found.is_directory or part not in found.names:
                return None
            inode = found.names[part]
        return inode

    def _existing(self, path: Path) -> int:
        inode = self._find(path)
        if inode is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
        return inode

    def _new(self, path: Path, kind: str) -> int:
        parent = self._existing(path.parent)
        inode = max(self.inodes) + 1
        self.do(Change("create", inode, kind))
        self.do(Change("link", parent, path.name, inode))
        return inode


def _replay(inodes: dict[int, _Inode], change: Change) -> None:
    if change.action == "create":
        inodes[change.inode] = _Inode(is_directory=change.name == "directory")
    else:
        inodes[change.inode].apply(change)


def _copied(inodes: dict[int, _Inode]) -> dict[int, _Inode]:
    return {
        number: _Inode(inode.is_directory, bytearray(inode.content), dict(inode.names))
        for number, inode in inodes.items()
    }


def _fates(change: Change) -> list[Change | None]:
    """What may become of an unsynced change: None is that it never happened."""
    if change.action != "write" or len(change.data) < 2:
        return [None, change]
    data, half = change.data, len(change.data) // 2
    torn = [data[:1], data[:half], data[:-1], bytes(len(data)), bytes(half) + data[half:], data[:half] + bytes(half)]
    return [None, change, *(change._replace(data=piece) for piece in torn)]


def _choices(fates: Sequence[Sequence[Change | None]], at_most: int, seed: int) -> Iterator[tuple[Change | None, ...]]:
    total = 1
    for options in fates:
        total *= len(options)
    if total <= at_most:
        yield from itertools.product(*fates)
        return
    yield tuple(options[0] for options in fates)
    yield tuple(options[1] for options in fates)
    chance = random.Random(seed)
    for _ in range(at_most - 2):
        yield tuple(chance.choice(options) for options in fates)
