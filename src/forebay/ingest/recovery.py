"""Start-up recovery: what it is doing and how far it has come, for `/readyz` and the log."""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable, Iterable
from functools import partial

from forebay.ingest.drainer import Drainer
from forebay.ingest.refused_events import try_all

_log = logging.getLogger("forebay.ingest")


class Recovery:
    """Failover first, then QoS 0."""

    def __init__(self) -> None:
        self.is_running = True
        self._found = 0
        self._drainers: list[Drainer] = []

    def found(self, events: int) -> None:
        """The scan has counted so many more."""
        self._found += events

    async def run(self, drainers: Iterable[Drainer], drain: Callable[[Drainer], Awaitable[None]]) -> None:
        """Store all that the files hold. `StoreUnavailable` ends it early; the rest is drained while serving."""
        self._drainers = list(drainers)
        began = time.monotonic()
        try:
            await try_all(step for one in self._drainers for step in (one.retry_failed, partial(drain, one)))
        finally:
            if self._found:
                took = time.monotonic() - began
                _log.warning(
                    "start-up recovery: %d of %d events stored in %.1f s",
                    self._drained(),
                    self._found,
                    took,
                    extra={"action": "buffer_recovered"},
                )

    def end(self) -> None:
        self.is_running = False

    def _drained(self) -> int:
        return sum(drainer.counts.drained for drainer in self._drainers)

    def __str__(self) -> str:
        if not self._drainers:
            return f"reading buffer files: {self._found} events found"
        busy = [drainer for drainer in self._drainers if drainer.file.backlog.events]
        what = f" ({busy[0].file.kind})" if busy else ""
        return f"storing buffered events{what}: {self._drained()} of {self._found}"
