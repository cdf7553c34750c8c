"""Which of a process's logs keep a file open. There may be tens of thousands of logs, and far fewer file handles.

Those that were used last keep theirs; one that is over the limit lets go and opens its file again when it is needed.
"""

from __future__ import annotations

import resource
import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Protocol

FEW_FILES = 64
_MANY_FILES = 4096


def share_of_handles() -> int:
    """A quarter of the files that the process may have open, within bounds: the rest is for connections."""
    allowed = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return min(max(allowed // 4, FEW_FILES), _MANY_FILES) if allowed != resource.RLIM_INFINITY else _MANY_FILES


class Opener(Protocol):
    def let_go_of_file(self) -> None:
        """Close the file that is kept open, unless it is in use at this moment."""


class KeptOpen:
    """Those that have a file open, the ones used last at the end. For any thread."""

    def __init__(self, limit: Callable[[], int], *, few_files: int = FEW_FILES) -> None:
        """`few_files`: so many may be kept whatever the limit is; it is not looked up before."""
        self._few_files = few_files
        self._limit = limit
        self._lock = threading.Lock()
        self._openers: OrderedDict[Opener, None] = OrderedDict()

    def add(self, opener: Opener) -> None:
        """`opener` has used its file; if there are too many now, the one that was not used for longest lets go."""
        with self._lock:
            openers = self._openers
            openers[opener] = None
            openers.move_to_end(opener)
            is_over = len(openers) > self._few_files and len(openers) > self._limit()
            oldest = openers.popitem(last=False)[0] if is_over else None
        # With no lock in hand: two that let go of each other would wait for ever.
        if oldest is not None:
            oldest.let_go_of_file()

    def remove(self, opener: Opener) -> None:
        with self._lock:
            self._openers.pop(opener, None)
