"""What a server does beside its requests."""

from __future__ import annotations

import asyncio

from fixtures.intakes import intake_of
from fixtures.scripted_dispatcher import ScriptedDispatcher
from fixtures.store_steps import push
from fixtures.waiting import until_told
from forebay.api.retention import Ages
from forebay.api.service import Service
from forebay.broker.overview import TraceEvent
from forebay.broker.waiting import WaitingRoom
from forebay.testing.fake_clock import FakeClock
from forebay.testing.memory_store import MemoryStore


async def test_traces_are_removed_when_their_time_is_over() -> None:
    clock = FakeClock()
    store = MemoryStore(clock)
    room = WaitingRoom(asyncio.get_running_loop())
    service = Service(
        store,
        room,
        clock,
        intake_of(store, clock, is_store_open=False),
        retention_seconds=0.001,
        ages=Ages(trace_seconds=60),
        dispatcher=ScriptedDispatcher(),
    )
    await service.start()
    [pushed] = await push(store, "a")
    await store.add_trace(TraceEvent(pushed.partition_id, "a", "g", "info", (), b"{}", clock.now_us()))
    clock.advance(60)
    await service._retain()
    assert len(await store.traces(pushed.partition_id, "a")) == 1
    clock.advance(1)

    async def are_gone() -> bool:
        return not await store.traces(pushed.partition_id, "a")

    await until_told(are_gone)
    await service.stop()
