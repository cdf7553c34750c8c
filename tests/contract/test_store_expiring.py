"""The contract of a store, what goes with time: dead letters, idle groups, empty partitions."""

from __future__ import annotations

import pytest

from fixtures.store_steps import complete, configure, finish, ids, item, push, take, taken_ids
from forebay.broker.bulk import RangeRequest
from forebay.broker.delivery import DEAD
from forebay.broker.overview import DeadLetterFilter, SeekTarget, TraceEvent
from forebay.broker.store import Store
from forebay.errors import RangeGone
from forebay.model.queue import DEFAULT_GROUP, QueueOptions
from forebay.testing.fake_clock import FakeClock

pytestmark = pytest.mark.asyncio
EVERYTHING = DeadLetterFilter()


async def group_names(store: Store) -> list[tuple[str, str]]:
    return [(found.queue, found.group) for found in await store.groups()]


async def partition_names(store: Store, queue: str = "orders") -> list[str]:
    return [found.name for found in await store.partitions(queue, 1000, 0)]


async def emptied(store: Store, clock: FakeClock, *texts: str, partition: str = "Default") -> None:
    """Push messages, finish them, and let retention remove them."""
    await configure(store, QueueOptions(completed_retention_seconds=1))
    await push(store, *texts, partition=partition)
    await taken_ids(store, partition=partition)
    clock.advance(2)
    assert await store.apply_retention() == len(texts)


# dead letters


async def test_dead_letters_go_when_they_are_older_than_they_are_kept(store: Store, clock: FakeClock) -> None:
    for text in "ab":
        await push(store, text)
        await finish(store, await take(store), DEAD)
        clock.advance(50)
    assert await store.expire_dead_letters(100) == 0
    clock.advance(1)
    assert await store.expire_dead_letters(100) == 1
    [left], total = await store.dead_letters(EVERYTHING, 10, 0)
    assert (left.message.transaction_id, total) == ("b", 1)


# groups


async def test_group_that_does_not_pop_is_forgotten(store: Store, clock: FakeClock) -> None:
    await push(store, "a")
    await taken_ids(store, group="idle")
    clock.advance(60)
    await take(store, group="busy", queue="other")
    await taken_ids(store, group="busy")
    clock.advance(40)
    assert await store.expire_groups(100) == 0
    clock.advance(1)
    assert await store.expire_groups(100) == 1
    assert await group_names(store) == [("orders", "busy")]


async def test_forgotten_group_begins_anew(store: Store, clock: FakeClock) -> None:
    await push(store, "a")
    assert await taken_ids(store, group="g") == ["a"]
    clock.advance(101)
    assert await store.expire_groups(100) == 1
    assert await taken_ids(store, group="g") == ["a"]


async def test_pop_that_finds_nothing_keeps_its_group(store: Store, clock: FakeClock) -> None:
    await push(store, "a")
    await taken_ids(store, group="g")
    clock.advance(99)
    assert await taken_ids(store, group="g") == []
    clock.advance(99)
    assert await store.expire_groups(100) == 0


async def test_group_that_holds_a_lease_is_not_forgotten(store: Store, clock: FakeClock) -> None:
    await configure(store, QueueOptions(lease_seconds=1000))
    await push(store, "a")
    popped = await take(store, group="g")
    clock.advance(500)
    assert await store.expire_groups(100) == 0
    assert await complete(store, popped.lease_id) is not None
    assert await store.expire_groups(100) == 1


async def test_group_with_many_partitions_is_forgotten_as_a_whole(store: Store, clock: FakeClock) -> None:
    await store.push([item(f"m{n}", f"p{n}") for n in range(2500)])
    for _ in range(3):
        await store.complete([(await take(store, batch=1000, group="g", partitions=1000)).lease_id])
    clock.advance(101)
    assert await store.expire_groups(100) == 1
    assert await group_names(store) == []


# partitions


async def test_empty_partition_goes_when_it_got_nothing_for_long(store: Store, clock: FakeClock) -> None:
    await emptied(store, clock, "a", "b", partition="p1")
    await push(store, "c", partition="p2")
    clock.advance(98)
    assert await store.expire_partitions(100) == 0
    clock.advance(1)
    assert await store.expire_partitions(100) == 1
    assert await partition_names(store) == ["p2"]
    [status] = await store.queues()
    assert (status.partitions, status.messages, status.pushed) == (1, 1, 3)


async def test_partition_with_a_message_stays(store: Store, clock: FakeClock) -> None:
    await push(store, "a")
    clock.advance(1000)
    assert await store.expire_partitions(100) == 0
    await take(store)
    assert await store.expire_partitions(100) == 0


async def test_name_of_a_removed_partition_comes_back_with_the_next_push(store: Store, clock: FakeClock) -> None:
    await emptied(store, clock, "a", "b")
    [old] = await store.partitions("orders", 10, 0)
    clock.advance(200)
    assert await store.expire_partitions(100) == 1
    [pushed] = await push(store, "a")
    assert pushed.status == "queued"
    assert pushed.partition_id != old.partition_id
    [lag] = await store.groups("orders")
    assert (lag.lag_messages, lag.partitions) == (1, 1)
    assert ids(await store.read("orders", 1, 10)) == ["a"]
    assert await taken_ids(store) == ["a"]
    assert await taken_ids(store) == []
    clock.advance(2)
    assert await store.apply_retention() == 1


async def test_removed_partitions_messages_are_in_no_range(store: Store, clock: FakeClock) -> None:
    await push(store, "first", partition="p0")
    await emptied(store, clock, "a", "b", partition="p1")
    await push(store, "last", partition="p0")
    clock.advance(200)
    assert await store.expire_partitions(100) == 1
    assert ids(await store.read("orders", 1, 10)) == ["first", "last"]
    batches = [batch async for batch in await store.read_batches(RangeRequest("orders", 1))]
    assert [name for batch in batches for name in batch.column("transaction_id").to_pylist()] == ["first", "last"]


async def test_range_is_still_gone_when_its_partition_is_too(store: Store, clock: FakeClock) -> None:
    await emptied(store, clock, "a", "b", partition="p1")
    clock.advance(200)
    assert await store.expire_partitions(100) == 1
    await push(store, "c", partition="p2")
    with pytest.raises(RangeGone):
        await store.read_batches(RangeRequest("orders", 1))


async def test_partition_with_deleted_messages_only_is_empty(store: Store, clock: FakeClock) -> None:
    [pushed] = await push(store, "a", partition="p1")
    await push(store, "b", partition="p2")
    assert await store.delete_message(pushed.partition_id, "a")
    clock.advance(200)
    assert await store.expire_partitions(100) == 1
    assert ids(await store.read("orders", 1, 10)) == ["b"]
    batches = [batch async for batch in await store.read_batches(RangeRequest("orders"))]
    assert [name for batch in batches for name in batch.column("transaction_id").to_pylist()] == ["b"]


async def test_partition_with_dead_letters_or_traces_stays(store: Store, clock: FakeClock) -> None:
    await configure(store, QueueOptions(retention_seconds=1))
    await push(store, "a", partition="dead")
    await finish(store, await take(store), DEAD)
    [pushed] = await push(store, "b", partition="traced")
    await store.add_trace(TraceEvent(pushed.partition_id, "b", "g", "info", (), b"{}", clock.now_us()))
    clock.advance(200)
    await store.apply_retention()
    assert await store.expire_partitions(100) == 0
    await store.purge_dead_letters(EVERYTHING)
    await store.expire_traces(100)
    assert await store.expire_partitions(100) == 2


async def test_partition_in_which_a_group_waits_for_a_later_message_stays(store: Store, clock: FakeClock) -> None:
    await emptied(store, clock, "a")
    await store.seek(DEFAULT_GROUP, "orders", "Default", SeekTarget(seq=10))
    clock.advance(200)
    assert await store.expire_partitions(100) == 0


async def test_queue_limit_counts_right_after_partitions_went(store: Store, clock: FakeClock) -> None:
    await emptied(store, clock, *"abc")
    clock.advance(200)
    assert await store.expire_partitions(100) == 1
    await configure(store, QueueOptions(max_size=2))
    await push(store, *"de")
    assert await taken_ids(store) == ["d", "e"]


async def test_many_empty_partitions_go_at_once(store: Store, clock: FakeClock) -> None:
    await configure(store, QueueOptions(retention_seconds=1))
    await store.push([item(f"m{n}", f"p{n}") for n in range(1700)])
    clock.advance(200)
    await push(store, "young", partition="young")
    assert await store.apply_retention() == 1700
    assert await store.expire_partitions(100) == 1700
    assert await partition_names(store) == ["young"]
