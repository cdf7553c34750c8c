"""A filesystem that fails on purpose: wraps a real or a simulated one and asks a plan before each call.

The plan sees every call as an `Operation` and answers with the fault to inject, or None. `nth("sync", 2, Fail(EIO))`
is a plan; so is any function of your own. Faults: `Fail(errno)`, `Short(n)` for a write that takes n bytes only, and
`Stop`, which raises `SimulatedCrash` as if the process had died there (`after=True`: right after the call).
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from forebay.filesystem import Buffers, File, Filesystem, Lock, Status


class SimulatedCrash(BaseException):
    """The process is gone. Derives from BaseException, so that nothing in the code under test catches it."""


class Operation(NamedTuple):
    """One call that changes the disk: what, on which path, and how many bytes."""

    name: str
    path: Path
    size: int = 0


@dataclass(frozen=True, slots=True)
class Fail:
    number: int
    """An errno, such as `errno.EIO`."""


@dataclass(frozen=True, slots=True)
class Short:
    size: int


@dataclass(frozen=True, slots=True)
class Stop:
    after: bool = False


Fault = Fail | Short | Stop
Plan = Callable[[Operation], Fault | None]


def nth(name: str, count: int, fault: Fault, *, path_ends: str = "") -> Plan:
    """The fault at the count-th call (from 1) of that name on a path with that ending, and at no other."""
    seen = 0

    def plan(operation: Operation) -> Fault | None:
        nonlocal seen
        if operation.name == name and str(operation.path).endswith(path_ends):
            seen += 1
            return fault if seen == count else None
        return None

    return plan


class FullDisk:
    """A plan: writes succeed until `room` bytes are used, the last one cut short, and then fail with ENOSPC."""

    def __init__(self, room: int) -> None:
        self.room = room

    def __call__(self, operation: Operation) -> Fault | None:
        if operation.name != "write":
            return None
        if self.room >= operation.size:
            self.room -= operation.size
            return None
        if self.room > 0:
            room, self.room = self.room, 0
            return Short(room)
        return Fail(errno.ENOSPC)


class FaultyFile:
    def __init__(self, file: File, path: Path, owner: FaultyFilesystem) -> None:
        self._file, self._path, self._owner = file, path, owner

    def read_at(self, size: int, position: int) -> bytes:
        self._owner.before(Operation("read", self._path, size))
        return self._file.read_at(size, position)

    def read_into(self, room: memoryview, position: int) -> int:
        self._owner.before(Operation("read", self._path, len(room)))
        return self._file.read_into(room, position)

    def write_at(self, buffers: Buffers, position: int) -> int:
        data = b"".join(buffers)
        with self._owner.around(Operation("write", self._path, len(data))) as fault:
            if isinstance(fault, Short):
                data = data[: fault.size]
            return self._file.write_at([data], position)

    def write_durably_at(self, buffers: Buffers, position: int) -> int:
        """In two steps, so that a plan can make either fail."""
        written = self.write_at(buffers, position)
        self.sync()
        return written

    def truncate(self, size: int) -> None:
        with self._owner.around(Operation("truncate", self._path, size)):
            self._file.truncate(size)

    def sync(self) -> None:
        try:
            fault = self._owner.before(Operation("sync", self._path))
        except OSError:
            # A simulated file then has lost what was not synced; a real one keeps it, as kernels may.
            getattr(self._file, "lose_unsynced", lambda: None)()
            raise
        self._file.sync()
        self._owner.after(fault)

    def size(self) -> int:
        return self._file.size()

    def close(self) -> None:
        self._file.close()


class FaultyFilesystem:
    def __init__(self, inner: Filesystem, plan: Plan | None = None) -> None:
        self._inner = inner
        self.plan: Plan = plan or (lambda operation: None)
        self.operations: list[Operation] = []

    def before(self, operation: Operation) -> Fault | None:
        self.operations.append(operation)
        fault = self.plan(operation)
        if isinstance(fault, Fail):
            raise OSError(fault.number, os.strerror(fault.number), str(operation.path))
        if isinstance(fault, Stop) and not fault.after:
            raise SimulatedCrash(f"before {operation}")
        return fault

    def after(self, fault: Fault | None) -> None:
        if isinstance(fault, Stop):
            raise SimulatedCrash("after the call")

    @contextmanager
    def around(self, operation: Operation) -> Iterator[Fault | None]:
        fault = self.before(operation)
        yield fault
        self.after(fault)

    def open(self, path: Path, *, write: bool = False, create: bool = False, append: bool = False) -> FaultyFile:
        if create:
            self.before(Operation("create", path))
        return FaultyFile(self._inner.open(path, write=write, create=create, append=append), path, self)

    def status(self, path: Path) -> Status:
        return self._inner.status(path)

    def list_directory(self, path: Path) -> list[str]:
        return self._inner.list_directory(path)

    def make_directory(self, path: Path) -> None:
        with self.around(Operation("make_directory", path)):
            self._inner.make_directory(path)

    def sync_directory(self, path: Path) -> None:
        with self.around(Operation("sync_directory", path)):
            self._inner.sync_directory(path)

    def replace(self, source: Path, target: Path) -> None:
        with self.around(Operation("replace", target)):
            self._inner.replace(source, target)

    def remove(self, path: Path) -> None:
        with self.around(Operation("remove", path)):
            self._inner.remove(path)

    def remove_directory(self, path: Path) -> None:
        with self.around(Operation("remove_directory", path)):
            self._inner.remove_directory(path)

    def lock(self, path: Path, owner: str) -> Lock:
        return self._inner.lock(path, owner)

    def lock_owner(self, path: Path) -> str | None:
        return self._inner.lock_owner(path)

    def wait_for_lock(self, path: Path) -> Lock:
        return self._inner.wait_for_lock(path)

    def lock_if_free(self, path: Path) -> Lock | None:
        return self._inner.lock_if_free(path)

    def free_bytes(self, path: Path) -> int:
        return self._inner.free_bytes(path)
