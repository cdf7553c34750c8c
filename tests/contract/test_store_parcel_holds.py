"""Retention spares what an unfinished parcel still needs, and says so."""

from __future__ import annotations

import logging

import pytest

from fixtures.store_steps import configure, ids, push, take
from forebay.broker.room_work import Ask, QueueEdge, Work, statement
from forebay.broker.store import Store
from forebay.model.queue import QueueOptions
from forebay.testing.fake_clock import FakeClock
from forebay.testing.memory_store import MemoryStore

pytestmark = pytest.mark.asyncio

HOLD = statement(
    "hold",
    "INSERT INTO forebay.parcel_holds (queue_id, flow, seq) VALUES (:queue_id, :flow, :seq) "
    "ON CONFLICT (queue_id, flow) DO UPDATE SET seq = excluded.seq",
)
HOLDS = statement("holds", "SELECT flow, seq FROM forebay.parcel_holds")


async def hold(store: Store, seq: int, flow: str = "clicks") -> None:
    def work() -> Work[None]:
        edge = yield QueueEdge("orders")
        yield Ask(HOLD, {"queue_id": edge.queue_id, "flow": flow, "seq": seq})

    await store.together(work)


async def left(store: Store) -> list[str]:
    return ids(await store.read("orders", 1, 100))


async def test_old_messages_from_a_hold_on_are_spared(
    store: Store, variant: Store, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    await configure(store, QueueOptions(retention_seconds=60))
    await push(store, *"abcd")
    await hold(store, 3)
    clock.advance(61)
    with caplog.at_level(logging.WARNING):
        assert await store.apply_retention() == 2
    assert await left(store) == ["c", "d"]
    told = [record.getMessage() for record in caplog.records if "spares" in record.getMessage()]
    assert told or isinstance(variant, MemoryStore)
    assert all("orders" in one and "from seq 3 on" in one for one in told)
    await hold(store, 5)
    assert await store.apply_retention() == 2
    assert await left(store) == []


async def test_finished_messages_from_a_hold_on_are_spared(store: Store, clock: FakeClock) -> None:
    await configure(store, QueueOptions(completed_retention_seconds=60))
    await push(store, *"abcd")
    popped = await take(store)
    await store.complete([popped.lease_id])
    await hold(store, 2)
    clock.advance(61)
    assert await store.apply_retention() == 1
    assert await left(store) == ["b", "c", "d"]


async def test_the_lowest_hold_of_several_flows_counts(store: Store, clock: FakeClock) -> None:
    await configure(store, QueueOptions(retention_seconds=60))
    await push(store, *"abcd")
    await hold(store, 4)
    await hold(store, 2, "other")
    clock.advance(61)
    assert await store.apply_retention() == 1


async def test_clearing_a_queue_by_hand_removes_what_is_held(store: Store) -> None:
    await push(store, *"abcd")
    await hold(store, 1)
    assert await store.clear_queue("orders") == 4


async def test_holds_go_with_their_queue(store: Store) -> None:
    await push(store, "a")
    await hold(store, 1)
    await store.delete_queue("orders")
    await store.apply_retention()

    def work() -> Work[list[tuple[str, int]]]:
        found: list[tuple[str, int]] = yield Ask(HOLDS)
        return found

    assert await store.look(work) == []
