"""The contract of a store: a deleted message is gone for everybody."""

from __future__ import annotations

import asyncio

import pytest

from fixtures.fix_stores import Woken
from fixtures.store_steps import answer, configure, finish, ids, item, push, take, taken_ids
from forebay.broker.delivery import DEAD, FAILED
from forebay.broker.overview import DeadLetterFilter, SeekTarget, TraceEvent
from forebay.broker.store import Store
from forebay.model.push_run import run_of_one
from forebay.model.queue import DEFAULT_GROUP, QueueOptions
from forebay.testing.fake_clock import FakeClock

pytestmark = pytest.mark.asyncio


async def lag_of(store: Store, group: str = DEFAULT_GROUP) -> int:
    return next(one.lag_messages for one in await store.groups() if one.group == group)


@pytest.mark.parametrize("is_minted", [False, True])
async def test_deleted_message_is_neither_delivered_nor_shown(store: Store, is_minted: bool) -> None:
    pushed = await store.push([run_of_one("orders", "p", text.encode(), text, is_minted=is_minted) for text in "abc"])
    place = pushed[0].partition_id
    assert await store.delete_message(place, "b") is True
    assert await store.message(place, "b") is None
    assert ids(await store.read("orders", 1, 9)) == ids(await store.read("orders", 1, 9, "p")) == ["a", "c"]
    assert ids(await store.read("orders", 2, 1, "p")) == ["c"]
    [status] = await store.queues()
    assert (status.messages, status.pushed, status.size_bytes, status.next_seq) == (2, 3, 2, 4)
    assert [one.messages for one in await store.partitions("orders", 9, 0)] == [2]
    assert await taken_ids(store) == ["a", "c"]
    assert await taken_ids(store, group="other") == ["a", "c"]


async def test_message_that_is_not_there_is_not_deleted(store: Store) -> None:
    [pushed] = await push(store, "a")
    assert await store.delete_message(pushed.partition_id, "nobody") is False
    assert await store.delete_message("999-999", "a") is False
    assert await store.delete_message("no partition", "a") is False
    assert await store.delete_message(pushed.partition_id, "a") is True
    assert await store.delete_message(pushed.partition_id, "a") is False
    assert (await store.queues())[0].messages == 0


async def test_first_and_last_message_can_be_deleted(store: Store) -> None:
    [pushed, *_] = await push(store, *"abcd")
    for text in "ad":
        await store.delete_message(pushed.partition_id, text)
    [status] = await store.queues()
    assert (status.first_seq, status.messages) == (2, 2)
    await take(store, group="g", subscription_mode="new")
    await finish(store, await take(store))
    assert (await lag_of(store), await lag_of(store, "g")) == (0, 0)
    await push(store, "e")
    assert (await lag_of(store), await lag_of(store, "g")) == (1, 1)
    assert await taken_ids(store) == ["e"]


async def test_lag_does_not_count_what_was_deleted(store: Store) -> None:
    [pushed, *_] = await push(store, *"abcdef")
    await take(store, group="late", subscription_mode="new")
    popped = await take(store, 3)
    assert await lag_of(store) == 6
    for text in "bde":
        await store.delete_message(pushed.partition_id, text)
    assert await lag_of(store) == 3
    await finish(store, popped._replace(messages=[m for m in popped.messages if m.transaction_id != "b"]))
    assert await lag_of(store) == 1
    assert await taken_ids(store) == ["f"]
    assert (await lag_of(store), await lag_of(store, "late")) == (0, 0)
    await store.seek(DEFAULT_GROUP, "orders", None, SeekTarget(seq=4))
    assert await lag_of(store) == 1
    await store.seek(DEFAULT_GROUP, "orders", "Default", SeekTarget(seq=1))
    assert await lag_of(store) == 3
    assert await taken_ids(store) == ["a", "c", "f"]


async def test_who_holds_a_deleted_message_cannot_answer_it(store: Store) -> None:
    await push(store, *"abc")
    popped = await take(store)
    await store.delete_message(popped.messages[1].partition_id, "b")
    assert (await store.groups())[0].leased == 2
    outcomes = await store.acknowledge([answer(popped, message) for message in popped.messages])
    assert [(one.answered.is_accepted, one.answered.error) for one in outcomes] == [
        (True, ""),
        (False, "Message not found"),
        (True, ""),
    ]
    assert await lag_of(store) == 0


async def test_lease_on_nothing_but_deleted_messages_is_over(store: Store, woken: Woken) -> None:
    await push(store, *"abc")
    popped = await take(store, 2)
    woken.calls.clear()
    for text in "ab":
        await store.delete_message(popped.messages[0].partition_id, text)
    assert ("orders", 1) in woken.calls
    assert (await store.groups())[0].leased == 0
    assert await taken_ids(store) == ["c"]


async def test_retry_of_a_deleted_message_holds_nobody_up(store: Store) -> None:
    await push(store, "a", "b")
    popped = await take(store, 1)
    await finish(store, popped, FAILED)
    assert ids(await take(store)) == []
    await store.delete_message(popped.messages[0].partition_id, "a")
    assert await taken_ids(store) == ["b"]


async def test_id_of_a_deleted_message_is_free_again(store: Store) -> None:
    [first] = await push(store, "a")
    await store.delete_message(first.partition_id, "a")
    [second] = await push(store, "a")
    assert (second.status, second.seq, second.partition_id) == ("queued", 2, first.partition_id)
    found = await store.message(first.partition_id, "a")
    assert found is not None
    assert found.seq == 2
    assert [m.seq for m in (await take(store)).messages] == [2]


async def test_traces_and_dead_letters_of_a_deleted_message_stay(store: Store, clock: FakeClock) -> None:
    [pushed, _] = await push(store, "a", "b")
    await store.add_trace(TraceEvent(pushed.partition_id, "a", "g", "info", ("n",), b"{}", clock.now_us()))
    await finish(store, await take(store, 1), DEAD)
    assert await store.delete_message(pushed.partition_id, "a") is True
    assert len(await store.traces(pushed.partition_id, "a")) == 1
    assert (await store.dead_letters(DeadLetterFilter(), 9, 0))[1] == 1
    assert await taken_ids(store) == ["b"]


async def test_retention_and_deletion_agree(store: Store, clock: FakeClock) -> None:
    await configure(store, QueueOptions(retention_seconds=60))
    [pushed, *_] = await push(store, *"abcd")
    for text in "bd":
        await store.delete_message(pushed.partition_id, text)
    clock.advance(30)
    await push(store, "e", "f")
    await store.delete_message(pushed.partition_id, "f")
    await take(store, group="g", partition="nowhere")
    assert await lag_of(store, "g") == 3
    clock.advance(31)
    assert await store.apply_retention() == 2
    [status] = await store.queues()
    assert (status.messages, status.first_seq, status.size_bytes) == (1, 5, 1)
    assert [one.messages for one in await store.partitions("orders", 9, 0)] == [1]
    assert await lag_of(store, "g") == 1
    clock.advance(30)
    assert await store.apply_retention() == 1
    assert (await store.queues())[0].messages == 0
    assert await lag_of(store, "g") == 0
    await push(store, "g")
    assert await taken_ids(store, group="g") == ["g"]


async def test_completed_retention_passes_deleted_messages(store: Store, clock: FakeClock) -> None:
    await configure(store, QueueOptions(completed_retention_seconds=60))
    [pushed, *_] = await push(store, *"abcd")
    await store.delete_message(pushed.partition_id, "b")
    await taken_ids(store, 2)
    clock.advance(61)
    assert await store.apply_retention() == 2
    assert ids(await store.read("orders", 1, 9)) == ["d"]


async def test_deletion_makes_room_in_a_full_queue(store: Store) -> None:
    await configure(store, QueueOptions(max_size=2))
    [pushed, _] = await push(store, "a", "b")
    await store.delete_message(pushed.partition_id, "a")
    assert [one.status for one in await push(store, "c")] == ["queued"]
    await store.delete_message(pushed.partition_id, "b")
    await take(store, group="g", partition="nowhere")
    assert [one.status for one in await push(store, "d")] == ["queued"]


async def test_release_behind_a_deleted_message_keeps_the_lag_right(store: Store) -> None:
    [pushed, *_] = await push(store, *"abcd")
    first = await take(store, 2)
    await store.delete_message(pushed.partition_id, "b")
    await finish(store, first._replace(messages=first.messages[:1]))
    second = await take(store)
    await store.release(second.lease_id)
    assert await lag_of(store) == 2
    assert await taken_ids(store) == ["c", "d"]
    assert await lag_of(store) == 0


async def test_deleting_and_popping_at_once_leaves_nobody_waiting(store: Store, clock: FakeClock) -> None:
    pushed = await store.push([item(str(n), f"p{n % 4}") for n in range(80)])
    finished: list[str] = []

    async def consume() -> None:
        for _ in range(12):
            popped = await take(store, 3)
            outcomes = await store.acknowledge([answer(popped, message) for message in popped.messages])
            finished.extend(one.answered.transaction_id for one in outcomes if one.answered.is_accepted)

    async def delete(start: int) -> None:
        for n in range(start, 80, 6):
            assert await store.delete_message(pushed[n].partition_id, str(n)) is True

    await asyncio.gather(*[consume() for _ in range(3)], delete(0), delete(1))
    clock.advance(301)
    while left := await taken_ids(store, partitions=4):
        finished += left
    gone = {str(n) for n in range(80) if n % 6 < 2}
    assert len(finished) == len(set(finished))
    assert set(finished) | gone == {str(n) for n in range(80)}
    assert await lag_of(store) == 0
    assert (await store.queues())[0].messages == 80 - len(gone)
    assert (await store.dead_letters(DeadLetterFilter(), 9, 0))[1] == 0


async def test_deleted_queue_forgets_its_deleted_messages(store: Store) -> None:
    [pushed, _] = await push(store, "a", "b")
    await store.delete_message(pushed.partition_id, "a")
    assert await store.delete_queue("orders") is True
    [again] = await push(store, "a")
    assert (again.status, again.seq) == ("queued", 1)
    assert await taken_ids(store) == ["a"]


async def test_deletion_survives_reopening(unopened_store: Store, woken: Woken) -> None:
    await unopened_store.open(woken)
    [pushed, *_] = await push(unopened_store, *"abc")
    await unopened_store.delete_message(pushed.partition_id, "a")
    popped = await take(unopened_store, 1)
    await unopened_store.delete_message(pushed.partition_id, "b")
    await unopened_store.close()
    await unopened_store.open(woken)
    try:
        assert ids(popped) == ["b"]
        assert ids(await take(unopened_store)) == ["c"]
        assert await lag_of(unopened_store) == 1
    finally:
        await unopened_store.close()
