"""The contract of a store: claims that reached nobody, who hears when and of what, and where stores used to differ."""

from __future__ import annotations

import pytest

from fixtures.fix_stores import Woken
from fixtures.store_steps import answer, configure, finish, ids, item, push, take, taken_ids
from forebay.broker.delivery import COMPLETED, FAILED, Answered, Verdict
from forebay.broker.messages import Acknowledged, Acknowledgement, PopRequest
from forebay.broker.overview import DeadLetterFilter, SeekTarget
from forebay.broker.store import Store
from forebay.errors import QueueFull
from forebay.model.queue import DEFAULT_GROUP, QueueOptions
from forebay.testing.fake_clock import FakeClock

pytestmark = pytest.mark.asyncio


async def test_released_claim_is_as_if_it_had_not_happened(store: Store, woken: Woken) -> None:
    await store.push([item("a", "p1"), item("b", "p2"), item("c", "p1")])
    popped = await take(store, partitions=2)
    woken.calls.clear()
    assert await store.release(popped.lease_id) is True
    assert {queue for queue, _ in woken.calls} == {"orders"}
    [lag] = await store.groups()
    assert (lag.lag_messages, lag.leased) == (3, 0)
    [refused] = await store.acknowledge([answer(popped, popped.messages[0])])
    assert not refused.answered.is_accepted
    again = await take(store, partitions=2)
    assert sorted((m.transaction_id, m.attempts) for m in again.messages) == [("a", 1), ("b", 1), ("c", 1)]
    await finish(store, again)
    [lag] = await store.groups()
    assert lag.lag_messages == 0


async def test_release_keeps_attempts_of_earlier_deliveries(store: Store, clock: FakeClock) -> None:
    await configure(store, QueueOptions(lease_seconds=10))
    await push(store, "a")
    await take(store)
    clock.advance(10)
    await push(store, "b")
    popped = await take(store)
    assert [m.attempts for m in popped.messages] == [2, 1]
    await store.release(popped.lease_id)
    assert [(m.transaction_id, m.attempts) for m in (await take(store)).messages] == [("a", 2), ("b", 1)]


async def test_release_keeps_what_was_answered(store: Store) -> None:
    await push(store, *"abc")
    popped = await take(store)
    await store.acknowledge([answer(popped, popped.messages[1])])
    await store.release(popped.lease_id)
    assert (await store.groups())[0].lag_messages == 2
    assert await taken_ids(store) == ["a", "c"]


async def test_lease_that_nobody_holds_cannot_be_released(store: Store, clock: FakeClock) -> None:
    await configure(store, QueueOptions(lease_seconds=10))
    await push(store, "a")
    popped = await take(store)
    assert await store.release("nobody's") is False
    assert await store.release("") is False
    clock.advance(10)
    assert await store.release(popped.lease_id) is False
    again = await take(store)
    assert [m.attempts for m in again.messages] == [2]
    await finish(store, again)
    assert await store.release(again.lease_id) is False


async def test_released_message_that_waits_too_long_dies_like_any_other(store: Store, clock: FakeClock) -> None:
    await configure(store, QueueOptions(max_wait_seconds=60))
    await push(store, "a")
    await store.release((await take(store)).lease_id)
    clock.advance(61)
    assert ids(await take(store)) == []
    assert (await store.dead_letters(DeadLetterFilter(), 9, 0))[1] == 1


async def test_lag_is_right_after_a_release_behind_retention_and_a_late_start(store: Store, clock: FakeClock) -> None:
    await configure(store, QueueOptions(retention_seconds=60))
    await store.push([item("a", "p1"), item("b", "p2")])
    await take(store, group="g", subscription_mode="new")
    clock.advance(61)
    await store.push([item("c", "p1"), item("d", "p2"), item("e", "p1")])
    popped = await take(store, group="g", partitions=2)
    await store.apply_retention()
    await store.release(popped.lease_id)
    [lag] = await store.groups()
    assert (lag.lag_messages, lag.partitions_with_lag) == (3, 2)
    assert sorted(await taken_ids(store, group="g", partitions=2)) == ["c", "d", "e"]
    assert (await store.groups())[0].lag_messages == 0


async def test_ack_that_leaves_more_tells_who_waits(store: Store, woken: Woken) -> None:
    await push(store, "a", "b")
    first = await take(store, 1)
    woken.calls.clear()
    await finish(store, first)
    assert woken.calls == [("orders", 1)]
    second = await take(store, 1)
    woken.calls.clear()
    await finish(store, second)
    assert woken.calls == []


async def test_ack_in_a_transaction_tells_who_waits(store: Store, woken: Woken) -> None:
    await push(store, "a", "b")
    first = await take(store, 1)
    woken.calls.clear()
    await store.transact([], [answer(first, first.messages[0])])
    assert woken.calls == [("orders", 1)]


async def test_failure_tells_who_waits_because_its_time_is_another_now(store: Store, woken: Woken) -> None:
    await push(store, "a")
    popped = await take(store)
    woken.calls.clear()
    await finish(store, popped, FAILED)
    assert woken.calls == [("orders", 1)]
    assert await store.seconds_until_due(PopRequest(queue="orders")) == 1


async def test_seek_tells_who_waits(store: Store, woken: Woken) -> None:
    await push(store, "a")
    await taken_ids(store)
    woken.calls.clear()
    await store.seek(DEFAULT_GROUP, "orders", None, SeekTarget(seq=1))
    assert [queue for queue, _ in woken.calls] == ["orders"]


@pytest.mark.parametrize("partition", [None, "Default"])
async def test_store_says_when_a_lease_a_retry_a_delay_or_a_window_ends(
    store: Store, clock: FakeClock, partition: str | None
) -> None:
    wanted = PopRequest(queue="orders", partition=partition, batch=9)
    assert await store.seconds_until_due(wanted) is None
    await configure(store, QueueOptions(lease_seconds=30, retry_delay_ms=4_000))
    await push(store, "a")
    await take(store)
    assert ids(await store.pop(wanted)) == []
    clock.advance(10)
    assert await store.seconds_until_due(wanted) == 20
    clock.advance(20)
    again = await take(store)
    await finish(store, again, FAILED)
    assert ids(await store.pop(wanted)) == []
    assert await store.seconds_until_due(wanted) == 4
    clock.advance(4)
    await finish(store, await take(store))
    assert ids(await store.pop(wanted)) == []
    assert await store.seconds_until_due(wanted) is None
    await configure(store, QueueOptions(delayed_processing_seconds=7))
    await push(store, "b")
    assert ids(await store.pop(wanted)) == []
    assert await store.seconds_until_due(wanted) == 7
    await configure(store, QueueOptions(window_buffer_seconds=9))
    assert ids(await store.pop(wanted)) == []
    clock.advance(1)
    assert await store.seconds_until_due(wanted) in (6, 8), "a hint may be early"
    clock.advance(8)
    assert ids(await store.pop(wanted)) == ["b"]


async def test_store_says_when_the_first_of_all_queues_of_a_namespace_is_due(store: Store, clock: FakeClock) -> None:
    for queue, seconds in (("shop.a", 50), ("shop.b", 20), ("bank.c", 5)):
        await store.configure(queue, QueueOptions(lease_seconds=seconds), "", "")
        await push(store, queue, queue=queue)
        await take(store, queue=queue)
    wanted = PopRequest(namespace="shop")
    assert ids(await store.pop(wanted)) == []
    assert await store.seconds_until_due(wanted) == 20
    assert await store.seconds_until_due(wanted._replace(group="other")) is None


@pytest.mark.parametrize(("partition_id", "group"), [("999-999", DEFAULT_GROUP), ("x", DEFAULT_GROUP), ("", "nobody")])
async def test_answer_without_a_delivery_is_refused_in_the_same_words(
    store: Store, partition_id: str, group: str
) -> None:
    [pushed] = await push(store, "a")
    popped = await take(store)
    given = Acknowledgement(partition_id or pushed.partition_id, group, popped.lease_id, Verdict("a", COMPLETED))
    [refused] = await store.acknowledge([given])
    assert refused == Acknowledged(Answered("a", False, "Invalid or expired lease"), "", "")


async def test_each_answer_of_a_request_says_whether_the_lease_is_over(store: Store) -> None:
    await store.push([item("a", "p1"), item("b", "p2"), item("c", "p1"), item("d", "p2")])
    popped = await take(store, partitions=2)
    answers = [answer(popped, message) for message in popped.messages if message.transaction_id != "d"]
    outcomes = {one.answered.transaction_id: one.answered.is_released for one in await store.acknowledge(answers)}
    assert outcomes == {"a": True, "c": True, "b": False}


async def test_duplicates_need_no_room(store: Store) -> None:
    await configure(store, QueueOptions(max_size=3))
    await push(store, "a", "b")
    assert [one.status for one in await push(store, "a", "c", "b")] == ["duplicate", "queued", "duplicate"]
    assert [one.status for one in await push(store, "a", "b", "c")] == ["duplicate"] * 3
    with pytest.raises(QueueFull):
        await push(store, "a", "d")


@pytest.mark.parametrize("mode", ["new", "from"])
async def test_first_pop_for_new_messages_counts_before_the_queue_exists(
    store: Store, clock: FakeClock, mode: str
) -> None:
    from_us = clock.now_us() if mode == "from" else 0
    asked = PopRequest(queue="orders", group="g", batch=9, subscription_mode=mode, subscription_from_us=from_us)
    assert await store.pop(asked) == ("", [], 0)
    made = await store.queue("orders")
    assert made is not None
    assert made.options == QueueOptions()
    [lag] = await store.groups()
    assert (lag.group, lag.subscription_mode, lag.lag_messages) == ("g", mode, 0)
    clock.advance(1)
    await push(store, "a", "b")
    assert ids(await store.pop(asked)) == ["a", "b"]


async def test_pop_of_new_messages_of_a_namespace_makes_no_queue(store: Store) -> None:
    assert await store.pop(PopRequest(namespace="shop", subscription_mode="new")) == ("", [], 0)
    assert await store.queues() == []
