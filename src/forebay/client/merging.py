"""Single pushes that wait at the same time leave in one request, and so do acks of whole deliveries.

A request costs a hundred times what a message costs. So while one push to a queue is on its way, those that come
meanwhile wait for it and then go together: sixty-four tasks that push one message each make a few requests and not
sixty-four. A push with nobody else around leaves at once. Every push is answered by itself, when its message is stored.

A request is stored as a whole or refused as a whole. When one is refused, its items are sent again one by one, so that
a message which the server will not take fails alone.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

from forebay.client.messages import Refused

ITEMS_MAX = 1000
BYTES_MAX = 1 << 20
Told = TypeVar("Told")


class Merger(Generic[Told]):
    """Of pushes, one for each queue: a queue that is full or being deleted holds up nobody else's pushes."""

    def __init__(self, send: Callable[[Sequence[bytes]], Awaitable[list[Told]]]) -> None:
        """`send` sends items, each as JSON text, in one request, and returns one answer each."""
        self._send = send
        self._waiting: deque[tuple[bytes, asyncio.Future[Told]]] = deque()
        self._sending: asyncio.Task[None] | None = None

    def add(self, item: bytes) -> asyncio.Future[Told]:
        """Have it sent. A push whose answer is not waited for may be stored all the same."""
        future: asyncio.Future[Told] = asyncio.get_running_loop().create_future()
        self._waiting.append((item, future))
        if self._sending is None:
            self._sending = asyncio.create_task(self._send_all())
        return future

    @property
    def is_idle(self) -> bool:
        return self._sending is None

    async def _send_all(self) -> None:
        while self._waiting:
            group = self._take()
            try:
                await self._send_group(group)
            except BaseException as error:
                for _, future in [*group, *self._waiting]:
                    _fail(future, error)
                self._waiting.clear()
                self._sending = None
                if not isinstance(error, Exception):
                    raise
                return
        # In the same step as the last look: whoever comes after it finds nobody sending, and sends.
        self._sending = None

    async def _send_group(self, group: Sequence[tuple[bytes, asyncio.Future[Told]]]) -> None:
        try:
            answers = await self._send([item for item, _ in group])
        except Refused as refused:
            if len(group) == 1:
                _fail(group[0][1], refused)
                return
            for one in group:
                await self._send_group([one])
            return
        for (_, future), answer in zip(group, answers, strict=True):
            if not future.done():
                future.set_result(answer)

    def _take(self) -> list[tuple[bytes, asyncio.Future[Told]]]:
        group = [self._waiting.popleft()]
        room = BYTES_MAX - len(group[0][0])
        while self._waiting and len(group) < ITEMS_MAX and len(self._waiting[0][0]) <= room:
            group.append(self._waiting.popleft())
            room -= len(group[-1][0])
        return group


def _fail(future: asyncio.Future[Told], error: BaseException) -> None:
    if future.done():
        return
    if isinstance(error, asyncio.CancelledError):
        future.cancel()
    else:
        future.set_exception(error)
