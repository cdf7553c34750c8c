"""How much room is left on the disks that the server writes to; and a warning before it is none.

Finished messages stay until a queue says for how long, so a disk fills by default. The warning comes when little is
left, again when it has become less, and once more when there is room again.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

_log = logging.getLogger("forebay.api")

FREE_SHARES = (0.10, 0.05, 0.01)
"""What is left of a disk when there is a warning."""


class Disk(NamedTuple):
    path: Path
    size_bytes: int
    free_bytes: int
    """For this user."""

    @property
    def level(self) -> int:
        """How many of the shares it has fallen below."""
        return sum(self.free_bytes < share * self.size_bytes for share in FREE_SHARES)


def disk_of(path: Path) -> Disk:
    found = os.statvfs(path)
    return Disk(path, found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize)


class DiskWatch:
    def __init__(self, paths: Sequence[Path] = (), look: Callable[[Path], Disk] = disk_of) -> None:
        self._paths = tuple(dict.fromkeys(paths))
        self._look = look
        self._levels: dict[Path, int] = {}
        self.disks: list[Disk] = []
        """As they were at the last look."""

    def look(self) -> None:
        """Look at all of them, and warn where one has fallen below a share. What is not there yet is left out."""
        found = []
        for path in self._paths:
            try:
                disk = self._look(path)
            except OSError:
                continue
            found.append(disk)
            before = self._levels.get(path, 0)
            if disk.level > before:
                _warn(disk)
            elif before and not disk.level:
                _log.warning("disk of %s: there is room again", path, extra={"action": "disk_has_room"})
            # It has to get room for one more share before it is warned of again: figures that swing warn once.
            self._levels[path] = disk.level if disk.level > before or not disk.level else before
        self.disks = found


def _warn(disk: Disk) -> None:
    _log.warning(
        "disk of %s: %.1f %% are left, %d of %d bytes. Messages that every group has finished stay until their queue "
        "says for how long: set completedRetentionSeconds, or make room",
        disk.path,
        100 * disk.free_bytes / max(disk.size_bytes, 1),
        disk.free_bytes,
        disk.size_bytes,
        extra={"action": "disk_filling"},
    )
