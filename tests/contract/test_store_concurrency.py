"""The contract of a store under concurrency: nothing twice, nothing lost, nothing out of order."""

from __future__ import annotations

import asyncio
import time

import pytest

from fixtures.store_steps import answer, configure, finish, ids, item, push, take
from forebay.broker.messages import PopRequest
from forebay.broker.store import Store
from forebay.model.queue import DEFAULT_GROUP, QueueOptions
from forebay.testing.fake_clock import FakeClock

pytestmark = pytest.mark.asyncio

POPPERS = 16
SECONDS_MAX = 120
"""Far more than any of these takes: a message that never comes is a failure, and not an endless wait."""


async def consume(store: Store, expected: int, seen: list[str], *, group: str = DEFAULT_GROUP, **more: int) -> None:
    """Take and finish until all consumers together have seen as many messages as there are."""
    deadline = time.monotonic() + SECONDS_MAX
    while len(seen) < expected:
        assert time.monotonic() < deadline, f"{len(seen)} of {expected} messages after {SECONDS_MAX} s"
        popped = await store.pop(PopRequest(queue="orders", group=group, **more))  # type: ignore[arg-type]
        seen.extend(ids(popped))
        await finish(store, popped, group=group)


async def test_concurrent_poppers_of_a_group_get_every_message_exactly_once(store: Store) -> None:
    texts = [f"{partition}:{n}" for n in range(10) for partition in range(40)]
    await store.push([item(text, text.partition(":")[0]) for text in texts])
    seen: list[str] = []
    await asyncio.gather(*[consume(store, len(texts), seen, batch=7, partitions=1 + n % 3) for n in range(POPPERS)])
    assert sorted(seen) == sorted(texts)
    for partition in range(40):
        assert [text for text in seen if text.startswith(f"{partition}:")] == [f"{partition}:{n}" for n in range(10)]


async def test_thousands_of_partitions_are_all_found_in_whatever_order_they_got_their_messages(store: Store) -> None:
    names = [str(number) for number in range(2_500)]
    first, second = [f"{name}:1" for name in names], [f"{name}:2" for name in reversed(names)]
    await store.push([item(text, text.partition(":")[0]) for text in first])
    await store.push([item(text, text.partition(":")[0]) for text in second])
    seen: list[str] = []
    await consume(store, 100, seen, batch=10, partitions=10)
    # To some that the group has found and to some that it has not: behind all others, where the next look begins.
    third = [f"{name}:3" for name in names[::7]]
    await store.push([item(text, text.partition(":")[0]) for text in third])
    everything = sorted([*first, *second, *third])
    await consume(store, len(everything), seen, batch=1_000, partitions=1_000)
    assert sorted(seen) == everything
    by_partition = sorted(seen, key=lambda text: int(text.partition(":")[0]))
    assert by_partition == sorted(everything, key=lambda text: (int(text.partition(":")[0]), text))


async def test_concurrent_pops_of_one_partition_lease_it_to_one_of_them(store: Store) -> None:
    await push(store, *"abc")
    outcomes = await asyncio.gather(*[take(store, 2) for _ in range(POPPERS)])
    assert sorted(ids(popped) for popped in outcomes) == [[]] * (POPPERS - 1) + [["a", "b"]]


async def test_concurrent_first_pops_make_one_group(store: Store) -> None:
    await push(store, "a")
    outcomes = await asyncio.gather(*[take(store, group="g", subscription_mode="new") for _ in range(POPPERS)])
    assert [ids(popped) for popped in outcomes] == [[]] * POPPERS
    assert len(await store.groups()) == 1


async def test_consumers_keep_up_with_producers_in_order(store: Store) -> None:
    async def produce(partition: int) -> None:
        for n in range(0, 60, 3):
            await push(store, *[f"{partition}:{n + k}" for k in range(3)], partition=str(partition))

    seen: dict[str, list[str]] = {"one": [], "two": []}
    consumers = [consume(store, 300, seen[group], group=group, batch=5) for group in seen for _ in range(4)]
    await asyncio.gather(*[produce(partition) for partition in range(5)], *consumers)
    for got in seen.values():
        assert len(got) == 300
        for partition in range(5):
            own = [text for text in got if text.startswith(f"{partition}:")]
            assert own == [f"{partition}:{n}" for n in range(60)]


async def test_answers_and_lease_ends_race_without_losing_anything(store: Store, clock: FakeClock) -> None:
    await configure(store, QueueOptions(retry_limit=1_000))
    texts = {str(n) for n in range(40)}
    await store.push([item(text, f"p{int(text) % 4}") for text in sorted(texts)])
    finished: list[str] = []

    async def work(number: int) -> None:
        for turn in range(12):
            popped = await take(store, 1)
            if number == 0 and turn % 3 == 2:
                clock.advance(301)  # every lease that is held ends now
            outcomes = await store.acknowledge([answer(popped, message) for message in popped.messages])
            finished.extend(one.answered.transaction_id for one in outcomes if one.answered.is_accepted)

    await asyncio.gather(*[work(number) for number in range(4)])
    clock.advance(301)
    left = ids(await take(store, 100, partitions=4))
    assert len(set(finished)) == len(finished)
    assert sorted(finished + left) == sorted(texts)
    assert 0 < len(finished) < 48


async def test_deleting_and_pushing_at_once_leaves_whole_queues(store: Store) -> None:
    async def produce(number: int) -> None:
        for n in range(20):
            await push(store, f"{number}:{n}a", f"{number}:{n}b", partition=str(number))

    async def delete() -> None:
        for _ in range(10):
            await store.delete_queue("orders")

    await asyncio.gather(*[produce(number) for number in range(4)], delete())
    await push(store, "end")
    [status] = await store.queues()
    messages = await store.read("orders", 1, 1_000)
    assert [m.seq for m in messages] == list(range(1, status.pushed + 1))
