"""Group commit for an event loop: requests that wait at the same time are committed in one transaction.

One group is on its way at a time. Whoever arrives meanwhile waits for the next, so groups grow by themselves as the
database gets slower, and a lone request waits for nobody. Large requests share too: pushes to one queue take turns at
its lock, so going alone would not make them faster, and sharing saves them a commit each.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Generic, TypeVar

W = TypeVar("W")
R = TypeVar("R")


def settle(futures: Iterable[asyncio.Future[R]], outcomes: Iterable[R | BaseException]) -> None:
    """Give everybody who still waits the outcome, or raise it."""
    for future, outcome in zip(futures, outcomes, strict=True):
        if future.done():
            continue
        if isinstance(outcome, BaseException):
            future.set_exception(outcome)
        else:
            future.set_result(outcome)


class Coalescer(Generic[W, R]):
    """`commit` gets the work of a group in order and returns one outcome each: a result, or what to raise."""

    def __init__(self, commit: Callable[[Sequence[W]], Awaitable[Sequence[R | Exception]]], *, size_max: int) -> None:
        self._commit = commit
        self._size_max = size_max
        self._waiting: deque[tuple[W, int, asyncio.Future[R]]] = deque()
        self._leader: asyncio.Task[None] | None = None

    def submit(self, work: W, size: int) -> asyncio.Future[R]:
        """The commit to wait for. Cancelling it takes the work back, unless it is on its way already."""
        future: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        self._waiting.append((work, size, future))
        if self._leader is None:
            self._leader = asyncio.create_task(self._lead())
        return future

    @property
    def is_idle(self) -> bool:
        return self._leader is None

    async def drain(self) -> None:
        """Until everything that waits is settled."""
        if self._leader is not None:
            await asyncio.wait([self._leader])

    async def _lead(self) -> None:
        while self._waiting:
            group = self._take()
            if not group:
                continue
            try:
                outcomes: Sequence[R | BaseException] = await self._commit([work for work, _ in group])
            except BaseException as error:  # noqa: BLE001 -- it belongs to those who wait
                outcomes = [error] * len(group)
            settle([future for _, future in group], outcomes)
        # In the same step as the last look: whoever comes after it finds nobody leading, and leads.
        self._leader = None

    def _take(self) -> list[tuple[W, asyncio.Future[R]]]:
        group: list[tuple[W, asyncio.Future[R]]] = []
        total = 0
        while self._waiting and (not group or total + self._waiting[0][1] <= self._size_max):
            work, size, future = self._waiting.popleft()
            if not future.done():
                group.append((work, future))
                total += size
        return group
