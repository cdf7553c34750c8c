"""Pushes that wait for their turn. Those that wait at the same time share a transaction.

Groups grow by themselves as the database gets slower, and a lone push waits for no other. There are two ways to write a
group:

- **Known**: all its partitions are known, in queues that take everything (`one_trip_push`). It leaves on a connection
  that the event loop watches (`transaction_stream`), in one trip, and the next group leaves behind it before it is
  answered, if it is worth a transaction of its own. No group waits for another.
- **Looked up**: all others, and known ones that the database refused, on a connection of the pool (`push_lookups`).
  What is learned makes the next group a known one; when one was written, and so there is a database, the connection for
  known groups is opened.

An id that is there already makes the index refuse a known group. Producers that repeat themselves do it more than once,
so for `DOUBT_SECONDS` groups with producers' own ids ask first.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial

from psycopg import errors

from forebay.broker.messages import Pushed
from forebay.broker.stores.postgres.attempts import AWAY, CommitUnknown, commit_unknown, first_line
from forebay.broker.stores.postgres.connections import Database, Row
from forebay.broker.stores.postgres.one_trip_push import OneTripPush
from forebay.broker.stores.postgres.push_lookups import PushLookups, Waiting, take_group
from forebay.broker.stores.postgres.pushing import Availability
from forebay.broker.stores.postgres.transaction_stream import TransactionStream, packed
from forebay.errors import StoreUnavailable
from forebay.model.batcher import settle
from forebay.model.histogram import Histogram
from forebay.model.push_run import PushRun

DOUBT_SECONDS = 5.0
GROUPS_MAX = 2
"""Known groups under way: one that the database works on, one that waits there."""
OVERLAP_BYTES_MIN = 16 << 10
"""Of a group that leaves while another is under way. Smaller ones rather wait and grow: what a transaction costs by
itself would be more than what is gained."""

_log = logging.getLogger("forebay.store")


class PushBatcher:
    """`size_max` is for requests that share a transaction; one that is larger goes alone.

    `announce` gets what each commit made available. `now_us` is read once per attempt at a group.
    """

    def __init__(
        self,
        database: Database,
        server_id: str,
        now_us: Callable[[], int | None],
        announce: Callable[[Availability], None],
        times: Histogram,
        *,
        size_max: int,
    ) -> None:
        self._database = database
        self._server_id = server_id
        self._now_us = now_us
        self._announce = announce
        self._size_max = size_max
        self._waiting: deque[Waiting] = deque()
        self._waiting_bytes = 0
        self._times = times
        self._under_way: deque[list[Waiting]] = deque()
        """Known groups, in the order in which they will be answered."""
        self._is_planned = False
        self._doubts_until = 0.0
        self._stream: TransactionStream | None = None
        self._opening: asyncio.Task[None] | None = None
        self._lookups = PushLookups(database, server_id, now_us, self._looked_up, times, size_max=size_max)
        self._loop: asyncio.AbstractEventLoop | None = None

    def submit(self, runs: Sequence[PushRun], size: int) -> asyncio.Future[Sequence[Pushed]]:
        """The commit to wait for. Cancelling it takes the push back, unless it is on its way already."""
        # Read once: each time costs a system call.
        loop = self._loop = self._loop or asyncio.get_running_loop()
        future: asyncio.Future[Sequence[Pushed]] = loop.create_future()
        self._waiting.append(Waiting(runs, size, future))
        self._waiting_bytes += size
        if not self._is_planned:
            # After what else the loop has to do now: that may be more pushes, for the same group.
            self._is_planned = True
            loop.call_soon(self._go)
        return future

    async def close(self) -> None:
        """After what waits is settled. A store that is opened again begins anew with its first push."""
        if futures := [one.future for group in (self._waiting, *self._under_way) for one in group]:
            await asyncio.wait(futures)
        await self._lookups.close()
        if self._opening is not None:
            self._opening.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._opening
            self._opening = None
        if self._stream is not None:
            self._stream.close()
        self._stream = self._loop = None

    def _go(self) -> None:
        self._is_planned = False
        while self._may_go():
            group, taken_bytes = take_group(self._waiting, self._size_max)
            self._waiting_bytes -= taken_bytes
            if group:
                self._send(group)

    def _may_go(self) -> bool:
        if not self._waiting or len(self._under_way) >= GROUPS_MAX:
            return False
        return not self._under_way or self._waiting_bytes >= OVERLAP_BYTES_MIN

    def _send(self, group: list[Waiting]) -> None:
        stream = self._stream
        push = None if stream is None or not stream.is_alive() else self._known(group)
        if stream is None or push is None:
            self._lookups.put(group)
            return
        try:
            statements = packed(push.statements())
        except Exception:  # noqa: BLE001 -- there is a value that cannot be sent; whose it is, is found out there
            self._lookups.put(group)
            return
        self._under_way.append(group)
        stream.send(statements, partial(self._answered, push, time.perf_counter()))

    def _known(self, group: list[Waiting]) -> OneTripPush | None:
        requests = [one.runs for one in group]
        if time.monotonic() < self._doubts_until and not all(run.is_minted for runs in requests for run in runs):
            return None
        lookups = self._lookups
        return OneTripPush.of(requests, lookups.known, lookups.free, self._now_us(), self._server_id)

    def _looked_up(self, made: Availability) -> None:
        """A group of lookups is done: with that it is known whether there is a database to connect to."""
        self._announce(made)
        is_needed = self._stream is None or not self._stream.is_alive()
        if made.counts and is_needed and (self._opening is None or self._opening.done()):
            self._opening = asyncio.create_task(self._open_stream())

    async def _open_stream(self) -> None:
        try:
            connection = await self._database.connection_for_pushes()
        except AWAY as error:
            # Groups are looked up meanwhile, and behind the next one it is tried again.
            _log.warning(
                "no connection for known pushes: %s", first_line(error), extra={"action": "push_connect_failed"}
            )
            return
        loop = asyncio.get_running_loop()
        self._stream = TransactionStream(connection, loop, seconds_max=self._database.push_seconds_max)

    def _answered(self, push: OneTripPush, began: float, answer: list[list[Row]] | Exception) -> None:
        self._times.note(time.perf_counter() - began)
        group = self._under_way.popleft()
        if self._waiting and not self._is_planned and self._loop is not None:
            # Before the pushes that are answered now: the database shall not wait for them.
            self._is_planned = True
            self._loop.call_soon(self._go)
        try:
            self._settle(group, push, answer)
        except Exception as error:  # noqa: BLE001 -- else these would wait for ever, and what was answered behind them
            _log.exception("BUG: an answer to pushes could not be read", extra={"action": "push_failed"})
            unknown = StoreUnavailable(f"the answer could not be read: {error}", is_outcome_unknown=True)
            settle([one.future for one in group], [unknown] * len(group))

    def _settle(self, group: list[Waiting], push: OneTripPush, answer: list[list[Row]] | Exception) -> None:
        if isinstance(answer, CommitUnknown):
            settle([one.future for one in group], [commit_unknown(answer)] * len(group))
            return
        if not isinstance(answer, Exception):
            decided = push.decided(answer[-1])
            self._announce(decided.availability)
            settle([one.future for one in group], decided.outcomes)
            return
        if isinstance(answer, errors.UniqueViolation):
            self._doubts_until = time.monotonic() + DOUBT_SECONDS
        self._lookups.put(group)
