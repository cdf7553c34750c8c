"""The contract of a store, the rest: looking at messages, traces, flags, deleted queues, opening and closing."""

from __future__ import annotations

import pytest

from fixtures.store_steps import answer, finish, ids, item, push, take, taken_ids
from forebay.broker.delivery import DEAD
from forebay.broker.overview import DeadLetterFilter, SeekTarget, TraceEvent
from forebay.broker.store import Store
from forebay.errors import UnknownQueue
from forebay.model.push_run import run_of_one
from forebay.testing.fake_clock import FakeClock

pytestmark = pytest.mark.asyncio


async def test_messages_are_read_from_any_seq(store: Store) -> None:
    await store.push([item(text, f"p{n % 2}") for n, text in enumerate("abcdef")])
    assert ids(await store.read("orders", 1, 3)) == ["a", "b", "c"]
    assert ids(await store.read("orders", 5, 3)) == ["e", "f"]
    assert ids(await store.read("orders", 0, 9, "p1")) == ["b", "d", "f"]
    assert ids(await store.read("orders", 3, 1, "p1")) == ["d"]
    assert await store.read("orders", 7, 9) == []
    assert await store.read("orders", 1, 9, "nowhere") == []


async def test_reading_takes_nothing(store: Store) -> None:
    await push(store, "a")
    await store.read("orders", 1, 9)
    assert await store.groups() == []
    assert await taken_ids(store) == ["a"]


async def test_looking_at_a_queue_that_is_not_there_is_an_error(store: Store) -> None:
    with pytest.raises(UnknownQueue):
        await store.read("nobody", 1, 1)
    with pytest.raises(UnknownQueue):
        await store.partitions("nobody", 1, 0)


@pytest.mark.parametrize("is_minted", [True, False])
async def test_message_is_found_by_partition_and_id(store: Store, is_minted: bool) -> None:
    [pushed, other] = await store.push(
        [run_of_one("orders", p, p.encode(), "id-1", is_minted=is_minted) for p in ("p1", "p2")]
    )
    found = await store.message(pushed.partition_id, "id-1")
    assert found is not None
    assert (found.payload, found.seq, found.partition) == (b"p1", 1, "p1")
    second = await store.message(other.partition_id, "id-1")
    assert second is not None
    assert second.payload == b"p2"
    assert await store.message(pushed.partition_id, "id-2") is None
    assert await store.message("no partition", "id-1") is None


async def test_partitions_are_listed_by_name_in_pages(store: Store, clock: FakeClock) -> None:
    await store.push([item(str(n), f"p{n % 5}") for n in range(12)])
    found = await store.partitions("orders", 10, 0)
    assert [(p.name, p.messages, p.last_seq) for p in found] == [
        ("p0", 3, 11),
        ("p1", 3, 12),
        ("p2", 2, 8),
        ("p3", 2, 9),
        ("p4", 2, 10),
    ]
    assert {p.newest_us for p in found} == {clock.now_us()}
    assert await store.partitions("orders", 2, 3) == found[3:]


async def test_queue_shows_what_it_holds(store: Store, clock: FakeClock) -> None:
    start_us = clock.now_us()
    await push(store, "aa", "b")
    clock.advance(1)
    await push(store, "cccc", partition="p2")
    [status] = await store.queues()
    assert (status.partitions, status.first_seq, status.next_seq) == (2, 1, 4)
    assert (status.messages, status.pushed, status.size_bytes, status.dead_letters) == (3, 3, 7, 0)
    assert (status.oldest_us, status.newest_us) == (start_us, clock.now_us())


async def test_traces_are_found_by_message_and_by_name(store: Store, clock: FakeClock) -> None:
    [pushed] = await push(store, "a")

    def event(number: int, *names: str, transaction_id: str = "a") -> TraceEvent:
        data = b'{"n":  %d, "\xc3\xbc": "\\u0000"}' % number
        return TraceEvent(pushed.partition_id, transaction_id, "g", "info", names, data, clock.now_us() + number)

    events = [event(1, "x", "y"), event(2), event(3, "x", transaction_id="b"), event(4, "z")]
    for one in events:
        await store.add_trace(one)
    assert await store.traces(pushed.partition_id, "a") == [events[0], events[1], events[3]]
    assert await store.traces(pushed.partition_id, "nobody") == []
    assert await store.traces("no partition", "a") == []
    assert await store.traces_named("x", 10, 0) == ([events[2], events[0]], 2)
    assert await store.traces_named("x", 1, 1) == ([events[0]], 2)
    assert await store.traces_named("nobody", 1, 0) == ([], 0)
    assert await store.trace_names(10, 0) == ([("x", 2), ("y", 1), ("z", 1)], 3)
    assert await store.trace_names(1, 1) == ([("y", 1)], 3)
    assert await store.trace_names(1, 5) == ([], 3)


async def test_old_traces_are_removed_with_their_names(store: Store, clock: FakeClock) -> None:
    [pushed] = await push(store, "a")

    async def note(number: int, *names: str) -> TraceEvent:
        event = TraceEvent(pushed.partition_id, "a", "g", "info", names, b"%d" % number, clock.now_us())
        await store.add_trace(event)
        return event

    for number in range(1203):
        await note(number, "old", "both")
    clock.advance(100)
    young = [await note(1, "both"), await note(2)]
    assert await store.expire_traces(100) == 0
    clock.advance(1)
    assert await store.expire_traces(100) == 1203
    assert await store.traces(pushed.partition_id, "a") == young
    assert await store.trace_names(10, 0) == ([("both", 1)], 1)
    assert await store.traces_named("old", 10, 0) == ([], 0)
    assert await store.expire_traces(100) == 0


async def test_flags_are_off_until_they_are_set(store: Store) -> None:
    assert await store.flag("maintenance.push") is False
    await store.set_flag("maintenance.push", True)
    assert await store.flag("maintenance.push") is True
    assert await store.flag("maintenance.pop") is False
    await store.set_flag("maintenance.push", False)
    assert await store.flag("maintenance.push") is False


async def test_deleted_queue_is_gone_with_all_that_belonged_to_it(store: Store, clock: FakeClock) -> None:
    [pushed, *_] = await push(store, "a", "b")
    await push(store, "x", queue="other")
    popped = await take(store)
    await finish(store, popped._replace(messages=popped.messages[:1]), DEAD)
    await store.add_trace(TraceEvent(pushed.partition_id, "a", "g", "info", ("n",), b"{}", clock.now_us()))
    assert await store.delete_queue("orders") is True
    assert await store.delete_queue("orders") is False
    assert await store.queue("orders") is None
    assert [status.queue.name for status in await store.queues()] == ["other"]
    assert await store.groups() == []
    assert (await store.dead_letters(DeadLetterFilter(), 9, 0))[1] == 0
    assert await store.traces(pushed.partition_id, "a") == []
    assert await store.traces_named("n", 9, 0) == ([], 0)
    assert await store.message(pushed.partition_id, "a") is None
    assert ids(await take(store)) == []
    assert ids(await take(store, queue="other")) == ["x"]
    with pytest.raises(UnknownQueue):
        await store.seek("g", "orders", None, SeekTarget(to_end=True))


async def test_messages_of_a_deleted_queue_never_come_back(store: Store) -> None:
    await push(store, "a", "b")
    popped = await take(store)
    await store.delete_queue("orders")
    [pushed] = await push(store, "a")
    assert (pushed.status, pushed.seq) == ("queued", 1)
    assert pushed.partition_id != popped.messages[0].partition_id
    [refused] = await store.acknowledge([answer(popped, popped.messages[0])])
    assert not refused.answered.is_accepted
    assert await store.extend(popped.lease_id, 60) is None
    assert await taken_ids(store) == ["a"]
    assert (await store.queues())[0].messages == 1


async def test_open_store_is_healthy_and_closes_in_order(store: Store) -> None:
    assert await store.is_healthy()
