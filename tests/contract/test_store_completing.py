"""The contract of a store: a lease that is finished as a whole."""

from __future__ import annotations

import pytest

from fixtures.fix_stores import Woken
from fixtures.store_steps import answer, complete, configure, finish, ids, item, push, take, taken_ids
from forebay.broker.delivery import COMPLETED, DEAD, FAILED
from forebay.broker.messages import PopRequest
from forebay.broker.overview import DeadLetterFilter
from forebay.broker.store import Store
from forebay.model.queue import DEFAULT_GROUP, QueueOptions
from forebay.testing.fake_clock import FakeClock

pytestmark = pytest.mark.asyncio


async def lag_of(store: Store, group: str = DEFAULT_GROUP) -> int:
    return next(one.lag_messages for one in await store.groups() if one.group == group)


async def test_completed_lease_is_as_if_each_message_had_been_acknowledged(store: Store) -> None:
    await push(store, *"abc")
    popped = await take(store, 2)
    assert await complete(store, popped.lease_id) == (2, [("orders", "Default")])
    [lag] = await store.groups()
    assert (lag.lag_messages, lag.leased) == (1, 0)
    [refused] = await store.acknowledge([answer(popped, popped.messages[0])])
    assert not refused.answered.is_accepted
    assert await taken_ids(store) == ["c"]


async def test_whole_lease_over_several_partitions_is_completed(store: Store) -> None:
    await store.push([item(f"{p}{n}", p) for n in range(3) for p in ("p1", "p2", "p3")])
    popped = await take(store, partitions=3)
    completed = await complete(store, popped.lease_id)
    assert completed is not None
    assert completed.messages == 9
    assert sorted(completed.partitions) == [("orders", "p1"), ("orders", "p2"), ("orders", "p3")]
    assert await lag_of(store) == 0
    assert ids(await take(store, partitions=3)) == []


async def test_lease_over_several_queues_is_completed(store: Store) -> None:
    for queue in ("shop.a", "shop.b"):
        await push(store, "x", "y", queue=queue)
    popped = await store.pop(PopRequest(namespace="shop", batch=9, partitions=9))
    completed = await complete(store, popped.lease_id)
    assert completed is not None
    assert (completed.messages, sorted(completed.partitions)) == (4, [("shop.a", "Default"), ("shop.b", "Default")])
    assert [lag.lag_messages for lag in await store.groups()] == [0, 0]


async def test_lease_of_one_group_says_nothing_for_another(store: Store) -> None:
    await push(store, "a")
    mine, theirs = await take(store, group="mine"), await take(store, group="theirs")
    assert await complete(store, mine.lease_id) is not None
    assert (await lag_of(store, "mine"), await lag_of(store, "theirs")) == (0, 1)
    await finish(store, theirs, group="theirs")


async def test_what_was_answered_before_stays_as_it_was_answered(store: Store, clock: FakeClock) -> None:
    await configure(store, QueueOptions(retry_delay_ms=4_000))
    await push(store, *"abcde")
    popped = await take(store)
    for place, status in ((1, FAILED), (2, COMPLETED), (4, DEAD)):
        await store.acknowledge([answer(popped, popped.messages[place], status)])
    assert await complete(store, popped.lease_id) == (2, [("orders", "Default")])
    assert (await store.dead_letters(DeadLetterFilter(), 9, 0))[1] == 1
    assert await lag_of(store) == 1
    assert ids(await take(store)) == []
    clock.advance(4)
    again = await take(store)
    assert [(m.transaction_id, m.attempts) for m in again.messages] == [("b", 2)]


async def test_cursor_never_passes_a_failed_message_of_a_completed_lease(store: Store) -> None:
    await configure(store, QueueOptions(retry_delay_ms=0))
    await push(store, *"abc")
    popped = await take(store)
    await store.acknowledge([answer(popped, popped.messages[0], FAILED)])
    await complete(store, popped.lease_id)
    await push(store, "d")
    assert ids(await take(store)) == ["a", "d"]


async def test_lease_that_nobody_holds_cannot_be_completed(store: Store, clock: FakeClock) -> None:
    await configure(store, QueueOptions(lease_seconds=10))
    await push(store, "a", "b")
    popped = await take(store)
    assert await complete(store, "nobody's") is None
    assert await complete(store, "") is None
    clock.advance(10)
    assert await complete(store, popped.lease_id) is None
    again = await take(store)
    assert [(m.transaction_id, m.attempts) for m in again.messages] == [("a", 2), ("b", 2)]
    assert await complete(store, popped.lease_id) is None
    assert await complete(store, again.lease_id) == (2, [("orders", "Default")])


async def test_several_leases_are_completed_each_by_itself(store: Store) -> None:
    await store.push([item(f"{partition}{n}", partition) for partition in ("p1", "p2", "p3") for n in range(2)])
    leases = [(await take(store, 2)).lease_id for _ in range(3)]
    lost, twice, once = leases
    assert await complete(store, lost) is not None
    done = await store.complete([twice, lost, once, "nobody's", twice])
    assert [one and one.messages for one in done] == [2, None, 2, None, None]
    assert await lag_of(store) == 0
    assert await store.complete([]) == []


async def test_what_retention_removed_under_a_lease_is_not_waited_for(store: Store, clock: FakeClock) -> None:
    await configure(store, QueueOptions(retention_enabled=True, retention_seconds=100, lease_seconds=1000))
    await push(store, "a", "b")
    clock.advance(60)
    await push(store, "c", "d")
    popped = await take(store)
    assert ids(popped) == ["a", "b", "c", "d"]
    clock.advance(60)
    assert await store.apply_retention() == 2
    [refused, taken] = await store.acknowledge([answer(popped, popped.messages[n]) for n in (0, 2)])
    assert (refused.answered.is_accepted, taken.answered.is_accepted) == (False, True)
    assert await complete(store, popped.lease_id) == (1, [("orders", "Default")])
    assert await lag_of(store) == 0


async def test_lease_on_what_retention_removed_altogether_is_over(store: Store, clock: FakeClock) -> None:
    await configure(store, QueueOptions(retention_enabled=True, retention_seconds=100, lease_seconds=1000))
    await push(store, "a", "b")
    popped = await take(store)
    clock.advance(120)
    assert await store.apply_retention() == 2
    assert await complete(store, popped.lease_id) is None
    await push(store, "c")
    assert await taken_ids(store) == ["c"]


async def test_lease_is_completed_once(store: Store) -> None:
    await push(store, "a", "b")
    popped = await take(store, 1)
    assert await complete(store, popped.lease_id) is not None
    assert await complete(store, popped.lease_id) is None
    assert await lag_of(store) == 1


async def test_lease_that_somebody_else_took_over_is_not_completed(store: Store) -> None:
    await configure(store, QueueOptions(retry_delay_ms=0))
    await push(store, "a", "b")
    yielded = await take(store)
    await store.acknowledge([answer(yielded, yielded.messages[0], FAILED)])
    other = await take(store)
    assert ids(other) == ["a", "b"]
    assert await complete(store, yielded.lease_id) is None
    await finish(store, other)


async def test_extended_lease_is_completed_after_its_first_end(store: Store, clock: FakeClock) -> None:
    await configure(store, QueueOptions(lease_seconds=10))
    await push(store, "a")
    popped = await take(store)
    clock.advance(9)
    await store.extend(popped.lease_id, 60)
    clock.advance(59)
    assert await complete(store, popped.lease_id) == (1, [("orders", "Default")])
    assert await lag_of(store) == 0


async def test_deleted_message_of_a_completed_lease_is_not_counted(store: Store) -> None:
    await push(store, *"abc")
    popped = await take(store)
    await store.delete_message(popped.messages[1].partition_id, "b")
    assert await complete(store, popped.lease_id) == (2, [("orders", "Default")])
    assert await lag_of(store) == 0


async def test_completed_lease_that_leaves_more_tells_who_waits(store: Store, woken: Woken) -> None:
    await push(store, "a", "b")
    first = await take(store, 1)
    woken.calls.clear()
    await complete(store, first.lease_id)
    assert woken.calls == [("orders", 1)]
    second = await take(store, 1)
    woken.calls.clear()
    await complete(store, second.lease_id)
    assert woken.calls == []


async def test_completed_lease_survives_reopening(unopened_store: Store, woken: Woken) -> None:
    await unopened_store.open(woken)
    await push(unopened_store, *"abc")
    popped = await take(unopened_store, 2)
    await complete(unopened_store, popped.lease_id)
    await unopened_store.close()
    await unopened_store.open(woken)
    try:
        assert await lag_of(unopened_store) == 1
        assert ids(await take(unopened_store)) == ["c"]
    finally:
        await unopened_store.close()
