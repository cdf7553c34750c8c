"""The contract of a store, groups: where they start, where they stand, and moving them."""

from __future__ import annotations

import pytest

from fixtures.store_steps import answer, finish, ids, item, push, take, taken_ids
from forebay.broker.delivery import FAILED
from forebay.broker.overview import GroupLag, SeekTarget
from forebay.broker.store import Store
from forebay.errors import UnknownQueue
from forebay.model.queue import DEFAULT_GROUP
from forebay.testing.fake_clock import FakeClock

pytestmark = pytest.mark.asyncio


async def lag(store: Store, group: str = DEFAULT_GROUP, queue: str = "orders") -> GroupLag:
    groups = await store.groups()
    for _ in range(2):  # the second count may use what the first one has read
        figures = await store.figures()
        assert (list(figures.queues), list(figures.groups)) == (await store.queues(), groups)
    [found] = [one for one in groups if (one.group, one.queue) == (group, queue)]
    return found


async def test_groups_go_through_the_queue_independently(store: Store) -> None:
    await push(store, *"abc")
    assert await taken_ids(store, 2, group="one") == ["a", "b"]
    assert await taken_ids(store, 3, group="two") == ["a", "b", "c"]
    assert await taken_ids(store, 3, group="one") == ["c"]


async def test_group_starts_at_the_beginning_by_default(store: Store) -> None:
    await push(store, "a")
    await push(store, "b", partition="p2")
    assert sorted(await taken_ids(store, group="g", partitions=2)) == ["a", "b"]


async def test_group_of_new_messages_skips_what_was_there_at_its_first_pop(store: Store) -> None:
    await store.push([item("old1", "p1"), item("old2", "p2")])
    assert await taken_ids(store, group="g", subscription_mode="new", partitions=9) == []
    await store.push([item("new1", "p1"), item("new3", "p3")])
    assert sorted(await taken_ids(store, group="g", subscription_mode="new", partitions=9)) == ["new1", "new3"]


async def test_group_from_a_time_starts_with_the_first_message_of_that_time(store: Store, clock: FakeClock) -> None:
    times = []
    for n, text in enumerate("abcdefgh"):
        times.append(clock.now_us())
        await push(store, text, partition=f"p{n % 3}")
        clock.advance(10)
    for n, wanted in ((0, "abcdefgh"), (3, "defgh"), (7, "h")):
        got = await taken_ids(
            store, group=f"g{n}", subscription_mode="from", subscription_from_us=times[n], partitions=9
        )
        assert "".join(sorted(got)) == wanted
    between = await taken_ids(
        store, group="g", subscription_mode="from", subscription_from_us=times[3] + 1, partitions=9
    )
    assert "".join(sorted(between)) == "efgh"
    later = clock.now_us() + 1
    assert await taken_ids(store, group="h", subscription_mode="from", subscription_from_us=later, partitions=9) == []


async def test_first_pop_fixes_the_subscription(store: Store) -> None:
    await push(store, "a")
    await take(store, group="g", subscription_mode="new")
    assert ids(await take(store, group="g", subscription_mode="all")) == []
    found = await lag(store, "g")
    assert found.subscription_mode == "new"
    await push(store, "b")
    assert await taken_ids(store, group="g", subscription_mode="from") == ["b"]


async def test_subscription_is_fixed_per_queue(store: Store) -> None:
    await push(store, "a")
    await push(store, "b", queue="other")
    await take(store, group="g", subscription_mode="new")
    assert await taken_ids(store, group="g", queue="other") == ["b"]


async def test_seek_to_a_seq_delivers_from_there_on(store: Store) -> None:
    await store.push([item(text, f"p{n % 2}") for n, text in enumerate("abcdef")])
    await taken_ids(store, partitions=2)
    assert await store.seek(DEFAULT_GROUP, "orders", None, SeekTarget(seq=3)) == 2
    assert sorted(await taken_ids(store, partitions=2)) == ["c", "d", "e", "f"]


async def test_seek_to_a_time_delivers_from_there_on(store: Store, clock: FakeClock) -> None:
    await push(store, "a")
    clock.advance(10)
    wanted_us = clock.now_us()
    await push(store, "b", "c", partition="p2")
    await taken_ids(store, partitions=2)
    await store.seek(DEFAULT_GROUP, "orders", None, SeekTarget(time_us=wanted_us))
    assert await taken_ids(store, partitions=2) == ["b", "c"]
    await store.seek(DEFAULT_GROUP, "orders", None, SeekTarget(time_us=0))
    assert len(await taken_ids(store, partitions=2)) == 3


async def test_seek_to_the_end_skips_everything(store: Store) -> None:
    await store.push([item("a", "p1"), item("b", "p2")])
    await store.seek("g", "orders", None, SeekTarget(to_end=True))
    assert await taken_ids(store, group="g", partitions=9) == []
    assert (await lag(store, "g")).lag_messages == 0
    await store.push([item("c", "p1"), item("d", "p3")])
    assert sorted(await taken_ids(store, group="g", partitions=9)) == ["c", "d"]


async def test_group_that_is_for_one_partition_has_the_lag_of_that_one_alone(store: Store, clock: FakeClock) -> None:
    await store.push([item("a", "mine"), item("b", "other")])
    await store.seek("g", "orders", None, SeekTarget(seq=1 << 53))
    await store.seek("g", "orders", "mine", SeekTarget(seq=1))
    assert (await lag(store, "g")).lag_messages == 1
    await store.push([item("c", "mine"), item("d", "other"), item("e", "new")])
    assert (await lag(store, "g")).lag_messages == 2
    assert await taken_ids(store, group="g", partitions=9) == ["a", "c"]
    # Nor does it keep empty partitions that are not its own.
    await store.clear_queue("orders", "other")
    clock.advance(1000)
    assert await store.expire_partitions(100) == 1
    await push(store, "f", partition="other")
    assert (await lag(store, "g")).lag_messages == 0


async def test_seek_of_one_partition_leaves_the_others(store: Store) -> None:
    await store.push([item("a", "p1"), item("b", "p2"), item("c", "p1")])
    await taken_ids(store, partitions=2)
    assert await store.seek(DEFAULT_GROUP, "orders", "p1", SeekTarget(seq=1)) == 1
    assert await taken_ids(store, partitions=2) == ["a", "c"]
    assert await store.seek(DEFAULT_GROUP, "orders", "nowhere", SeekTarget(seq=1)) == 0


async def test_seek_of_one_partition_works_before_the_first_pop(store: Store) -> None:
    await store.push([item("a", "p1"), item("b", "p2"), item("c", "p1")])
    await store.seek("g", "orders", "p1", SeekTarget(to_end=True))
    assert await taken_ids(store, group="g", partitions=9) == ["b"]


@pytest.mark.parametrize("partition", [None, "Default"])
async def test_seek_ends_leases_and_forgets_attempts(store: Store, partition: str | None) -> None:
    await push(store, "a", "b")
    popped = await take(store)
    await store.seek(DEFAULT_GROUP, "orders", partition, SeekTarget(seq=1))
    [late] = await store.acknowledge([answer(popped, popped.messages[0])])
    assert not late.answered.is_accepted
    assert await store.extend(popped.lease_id, 60) is None
    again = await take(store)
    assert [(m.transaction_id, m.attempts) for m in again.messages] == [("a", 1), ("b", 1)]


async def test_seek_on_a_queue_that_is_not_there_is_an_error(store: Store) -> None:
    with pytest.raises(UnknownQueue, match="nobody"):
        await store.seek("g", "nobody", None, SeekTarget(to_end=True))


async def test_deleted_group_starts_anew(store: Store) -> None:
    await store.push([item("a", "p1"), item("b", "p2")])
    await taken_ids(store, group="g", partitions=2)
    await taken_ids(store, group="other", partitions=2)
    popped = await take(store, group="g")
    assert ids(popped) == []
    assert await store.delete_group("g", "orders") == 2
    assert [one.group for one in await store.groups()] == ["other"]
    assert sorted(await taken_ids(store, group="g", partitions=2)) == ["a", "b"]
    assert await taken_ids(store, group="other", partitions=2) == []


async def test_group_is_deleted_on_one_queue_or_all(store: Store) -> None:
    for queue in ("orders", "other"):
        await push(store, "a", queue=queue)
        await taken_ids(store, group="g", queue=queue)
    assert await store.delete_group("g", "other") == 1
    assert [one.queue for one in await store.groups()] == ["orders"]
    assert await store.delete_group("nobody", None) == 0
    assert await store.delete_group("g", None) == 1
    assert await store.groups() == []


async def test_answer_to_a_deleted_group_is_refused(store: Store) -> None:
    await push(store, "a")
    popped = await take(store, group="g")
    await store.delete_group("g", None)
    [refused] = await store.acknowledge([answer(popped, popped.messages[0], group="g")])
    assert not refused.answered.is_accepted


async def test_lag_counts_messages_that_are_not_finished(store: Store, clock: FakeClock) -> None:
    await store.push([item("a", "p1"), item("b", "p1")])
    clock.advance(10)
    await store.push([item("c", "p2"), item("d", "p1")])
    clock.advance(5)
    popped = await take(store, 2, partition="p1")
    found = await lag(store)
    assert (found.partitions, found.partitions_with_lag, found.lag_messages, found.leased) == (2, 2, 4, 2)
    assert found.lag_seconds == 15
    await store.acknowledge([answer(popped, popped.messages[1])])
    assert ((await lag(store)).lag_messages, (await lag(store)).lag_seconds) == (3, 15)
    await store.acknowledge([answer(popped, popped.messages[0])])
    found = await lag(store)
    assert (found.lag_messages, found.partitions_with_lag, found.lag_seconds, found.leased) == (2, 2, 5, 0)
    while await taken_ids(store, partitions=2):
        pass
    found = await lag(store)
    assert (found.lag_messages, found.partitions_with_lag, found.lag_seconds) == (0, 0, 0)


async def test_lag_counts_messages_that_wait_for_their_retry(store: Store, clock: FakeClock) -> None:
    await push(store, "a")
    await finish(store, await take(store), FAILED)
    clock.advance(0.5)
    assert ((await lag(store)).lag_messages, (await lag(store)).lag_seconds) == (1, 0.5)


async def test_lag_follows_seeks_and_late_groups(store: Store) -> None:
    await store.push([item(text, f"p{n % 2}") for n, text in enumerate("abcdef")])
    await taken_ids(store, 1, group="new", subscription_mode="new")
    assert (await lag(store, "new")).lag_messages == 0
    await store.push([item("g", "p0"), item("h", "p5")])
    assert (await lag(store, "new")).lag_messages == 2
    await store.seek("g", "orders", None, SeekTarget(seq=5))
    assert (await lag(store, "g")).lag_messages == 4
    await store.seek("g", "orders", "p0", SeekTarget(seq=1))
    assert (await lag(store, "g")).lag_messages == 6


async def test_group_shows_when_it_was_made_and_last_seen(store: Store, clock: FakeClock) -> None:
    await push(store, "a")
    made_us = clock.now_us()
    await take(store, group="g", subscription_mode="from", subscription_from_us=7)
    clock.advance(100)
    await take(store, group="g")
    found = await lag(store, "g")
    assert (found.created_us, found.last_active_us) == (made_us, made_us + 100_000_000)
    assert (found.subscription_mode, found.subscription_from_us) == ("from", 7)
