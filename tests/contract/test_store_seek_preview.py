"""The contract of a store, previews of seeks: what would be skipped, repeated and taken away, with nothing changed."""

from __future__ import annotations

import random

import pytest

from fixtures.store_steps import answer, configure, finish, item, push, take, taken_ids
from forebay.broker.messages import Message
from forebay.broker.overview import SeekPreview, SeekTarget
from forebay.broker.store import Store
from forebay.errors import UnknownQueue
from forebay.model.queue import QueueOptions
from forebay.testing.fake_clock import FakeClock

pytestmark = pytest.mark.asyncio


async def preview(store: Store, target: SeekTarget, partition: str | None = None, group: str = "g") -> SeekPreview:
    return await store.preview_seek(group, "orders", partition, target)


async def test_seek_forward_skips_what_waits_before_it(store: Store) -> None:
    await store.push([item(text, f"p{n % 2}") for n, text in enumerate("abcdefgh")])
    assert await taken_ids(store, 2, group="g", partition="p0") == ["a", "c"]
    assert await preview(store, SeekTarget(seq=6)) == SeekPreview(
        from_seq=6, is_new=False, partitions=2, waiting=6, waiting_after=3, skipped=3, repeated=0, leased=0
    )
    assert await preview(store, SeekTarget(to_end=True)) == SeekPreview(
        from_seq=9, is_new=False, partitions=2, waiting=6, waiting_after=0, skipped=6, repeated=0, leased=0
    )
    far = await preview(store, SeekTarget(seq=1 << 53))
    assert (far.skipped, far.waiting_after) == (6, 0)


async def test_seek_back_repeats_what_was_finished(store: Store, clock: FakeClock) -> None:
    await push(store, "a", "b")
    clock.advance(10)
    at_us = clock.now_us()
    await push(store, "c", "d")
    await taken_ids(store, 3, group="g")
    assert await preview(store, SeekTarget(time_us=at_us)) == SeekPreview(
        from_seq=3, is_new=False, partitions=1, waiting=1, waiting_after=2, skipped=0, repeated=1, leased=0
    )
    for first in (SeekTarget(seq=1), SeekTarget(seq=0), SeekTarget(time_us=0)):
        found = await preview(store, first)
        assert (found.from_seq, found.skipped, found.repeated, found.waiting_after) == (1, 0, 3, 4)


async def test_messages_under_a_lease_are_told(store: Store) -> None:
    await push(store, *"abcdef")
    popped = await take(store, 4, group="g")
    await store.acknowledge([answer(popped, popped.messages[2], group="g")])
    # Of a and b, which are leased, and c, which is finished behind them, the seek passes a alone.
    found = await preview(store, SeekTarget(seq=2))
    assert (found.waiting, found.leased, found.skipped, found.repeated, found.waiting_after) == (5, 3, 1, 1, 5)
    found = await preview(store, SeekTarget(seq=4))
    assert (found.skipped, found.repeated, found.waiting_after) == (2, 0, 3)
    found = await preview(store, SeekTarget(seq=6))
    assert (found.skipped, found.repeated, found.waiting_after) == (4, 0, 1)


async def test_lease_that_is_over_is_not_told(store: Store, clock: FakeClock) -> None:
    await push(store, "a")
    await take(store, group="g")
    clock.advance(301)
    found = await preview(store, SeekTarget(to_end=True))
    assert (found.leased, found.skipped) == (0, 1)


async def test_one_partition_is_previewed_alone(store: Store) -> None:
    await store.push([item("a", "p1"), item("b", "p2"), item("c", "p1")])
    found = await preview(store, SeekTarget(to_end=True), "p1")
    assert (found.partitions, found.waiting, found.skipped) == (1, 2, 2)
    found = await preview(store, SeekTarget(to_end=True), "nowhere")
    assert (found.partitions, found.waiting, found.skipped, found.repeated) == (0, 0, 0, 0)


async def test_group_that_is_not_there_has_everything_before_it_and_is_not_made(store: Store) -> None:
    await push(store, "a", "b", "c")
    found = await preview(store, SeekTarget(seq=3), group="nobody")
    assert (found.is_new, found.waiting, found.skipped, found.repeated) == (True, 3, 2, 0)
    assert await store.groups() == []


async def test_group_of_new_messages_would_get_those_before_it(store: Store) -> None:
    await push(store, "a", "b")
    await take(store, group="g", subscription_mode="new")
    await push(store, "c")
    found = await preview(store, SeekTarget(seq=1))
    assert (found.waiting, found.skipped, found.repeated, found.waiting_after) == (1, 0, 2, 3)


async def test_preview_on_a_queue_that_is_not_there_is_an_error(store: Store) -> None:
    for target in (SeekTarget(seq=1), SeekTarget(to_end=True), SeekTarget(time_us=5)):
        with pytest.raises(UnknownQueue, match="nobody"):
            await store.preview_seek("g", "nobody", None, target)


async def test_queue_without_messages_has_nothing_to_skip(store: Store) -> None:
    await configure(store, QueueOptions())
    assert await preview(store, SeekTarget(to_end=True)) == SeekPreview(1, True, 0, 0, 0, 0, 0, 0)


async def test_preview_changes_nothing(store: Store) -> None:
    await push(store, "a", "b")
    popped = await take(store, 1, group="g")
    before = await store.groups()
    for target in (SeekTarget(to_end=True), SeekTarget(seq=1)):
        await preview(store, target)
    assert await store.groups() == before
    await finish(store, popped, group="g")
    assert await taken_ids(store, group="g") == ["b"]


@pytest.mark.parametrize("seed", range(6))
async def test_seek_does_what_its_preview_said(store: Store, clock: FakeClock, seed: int) -> None:
    """Whatever was delivered, answered, deleted or removed before: told are the messages, one by one."""
    chance = random.Random(seed)
    kept: dict[str, Message] = {}
    finished: set[str] = set()
    for turn in range(12):
        names = [f"{turn}.{n}" for n in range(chance.randint(1, 9))]
        await store.push([item(name, f"p{chance.randrange(4)}") for name in names])
        kept |= {message.transaction_id: message for message in await store.read("orders", 1, 1000)}
        popped = await take(store, chance.randint(1, 12), group="g", partitions=chance.randint(1, 3))
        for message in popped.messages:
            if chance.random() < 0.6:
                [result] = await store.acknowledge([answer(popped, message, group="g")])
                assert result.answered.is_accepted
                finished.add(message.transaction_id)
        if chance.random() < 0.5:
            gone = chance.choice(sorted(kept))
            assert await store.delete_message(kept.pop(gone).partition_id, gone)
        if chance.random() < 0.3:
            clock.advance(400)  # leases end
    if seed % 2:
        await store.clear_queue("orders", "p3")
        kept = {name: message for name, message in kept.items() if message.partition != "p3"}
    next_seq = (await store.bounds("orders")).next_seq
    for seq in sorted({chance.randint(0, next_seq + 2) for _ in range(8)}, reverse=bool(seed % 3)):
        waiting = set(kept) - finished
        after = {name for name, message in kept.items() if message.seq >= seq}
        told = await preview(store, SeekTarget(seq=seq))
        assert (told.waiting, told.waiting_after) == (len(waiting), len(after))
        assert (told.skipped, told.repeated) == (len(waiting - after), len(after - waiting))
        assert await store.seek("g", "orders", None, SeekTarget(seq=told.from_seq)) == told.partitions
        finished = set(kept) - after
        [lag] = await store.groups()
        assert lag.lag_messages == told.waiting_after
