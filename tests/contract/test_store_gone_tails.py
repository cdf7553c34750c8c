"""The contract of a store: a partition whose last messages are gone before they were delivered holds nobody up."""

from __future__ import annotations

import pytest

from fixtures.store_steps import configure, push, take, taken_ids
from forebay.broker.messages import PopRequest
from forebay.broker.overview import SeekTarget
from forebay.broker.store import Store
from forebay.model.queue import DEFAULT_GROUP, QueueOptions
from forebay.testing.fake_clock import FakeClock

pytestmark = pytest.mark.asyncio
ORDERS = PopRequest(queue="orders")


async def assert_others_are_served(store: Store) -> None:
    """One partition per pop, which is what consumers ask for unless they say otherwise."""
    await push(store, "x", partition="B")
    assert await taken_ids(store, 1) == ["x"]
    assert await taken_ids(store, 1) == []
    assert await store.seconds_until_due(ORDERS) is None
    await push(store, "y", partition="C")
    await push(store, "z", partition="A")
    assert sorted(await taken_ids(store, 1) + await taken_ids(store, 1)) == ["y", "z"]


async def test_deleted_tail_holds_no_other_partition_up(store: Store) -> None:
    [pushed, _] = await push(store, "a", "b", partition="A")
    assert await taken_ids(store, 1) == ["a"]
    assert await store.delete_message(pushed.partition_id, "b")
    await assert_others_are_served(store)


async def test_tail_that_is_deleted_while_it_waits_behind_a_lease_holds_no_other_partition_up(store: Store) -> None:
    [pushed, *_] = await push(store, "a", "b", "c", partition="A")
    popped = await take(store, 1)
    for text in "cb":
        assert await store.delete_message(pushed.partition_id, text)
    assert await store.complete([popped.lease_id]) != [None]
    await assert_others_are_served(store)


@pytest.mark.parametrize("partition", ["A", None])
async def test_seek_to_a_deleted_tail_holds_no_other_partition_up(store: Store, partition: str | None) -> None:
    [pushed, _] = await push(store, "a", "b", partition="A")
    assert await taken_ids(store) == ["a", "b"]
    assert await store.delete_message(pushed.partition_id, "b")
    assert await store.seek(DEFAULT_GROUP, "orders", partition, SeekTarget(seq=2)) == 1
    await assert_others_are_served(store)


@pytest.mark.parametrize("is_deleted", [False, True])
async def test_tail_that_retention_removed_holds_no_other_partition_up(
    store: Store, clock: FakeClock, is_deleted: bool
) -> None:
    await configure(store, QueueOptions(retention_seconds=60))
    [pushed, *_] = await push(store, "a", "b", "c", partition="A")
    assert await taken_ids(store, 1) == ["a"]
    if is_deleted:
        assert await store.delete_message(pushed.partition_id, "c")
    clock.advance(100)
    assert await store.apply_retention() == 3 - is_deleted
    await assert_others_are_served(store)
