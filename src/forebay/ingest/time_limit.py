"""One limit of time for many waits, with one timer for all of them.

`asyncio.timeout` sets a timer for every wait and clears it again, which is a tenth of what a push costs. All waits here
may last equally long, so the oldest is always the next to be over time, and one timer looks after it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeVar

T = TypeVar("T")


@dataclass(slots=True, eq=False)
class _Wait:
    task: asyncio.Task[Any]
    due_at: float
    is_over: bool = False
    is_cancelled: bool = False


class TimeLimit:
    """`over` makes what is raised when a wait takes longer."""

    def __init__(self, seconds: float, over: Callable[[], Exception] = TimeoutError) -> None:
        self._seconds = seconds
        self._over = over
        self._waits: deque[_Wait] = deque()
        self._timer: asyncio.TimerHandle | None = None

    async def hold(self, work: Awaitable[T]) -> T:
        """What the work returns. Cancels it and raises when it takes too long."""
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("a time limit holds in a task only")
        loop = asyncio.get_running_loop()
        wait = _Wait(task, loop.time() + self._seconds)
        self._waits.append(wait)
        if self._timer is None:
            self._timer = loop.call_at(wait.due_at, self._look)
        cancelling = task.cancelling()
        try:
            return await work
        except asyncio.CancelledError as error:
            # Someone else may have cancelled the task as well, and then that counts.
            if wait.is_cancelled and task.cancelling() - 1 <= cancelling:
                raise self._over() from error
            raise
        finally:
            wait.is_over = True
            if wait.is_cancelled:
                task.uncancel()
            self._forget()

    def _forget(self) -> None:
        while self._waits and self._waits[0].is_over:
            self._waits.popleft()

    def _look(self) -> None:
        loop = asyncio.get_running_loop()
        now = loop.time()
        for wait in self._waits:
            if wait.due_at > now:
                break
            if not (wait.is_over or wait.is_cancelled):
                wait.is_cancelled = True
                wait.task.cancel()
        waiting = [wait.due_at for wait in self._waits if not wait.is_cancelled]
        self._timer = loop.call_at(waiting[0], self._look) if waiting else None
