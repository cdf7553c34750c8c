"""Pushes that are looked up before they are written: one group after the other, each in a transaction of its own.

Lock the queues, find the partitions, find duplicates; make partitions that are new, and look for duplicates again
where the numbers of partitions, which are remembered from one push to the next, turn out to be others; write, and
COMMIT. What to ask and to write is decided in `pushing`. Queues that do not exist are made in between, in a transaction
of their own, and everything is looked up again.

Whatever waits when a group is done is the next one.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

from forebay.broker.messages import Pushed
from forebay.broker.stores.postgres.connections import Connection, Database
from forebay.broker.stores.postgres.pushing import (
    DELETED_AGAIN,
    MAKE_QUEUES_MAX,
    PARTITIONS_KNOWN_MAX,
    Availability,
    Decided,
    MissingQueues,
    Outcome,
    PartitionNumbers,
    PushPlan,
    carried_out,
    make_queues,
)
from forebay.errors import StoreUnavailable
from forebay.model.batcher import settle
from forebay.model.histogram import Histogram
from forebay.model.push_run import PushRun

Requests = Sequence[Sequence[PushRun]]

_log = logging.getLogger("forebay.store")


class Waiting(NamedTuple):
    """A push, and the future that its client waits for."""

    runs: Sequence[PushRun]
    size: int
    future: asyncio.Future[Sequence[Pushed]]


def take_group(waiting: deque[Waiting], size_max: int) -> tuple[list[Waiting], int]:
    """Those that wait now, in order, as far as they may share; and the bytes taken, also of those that wait no more."""
    group: list[Waiting] = []
    total = taken = 0
    while waiting and (not group or total + waiting[0].size <= size_max):
        one = waiting.popleft()
        taken += one.size
        if not one.future.done():
            group.append(one)
            total += one.size
    return group, taken


class Settled(NamedTuple):
    """What became of each request of a group, and what is to be announced of it."""

    outcomes: Sequence[Outcome | Exception]
    availability: Availability


class PushLookups:
    """`announce` gets what each commit made available. `now_us` is read once per attempt at a group."""

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
        self._times = times
        self._size_max = size_max
        self.known: PartitionNumbers = {}
        self.free: set[str] = set()
        """Queues that took everything when they were last looked at."""
        self._waiting: deque[Waiting] = deque()
        self._task: asyncio.Task[None] | None = None

    def put(self, group: Sequence[Waiting]) -> None:
        self._waiting.extend(group)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run())

    async def close(self) -> None:
        """After what waits is settled."""
        if self._task is not None:
            await self._task

    async def _run(self) -> None:
        while self._waiting:
            group, _ = take_group(self._waiting, self._size_max)
            if group:
                await self._settle(group)

    async def _settle(self, group: list[Waiting]) -> None:
        began = time.perf_counter()
        try:
            settled = await self.write([one.runs for one in group])
        except Exception as error:  # noqa: BLE001 - else no push would be answered any more, these or the next
            _log.exception("BUG: writing pushes failed", extra={"action": "push_failed"})
            unknown = StoreUnavailable(f"writing failed: {error}", is_outcome_unknown=True)
            settled = Settled([unknown] * len(group), Availability({}, set()))
        self._times.note(time.perf_counter() - began)
        self._announce(settled.availability)
        settle([one.future for one in group], settled.outcomes)

    async def write(self, requests: Requests) -> Settled:
        """All of them in one transaction; one each, where one of them spoils it for the others."""
        try:
            outcomes, availability, _ = await self._insist(requests)
        except StoreUnavailable as error:
            return _all_failed(requests, error)
        except Exception as error:  # noqa: BLE001 -- it belongs to the push that cannot be stored
            return _all_failed(requests, error) if len(requests) == 1 else await self._write_each(requests)
        return Settled(outcomes, availability)

    async def _write_each(self, requests: Requests) -> Settled:
        """A transaction for each request."""
        outcomes: list[Outcome | Exception] = []
        counts: dict[str, int] = {}
        wanted_elsewhere: set[str] = set()
        for request in requests:
            try:
                [outcome], (notices, wanted), _ = await self._insist([request])
            except Exception as error:  # noqa: BLE001 -- as above
                outcomes.append(error)
                continue
            outcomes.append(outcome)
            wanted_elsewhere |= wanted
            for queue, count in notices.items():
                counts[queue] = counts.get(queue, 0) + count
        return Settled(outcomes, Availability(counts, wanted_elsewhere))

    async def _insist(self, requests: Requests) -> Decided:
        """One transaction for all the requests; it is repeated where that is safe."""
        has_failed = False

        async def work(connection: Connection) -> tuple[PushPlan, Decided]:
            nonlocal has_failed
            plan = PushPlan(self._now_us(), self._server_id, self.known, looks_for_all=has_failed)
            has_failed = True  # if this is called again
            return plan, await carried_out(connection, plan, requests)

        for _ in range(MAKE_QUEUES_MAX + 1):
            try:
                plan, decided = await self._database.run_push(work)
            except MissingQueues as missing:
                await self._database.ask(*make_queues(missing.queues, self._now_us()))
                has_failed = False
            else:
                self._note(plan)
                return decided
        raise StoreUnavailable(DELETED_AGAIN)

    def _note(self, plan: PushPlan) -> None:
        """What its commit has made true."""
        self.known.update(plan.made)
        if len(self.free) > PARTITIONS_KNOWN_MAX:
            self.free.clear()
        self.free |= plan.free
        self.free -= plan.guarded


def _all_failed(requests: Requests, error: Exception) -> Settled:
    return Settled([error] * len(requests), Availability({}, set()))
