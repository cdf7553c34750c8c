"""What a server needs of the machine: a port, a directory its user can enter, and a list of its processes."""

from __future__ import annotations

import contextlib
import os
import random
import socket
import tempfile
from collections import deque
from collections.abc import Iterator
from pathlib import Path

from forebay.testing.servers.binaries import Account, ServerUnavailable

# Below the range that Linux gives to outgoing connections, so that none of them takes the port of a stopped
# server.
_PORTS = range(20_000, 32_000)
_RESERVED_MAX = 64
"""By then the first of them is listened on."""
_reserved: deque[int] = deque()


def free_port() -> int:
    """A port of 127.0.0.1 that no process listens on now, and that is given to no other caller for a while.

    Between this and listening a second may pass, in which another test looks for a port.
    """
    for port in random.SystemRandom().sample(_PORTS, len(_PORTS)):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            _reserve(port)
            return port
    raise ServerUnavailable(f"no free port of 127.0.0.1 between {_PORTS.start} and {_PORTS.stop - 1}")


def _reserve(port: int) -> None:
    """Bind a name that the kernel gives to one process, and frees when that ends."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as name:
        name.bind(f"\0forebay-port-{port}")
        _reserved.append(name.detach())
    if len(_reserved) > _RESERVED_MAX:
        os.close(_reserved.popleft())


def descendants(pid: int) -> list[int]:
    """The ids of all processes that descend from `pid`, which is not among them."""
    children: dict[int, list[int]] = {}
    for child, parent in _processes():
        children.setdefault(parent, []).append(child)
    found: list[int] = []
    waiting = [pid]
    while waiting:
        next_ones = children.get(waiting.pop(), [])
        found += next_ones
        waiting += next_ones
    return found


def is_running(pid: int) -> bool:
    """Whether the process can still do anything: it is neither stopped by a signal nor ended."""
    with contextlib.suppress(OSError):
        return _stat_fields(pid)[0] not in (b"T", b"t", b"Z", b"X")
    return False


def _processes() -> Iterator[tuple[int, int]]:
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            # A process may end while we read about it.
            with contextlib.suppress(OSError):
                yield int(entry.name), int(_stat_fields(int(entry.name))[1])


def _stat_fields(pid: int) -> list[bytes]:
    """What the kernel says of a process, from its state and its parent's id on."""
    # The program's name stands in parentheses in front of them, and may hold anything.
    return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()


def make_directory(prefix: str, account: Account | None) -> Path:
    """A private directory for the server, below a directory its user can pass through."""
    parent = Path(tempfile.gettempdir())
    if account is not None and not _is_open_to_everyone(parent):
        parent = Path("/tmp")
    directory = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
    if account is not None:
        os.chown(directory, account.uid, account.gid)
    return directory


def _is_open_to_everyone(directory: Path) -> bool:
    return all(path.stat().st_mode & 0o001 for path in [directory, *directory.absolute().parents])
