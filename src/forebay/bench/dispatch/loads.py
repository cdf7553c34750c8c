"""A dispatcher on a store, and parcels in it: what the figures are made of."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial

from forebay.broker.room_work import Ask, Now, Work, statement
from forebay.broker.store import Store
from forebay.clock import SystemClock
from forebay.dispatch.definition import FlowDefinition, Source, Step
from forebay.dispatch.dids import new_dids
from forebay.dispatch.dispatcher import Dispatcher
from forebay.dispatch.ledger.enqueue import Enqueued
from forebay.dispatch.ledger.starting import NewParcel, start_parcels
from forebay.dispatch.limits import DispatchLimits
from forebay.dispatch.values import CompleteRequest, LeaseRequest, Outcome, Range
from forebay.dispatch.warm import WarmTier

BATCH = 100
FILL_PIECE = 10_000
_turns = itertools.count()

# As `steps_enqueue` would write them, class by class and without going through a warm tier: a million in a minute.
_FILL_PARCELS = statement(
    "bench_parcels",
    "INSERT INTO forebay.parcels (did, flow, version, queue, first_seq, last_seq, messages, size, place, state, "
    "created_us, updated_us) SELECT value ->> 0, value ->> 1, 1, 'bench', 1, 1, 1, 0, CAST(value ->> 3 AS bigint), "
    "'IN_FLIGHT', :now_us, :now_us FROM forebay.each(:rows)",
)
_FILL_STEPS = statement(
    "bench_steps",
    "INSERT INTO forebay.parcel_flows (did, step, flow, flow_type, action, action_class, state, place, ranges, "
    "messages, size, queued_us) SELECT value ->> 0, 0, value ->> 1, 'DATA_SINK', 'work', value ->> 2, 'COLD_QUEUED', "
    "CAST(value ->> 3 AS bigint), '[[\"bench\",1,1]]', 1, 0, :now_us FROM forebay.each(:rows)",
)


def flow(name: str, action_class: str) -> FlowDefinition:
    """One that takes nothing from its queue: parcels are put in by hand."""
    source = Source(queue=f"{name}-nothing")
    return FlowDefinition(name=name, source=source, steps=(Step(action="work", action_class=action_class),))


@asynccontextmanager
async def dispatching(store: Store, warm: WarmTier, limits: DispatchLimits | None = None) -> AsyncIterator[Dispatcher]:
    """A dispatcher that runs on an open store."""
    found = Dispatcher(store, warm, limits or DispatchLimits(), SystemClock())
    await found.start()
    try:
        yield found
    finally:
        await found.stop()


class Load:
    """Parcels of one flow and class, put in, leased and completed."""

    def __init__(self, store: Store, dispatcher: Dispatcher, name: str = "") -> None:
        self.name = name or f"bench{next(_turns)}"
        self.action_class = f"{self.name}.Work"
        self._store = store
        self._dispatcher = dispatcher
        self._flow = flow(self.name, self.action_class)

    async def define(self) -> None:
        await self._dispatcher.define(self._flow)

    async def put(self, parcels: int) -> None:
        """A batch at a time, as cutting does."""
        for start in range(0, parcels, BATCH):
            dids = new_dids(min(BATCH, parcels - start), time.time_ns() // 1000)
            new = [NewParcel(did, [Range("bench", 1, 1)], 1) for did in dids]
            capacity = self._dispatcher.limits.in_memory_queue_size
            enqueued: Enqueued = await self._store.together(partial(start_parcels, self._flow, 1, new, capacity))
            await self._dispatcher.offer(enqueued)

    async def work_off(self, parcels: int) -> None:
        """Lease and complete, 100 at a time, until so many are done."""
        done = 0
        while done < parcels:
            done += await self.work_once()

    async def work_once(self) -> int:
        request = LeaseRequest("bench", [self.action_class], BATCH, wait_seconds=10.0)
        lease = await self._dispatcher.lease(request)
        if lease is None:
            return 0
        outcomes = [Outcome(parcel.did, "COMPLETE") for parcel in lease.parcels]
        await self._dispatcher.complete(CompleteRequest(lease.lease_id, outcomes))
        return len(outcomes)

    async def through(self, parcels: int, lanes: int = 2) -> float:
        """Enqueue, lease and complete so many; parcels per second."""
        began = time.perf_counter()
        for _ in range(parcels // (BATCH * lanes)):
            await asyncio.gather(*(self.put(BATCH) for _ in range(lanes)))
            await asyncio.gather(*(self.work_off(BATCH) for _ in range(lanes)))
        return parcels / (time.perf_counter() - began)


async def fill_cold(store: Store, name: str, classes: Sequence[str], parcels: int) -> None:
    """So many cold parcels in all, spread over the classes."""

    def piece(first: int, count: int) -> Work[None]:
        now_us = yield Now()
        dids = new_dids(count, now_us)
        rows = [[did, name, classes[(first + n) % len(classes)], first + n + 1] for n, did in enumerate(dids)]
        yield Ask(_FILL_PARCELS, {"rows": rows, "now_us": now_us})
        yield Ask(_FILL_STEPS, {"rows": rows, "now_us": now_us})

    for first in range(0, parcels, FILL_PIECE):
        await store.together(partial(piece, first, min(FILL_PIECE, parcels - first)))
