"""Work that waits at the same time goes together, on an event loop: one batch is on its way, and the next one fills.

A batch grows by itself as sending gets slower, and work that comes alone waits for nothing. Buffer files are appended
to in this way, and clients merge single pushes and completions of leases.

Three places do it in another way, for a reason each. The commit log's `GroupCommit` is led by the threads that append,
so that a lone appender needs no hop. The embedded store's `StoreThread` runs work of all kinds, in its own thread, and
decides there what belongs together. PostgreSQL's `PushBatcher` has several batches on their way, one transaction behind
the other, on one connection.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Generic, TypeVar

W = TypeVar("W")
R = TypeVar("R")


def settle(futures: Iterable[asyncio.Future[R]], outcomes: Iterable[R | BaseException]) -> None:
    """Give each future that is still waited for its outcome: a result, or what to raise."""
    for future, outcome in zip(futures, outcomes, strict=True):
        if future.done():
            continue
        if isinstance(outcome, asyncio.CancelledError):
            future.cancel()
        elif isinstance(outcome, BaseException):
            future.set_exception(outcome)
        else:
            future.set_result(outcome)


class Batcher(Generic[W, R]):
    """`send` gets the work of a batch in order and returns one outcome each: a result, or an error to raise."""

    def __init__(
        self,
        send: Callable[[Sequence[W]], Awaitable[Sequence[R | Exception]]],
        *,
        size_max: int,
        count_max: int | None = None,
    ) -> None:
        """`size_max` and `count_max` are of a batch. Work that is larger goes alone."""
        self._send = send
        self._size_max = size_max
        self._count_max = count_max
        self._waiting: deque[tuple[W, int, asyncio.Future[R]]] = deque()
        self._leader: asyncio.Task[None] | None = None

    def submit(self, work: W, size: int) -> asyncio.Future[R]:
        """The outcome to wait for. Cancelling it takes the work back, unless it is on its way already."""
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
            batch = self._take()
            if not batch:
                continue
            futures = [future for _, future in batch]
            outcomes: Sequence[R | BaseException]
            try:
                outcomes = await self._send([work for work, _ in batch])
            except Exception as error:  # noqa: BLE001 -- it belongs to the tasks that wait for this batch
                outcomes = [error] * len(batch)
            except BaseException as error:
                # The event loop is ending: nothing more is sent.
                futures += [future for _, _, future in self._waiting]
                settle(futures, [error] * len(futures))
                self._waiting.clear()
                self._leader = None
                raise
            settle(futures, outcomes)
        # In the same step as the last look: work that comes later finds no leader, and makes one.
        self._leader = None

    def _take(self) -> list[tuple[W, asyncio.Future[R]]]:
        batch: list[tuple[W, asyncio.Future[R]]] = []
        total = 0
        while self._waiting and len(batch) != self._count_max:
            if batch and total + self._waiting[0][1] > self._size_max:
                break
            work, size, future = self._waiting.popleft()
            if not future.done():
                batch.append((work, future))
                total += size
        return batch
