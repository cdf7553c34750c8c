"""Everything that leaves: the exporters of all destinations and exports, started and stopped together."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from forebay.broker.store import Store
from forebay.errors import ForebayError, Permanent
from forebay.export.exporter import Exporter
from forebay.export.outboxes import LOOK_SECONDS, Outboxes
from forebay.export.queue_export import QueueExport
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
    directory: Path
    """Of the send queue: what is written to disk, in any mode, is written there."""
    mode: str
    order: str
    """`fifo` or `tiers`, of mode `hybrid`: the others are first in, first out. As it is in force, not as it was set."""
    drain_seconds: float
    is_queued_always: bool = True
    is_queue_enabled: bool = True
    is_adaptive: bool = False
    target_utilization: float = 0.85

    @property
    def name(self) -> str:
        return self.exporter.name

    @property
    def kind(self) -> str:
        """The mode in force, with the order where that is a choice: `hybrid, fifo`."""
        return f"hybrid, {self.order}" if self.mode == "hybrid" else self.mode


class WayOut:
    """All of them. `receivers` are started last and stopped first."""

    def __init__(
        self,
        store: Store | None,
        outlets: Mapping[str, Outlet],
        exports: Mapping[str, QueueExport],
        receivers: Sequence[Receiver],
        close_buffers: Callable[[], Awaitable[None]],
        outboxes: Outboxes | None = None,
    ) -> None:
        self.outlets = outlets
        self.exports = dict(exports)
        """Those that send. The exports of outboxes come to them when their queues are there."""
        self.outboxes = outboxes or Outboxes()
        self.receivers = receivers
        self._store = store
        self._close_buffers = close_buffers
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Raises CannotListen for a receiver whose address is taken."""
        if not (self.outlets or self.exports or self.receivers or self.outboxes):
            return
        # Before anything is sent: what is paused stays so. A store that does not answer holds nothing up.
        with contextlib.suppress(ForebayError):
            await self.look_at_flags()
        for exporter in self.exporters().values():
            await exporter.start()
        for outlet in self.outlets.values():
            what = outlet.kind if outlet.is_queue_enabled else "off"
            message = "%s: send queue: %s, in %s"
            _log.info(message, outlet.name, what, outlet.directory, extra={"action": "sendqueue_open"})
        for receiver in self.receivers:
            try:
                await receiver.start()
            except OSError as error:
                raise CannotListen(
                    f"receiver {receiver.name} cannot listen on port {receiver.port}: {error.strerror or error}",
                    remedy=f"Stop what listens there, or change receivers.{receiver.name}.listen",
                ) from error
        loops = (self._adapt_always(), self._follow_flags(), self._follow_outboxes())
        self._tasks = [asyncio.create_task(loop) for loop in loops]

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

    # outboxes

    async def _follow_outboxes(self) -> None:
        while self.outboxes:
            try:
                await self.look_for_outboxes()
            except ForebayError as error:
                _log.debug("outboxes cannot be looked for: %s", error, extra={"action": "outbox_failed"})
            except Exception:  # noqa: BLE001 -- a loop that ends would leave parcels EXPORTING in silence
                _log.exception("outboxes cannot be looked for", extra={"action": "outbox_failed"})
            await asyncio.sleep(LOOK_SECONDS)

    async def look_for_outboxes(self) -> None:
        """Start the exports of outboxes whose queues are there by now."""
        if self._store is None:
            return
        for export in await self.outboxes.awake(self._store):
            self.exports[export.name] = export
            with contextlib.suppress(ForebayError):
                await self.look_at_flags()
            await export.exporter.start()
            _log.info("%s goes to %s", export.name, export.destination, extra={"action": "outbox_found"})

    # pause

    async def set_paused(self, name: str, is_paused: bool) -> None:
        """Pause or resume an export or a destination, on all servers of the store. Raises KeyError."""
        if name not in self.exports and name not in self.outlets and name not in self.outboxes:
            raise KeyError(name)
        if self._store is not None:
            await self._store.set_flag(PAUSE_FLAG + name, is_paused)
        await self.look_at_flags()

    async def look_at_flags(self) -> None:
        for name, exporter in self.exporters().items():
            if self._store is not None and await self._store.flag(PAUSE_FLAG + name):
                exporter.pause()
            else:
                exporter.resume()

    def exporters(self) -> dict[str, Exporter]:
        """By the names of their destinations and exports."""
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
        """Set the memory limits of adaptive queues by how much of its memory the process uses.

        What is on disk takes no memory: a lower limit of a disk queue would free none, and cost batches that are safe.
        """
        for outlet in self.outlets.values():
            if outlet.is_adaptive and outlet.mode != "disk":
                queue, configured = outlet.feed.queue, outlet.feed.configured_bytes
                wanted = adapted_bytes(queue.limits.bytes_max, configured, used_ratio, outlet.target_utilization)
                queue.limits = replace(queue.limits, bytes_max=wanted)


async def _no_buffers() -> None:
    """There are none."""


NOTHING_LEAVES = WayOut(None, {}, {}, (), _no_buffers)
"""Of a server without destinations."""
