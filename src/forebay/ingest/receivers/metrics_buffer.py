"""The metrics buffer: requests that arrive together leave as one batch, joined byte by byte.

A batch is handed on when it has `batch_items` items or `batch_bytes` bytes, or when its oldest request has waited for
`flush_interval`. Every request waits for the batch it is in, and is answered as that is: an answer is the truth.
Without a `flush_interval` every request is a batch of its own; so it is once the buffer is closed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from forebay.ingest.receivers.decoding import Telemetry
from forebay.otlp.kinds import Kind

HandOn = Callable[[Kind, bytes, int], Awaitable[str]]
"""Accept a batch: kind, body, items; the answer is its receipt. Raises ForebayError."""


@dataclass(slots=True)
class _Batch:
    bodies: list[bytes] = field(default_factory=list)
    items: int = 0
    size: int = 0
    done: asyncio.Future[str] = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    timer: asyncio.TimerHandle | None = None


class MetricsBuffer:
    """Joins requests of the same kind."""

    def __init__(self, hand_on: HandOn, *, flush_seconds: float, batch_items: int, batch_bytes: int) -> None:
        self._hand_on = hand_on
        self._flush_seconds = flush_seconds
        self._batch_items = batch_items
        self._batch_bytes = batch_bytes
        self._open: dict[Kind, _Batch] = {}
        self._handing_on: set[asyncio.Task[None]] = set()

    @property
    def waiting_bytes(self) -> int:
        return sum(batch.size for batch in self._open.values())

    async def accept(self, telemetry: Telemetry) -> str:
        """Put a request into the open batch of its kind, and wait until that is accepted. Raises ForebayError."""
        kind = telemetry.kind
        open_batch = self._open.get(kind)
        if open_batch is not None and self._is_full(open_batch, telemetry):
            self._flush(kind)
        batch = self._open.get(kind)
        if batch is None:
            batch = self._open[kind] = _Batch()
            loop = asyncio.get_running_loop()
            if self._flush_seconds > 0:
                batch.timer = loop.call_later(self._flush_seconds, self._flush, kind)
        batch.bodies.append(telemetry.body)
        batch.items += telemetry.items
        batch.size += len(telemetry.body)
        if batch.timer is None or batch.items >= self._batch_items or batch.size >= self._batch_bytes:
            self._flush(kind)
        return await asyncio.shield(batch.done)

    def _is_full(self, batch: _Batch, telemetry: Telemetry) -> bool:
        too_many = batch.items + telemetry.items > self._batch_items
        return too_many or batch.size + len(telemetry.body) > self._batch_bytes

    def _flush(self, kind: Kind) -> None:
        batch = self._open.pop(kind, None)
        if batch is None:
            return
        if batch.timer is not None:
            batch.timer.cancel()
        task = asyncio.get_running_loop().create_task(self._give(kind, batch))
        self._handing_on.add(task)
        task.add_done_callback(self._handing_on.discard)

    async def _give(self, kind: Kind, batch: _Batch) -> None:
        body = batch.bodies[0] if len(batch.bodies) == 1 else b"".join(batch.bodies)
        try:
            batch.done.set_result(await self._hand_on(kind, body, batch.items))
        except Exception as error:  # noqa: BLE001 - a request that does not get it would wait for ever
            batch.done.set_exception(error)
            batch.done.exception()  # its clients may be gone

    async def close(self) -> None:
        """Hand on what waits; what comes after this is handed on at once."""
        self._flush_seconds = 0.0
        for kind in list(self._open):
            self._flush(kind)
        await asyncio.gather(*self._handing_on)
