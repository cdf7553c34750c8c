"""This process in numbers, under the names that all of Prometheus' clients give them."""

from __future__ import annotations

import os
import resource
import time
from pathlib import Path
from typing import NamedTuple

_PROC = Path("/proc")
_START_FIELD = 21
"""Of `/proc/self/stat`, counted from 0: when the process started, in ticks since the machine did."""


class OwnProcess(NamedTuple):
    cpu_seconds: float
    resident_bytes: int
    virtual_bytes: int
    open_files: int
    open_files_max: int
    start_seconds: float
    """Since 1970."""
    threads: int


def own_process() -> OwnProcess:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    virtual_pages, resident_pages = (_PROC / "self/statm").read_text().split()[:2]
    page_bytes = resource.getpagesize()
    return OwnProcess(
        cpu_seconds=usage.ru_utime + usage.ru_stime,
        resident_bytes=int(resident_pages) * page_bytes,
        virtual_bytes=int(virtual_pages) * page_bytes,
        open_files=len(os.listdir(_PROC / "self/fd")) - 1,  # noqa: PTH208 -- the one that lists them is not meant
        open_files_max=resource.getrlimit(resource.RLIMIT_NOFILE)[0],
        start_seconds=_start_seconds(),
        threads=len(os.listdir(_PROC / "self/task")),  # noqa: PTH208
    )


def _start_seconds() -> float:
    # The name of the program stands in parentheses, and may have spaces and parentheses of its own.
    fields = (_PROC / "self/stat").read_text().rpartition(")")[2].split()
    ticks = int(fields[_START_FIELD - 2]) / os.sysconf("SC_CLK_TCK")
    return time.time() - (time.clock_gettime(time.CLOCK_BOOTTIME) - ticks)
