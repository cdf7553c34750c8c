"""Everything that leaves: the exporters of all destinations and exports, started and stopped together."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from forebay.broker.store import Store
from forebay.errors import ForebayError, Permanent
from forebay.export.exporter import Exporter
from forebay.export.group_feed import GroupFeed
from forebay.export.queue_feed import QueueFeed
from forebay.sendqueue.sizing import adapted_bytes, memory_limit_bytes, resident_bytes

ADAPT_SECONDS = 5.0
FLAGS_SECONDS = 1.0
PAUSE_FLAG = "export.paused."

_log = logging.getLogger("forebay.export")


class CannotListen(Permanent):
    """A receiver's address is taken, or not one of this machine's. Nothing was started."""


class Receiver(Protocol):
    """A server for telemetry."""

    @property
    def name(self) -> str: ...

    @property
    def port(self) -> int: ...

    async def start(self) -> None: ...

    async def stop(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Outlet:
    """A destination with its send queue."""

    exporter: Exporter
    feed: QueueFeed
    mode: str
    drain_seconds: float
    is_queued_always: bool = True
    is_queue_enabled: bool = True
    is_adaptive: bool = False
    target_utilization: float = 0.85

    @property
    def name(self) -> str:
        return self.exporter.name


@dataclass(frozen=True, slots=True)
class QueueExport:
    """A queue that is drained into a destination."""

    name: str
    destination: str
    exporter: Exporter
    feed: GroupFeed


class WayOut:
    """All of them. `receivers` are started last and stopped first."""

    def __init__(
        self,
        store: Store | None,
        outlets: Mapping[str, Outlet],
        exports: Mapping[str, QueueExport],
        receivers: Sequence[Receiver],
        close_buffers: Callable[[], Awaitable[None]],
    ) -> None:
        self.outlets = outlets
        self.exports = exports
        self.receivers = receivers
        self._store = store
        self._close_buffers = close_buffers
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Raises CannotListen for a receiver whose address is taken."""
        if not (self.outlets or self.exports or self.receivers):
            return
        for exporter in self._exporters():
            await exporter.start()
        with contextlib.suppress(ForebayError):
            await self.look_at_flags()
        for receiver in self.receivers:
            try:
                await receiver.start()
            except OSError as error:
                raise CannotListen(
                    f"receiver {receiver.name} cannot listen on port {receiver.port}: {error.strerror or error}",
                    remedy=f"Stop what listens there, or change receivers.{receiver.name}.listen",
                ) from error
        self._tasks = [asyncio.create_task(self._adapt_always()), asyncio.create_task(self._follow_flags())]

    def _exporters(self) -> list[Exporter]:
        return [
            *(outlet.exporter for outlet in self.outlets.values()),
            *(export.exporter for export in self.exports.values()),
        ]

    async def stop_receivers(self) -> None:
        """Take no more; what was taken is handed on. Buffers first: requests wait there for their answers."""
        await self._close_buffers()
        await asyncio.gather(*(receiver.stop() for receiver in self.receivers))
        await self._close_buffers()

    async def stop(self) -> None:
        """Send for a while what can be sent, keep the rest. Every exporter is stopped, whatever another one does."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        stops = [outlet.exporter.stop(outlet.drain_seconds) for outlet in self.outlets.values()]
        stops += [export.exporter.stop(0.0) for export in self.exports.values()]
        for error in await asyncio.gather(*stops, return_exceptions=True):
            if isinstance(error, BaseException):
                _log.error("an exporter did not stop cleanly: %s", error, extra={"action": "export_stop_failed"})

    # pause

    async def set_paused(self, name: str, is_paused: bool) -> None:
        """Pause or resume an export or a destination, on all servers of the store. Raises KeyError."""
        if name not in self.exports and name not in self.outlets:
            raise KeyError(name)
        if self._store is not None:
            await self._store.set_flag(PAUSE_FLAG + name, is_paused)
        await self.look_at_flags()

    async def look_at_flags(self) -> None:
        for name, exporter in self._by_name().items():
            if self._store is not None and await self._store.flag(PAUSE_FLAG + name):
                exporter.pause()
            else:
                exporter.resume()

    def _by_name(self) -> dict[str, Exporter]:
        found = {name: outlet.exporter for name, outlet in self.outlets.items()}
        return found | {name: export.exporter for name, export in self.exports.items()}

    async def _follow_flags(self) -> None:
        while True:
            await asyncio.sleep(FLAGS_SECONDS)
            with contextlib.suppress(ForebayError):
                await self.look_at_flags()

    # adaptive limits

    async def _adapt_always(self) -> None:
        while True:
            await asyncio.sleep(ADAPT_SECONDS)
            self.adapt(resident_bytes() / memory_limit_bytes())

    def adapt(self, used_ratio: float) -> None:
        """Set the limits of adaptive queues by how much of its memory the process uses."""
        for outlet in self.outlets.values():
            if outlet.is_adaptive:
                queue, configured = outlet.feed.queue, outlet.feed.configured_bytes
                wanted = adapted_bytes(queue.limits.bytes_max, configured, used_ratio, outlet.target_utilization)
                queue.limits = replace(queue.limits, bytes_max=wanted)


async def _no_buffers() -> None:
    """There are none."""


NOTHING_LEAVES = WayOut(None, {}, {}, (), _no_buffers)
"""Of a server without destinations."""
