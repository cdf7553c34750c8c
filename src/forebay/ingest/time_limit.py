"""One limit of time for many waits, with one timer for all of them.

`asyncio.timeout` sets a timer for every wait and clears it again, which is a tenth of what a push costs. All waits here
may last equally long, so the oldest is always the next to be over time, and one timer looks after it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple, TypeVar

T = TypeVar("T")


class _Wait(NamedTuple):
    future: asyncio.Future[Any]
    due_at: float


class TimeLimit:
    """`over` makes what is raised when a wait takes longer."""

    def __init__(self, seconds: float, over: Callable[[], Exception] = TimeoutError) -> None:
        self._seconds = seconds
        self._over = over
        self._waits: deque[_Wait] = deque()
        self._timer: asyncio.TimerHandle | None = None

    def hold(self, work: Awaitable[T]) -> Awaitable[T]:
        """What the work returns. Raises when it takes too long: a future is then done, anything else is cancelled."""
        # Stores answer with futures, which the code that sets them finds done; a coroutine is ended the usual way.
        if not isinstance(work, asyncio.Future) or isinstance(work, asyncio.Task):
            return self._timed(work)
        waits = self._waits
        while waits and waits[0].future.done():
            waits.popleft()
        loop = work.get_loop()
        due_at = loop.time() + self._seconds
        waits.append(_Wait(work, due_at))
        if self._timer is None:
            self._timer = loop.call_at(due_at, self._look, loop)
        return work

    async def _timed(self, work: Awaitable[T]) -> T:
        try:
            async with asyncio.timeout(self._seconds):
                return await work
        except TimeoutError as error:
            raise self._over() from error

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        now = loop.time()
        waits = self._waits
        while waits and (waits[0].due_at <= now or waits[0].future.done()):
            future = waits.popleft().future
            if not future.done():
                future.set_exception(self._over())
        self._timer = loop.call_at(waits[0].due_at, self._look, loop) if waits else None
