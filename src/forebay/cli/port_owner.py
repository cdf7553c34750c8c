"""Which process listens on a port: read from /proc, as far as this user may look."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

_LISTENING = "0A"
_TABLES = ("/proc/net/tcp", "/proc/net/tcp6")


def port_owner(port: int) -> str | None:
    """`python (process 4711)`, or None when none is found or may be looked at."""
    inodes = set(listening_inodes(port))
    if not inodes:
        return None
    for process in Path("/proc").iterdir():
        if process.name.isdecimal() and holds(process, inodes):
            return f"{_command(process)} (process {process.name})"
    return None


def listening_inodes(port: int | None = None) -> Iterator[str]:
    """The sockets that listen, on that port or on any."""
    wanted = "" if port is None else f":{port:04X}"
    for table in _TABLES:
        try:
            lines = Path(table).read_text().splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            fields = line.split()
            if fields[3] == _LISTENING and fields[1].endswith(wanted):
                yield f"socket:[{fields[9]}]"


def holds(process: Path, inodes: set[str]) -> bool:
    """Whether it has one of the sockets open, as far as this user may look."""
    try:
        return any(str(file.readlink()) in inodes for file in (process / "fd").iterdir())
    except OSError:  # it ended meanwhile, or belongs to another user
        return False


def _command(process: Path) -> str:
    try:
        words = (process / "cmdline").read_bytes().split(b"\0")
        return " ".join(word.decode(errors="replace") for word in words[:4] if word)[:120] or "a process"
    except OSError:
        return "a process"
