"""The contract of a store, readers: a queue is known by more than its name, and what a reader has missed is told."""

from __future__ import annotations

from typing import Any

import pytest

from fixtures.arrow_steps import commit, seqs, stage
from fixtures.store_steps import configure, finish, item, push, take
from forebay.broker.bulk import RangeRequest, StagesOf
from forebay.broker.store import Store
from forebay.errors import QueueReplaced, RangeGone, RangeIncomplete, UnknownQueue
from forebay.model.queue import QueueOptions
from forebay.testing.fake_clock import FakeClock

pytestmark = pytest.mark.asyncio

FINISHED = QueueOptions(completed_retention_seconds=60)


async def missing(store: Store, from_seq: int = 1, removed_up_to: int = 0, **narrowing: Any) -> tuple[object, ...]:
    """What a reader is told that counts on all messages from a seq on; nothing when nothing is missing."""
    try:
        await seqs(store, from_seq=from_seq, removed_up_to=removed_up_to, **narrowing)
    except RangeIncomplete as gone:
        return gone.first_seq, gone.last_seq, gone.reason
    except RangeGone as gone:
        return gone.wanted_seq, gone.first_seq - 1, "front"
    return ()


async def test_queue_keeps_its_identity_until_it_is_made_again(store: Store, clock: FakeClock) -> None:
    await push(store, "a")
    first = (await store.bounds("orders")).identity
    await configure(store, FINISHED)
    await push(store, "b", queue="other")
    clock.advance(1)
    await push(store, "c")
    assert (await store.bounds("orders")).identity == first
    assert (await store.bounds("other")).identity != first
    assert await seqs(store, identity=first) == [1, 2]
    await store.delete_queue("orders")
    await push(store, *"abcdef")
    second = (await store.bounds("orders")).identity
    assert second != first
    with pytest.raises(QueueReplaced, match=f"identity {second}, not {first}"):
        await store.read_batches(RangeRequest("orders", identity=first))
    assert len(await seqs(store, identity=second)) == 6


async def test_finished_messages_that_retention_removed_are_told_to_a_reader_that_counts_on_them(
    store: Store, clock: FakeClock
) -> None:
    await configure(store, FINISHED)
    await store.push([item("a", "slow"), item("b", "quick"), item("c", "slow"), item("d", "quick")])
    await finish(store, await take(store, partition="quick"))
    assert (await store.bounds("orders")).removed_seq == 0
    assert await missing(store) == ()
    clock.advance(61)
    assert await store.apply_retention() == 2
    assert (await store.bounds("orders")).removed_seq == 4
    assert await missing(store) == (1, 4, "retention")
    assert await missing(store, 3) == (3, 4, "retention")
    assert await missing(store, 5) == ()
    # What was gone when a reader began is no loss of its own, and what is gone elsewhere is none either.
    assert await missing(store, 1, 4) == ()
    assert await missing(store, partitions=("slow",)) == ()
    assert (await store.bounds("orders", partitions=["slow"])).removed_seq == 0
    assert await missing(store, partitions=("quick",)) == (1, 4, "retention")


async def test_old_messages_that_retention_removed_are_told(store: Store, clock: FakeClock) -> None:
    await configure(store, QueueOptions(retention_seconds=60))
    await push(store, "a", "b")
    clock.advance(61)
    await push(store, "c", partition="young")
    await store.apply_retention()
    assert (await store.bounds("orders")).removed_seq == 2
    assert (await store.bounds("orders", partitions=["young"])).removed_seq == 0
    assert await seqs(store, from_seq=1, partitions=("young",)) == [3]


async def test_seqs_without_a_message_and_deleted_messages_are_no_loss(store: Store, clock: FakeClock) -> None:
    await configure(store, FINISHED)
    pushed = await push(store, *"abc")
    assert (await store.transact([item("x"), item("a")], [])).error
    await stage(store, b"never", epoch="2")
    await store.abort_stages(StagesOf("spark", "2"))
    await push(store, "d")
    await commit(store, await stage(store, b"e"))
    await store.delete_message(pushed[1].partition_id, "b")
    clock.advance(61)
    await store.apply_retention()
    assert await missing(store) == ()


async def test_partitions_that_are_gone_are_remembered_as_removed(store: Store, clock: FakeClock) -> None:
    await configure(store, FINISHED)
    await store.push([item("a", "slow"), item("b", "quick")])
    await finish(store, await take(store, partition="quick"))
    clock.advance(61)
    await store.apply_retention()
    clock.advance(1000)
    assert await store.expire_partitions(100) == 1
    assert (await store.bounds("orders")).removed_seq == 2
    assert await missing(store) == (1, 2, "retention")
    assert await missing(store, partitions=("quick",)) == (1, 2, "retention")


async def test_reader_holds_what_groups_have_finished_until_its_time_is_over(store: Store, clock: FakeClock) -> None:
    await configure(store, FINISHED)
    await push(store, *"abcd")
    await finish(store, await take(store))
    assert not await store.hold("orders", "stream", 3, 200)
    assert not await store.hold("orders", "slow stream", 2, 100)
    clock.advance(61)
    assert await store.apply_retention() == 1
    assert await seqs(store) == [2, 3, 4]
    assert await store.hold("orders", "stream", 4, 200)
    clock.advance(61)
    assert await store.apply_retention() == 2
    assert await missing(store, 4) == ()
    assert not await store.hold("orders", "slow stream", 2, 0)
    clock.advance(200)
    assert await store.apply_retention() == 1
    assert await missing(store, 4) == (4, 4, "front")
    assert not await store.hold("orders", "stream", 4, 200)


async def test_reader_does_not_hold_what_is_too_old_for_everybody(store: Store, clock: FakeClock) -> None:
    await configure(store, QueueOptions(retention_seconds=60, completed_retention_seconds=10))
    await push(store, *"ab")
    await store.hold("orders", "stream", 1, 1000)
    clock.advance(61)
    assert await store.apply_retention() == 2


async def test_hold_on_a_queue_goes_with_it(store: Store, clock: FakeClock) -> None:
    with pytest.raises(UnknownQueue):
        await store.hold("orders", "stream", 1, 10)
    await push(store, "a")
    await store.hold("orders", "stream", 1, 1000)
    await store.delete_queue("orders")
    await configure(store, FINISHED)
    await push(store, "a")
    assert not await store.hold("orders", "stream", 1, 0)
    await finish(store, await take(store))
    clock.advance(61)
    assert await store.apply_retention() == 1


async def test_nothing_is_finished_without_a_group_whatever_a_reader_holds(store: Store, clock: FakeClock) -> None:
    await configure(store, FINISHED)
    await push(store, *"abc")
    await store.hold("orders", "stream", 3, 1000)
    clock.advance(61)
    assert await store.apply_retention() == 0
