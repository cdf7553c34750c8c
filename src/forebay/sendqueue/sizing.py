"""How much memory send queues may take, as a share of what the machine or the container has.

The memory limit is the smallest of what the cgroups of this process (version 2 or 1, and those above them) allow and
what the machine has. With `memory_percent` set, a queue may hold that share of it in memory; a `max_bytes` that is
written out holds in its place. With
`adaptive_enabled`, the limit of the memory part moves: while the process uses more than `target_utilization` of its
memory, the queue's limit shrinks by a quarter at a time (hybrid queues spill, others become full), down to an eighth;
when it uses less it grows back. What is on disk takes no memory, and its limit never moves.
"""

from __future__ import annotations

import os
from pathlib import Path

CGROUP = Path("/sys/fs/cgroup")
MEMBERSHIP = Path("/proc/self/cgroup")
LIMIT_FILES = ("memory.max", "memory.limit_in_bytes")
SHRINK, GROW, FLOOR = 0.75, 1.1, 0.125


def memory_limit_bytes(cgroup: Path = CGROUP, membership: Path = MEMBERSHIP) -> int:
    """How much memory this process may use."""
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    found = [_number(folder / name) for folder in _folders(cgroup, membership) for name in LIMIT_FILES]
    return min([physical, *(limit for limit in found if limit)])


def _folders(cgroup: Path, membership: Path) -> set[Path]:
    """The cgroups that this process is in, and those above them. In a container, its own is mounted as the root."""
    found = {cgroup, cgroup / "memory"}
    try:
        lines = membership.read_text().splitlines()
    except OSError:
        return found
    for line in lines:  # `0::/a/b` in version 2, `7:memory:/a/b` in version 1
        _, controllers, path = [*line.split(":", 2), "", ""][:3]
        base = cgroup / "memory" if "memory" in controllers.split(",") else cgroup
        if controllers and base == cgroup:
            continue
        parts = [part for part in path.split("/") if part and part != ".."]
        found |= {base.joinpath(*parts[:depth]) for depth in range(len(parts) + 1)}
    return found


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text().strip())
    except (OSError, ValueError):  # `max` is no number: no limit
        return None


def share_bytes(percent: float) -> int:
    """What `memory_percent` comes to here: 0.1 is a tenth."""
    return int(percent * memory_limit_bytes())


def resident_bytes(statm: Path = Path("/proc/self/statm")) -> int:
    """How much memory this process uses."""
    return int(statm.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def adapted_bytes(current: int, configured: int, used_ratio: float, target: float) -> int:
    """The limit of a memory queue for the next while: `used_ratio` of the memory limit is in use now."""
    wanted = current * SHRINK if used_ratio > target else current * GROW
    return int(min(max(wanted, configured * FLOOR), configured))
