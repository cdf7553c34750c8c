"""The contract of a store, dead letters: found again, replayed, purged."""

from __future__ import annotations

import pytest

from fixtures.fix_stores import Woken
from fixtures.store_steps import configure, finish, item, push, take, taken_ids
from forebay.broker.delivery import DEAD, FAILED, addressed
from forebay.broker.overview import DeadLetterFilter
from forebay.broker.store import Store
from forebay.errors import QueueFull
from forebay.model.push_run import run_of_one
from forebay.model.queue import DEFAULT_GROUP, QueueOptions
from forebay.testing.fake_clock import FakeClock

pytestmark = pytest.mark.asyncio
EVERYTHING = DeadLetterFilter()


async def kill(store: Store, *texts: str, partition: str = "Default", queue: str = "orders", group: str = "g") -> None:
    await push(store, *texts, partition=partition, queue=queue)
    popped = await take(store, queue=queue, group=group, partition=partition)
    await finish(store, popped, DEAD, error=f"because {texts}", group=group)


async def found(store: Store, wanted: DeadLetterFilter = EVERYTHING, limit: int = 100, offset: int = 0) -> list[str]:
    letters, _ = await store.dead_letters(wanted, limit, offset)
    return [letter.message.transaction_id for letter in letters]


async def test_dead_letter_holds_the_message_and_why_it_died(store: Store, clock: FakeClock) -> None:
    made_us = clock.now_us()
    await store.push([run_of_one("orders", "p1", b"\xff\0", "a", trace_id="t", headers=b"{}", is_binary=True)])
    clock.advance(5)
    popped = await take(store, group="g")
    await finish(store, popped, DEAD, error="bad input", group="g")
    [letter], total = await store.dead_letters(EVERYTHING, 10, 0)
    assert total == 1
    assert letter.message == popped.messages[0]
    assert (letter.group, letter.reason) == ("g", "bad input")
    assert (letter.message.created_us, letter.failed_us) == (made_us, clock.now_us())
    [status] = await store.queues()
    assert status.dead_letters == 1


async def test_dead_letters_are_listed_newest_first_in_pages(store: Store) -> None:
    await kill(store, *"abcde")
    assert await found(store) == list("edcba")
    assert await found(store, limit=2, offset=1) == ["d", "c"]
    assert await store.dead_letters(EVERYTHING, 2, 9) == ([], 5)


async def test_dead_letters_are_found_by_what_is_asked(store: Store, clock: FakeClock) -> None:
    await kill(store, "a", partition="p1", group="g")
    clock.advance(10)
    middle_us = clock.now_us()
    await kill(store, "b", partition="p2", group="h")
    clock.advance(10)
    await kill(store, "a", partition="p1", queue="other", group="g")
    assert await found(store, DeadLetterFilter(queue="orders")) == ["b", "a"]
    assert await found(store, DeadLetterFilter(group="g")) == ["a", "a"]
    assert await found(store, DeadLetterFilter(partition="p2")) == ["b"]
    assert await found(store, DeadLetterFilter(transaction_id="a", queue="other")) == ["a"]
    assert await found(store, DeadLetterFilter(from_us=middle_us)) == ["a", "b"]
    assert await found(store, DeadLetterFilter(to_us=middle_us)) == ["b", "a"]
    assert await found(store, DeadLetterFilter(from_us=middle_us, to_us=middle_us)) == ["b"]
    assert await found(store, DeadLetterFilter(queue="nobody")) == []


async def test_message_dies_for_each_group_by_itself(store: Store) -> None:
    await kill(store, "a", group="g")
    assert await taken_ids(store, group="h") == ["a"]
    assert await found(store, DeadLetterFilter(group="h")) == []


async def test_replayed_letters_are_new_messages_at_the_end(store: Store, woken: Woken) -> None:
    await store.push([run_of_one("orders", "p1", b"\xff\0", "a", trace_id="t", headers=b"{}", is_binary=True)])
    await finish(store, await take(store), DEAD)
    await push(store, "b", partition="p1")
    await kill(store, "other", queue="other")
    woken.calls.clear()
    assert await store.replay_dead_letters(DeadLetterFilter(queue="orders")) == 1
    assert woken.calls == [("orders", 1)]
    assert await found(store) == ["other"]
    popped = await take(store)
    assert [m.payload for m in popped.messages] == [b"b", b"\xff\0"]
    replayed = popped.messages[1]
    assert replayed.transaction_id not in ("a", "")
    assert (replayed.attempts, replayed.trace_id, replayed.is_binary) == (1, "t", True)
    assert replayed.headers == addressed(b"{}", DEFAULT_GROUP)
    assert await store.replay_dead_letters(DeadLetterFilter(queue="orders")) == 0


async def test_replay_keeps_the_order_of_the_letters(store: Store) -> None:
    await kill(store, *"abc", group=DEFAULT_GROUP)
    assert await store.replay_dead_letters(EVERYTHING) == 3
    assert [m.payload for m in (await take(store)).messages] == [b"a", b"b", b"c"]


async def test_replay_into_a_full_queue_leaves_the_letters(store: Store) -> None:
    await kill(store, *"abc", group=DEFAULT_GROUP)
    await configure(store, QueueOptions(max_size=2))
    with pytest.raises(QueueFull):
        await store.replay_dead_letters(EVERYTHING)
    assert await found(store) == ["c", "b", "a"]
    assert await taken_ids(store) == []


async def test_purged_letters_are_gone(store: Store) -> None:
    await kill(store, *"ab")
    await kill(store, "x", queue="other")
    assert await store.purge_dead_letters(DeadLetterFilter(transaction_id="a")) == 1
    assert await store.purge_dead_letters(DeadLetterFilter(queue="orders")) == 1
    assert await found(store) == ["x"]
    assert await store.purge_dead_letters(EVERYTHING) == 1
    assert await store.purge_dead_letters(EVERYTHING) == 0


async def test_letter_outlives_its_message(store: Store, clock: FakeClock) -> None:
    await configure(store, QueueOptions(retention_seconds=60))
    await kill(store, "a")
    clock.advance(61)
    assert await store.apply_retention() == 1
    assert await found(store) == ["a"]
    assert await store.replay_dead_letters(EVERYTHING) == 1
    assert [m.payload for m in await store.read("orders", 1, 9)] == [b"a"]


async def test_many_letters_are_replayed_completely(store: Store) -> None:
    texts = [f"m{n}" for n in range(1_100)]
    await store.push([item(text) for text in texts])
    await finish(store, await take(store, 2_000), DEAD)
    assert await store.replay_dead_letters(EVERYTHING) == 1_100
    assert [m.payload.decode() for m in (await take(store, 2_000)).messages] == texts


async def payloads(store: Store, group: str, **more: object) -> list[bytes]:
    """All that the group gets, taken and finished."""
    found = []
    while (popped := await take(store, group=group, partitions=9, **more)).messages:  # type: ignore[arg-type]
        found += [message.payload for message in popped.messages]
        await finish(store, popped, group=group)
    return found


async def test_replayed_letter_reaches_the_group_alone_in_which_it_died(store: Store) -> None:
    await kill(store, "a", group="g")
    assert await payloads(store, "h") == [b"a"]
    await push(store, "b")
    assert await store.replay_dead_letters(DeadLetterFilter(group="g")) == 1
    await push(store, "c")
    assert await payloads(store, "h") == [b"b", b"c"]
    assert await payloads(store, "g") == [b"b", b"a", b"c"]
    assert await payloads(store, "late") == [b"a", b"b", b"c"], "as the messages were before they died for a group"
    assert [lag.lag_messages for lag in await store.groups()] == [0, 0, 0]


@pytest.mark.parametrize("auto_ack", [False, True])
async def test_group_passes_letters_of_others_that_are_all_there_is(store: Store, auto_ack: bool) -> None:
    await push(store, *[str(n) for n in range(1_200)])
    await finish(store, await take(store, 1_200, group="g"), DEAD, group="g")
    assert len(await payloads(store, "h")) == 1_200
    assert await store.replay_dead_letters(EVERYTHING) == 1_200
    assert [lag.lag_messages for lag in await store.groups()] == [1_200, 1_200]
    assert await payloads(store, "h", batch=10) == []
    assert [lag.lag_messages for lag in await store.groups()] == [1_200, 0]
    await push(store, "z")
    assert [m.payload for m in (await take(store, group="h", auto_ack=auto_ack)).messages] == [b"z"]


async def test_letters_of_several_groups_are_replayed_each_to_its_own(store: Store) -> None:
    await kill(store, "a", group="g")
    await finish(store, await take(store, group="h"), DEAD, group="h")
    assert await store.replay_dead_letters(EVERYTHING) == 2
    assert (await payloads(store, "g"), await payloads(store, "h")) == ([b"a"], [b"a"])


async def test_replay_to_all_groups_is_delivered_to_everyone(store: Store) -> None:
    await kill(store, "a", group="g")
    assert await payloads(store, "h") == [b"a"]
    assert await store.replay_dead_letters(EVERYTHING) == 1
    await finish(store, await take(store, group="g"), DEAD, group="g")
    assert await store.replay_dead_letters(EVERYTHING, to_all_groups=True) == 1
    assert (await payloads(store, "g"), await payloads(store, "h")) == ([b"a"], [b"a"])


async def test_replayed_letter_that_dies_again_is_replayed_to_its_group_again(store: Store) -> None:
    await kill(store, "a", group="g")
    await store.replay_dead_letters(EVERYTHING)
    await finish(store, await take(store, group="g"), DEAD, group="g")
    await store.replay_dead_letters(EVERYTHING)
    assert await payloads(store, "h") == [b"a"]
    assert await payloads(store, "g") == [b"a"]


async def test_groups_tell_how_many_dead_letters_they_have(store: Store) -> None:
    await configure(store, QueueOptions(retry_limit=0))
    await push(store, "a", "b")
    for group, count in (("one", 1), ("two", 2)):
        await finish(store, await take(store, count, group=group), FAILED, group=group)
    assert {each.group: each.dead_letters for each in await store.groups()} == {"one": 1, "two": 2}
    assert [each.dead_letters for each in (await store.figures()).groups] == [1, 2]
