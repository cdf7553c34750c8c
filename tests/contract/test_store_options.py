"""The contract of a store, options of queues: each one is enforced."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fixtures.store_steps import answer, configure, finish, ids, item, push, take, taken_ids
from forebay.broker.delivery import DEAD, FAILED
from forebay.broker.encryption import Address, Cipher
from forebay.broker.messages import PopRequest
from forebay.broker.overview import DeadLetterFilter
from forebay.broker.store import Store
from forebay.errors import PayloadInClear
from forebay.model.queue import QueueOptions
from forebay.testing.fake_clock import FakeClock

pytestmark = pytest.mark.asyncio
EVERYTHING = DeadLetterFilter()


async def test_configure_makes_a_queue_and_replaces_all_options(store: Store, clock: FakeClock) -> None:
    first = QueueOptions(lease_seconds=7, retry_limit=9, priority=3, dlq_after_max_retries=False)
    made = await store.configure("shop.orders", first, "", "")
    assert (made.namespace, made.task, made.options, made.created_us) == ("shop", "orders", first, clock.now_us())
    clock.advance(5)
    second = QueueOptions(max_size=4)
    changed = await store.configure("shop.orders", second, "billing", "")
    assert changed == replace(made, options=second, namespace="billing")
    assert await store.queue("shop.orders") == changed
    assert [status.queue for status in await store.queues()] == [changed]


async def test_every_option_is_kept(store: Store, variant: Store) -> None:
    every = QueueOptions(1, 2, 3, 4, 5, 6, 7, 8, 9, False, False, 10, True, False, 11)
    await configure(variant, every)
    found = await store.queue("orders")
    assert found is not None
    assert found.options == every


async def test_changed_options_count_for_messages_that_wait_already(store: Store, clock: FakeClock) -> None:
    await push(store, "a")
    await configure(store, QueueOptions(lease_seconds=5))
    await take(store)
    clock.advance(5)
    assert ids(await take(store)) == ["a"]


async def test_delayed_processing_delivers_a_message_when_it_is_old_enough(store: Store, clock: FakeClock) -> None:
    await configure(store, QueueOptions(delayed_processing_seconds=60))
    await push(store, "a")
    clock.advance(30)
    await push(store, "b")
    clock.advance(29)
    assert ids(await take(store)) == []
    clock.advance(1)
    assert await taken_ids(store) == ["a"]
    clock.advance(29)
    assert ids(await take(store)) == []
    clock.advance(1)
    assert await taken_ids(store) == ["b"]


async def test_window_buffer_delivers_a_partition_when_it_is_quiet(store: Store, clock: FakeClock) -> None:
    await configure(store, QueueOptions(window_buffer_seconds=10))
    await push(store, "a", partition="p1")
    clock.advance(5)
    await push(store, "b", partition="p2")
    await push(store, "c", partition="p1")
    clock.advance(9)
    assert ids(await take(store, partitions=2)) == []
    clock.advance(1)
    popped = await take(store, partitions=2)
    assert sorted(ids(popped)) == ["a", "b", "c"]
    await finish(store, popped)


async def test_partition_that_waits_does_not_hide_one_that_is_ready(store: Store, clock: FakeClock) -> None:
    await configure(store, QueueOptions(window_buffer_seconds=10))
    for n in range(30):
        await push(store, f"early {n}", partition=f"p{n}")
    await push(store, "quiet", partition="quiet")
    clock.advance(9)
    for n in range(30):
        await push(store, f"late {n}", partition=f"p{n}")
    clock.advance(1)
    assert await taken_ids(store) == ["quiet"]


async def test_retry_limit_zero_delivers_once(store: Store, clock: FakeClock) -> None:
    await configure(store, QueueOptions(retry_limit=0))
    await push(store, "a", "b")
    [one] = await finish(store, await take(store, 1), FAILED, error="once")
    assert one.answered.is_dead
    assert await taken_ids(store) == ["b"]
    assert [letter.reason for letter in (await store.dead_letters(EVERYTHING, 9, 0))[0]] == ["once"]


async def test_without_dead_letters_a_message_that_used_up_its_attempts_is_dropped(store: Store) -> None:
    await configure(store, QueueOptions(retry_limit=0, dlq_after_max_retries=False))
    await push(store, "a", "b", "c")
    await finish(store, await take(store, 1), FAILED)
    assert (await store.dead_letters(EVERYTHING, 9, 0))[1] == 0
    await finish(store, await take(store, 1), DEAD, error="on purpose")
    assert [letter.reason for letter in (await store.dead_letters(EVERYTHING, 9, 0))[0]] == ["on purpose"]
    assert await taken_ids(store) == ["c"]
    assert store.dropped() == {"attempts": 1}


async def test_message_that_waited_too_long_becomes_a_dead_letter(store: Store, clock: FakeClock) -> None:
    await configure(store, QueueOptions(max_wait_seconds=60))
    await push(store, *[f"old {n}" for n in range(5)])
    clock.advance(61)
    await push(store, "young")
    assert await taken_ids(store, 2) == ["young"]
    letters, total = await store.dead_letters(EVERYTHING, 9, 0)
    assert total == 5
    assert {(letter.reason, letter.message.attempts) for letter in letters} == {("waited longer than 60 s", 0)}


async def test_queue_without_dead_letters_keeps_none(store: Store, clock: FakeClock) -> None:
    await configure(store, QueueOptions(retry_limit=0, max_wait_seconds=60, dead_letter_queue=False))
    await push(store, *"abc")
    await finish(store, await take(store, 1), FAILED)
    await finish(store, await take(store, 1), DEAD, error="on purpose")
    clock.advance(61)
    assert await taken_ids(store) == [], "c has waited too long"
    assert (await store.dead_letters(EVERYTHING, 9, 0))[1] == 0
    assert store.dropped() == {"attempts": 2, "max_wait": 1}
    assert [lag.lag_messages for lag in await store.groups()] == [0]


async def test_message_older_than_its_ttl_is_delivered_no_more_and_removed(store: Store, clock: FakeClock) -> None:
    await configure(store, QueueOptions(ttl_seconds=60, max_wait_seconds=100, retention_enabled=False))
    await push(store, "a", "b")
    clock.advance(60)
    assert ids(await take(store, 1, group="other")) == ["a"], "it may still be delivered"
    clock.advance(1)
    await push(store, "c")
    assert await taken_ids(store, 1) == ["c"]
    assert (await store.dead_letters(EVERYTHING, 9, 0))[1] == 0
    assert await store.apply_retention() == 2
    assert ids(await store.read("orders", 1, 9)) == ["c"]


@pytest.mark.parametrize("is_failed", [True, False])
async def test_message_that_was_delivered_before_is_not_delivered_after_its_ttl(
    store: Store, clock: FakeClock, is_failed: bool
) -> None:
    await configure(store, QueueOptions(ttl_seconds=60, lease_seconds=50, retry_delay_ms=0))
    await push(store, "a")
    clock.advance(11)
    await push(store, "b")
    popped = await take(store)
    assert ids(popped) == ["a", "b"]
    if is_failed:
        await store.acknowledge([answer(popped, message, FAILED) for message in popped.messages])
    clock.advance(49)
    assert ids(await take(store)) == (["a", "b"] if is_failed else []), "it is leased, or not too old"
    clock.advance(50 if is_failed else 1)
    assert await taken_ids(store) == ([] if is_failed else ["b"])


async def test_retention_removes_old_messages_finished_or_not(store: Store, clock: FakeClock) -> None:
    await configure(store, QueueOptions(retention_seconds=60))
    await store.push([item("a", "p1"), item("b", "p2"), item("c", "p1")])
    leased = await take(store, 1, partition="p1")
    assert ids(leased) == ["a"]
    clock.advance(30)
    await store.push([item("d", "p1"), item("e", "p3")])
    assert await store.apply_retention() == 0
    clock.advance(31)
    assert await store.apply_retention() == 3
    [status] = await store.queues()
    assert (status.messages, status.first_seq, status.next_seq, status.pushed, status.size_bytes) == (2, 4, 6, 5, 2)
    assert [(p.name, p.messages) for p in await store.partitions("orders", 9, 0)] == [("p1", 1), ("p2", 0), ("p3", 1)]
    [lag] = await store.groups()
    assert (lag.lag_messages, lag.partitions_with_lag) == (2, 2)
    clock.advance(300)
    assert sorted(await taken_ids(store, partitions=9)) == ["d", "e"]


async def test_retention_of_everything_leaves_a_queue_that_works(store: Store, clock: FakeClock) -> None:
    await configure(store, QueueOptions(retention_seconds=60))
    await push(store, *"abc")
    clock.advance(61)
    assert await store.apply_retention() == 3
    assert await taken_ids(store, group="late") == []
    await push(store, "d")
    assert await taken_ids(store, group="late") == ["d"]
    assert await taken_ids(store) == ["d"]
    [status] = await store.queues()
    assert (status.first_seq, status.messages, status.oldest_us) == (4, 1, clock.now_us())


async def test_completed_retention_removes_what_every_group_has_finished(store: Store, clock: FakeClock) -> None:
    await configure(store, QueueOptions(completed_retention_seconds=60))
    await store.push([item("a", "p1"), item("b", "p1"), item("c", "p2")])
    clock.advance(61)
    assert await store.apply_retention() == 0
    await taken_ids(store, partitions=2, group="fast")
    await taken_ids(store, 1, partition="p1", group="slow")
    assert await store.apply_retention() == 1
    assert sorted(ids(await store.read("orders", 1, 9))) == ["b", "c"]
    while await taken_ids(store, partitions=2, group="slow"):
        pass
    await push(store, "d")
    assert await store.apply_retention() == 2
    assert ids(await store.read("orders", 1, 9)) == ["d"]


async def test_retention_that_is_off_removes_nothing(store: Store, clock: FakeClock) -> None:
    await configure(store, QueueOptions(retention_seconds=1, completed_retention_seconds=1, retention_enabled=False))
    await push(store, "a")
    await taken_ids(store)
    clock.advance(100)
    assert await store.apply_retention() == 0
    assert ids(await store.read("orders", 1, 9)) == ["a"]


async def test_pop_of_a_namespace_or_task_takes_the_important_queue_first(store: Store) -> None:
    for queue, priority in (("shop.low", 1), ("shop.high", 9), ("bank.high", 10)):
        await store.configure(queue, QueueOptions(priority=priority), "", "")
        await push(store, f"{queue} 1", f"{queue} 2", queue=queue)
    first = await store.pop(PopRequest(namespace="shop", batch=1))
    second = await store.pop(PopRequest(namespace="shop", batch=1))
    third = await store.pop(PopRequest(task="high", batch=1))
    assert [ids(one) for one in (first, second, third)] == [["shop.high 1"], ["shop.low 1"], ["bank.high 1"]]
    assert ids(await store.pop(PopRequest(namespace="shop", task="high", batch=1))) == []
    assert ids(await store.pop(PopRequest(namespace="nobody", batch=1))) == []


async def test_one_pop_of_a_namespace_may_lease_partitions_of_several_queues(store: Store) -> None:
    for queue in ("shop.a", "shop.b", "shop.c"):
        await push(store, queue, queue=queue)
    popped = await store.pop(PopRequest(namespace="shop", batch=10, partitions=2))
    assert (ids(popped), popped.partitions_claimed) == (["shop.a", "shop.b"], 2)
    assert [m.queue for m in popped.messages] == ["shop.a", "shop.b"]
    await finish(store, popped)


async def test_server_without_a_key_makes_no_queue_encrypted(store: Store) -> None:
    with pytest.raises(PayloadInClear):
        await configure(store, QueueOptions(encryption_enabled=True))
    assert await store.queue("orders") is None


async def test_encrypted_queue_takes_no_payload_in_clear(store: Store, variant: Store) -> None:
    await configure(variant, QueueOptions(encryption_enabled=True))
    sealed = Cipher(bytes(32)).seal(b"{}", Address("orders", "Default", "x"))
    with pytest.raises(PayloadInClear):
        await push(store, "clear")
    with pytest.raises(PayloadInClear):
        await store.transact([item("clear")], [])
    await variant.push([item("sealed", payload=sealed)])
    assert [message.payload for message in (await take(variant)).messages] == [sealed]
