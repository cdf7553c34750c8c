"""The thread that writes pushes which have to ask first, and what waits for it.

The event loop hands pushes over and is handed their outcomes. Whatever waits when the thread comes back for more is one
group. When a group was written and the loop wants a connection for known pushes, the thread opens it: now it is known
that there is a database to connect to, and the loop cannot wait for that.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import NamedTuple

import psycopg

from forebay.broker.coalescer import settle
from forebay.broker.messages import Pushed, PushItem
from forebay.broker.stores.postgres.attempts import Unanswered, first_line
from forebay.broker.stores.postgres.push_writer import PushWriter, Settled
from forebay.broker.stores.postgres.pushing import Availability
from forebay.broker.stores.postgres.transaction_stream import Connection
from forebay.errors import StoreUnavailable

_log = logging.getLogger("forebay.store")


class Waiting(NamedTuple):
    items: Sequence[PushItem]
    size: int
    future: asyncio.Future[Sequence[Pushed]]


def take_group(waiting: deque[Waiting], size_max: int) -> tuple[list[Waiting], int]:
    """Those that wait now, in order, as far as they may share; and the bytes taken, also of who waits no more."""
    group: list[Waiting] = []
    total = taken = 0
    while waiting and (not group or total + waiting[0].size <= size_max):
        one = waiting.popleft()
        taken += one.size
        if not one.future.done():
            group.append(one)
            total += one.size
    return group, taken


class PushThread:
    """`tell` and `adopt` run in the loop."""

    def __init__(
        self,
        writer: PushWriter,
        tell: Callable[[Availability], None],
        adopt: Callable[[Connection], None],
        *,
        size_max: int,
    ) -> None:
        self._writer = writer
        self._tell = tell
        self._adopt = adopt
        self._size_max = size_max
        self._waiting: deque[Waiting] = deque()
        """Appended to by the loop, taken from by the thread."""
        self._calls: SimpleQueue[bool] = SimpleQueue()
        """For the thread: True when something waits, False when it is to end."""
        self._is_connection_wanted = False
        self._thread: threading.Thread | None = None

    def put(self, group: Sequence[Waiting], *, is_connection_wanted: bool) -> None:
        self._waiting.extend(group)
        self._is_connection_wanted = is_connection_wanted
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="forebay-push", daemon=True)
            self._thread.start()
        self._calls.put(True)

    async def close(self) -> None:
        """After what waits is settled. The next push starts the next thread."""
        thread, self._thread = self._thread, None
        if thread is not None:
            self._calls.put(False)
            await asyncio.to_thread(thread.join)

    def _run(self) -> None:
        while self._calls.get():
            group, _ = take_group(self._waiting, self._size_max)
            if self._waiting:
                self._calls.put(True)
            if group:
                self._write(group)
        self._writer.close()

    def _write(self, group: list[Waiting]) -> None:
        try:
            settled = self._writer.write([one.items for one in group])
        except Exception as error:  # noqa: BLE001 - else nobody would be answered any more, these or the next
            _log.exception("BUG: writing pushes failed", extra={"action": "push_failed"})
            self._writer.close()
            unknown = StoreUnavailable(f"writing failed: {error}", is_outcome_unknown=True)
            settled = Settled([unknown] * len(group), Availability({}, set()))
        loop = group[0].future.get_loop()
        # The loop may be gone, and with it everybody who waits.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(self._hand_out, group, settled)
        if self._is_connection_wanted and settled.is_written:
            self._is_connection_wanted = False
            self._offer_connection(loop)

    def _offer_connection(self, loop: asyncio.AbstractEventLoop) -> None:
        try:
            connection = self._writer.connected_for_known()
        except (psycopg.Error, OSError, Unanswered) as error:
            _log.warning(
                "no connection for known pushes: %s", first_line(error), extra={"action": "push_connect_failed"}
            )
            return  # they go through this thread, and after the next group it is tried again
        try:
            loop.call_soon_threadsafe(self._adopt, connection)
        except RuntimeError:
            connection.close()

    def _hand_out(self, group: list[Waiting], settled: Settled) -> None:
        self._tell(settled.availability)
        settle([one.future for one in group], settled.outcomes)
