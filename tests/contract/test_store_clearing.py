"""The contract of a store, removing by hand: a message becomes dead letters, a queue is cleared."""

from __future__ import annotations

import pytest

from fixtures.fix_stores import Woken
from fixtures.store_steps import answer, configure, finish, ids, item, push, take, taken_ids
from forebay.broker.delivery import FAILED
from forebay.broker.overview import DeadLetterFilter
from forebay.broker.store import Store
from forebay.errors import UnknownQueue
from forebay.model.queue import DEFAULT_GROUP, QueueOptions
from forebay.testing.fake_clock import FakeClock

pytestmark = pytest.mark.asyncio


async def letters(store: Store) -> list[tuple[str, str, int, str]]:
    """Group, id, attempts and reason of each dead letter, by group."""
    found, _ = await store.dead_letters(DeadLetterFilter(), 100, 0)
    return sorted((one.group, one.message.transaction_id, one.message.attempts, one.reason) for one in found)


async def partition_id(store: Store, partition: str = "Default") -> str:
    return next(p.partition_id for p in await store.partitions("orders", 99, 0) if p.name == partition)


async def test_buried_message_is_a_dead_letter_of_each_group_that_has_not_finished_it(store: Store) -> None:
    await configure(store, QueueOptions(retry_delay_ms=0))
    await push(store, "a", "b", "c")
    assert await taken_ids(store, 2, group="done") == ["a", "b"]
    held = await take(store, 2, group="holds")
    failed = await take(store, 2, group="failed")
    await store.acknowledge([answer(failed, message, FAILED, group="failed") for message in failed.messages])
    await take(store, 1, group="behind", auto_ack=True)
    place = await partition_id(store)
    assert await store.bury_message(place, "b", "poison") == 3
    assert await letters(store) == [
        ("behind", "b", 0, "poison"),
        ("failed", "b", 1, "poison"),
        ("holds", "b", 1, "poison"),
    ]
    assert await store.message(place, "b") is None
    [refused] = await store.acknowledge([answer(held, held.messages[1], group="holds")])
    assert not refused.answered.is_accepted
    assert await taken_ids(store, group="behind") == ["c"]
    assert await taken_ids(store, group="failed") == ["a", "c"]
    assert await store.bury_message(place, "b", "again") is None


async def test_buried_message_without_a_group_is_a_letter_of_the_default_group(store: Store) -> None:
    await push(store, "a", "b")
    assert await store.bury_message(await partition_id(store), "a", "poison") == 1
    assert await letters(store) == [(DEFAULT_GROUP, "a", 0, "poison")]
    assert await taken_ids(store) == ["b"]
    assert await store.replay_dead_letters(DeadLetterFilter()) == 1
    assert [message.payload for message in (await take(store)).messages] == [b"a"]


async def test_message_that_every_group_has_finished_is_not_buried(store: Store) -> None:
    await push(store, "a")
    assert await taken_ids(store) == ["a"]
    assert await store.bury_message(await partition_id(store), "a", "late") == 0
    assert await letters(store) == []
    assert ids(await store.read("orders", 1, 9)) == ["a"]


async def test_burying_what_is_not_there_changes_nothing(store: Store) -> None:
    await push(store, "a")
    assert await store.bury_message(await partition_id(store), "z", "x") is None
    assert await store.bury_message("99-99", "a", "x") is None
    assert await store.bury_message("nonsense", "a", "x") is None


async def test_cleared_queue_is_empty_and_goes_on(store: Store, woken: Woken, clock: FakeClock) -> None:
    await configure(store, QueueOptions(lease_seconds=7))
    await store.push([item("a", "p1"), item("b", "p2"), item("c", "p1")])
    held = await take(store, 1, partition="p1")
    assert await store.clear_queue("orders") == 3
    [status] = await store.queues()
    assert (status.messages, status.size_bytes, status.next_seq, status.queue.options.lease_seconds) == (0, 0, 4, 7)
    assert [lag.lag_messages for lag in await store.groups()] == [0]
    [refused] = await store.acknowledge([answer(held, held.messages[0])])
    assert not refused.answered.is_accepted
    assert ids(await store.read("orders", 1, 9)) == []
    await push(store, "a", "d", partition="p1")
    clock.advance(8)
    assert await taken_ids(store) == ["a", "d"]
    assert await taken_ids(store, group="late", partitions=9) == ["a", "d"]
    assert await store.clear_queue("orders") == 2
    assert await store.clear_queue("orders") == 0


async def test_one_partition_is_cleared_alone(store: Store) -> None:
    await store.push([item("a", "p1"), item("b", "p2"), item("c", "p1")])
    assert await store.clear_queue("orders", "p1") == 2
    assert await store.clear_queue("orders", "p9") == 0
    assert await taken_ids(store, partitions=9) == ["b"]


async def test_dead_letters_outlive_the_clearing(store: Store) -> None:
    await push(store, "a")
    await store.bury_message(await partition_id(store), "a", "kept")
    await push(store, "b")
    await store.clear_queue("orders")
    assert await letters(store) == [(DEFAULT_GROUP, "a", 0, "kept")]


async def test_many_messages_in_many_partitions_are_cleared(store: Store) -> None:
    await store.push([item(f"{n}", f"p{n % 700}") for n in range(5_000)])
    await finish(store, await take(store, 1_000, partitions=100))
    assert await store.clear_queue("orders") == 5_000
    assert await taken_ids(store, partitions=9, group="late") == []


async def test_clearing_a_queue_that_is_not_there_is_refused(store: Store) -> None:
    with pytest.raises(UnknownQueue):
        await store.clear_queue("nobody")
