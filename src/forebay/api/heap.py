"""Free memory goes back to the system after a large load.

The C library keeps what was freed between blocks that are still in use. After hundreds of MiB of answers most of the
heap is such gaps (measured: 780 MiB stay of 1.2 GiB, 260 MiB with a trim), and a container is killed for them.
"""

from __future__ import annotations

import ctypes
from concurrent.futures import ThreadPoolExecutor

from forebay.api.memory import Memory

RELEASED_BYTES_MIN = 64 << 20
"""Less than this is used again soon."""


class Heap:
    """Looks now and then whether much was given back since it last did."""

    def __init__(self) -> None:
        self._highest = 0
        self._trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc has it; others give back by themselves
        self._thread = ThreadPoolExecutor(1, "heap")

    def look(self, memory: Memory) -> None:
        self._highest = max(self._highest, memory.used)
        if self._trim is not None and self._highest - memory.used >= RELEASED_BYTES_MIN:
            self._highest = memory.used
            self._thread.submit(self._trim, 0)

    def close(self) -> None:
        self._thread.shutdown()
