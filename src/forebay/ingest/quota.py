"""How much more the buffer files take: their limits, and the alert before them."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Iterator
from contextlib import contextmanager

from forebay.errors import BufferExhausted
from forebay.ingest.drain_loop import DrainLoop
from forebay.ingest.limits import BufferLimits

SIZE_LOOK_SECONDS = 0.1
"""How old a look at the files' sizes may be to let a push in. Nothing is refused on an old one."""

_log = logging.getLogger("forebay.ingest")


class BufferQuota:
    """Of both buffer files together."""

    def __init__(self, drain_loop: DrainLoop, limits: BufferLimits) -> None:
        self._drain_loop = drain_loop
        self._limits = limits
        self._is_alerted = False
        self._appending_bytes = 0
        """On their way to a file. What is written of them already counts twice, for a moment."""
        self._seen_bytes = self._bytes_since = 0
        self._looked_at = -math.inf

    @contextmanager
    def taken(self, size: int, events: int) -> Iterator[None]:
        """Raise where there is no room for so much; else it is taken while the block writes it, and after it."""
        self._check(size, events)
        self._appending_bytes += size
        try:
            yield
        finally:
            self._appending_bytes -= size
            self._bytes_since += size

    def _check(self, own_size: int, events: int) -> None:
        limits = self._limits
        events += self._drain_loop.failover.backlog.events + self._drain_loop.qos0.backlog.events
        size = own_size + self._size_bytes(SIZE_LOOK_SECONDS)
        if size > limits.max_bytes:
            size = own_size + self._size_bytes(0)
        if size > limits.max_bytes or events > limits.max_events:
            raise BufferExhausted(
                f"the buffer is full: with this push {events} events, {size} bytes would wait; "
                f"allowed are {limits.max_events} events, {limits.max_bytes} bytes"
            )
        is_much = size > limits.alert_bytes or events > limits.alert_events
        if is_much and not self._is_alerted:
            _log.error(
                "much waits in buffer files: %d events, %d bytes", events, size, extra={"action": "buffer_filling"}
            )
        self._is_alerted = is_much

    def _size_bytes(self, age_seconds_max: float) -> int:
        """Of the files, with what is on its way to them and what went there since the last look."""
        now = time.monotonic()
        if now - self._looked_at >= age_seconds_max:
            self._seen_bytes, self._bytes_since, self._looked_at = self._drain_loop.size_bytes, 0, now
        return self._seen_bytes + self._bytes_since + self._appending_bytes
