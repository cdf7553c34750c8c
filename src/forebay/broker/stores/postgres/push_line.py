"""Pushes that wait for their turn, and the thread that writes them.

Whoever waits when the thread comes back for more is written in one transaction, so groups grow by themselves as the
database gets slower, and a lone push waits for nobody. The event loop hands pushes over and is handed their outcomes;
no trip of a transaction passes through it, and the server goes on reading requests meanwhile.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from queue import SimpleQueue
from typing import NamedTuple

from forebay.broker.coalescer import settle
from forebay.broker.store import Pushed, PushItem
from forebay.broker.stores.postgres.push_writer import Group, NextGroup, PushWriter
from forebay.broker.stores.postgres.pushing import Availability, Outcome
from forebay.errors import StoreUnavailable

_log = logging.getLogger("forebay.store")


class _Waiting(NamedTuple):
    items: Sequence[PushItem]
    size: int
    future: asyncio.Future[Sequence[Pushed]]


class PushLine:
    """`size_max` is for requests that share a transaction; one that is larger goes alone. `tell` runs in the loop."""

    def __init__(
        self,
        make_writer: Callable[[NextGroup], PushWriter],
        tell: Callable[[Availability], None],
        *,
        size_max: int,
    ) -> None:
        self._writer = make_writer(self._next_group)
        self._tell = tell
        self._size_max = size_max
        self._waiting: deque[_Waiting] = deque()
        """Appended to by the loop, taken from by the thread."""
        self._calls: SimpleQueue[bool] = SimpleQueue()
        """For the thread: True when something waits, False when it is to end."""
        self._is_call_planned = False
        self._submitted_bytes = 0
        """Written by the loop alone, as `_taken_bytes` is by the thread: the difference is what waits."""
        self._taken_bytes = 0
        self._taken: list[asyncio.Future[Sequence[Pushed]]] = []
        """What the thread has taken and not settled."""
        self._thread: threading.Thread | None = None

    def submit(self, items: Sequence[PushItem], size: int) -> asyncio.Future[Sequence[Pushed]]:
        """The commit to wait for. Cancelling it takes the push back, unless it is on its way already."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Sequence[Pushed]] = loop.create_future()
        self._submitted_bytes += size
        self._waiting.append(_Waiting(items, size, future))
        if not self._is_call_planned:
            # After what else the loop has to do now: that may be more pushes, for the same group.
            self._is_call_planned = True
            loop.call_soon(self._call)
        return future

    def _call(self) -> None:
        self._is_call_planned = False
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="forebay-push", daemon=True)
            self._thread.start()
        self._calls.put(True)

    async def close(self) -> None:
        """After what waits is settled. A store that is opened again starts the next thread with its first push."""
        if self._is_call_planned:
            await asyncio.sleep(0)
        thread, self._thread = self._thread, None
        if thread is not None:
            self._calls.put(False)
            await asyncio.to_thread(thread.join)

    def _run(self) -> None:
        while self._calls.get():
            try:
                self._writer.write(self._next_group(0))
            except Exception as error:  # noqa: BLE001 - else nobody would be answered any more, these or the next
                _log.exception("BUG: writing pushes failed", extra={"action": "push_failed"})
                self._writer.close()
                unknown = StoreUnavailable(f"writing failed: {error}", is_outcome_unknown=True)
                self._settle(self._taken, [unknown] * len(self._taken), Availability({}, set()))
                self._taken = []
        self._writer.close()

    def _next_group(self, size_min: int) -> Group | None:
        """Those that wait now, in order, as far as they may share; None while they are less than `size_min`."""
        if self._submitted_bytes - self._taken_bytes < size_min:
            return None
        group: list[_Waiting] = []
        total = 0
        while self._waiting and (not group or total + self._waiting[0].size <= self._size_max):
            one = self._waiting.popleft()
            self._taken_bytes += one.size
            if not one.future.done():
                group.append(one)
                total += one.size
        if not group:
            return None
        futures = [one.future for one in group]
        self._taken = [*(future for future in self._taken if not future.done()), *futures]
        return Group([one.items for one in group], partial(self._settle, futures))

    def _settle(
        self,
        futures: Sequence[asyncio.Future[Sequence[Pushed]]],
        outcomes: Sequence[Outcome | Exception],
        availability: Availability,
    ) -> None:
        """Called by the thread; the loop may be gone, and with it everybody who waits."""
        if not futures:
            return
        with contextlib.suppress(RuntimeError):
            loop = futures[0].get_loop()
            loop.call_soon_threadsafe(self._hand_out, futures, outcomes, availability)

    def _hand_out(
        self,
        futures: Sequence[asyncio.Future[Sequence[Pushed]]],
        outcomes: Sequence[Outcome | Exception],
        availability: Availability,
    ) -> None:
        self._tell(availability)
        settle(futures, outcomes)
