"""What a server removes for its age, and what it does when the clock jumps."""

from __future__ import annotations

import logging

import pytest

from fixtures.store_steps import configure, finish, push, take, taken_ids
from forebay.api.clock_watch import WAIT_SECONDS
from forebay.api.retention import Ages, Retention
from forebay.broker.delivery import DEAD
from forebay.broker.overview import DeadLetterFilter
from forebay.model.queue import QueueOptions
from forebay.testing.fake_clock import FakeClock
from forebay.testing.memory_store import MemoryStore

LONG = 10 * 365 * 86_400


async def filled(clock: FakeClock) -> MemoryStore:
    """With a message that is kept for a minute, a dead letter, an idle group, and a partition that will be empty."""
    store = MemoryStore(clock)
    await configure(store, QueueOptions(retention_seconds=60))
    await push(store, "a", partition="p1")
    await taken_ids(store)
    await push(store, "b", partition="p2")
    await finish(store, await take(store), DEAD)
    return store


async def kept(store: MemoryStore) -> tuple[int, int, int]:
    letters = (await store.dead_letters(DeadLetterFilter(), 10, 0))[1]
    return letters, len(await store.groups()), len(await store.partitions("orders", 10, 0))


async def test_by_default_letters_groups_and_partitions_are_kept_for_ever() -> None:
    clock = FakeClock()
    store = await filled(clock)
    retention = Retention(store, clock)
    await retention.run()
    clock.advance(LONG)
    await retention.run()
    assert await kept(store) == (1, 1, 2)
    assert retention.removed["messages"] == 2


async def test_what_is_removed_is_counted_and_told(caplog: pytest.LogCaptureFixture) -> None:
    clock = FakeClock()
    store = await filled(clock)
    ages = Ages(dead_letter_seconds=100, idle_group_seconds=100, empty_partition_seconds=100)
    retention = Retention(store, clock, ages)
    clock.advance(101)
    with caplog.at_level(logging.INFO, "forebay.api"):
        await retention.run()
    assert await kept(store) == (0, 0, 0)
    assert +retention.removed == {"messages": 2, "dead_letters": 1, "groups": 1, "partitions": 2}
    [record] = caplog.records
    assert record.__dict__["action"] == "retention_removed"
    assert record.message == "removed for their age: 1 dead letters, 1 groups, 2 messages, 2 partitions"


async def test_nothing_is_removed_while_the_clock_is_in_doubt(caplog: pytest.LogCaptureFixture) -> None:
    clock = FakeClock()
    store = await filled(clock)
    retention = Retention(store, clock)
    await retention.run()
    clock.step(3 * 3600)
    await retention.run()
    await retention.run()
    [record] = caplog.records
    assert record.__dict__["action"] == "retention_clock_jumped"
    assert retention.watch.jumps == 1
    assert not +retention.removed
    clock.advance(WAIT_SECONDS)
    await retention.run()
    assert retention.removed["messages"] == 2


async def test_clock_that_is_set_back_costs_nothing() -> None:
    clock = FakeClock()
    store = await filled(clock)
    retention = Retention(store, clock)
    await retention.run()
    clock.step(3 * 3600)
    await retention.run()
    clock.step(-3 * 3600)
    await retention.run()
    assert not +retention.removed
    clock.advance(61)
    await retention.run()
    assert retention.removed["messages"] == 2
