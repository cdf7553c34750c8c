"""The store's thread, and the line of work that waits for it.

Coroutines of any event loop put work into the line. The thread takes everything that waits as one *cycle*, and when the
cycle is done, all its calls are answered: each event loop with one call.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from queue import SimpleQueue
from time import perf_counter
from typing import Any

from forebay.broker.stores.embedded.pushing import PendingPush
from forebay.errors import StoreUnavailable
from forebay.model.histogram import Histogram
from forebay.model.push_run import message_count

LARGE_PUSH_MESSAGES = 32
"""A push of so many messages is worth a cycle of its own."""

logger = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class Work:
    """Something for the store's thread to do, and the caller that waits for it."""

    call: Callable[[], Any] | None
    future: asyncio.Future[Any]
    synced: bool = False
    push: PendingPush | None = None
    """In place of a call: the pushes to a queue are done together, before the calls."""
    result: Any = None
    error: BaseException | None = None


class StoreThread:
    """`cycle` does a cycle's work, and leaves a result or an error in each; it never raises."""

    def __init__(self, cycle: Callable[[Sequence[Work]], None], at_end: Callable[[], None], times: Histogram) -> None:
        self._cycle = cycle
        self._times = times
        """How long cycles take."""
        self._at_end = at_end
        self._wakes: SimpleQueue[None] = SimpleQueue()
        """One entry for each time that a caller has put something into `_waiting`, or wants the thread to end."""
        self._waiting: deque[Work] = deque()
        self._telling: asyncio.AbstractEventLoop | None = None
        """The event loop that will tell the thread of what waits."""
        self._is_ending = False
        self._thread = threading.Thread(target=self._run, name="forebay-store", daemon=True)
        self._thread.start()

    @property
    def is_alive(self) -> bool:
        return self._thread.is_alive()

    async def end(self) -> None:
        """Do what waits, and no more."""
        self._is_ending = True
        self._wakes.put(None)
        await asyncio.to_thread(self._thread.join)

    def submit(
        self, call: Callable[[], Any] | None, *, synced: bool = False, push: PendingPush | None = None
    ) -> asyncio.Future[Any]:
        if self._is_ending:
            raise StoreUnavailable("the store is being closed")
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        self._waiting.append(Work(call, future, synced, push))
        if push is not None and message_count(push.runs) >= LARGE_PUSH_MESSAGES:
            # At once: the thread writes it while the loop reads the next one. Else all producers would wait for the
            # disk together, and then the disk for all of them.
            self._wakes.put(None)
        elif self._telling is not loop:
            # Notified when the event loop has run everything that is ready now, so that requests which came together
            # are committed together, and the thread does not compete with the loop for the interpreter meanwhile.
            self._telling = loop
            loop.call_soon(self._tell)
        return future

    def _tell(self) -> None:
        self._telling = None
        self._wakes.put(None)

    def _run(self) -> None:
        while True:
            self._wakes.get()
            is_ending = self._is_ending
            work = [self._waiting.popleft() for _ in range(len(self._waiting))]
            if work:
                began = perf_counter()
                self._cycle(work)
                self._times.note(perf_counter() - began)
                _answer(work)
            if is_ending:
                break
        self._at_end()


def _answer(work: Sequence[Work]) -> None:
    """Resolve the futures of each event loop with one call."""
    loops: dict[asyncio.AbstractEventLoop, list[Work]] = {}
    for item in work:
        loops.setdefault(item.future.get_loop(), []).append(item)
    for loop, items in loops.items():
        try:
            loop.call_soon_threadsafe(_resolve, items)
        except RuntimeError:
            logger.debug(
                "the answer is not awaited any more: the event loop is closed",
                extra={"action": "store_answer_unwanted"},
            )


def _resolve(items: Sequence[Work]) -> None:
    for item in items:
        if item.future.done():
            continue
        if item.error is not None:
            item.future.set_exception(item.error)
        else:
            item.future.set_result(item.result)
