"""What a receiver took goes on to its destination: into the send queue, or at once where the settings say so.

With `always_queue: false` a batch is sent at once, and queued if the destination does not take it; with `enabled:
false` it is refused then. A destination that needs order (`Destination.is_in_order`) is sent a batch at once only while
nothing older waits or is under way, and one batch after the other: a batch must not overtake one that was queued.

The receipt is `sent` for what the destination has taken and `memory` for all else. A disk queue holds a new batch in
memory too, until its next sync: a crash before that costs it (`forebay.sendqueue`), so `disk` would be a lie.
"""

from __future__ import annotations

import asyncio

from forebay.clock import Clock
from forebay.errors import Transient
from forebay.export.batch import ExportBatch
from forebay.export.way_out import Outlet
from forebay.otlp.kinds import Kind

SENT, IN_MEMORY = "sent", "memory"


class NotSent(Transient):
    """The destination did not take the batch, and there is no send queue (`exporter.queue.enabled: false`)."""


class Acceptor:
    """Hands batches to one outlet, in the order of the calls where the destination needs order."""

    def __init__(self, outlet: Outlet, clock: Clock) -> None:
        self._outlet = outlet
        self._clock = clock
        self._turn = asyncio.Lock()

    async def accept(self, kind: Kind, body: bytes, items: int) -> str:
        """Returns the receipt. Raises NotSent, SendQueueFull, BatchTooLarge or SendQueueWriteFailed."""
        outlet = self._outlet
        batch = ExportBatch(kind, body, items, self._clock.now_us())
        if outlet.is_queued_always and outlet.is_queue_enabled:
            await outlet.feed.push(batch)
            return IN_MEMORY
        if not outlet.exporter.destination.is_in_order:
            return await self._send_or_push(batch, may_send=True)
        async with self._turn:
            return await self._send_or_push(batch, may_send=outlet.feed.is_empty())

    async def _send_or_push(self, batch: ExportBatch, *, may_send: bool) -> str:
        outlet = self._outlet
        delivery, is_paused = outlet.exporter.delivery, outlet.exporter.is_paused
        if may_send and not is_paused and await delivery.try_at_once(batch):
            return SENT
        if not outlet.is_queue_enabled:
            reason = delivery.last_error if may_send else "older batches of an earlier run are sent first"
            reason = "it is paused" if is_paused else reason
            raise NotSent(f"{outlet.name} did not take the batch: {reason}")
        await outlet.feed.push(batch)
        return IN_MEMORY
