"""The contract of a store, sizes: no answer grows with the payloads it finds, and nothing is missed for it.

Whatever is given out ends with the message that reaches the limit; so one message is always given, whatever its size.
"""

from __future__ import annotations

import asyncio

import pytest

from fixtures.store_steps import answer, configure, finish, ids, item, push, take, taken_ids
from forebay.broker.delivery import COMPLETED, DEAD, FAILED
from forebay.broker.messages import PopRequest
from forebay.broker.overview import DeadLetterFilter
from forebay.broker.store import Store
from forebay.model.queue import QueueOptions
from forebay.testing.fake_clock import FakeClock

pytestmark = pytest.mark.asyncio
TEN_BYTES = b'"12345678"'
EVERYTHING = DeadLetterFilter()


async def push_tens(store: Store, *texts: str, partition: str = "Default") -> None:
    await store.push([item(text, partition, payload=TEN_BYTES) for text in texts])


@pytest.mark.parametrize(("bytes_max", "expected"), [(1, "a"), (10, "a"), (11, "ab"), (30, "abc"), (31, "abcd")])
async def test_pop_ends_with_the_message_that_reaches_the_limit(store: Store, bytes_max: int, expected: str) -> None:
    await push_tens(store, *"abcd")
    assert await taken_ids(store, bytes_max=bytes_max) == list(expected)
    assert await taken_ids(store) == list("abcd"[len(expected) :])


async def test_pushes_of_one_message_each_are_counted_together(store: Store) -> None:
    for text in "abcdefgh":
        await push_tens(store, text)
    assert await taken_ids(store, bytes_max=45) == list("abcde")
    assert await taken_ids(store, bytes_max=45) == list("fgh")


async def test_partitions_of_a_pop_share_the_limit_and_those_out_of_reach_are_not_leased(store: Store) -> None:
    for partition in ("p1", "p2", "p3"):
        await push_tens(store, f"{partition}a", f"{partition}b", partition=partition)
    first = await take(store, partitions=3, bytes_max=25)
    assert (ids(first), first.partitions_claimed) == (["p1a", "p1b", "p2a"], 2)
    second = await take(store, partitions=3)
    assert ids(second) == ["p3a", "p3b"]
    await finish(store, first)
    assert await taken_ids(store, partitions=3) == ["p2b"]


async def test_messages_that_come_again_are_counted_and_those_left_out_lose_no_attempt(
    store: Store, clock: FakeClock
) -> None:
    await configure(store, QueueOptions(lease_seconds=10, retry_limit=5))
    await push_tens(store, *"abcd")
    await take(store, 3)
    clock.advance(11)
    again = await take(store, bytes_max=15)
    assert [(m.transaction_id, m.attempts) for m in again.messages] == [("a", 2), ("b", 2)]
    await finish(store, again)
    last = await take(store, bytes_max=15)
    assert [(m.transaction_id, m.attempts) for m in last.messages] == [("c", 2), ("d", 1)]


async def test_message_that_comes_again_is_counted_with_new_ones_behind_it(store: Store) -> None:
    await configure(store, QueueOptions(retry_delay_ms=0))
    await push_tens(store, *"abcde")
    popped = await take(store, 2)
    statuses = {"a": FAILED, "b": COMPLETED}
    await store.acknowledge([answer(popped, m, statuses[m.transaction_id]) for m in popped.messages])
    assert await taken_ids(store, bytes_max=25) == ["a", "c", "d"]
    assert await taken_ids(store, bytes_max=25) == ["e"]


async def test_message_that_died_makes_room_for_the_next(store: Store, clock: FakeClock) -> None:
    await configure(store, QueueOptions(lease_seconds=10, retry_limit=0))
    await push_tens(store, *"abcd")
    await take(store, 2)
    clock.advance(11)
    assert await taken_ids(store, bytes_max=5) == ["c"]
    letters, _ = await store.dead_letters(EVERYTHING, 10, 0)
    assert [letter.message.transaction_id for letter in letters] == ["b", "a"]
    assert await taken_ids(store, bytes_max=5) == ["d"]


async def test_what_is_too_old_counts_for_what_is_read_and_hides_nothing(store: Store, clock: FakeClock) -> None:
    await configure(store, QueueOptions(max_wait_seconds=10))
    await push_tens(store, *"abcdef")
    clock.advance(11)
    await push_tens(store, *"gh")
    assert await taken_ids(store, bytes_max=15) == ["g", "h"]


async def test_delivery_that_acknowledges_finishes_only_what_it_gives(store: Store) -> None:
    await push_tens(store, *"abc")
    assert ids(await take(store, auto_ack=True, bytes_max=20)) == ["a", "b"]
    assert ids(await take(store, auto_ack=True, bytes_max=20)) == ["c"]
    assert ids(await take(store, auto_ack=True, bytes_max=20)) == []


async def test_queues_of_a_namespace_share_the_limit(store: Store) -> None:
    for queue in ("one", "two"):
        await store.configure(queue, QueueOptions(), "ns", "")
        await store.push([item(f"{queue}{n}", queue=queue, payload=TEN_BYTES) for n in range(2)])
    popped = await store.pop(PopRequest(namespace="ns", batch=10, partitions=10, bytes_max=15))
    assert ids(popped) == ["one0", "one1"]
    assert ids(await store.pop(PopRequest(namespace="ns", batch=10, partitions=10))) == ["two0", "two1"]


@pytest.mark.parametrize("partition", [None, "Default"])
async def test_page_of_messages_ends_with_the_one_that_reaches_the_limit(store: Store, partition: str | None) -> None:
    await push_tens(store, *"abcd")
    assert ids(await store.read("orders", 1, 100, partition, bytes_max=25)) == ["a", "b", "c"]
    assert ids(await store.read("orders", 4, 100, partition, bytes_max=25)) == ["d"]
    assert ids(await store.read("orders", 1, 2, partition, bytes_max=25)) == ["a", "b"]


async def test_page_of_dead_letters_ends_with_the_one_that_reaches_the_limit(store: Store) -> None:
    await push_tens(store, *"abcd")
    await finish(store, await take(store), DEAD)
    letters, total = await store.dead_letters(EVERYTHING, 100, 0, bytes_max=15)
    assert ([letter.message.transaction_id for letter in letters], total) == (["d", "c"], 4)
    letters, total = await store.dead_letters(EVERYTHING, 100, 2, bytes_max=15)
    assert ([letter.message.transaction_id for letter in letters], total) == (["b", "a"], 4)


async def test_large_letters_are_replayed_and_purged_completely_and_in_order(store: Store) -> None:
    large = b'"' + b"x" * (5 << 20) + b'"'
    await store.push([item(str(n), payload=large) for n in range(9)])
    while (popped := await take(store)).messages:
        await finish(store, popped, DEAD)
    assert await store.replay_dead_letters(EVERYTHING) == 9
    again = []
    while (popped := await take(store)).messages:
        again += [m.payload == large for m in popped.messages]
        await finish(store, popped, DEAD)
    assert again == [True] * 9
    assert await store.purge_dead_letters(EVERYTHING) == 9
    assert await store.dead_letters(EVERYTHING, 10, 0) == ([], 0)


async def test_replay_of_messages_that_die_again_at_once_comes_to_an_end(store: Store) -> None:
    texts = [f"m{n}" for n in range(1_100)]
    await push(store, *texts)
    await finish(store, await take(store, 2_000), DEAD)

    async def kill_again() -> None:
        while True:
            await finish(store, await take(store, 2_000), DEAD)
            await asyncio.sleep(0)

    killer = asyncio.create_task(kill_again())
    try:
        async with asyncio.timeout(60):
            assert await store.replay_dead_letters(EVERYTHING) == 1_100
    finally:
        killer.cancel()
        with pytest.raises(asyncio.CancelledError):  # it was at work to the end
            await killer
