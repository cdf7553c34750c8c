"""What a cycle of the store's thread spends on making queues: a new queue takes the disk fifteen syncs."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from forebay.errors import Transient

TURN_SECONDS = 0.03
"""For all requests of a cycle together; one queue is always made, however long it takes."""


class NotYet(Transient):
    """Nothing of the call was done: it is to be made again, in another cycle. `EmbeddedStore` does."""


class Turn:
    """Measured, and not counted in queues: a sync takes some disks a hundred times what it takes others."""

    def __init__(self, seconds: float = TURN_SECONDS) -> None:
        self.seconds = seconds
        self.begin()

    def begin(self) -> None:
        self._spent = 0.0
        self._longest = 0.0

    @contextmanager
    def one_more(self) -> Iterator[None]:
        """For one queue; raises `NotYet` where it would end behind the turn's time."""
        if self._spent and self._spent + self._longest > self.seconds:
            raise NotYet("other queues are being made")
        began = time.perf_counter()
        try:
            yield
        finally:
            seconds = time.perf_counter() - began
            self._spent += seconds
            self._longest = max(self._longest, seconds)
