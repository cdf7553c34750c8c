"""Single pushes that wait at the same time leave in one request, and so do acks of whole deliveries.

A request costs a hundred times what a message costs. So while one push to a queue is on its way, those that come
meanwhile wait for it and then go together: sixty-four tasks that push one message each make a few requests and not
sixty-four. A push that comes alone leaves at once. Every push is answered by itself, when its message is stored.

A request is stored as a whole or refused as a whole. When one is refused, its items are sent again one by one, so that
a message which the server will not take fails alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

from forebay.client.messages import Refused
from forebay.errors import ForebayError
from forebay.model.batcher import Batcher

ITEMS_MAX = 1000
BYTES_MAX = 1 << 20
R = TypeVar("R")


class Merger(Generic[R]):
    """Of pushes, one for each queue: a queue that is full or being deleted holds up no pushes to others."""

    def __init__(self, send: Callable[[Sequence[bytes]], Awaitable[list[R]]]) -> None:
        """`send` sends items, each as JSON text, in one request, and returns one result each."""
        self._send = send
        self._batcher: Batcher[bytes, R] = Batcher(self._send_batch, size_max=BYTES_MAX, count_max=ITEMS_MAX)

    def add(self, item: bytes) -> asyncio.Future[R]:
        """Have it sent. A push whose result is not waited for may be stored all the same."""
        return self._batcher.submit(item, len(item))

    @property
    def is_idle(self) -> bool:
        return self._batcher.is_idle

    async def _send_batch(self, items: Sequence[bytes]) -> Sequence[R | Exception]:
        try:
            return await self._send(items)
        except Refused as refused:
            return [refused] if len(items) == 1 else [await self._send_alone(item) for item in items]

    async def _send_alone(self, item: bytes) -> R | Exception:
        try:
            [result] = await self._send([item])
        except ForebayError as error:
            return error
        return result
