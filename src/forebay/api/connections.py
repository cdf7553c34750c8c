"""All connections of a server: what they share, which have been quiet for too long, and how they end.

There is one timer for all of them. It writes the date anew every second, and now and then closes connections whose
client owes us something and does not move: the next request, the rest of one, or the taking of an answer.
"""

from __future__ import annotations

import asyncio
import logging
import time
from email.utils import formatdate
from typing import Protocol

from forebay.api.exchange import Request, Response, StreamedResponse
from forebay.api.heap import Heap
from forebay.api.memory import Memory
from forebay.api.request_head_cache import RequestHeadCache

KEEP_ALIVE_SECONDS = 75
SWEEP_SECONDS = 5

_log = logging.getLogger("forebay.api")


class Application(Protocol):
    memory: Memory

    async def answer(self, request: Request) -> Response | StreamedResponse | None: ...


class Connection(Protocol):
    """As much of it as is needed here."""

    task: asyncio.Task[None] | None

    def sweep(self, quiet_before: float) -> None:
        """Close it if its client should have moved since then."""

    def stop(self) -> None:
        """Close when what is under way is answered; at once when nothing is."""

    def abort(self) -> None: ...


class Connections:
    """`now` is the event loop's time, to the second: so that no request needs to read a clock."""

    def __init__(
        self,
        app: Application,
        *,
        keep_alive_seconds: float = KEEP_ALIVE_SECONDS,
        sweep_seconds: float = SWEEP_SECONDS,
    ) -> None:
        self.app = app
        self._keep_alive_seconds = keep_alive_seconds
        self._sweep_seconds = sweep_seconds
        self.loop = asyncio.get_running_loop()
        self.is_stopping = False
        self.now = self.loop.time()
        self.date = b""
        self.heads = RequestHeadCache()
        self._heap = Heap()
        self._open: set[Connection] = set()
        self._all_gone: asyncio.Future[None] | None = None
        self._swept = self.now
        self._tick()

    def _tick(self) -> None:
        self.now = self.loop.time()
        self.date = f"date: {formatdate(time.time(), usegmt=True)}\r\n".encode()
        self.app.memory.take_from_slow(self.now)
        self._heap.look(self.app.memory)
        if self.now - self._swept >= self._sweep_seconds:
            self.sweep(self.now)
        self._timer = self.loop.call_later(1, self._tick)

    def sweep(self, now: float) -> None:
        self._swept = now
        for connection in list(self._open):
            connection.sweep(now - self._keep_alive_seconds)

    def add(self, connection: Connection) -> None:
        self._open.add(connection)

    def discard(self, connection: Connection) -> None:
        self._open.discard(connection)
        if self._all_gone is not None and not self._open and not self._all_gone.done():
            self._all_gone.set_result(None)

    def __len__(self) -> int:
        return len(self._open)

    async def stop(self, seconds: float) -> None:
        """Let requests that are under way finish, up to this time; what is not done then is cut off."""
        self.is_stopping = True
        self._timer.cancel()
        self._heap.close()
        for connection in list(self._open):
            connection.stop()
        if self._open and not await self._emptied(seconds):
            _log.error(
                "%d connections are cut off: not done %g seconds after the stop",
                len(self._open),
                seconds,
                extra={"action": "connections_cut_off"},
            )
            await self._cut()

    async def _emptied(self, seconds: float) -> bool:
        self._all_gone = self.loop.create_future()
        done, _ = await asyncio.wait([self._all_gone], timeout=seconds)
        return bool(done)

    async def _cut(self) -> None:
        tasks = [connection.task for connection in self._open if connection.task is not None]
        for task in tasks:
            task.cancel()
        for connection in list(self._open):
            connection.abort()
        await asyncio.gather(*tasks, return_exceptions=True)
