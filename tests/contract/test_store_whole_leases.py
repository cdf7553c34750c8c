"""The contract of a store: a lost lease comes again as it was, for pops that ask for that."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from fixtures.store_steps import answer, configure, finish, ids, item, push, take, taken_ids
from forebay.broker.messages import Message, Popped
from forebay.broker.overview import DeadLetterFilter
from forebay.broker.sealed_store import SealedStore
from forebay.broker.store import Store
from forebay.model.queue import QueueOptions
from forebay.testing.fake_clock import FakeClock

pytestmark = pytest.mark.asyncio


async def take_whole(store: Store, batch: int = 100, *, partitions: int = 10, **more: object) -> Popped:
    return await take(store, batch, partitions=partitions, lease_seconds=10, whole_leases=True, **more)  # type: ignore[arg-type]


def attempts(popped: Popped) -> list[tuple[str, int]]:
    return sorted((message.transaction_id, message.attempts) for message in popped.messages)


async def test_lost_lease_comes_again_without_what_was_pushed_since(store: Store, clock: FakeClock) -> None:
    await push(store, *"abc")
    await take_whole(store)
    await push(store, *"de")
    clock.advance(10)
    again = await take_whole(store)
    assert attempts(again) == [("a", 2), ("b", 2), ("c", 2)]
    await finish(store, again)
    assert attempts(await take_whole(store)) == [("d", 1), ("e", 1)]


async def test_lost_lease_comes_again_with_all_its_partitions_and_nothing_else(store: Store, clock: FakeClock) -> None:
    await store.push([item("a", "p1"), item("b", "p2"), item("c", "p2"), item("d", "p3")])
    lost = await take_whole(store, 3)
    rest = await take_whole(store)
    assert len(lost.messages) == 3
    clock.advance(5)
    await store.extend(rest.lease_id, 10)
    await store.push([item("e", "p0"), item("f", "p1"), item("g", "p2")])
    clock.advance(5)
    again = [await take_whole(store) for _ in range(2)]
    assert sorted(ids(lost)) in [sorted(ids(popped)) for popped in again]
    assert sorted(ids(again[0]) + ids(again[1])) == sorted([*ids(lost), "e"])


async def test_lost_leases_come_one_by_one(store: Store, clock: FakeClock) -> None:
    await store.push([item(text, text) for text in "abcdef"])
    lost = {frozenset(ids(await take_whole(store, 2))) for _ in range(3)}
    clock.advance(10)
    assert {frozenset(ids(await take_whole(store))) for _ in range(3)} == lost
    assert ids(await take_whole(store)) == []


async def test_limits_do_not_cut_a_lost_lease(store: Store, clock: FakeClock) -> None:
    await store.push([item(text, f"p{text}", payload=b"x" * 100) for text in "abcd"])
    lost = await take_whole(store)
    clock.advance(10)
    again = await take_whole(store, 1, partitions=1, bytes_max=1)
    assert attempts(again) == [(text, 2) for text in sorted(ids(lost))]


async def test_given_back_lease_comes_again_at_once_as_it_was_without_an_attempt(store: Store) -> None:
    await store.push([item("a", "p1"), item("b", "p2"), item("c", "p1")])
    popped = await take_whole(store)
    for number in range(5):
        assert attempts(popped) == [("a", 1), ("b", 1), ("c", 1)]
        assert await store.release(popped.lease_id, as_whole=True)
        assert (await store.groups())[0].leased == 0
        await store.push([item(f"later{number}", "p1"), item(f"else{number}", "p0")])
        popped = await take_whole(store)
        if "a" not in ids(popped):  # the other partition's turn came first
            await finish(store, popped)
            popped = await take_whole(store)


async def test_what_was_answered_of_a_lost_lease_does_not_come_again(store: Store, clock: FakeClock) -> None:
    await push(store, *"abc")
    lost = await take_whole(store)
    await store.acknowledge([answer(lost, lost.messages[1])])
    await push(store, "d")
    clock.advance(10)
    assert attempts(await take_whole(store)) == [("a", 2), ("c", 2)]


async def test_window_and_delay_do_not_tear_a_lost_lease(store: Store, clock: FakeClock) -> None:
    await configure(store, QueueOptions(window_buffer_seconds=5))
    await store.push([item("a", "p1"), item("b", "p2")])
    clock.advance(5)
    assert len((await take_whole(store)).messages) == 2
    clock.advance(9)
    await store.push([item("c", "p2")])
    clock.advance(1)
    assert attempts(await take_whole(store)) == [("a", 2), ("b", 2)]


async def test_lost_lease_without_attempts_left_is_dead_and_what_is_behind_it_comes(
    store: Store, clock: FakeClock
) -> None:
    await configure(store, QueueOptions(retry_limit=1))
    await push(store, "a", "b")
    for _ in range(2):
        assert ids(await take_whole(store)) == ["a", "b"]
        clock.advance(10)
    await push(store, "c")
    assert ids(await take_whole(store)) == ["c"]
    assert (await store.dead_letters(DeadLetterFilter(), 9, 0))[1] == 2


async def test_pop_that_does_not_ask_cuts_a_lost_lease_as_ever(store: Store, clock: FakeClock) -> None:
    await push(store, *"abc")
    await take_whole(store)
    clock.advance(10)
    await push(store, "d")
    popped = await take(store, 2)
    assert attempts(popped) == [("a", 2), ("b", 2)]
    await finish(store, popped)
    assert await taken_ids(store) == ["c", "d"]


async def test_check_that_raises_leaves_a_lost_lease_as_it_was(store: Store, clock: FakeClock) -> None:
    assert isinstance(store, SealedStore)  # which has a check of its own
    plain = store._inner
    await store.push([item("a", "p1"), item("b", "p2")])
    await take_whole(store)
    clock.advance(10)

    def refuse(messages: Sequence[Message]) -> None:
        if any(message.transaction_id == "b" for message in messages):
            raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        await take_whole(plain, check=refuse)
    assert attempts(await take_whole(store)) == [("a", 2), ("b", 2)]


async def test_two_that_pop_at_once_do_not_tear_a_lost_lease(store: Store, clock: FakeClock) -> None:
    await store.push([item(f"m{number}", f"p{number}") for number in range(20)])
    lost = [frozenset(ids(await take_whole(store, 5))) for _ in range(4)]
    clock.advance(10)
    again = await asyncio.gather(*(take_whole(store) for _ in range(8)))
    found = [frozenset(ids(popped)) for popped in again if popped.messages]
    found += [frozenset(ids(popped)) for popped in [await take_whole(store) for _ in range(4)] if popped.messages]
    assert sorted(map(sorted, found)) == sorted(map(sorted, lost))
