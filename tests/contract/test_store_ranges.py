"""The contract of a store, ranges: a queue as Arrow batches, and what can be read of it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from fixtures.arrow_steps import payloads, read_table, seqs
from fixtures.store_steps import configure, finish, item, push, take
from forebay.broker.arrow import WIRE_SCHEMA
from forebay.broker.bulk import RangeRequest
from forebay.broker.store import Store
from forebay.errors import RangeGone, UnknownQueue
from forebay.model.push_run import run_of_one
from forebay.model.queue import QueueOptions
from forebay.testing.fake_clock import FakeClock

pytestmark = pytest.mark.asyncio


async def test_range_holds_every_column_as_it_was_pushed(store: Store, clock: FakeClock) -> None:
    await store.push(
        [
            run_of_one("orders", "p1", b'{"a": 1}', "t1", trace_id="trace", headers=b'{"h":1}'),
            run_of_one("orders", "p\u00e4", b"\xff\0", "t\u00fc", is_binary=True),
        ]
    )
    created = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=clock.now_us())
    assert await read_table(store) == [
        {
            "seq": 1,
            "partition": "p1",
            "transaction_id": "t1",
            "trace_id": "trace",
            "headers": '{"h":1}',
            "created_at": created,
            "payload": b'{"a": 1}',
        },
        {
            "seq": 2,
            "partition": "p\u00e4",
            "transaction_id": "t\u00fc",
            "trace_id": None,
            "headers": None,
            "created_at": created,
            "payload": b"\xff\0",
        },
    ]
    async for batch in await store.read_batches(RangeRequest("orders")):
        assert batch.schema == WIRE_SCHEMA


async def test_range_includes_both_its_ends(store: Store) -> None:
    for text in "abcdef":
        await push(store, text)
    assert await seqs(store, from_seq=2, to_seq=4) == [2, 3, 4]
    assert await seqs(store, from_seq=5) == [5, 6]
    assert await seqs(store, to_seq=2) == [1, 2]
    assert await seqs(store, from_seq=0, to_seq=100) == [1, 2, 3, 4, 5, 6]
    assert await seqs(store, from_seq=7, to_seq=100) == []
    assert await seqs(store, from_seq=4, to_seq=3) == []


async def test_range_that_cuts_a_push_holds_its_part_only(store: Store) -> None:
    await push(store, *"abcdef")
    assert await payloads(store, from_seq=3, to_seq=4) == [b"c", b"d"]


async def test_single_pushes_are_put_together(store: Store) -> None:
    for number in range(50):
        await push(store, str(number))
    batches = [batch async for batch in await store.read_batches(RangeRequest("orders"))]
    assert [batch.num_rows for batch in batches] == [50]


async def test_large_range_comes_in_pieces(store: Store) -> None:
    for number in range(6):
        await store.push([item(f"{number}-{i}", payload=b"x" * 300_000) for i in range(3)])
    batches = [batch async for batch in await store.read_batches(RangeRequest("orders"))]
    assert sum(batch.num_rows for batch in batches) == 18
    assert len(batches) >= 2
    assert await seqs(store) == list(range(1, 19))


async def test_range_of_partitions(store: Store) -> None:
    await store.push([item(str(i), f"p{i % 3}") for i in range(9)])
    assert await seqs(store, partitions=("p1",)) == [2, 5, 8]
    assert await seqs(store, partitions=("p0", "p2"), from_seq=2) == [3, 4, 6, 7, 9]
    assert await seqs(store, partitions=("nowhere",)) == []


async def test_range_of_times(store: Store, clock: FakeClock) -> None:
    times = []
    for text in "abc":
        times.append(clock.now_us())
        await push(store, text)
        clock.advance(10)
    assert await seqs(store, created_from_us=times[1]) == [2, 3]
    assert await seqs(store, created_to_us=times[1]) == [1]
    assert await seqs(store, created_from_us=times[1], created_to_us=times[1] + 1) == [2]


async def test_limit_of_bytes_gives_whole_messages_and_at_least_one(store: Store) -> None:
    await store.push([item(str(i), payload=b"x" * 10) for i in range(5)])
    assert await seqs(store, bytes_max=25) == [1, 2]
    assert await seqs(store, bytes_max=1) == [1]
    assert await seqs(store, bytes_max=20, from_seq=3) == [3, 4]
    assert await seqs(store, bytes_max=1000) == [1, 2, 3, 4, 5]


async def test_deleted_messages_are_absent_and_make_no_range_gone(store: Store) -> None:
    pushed = await push(store, *"abcd")
    for text in "ac":
        assert await store.delete_message(pushed[0].partition_id, text)
    assert await seqs(store, from_seq=1) == [2, 4]
    assert (await store.bounds("orders")).first_seq == 2


async def test_transaction_that_was_refused_leaves_no_rows(store: Store) -> None:
    await push(store, "a")
    outcome = await store.transact([item("b"), item("a")], [])
    assert outcome.error
    await push(store, "c")
    assert await payloads(store) == [b"a", b"c"]


async def test_bounds_are_those_of_what_is_kept(store: Store, clock: FakeClock) -> None:
    await configure(store, QueueOptions(retention_seconds=60))
    assert (await store.bounds("orders"))[:3] == (1, 1, 0)
    await push(store, "a", "bb")
    clock.advance(50)
    await push(store, "ccc")
    assert (await store.bounds("orders"))[:3] == (1, 4, 6)
    clock.advance(20)
    assert await store.apply_retention() == 2
    assert (await store.bounds("orders"))[:3] == (3, 4, 3)
    clock.advance(60)
    assert await store.apply_retention() == 1
    assert (await store.bounds("orders"))[:3] == (4, 4, 0)


async def test_bounds_find_a_time(store: Store, clock: FakeClock) -> None:
    start_us = clock.now_us()
    for text in "abc":
        await push(store, text)
        clock.advance(10)
    for seconds, seq in ((-5, 1), (0, 1), (1, 2), (10, 2), (11, 3), (20, 3), (21, 4), (1000, 4)):
        assert (await store.bounds("orders", start_us + seconds * 1_000_000)).seq_at_time == seq
    assert (await store.bounds("orders")).seq_at_time is None


async def test_unknown_queue_has_no_range(store: Store) -> None:
    with pytest.raises(UnknownQueue):
        await store.bounds("orders")
    with pytest.raises(UnknownQueue):
        await store.read_batches(RangeRequest("orders"))


async def test_range_that_retention_removed_in_part_is_gone(store: Store, clock: FakeClock) -> None:
    await configure(store, QueueOptions(retention_seconds=60))
    await push(store, "a", "b")
    clock.advance(50)
    await push(store, "c", "d")
    clock.advance(20)
    await store.apply_retention()
    for from_seq in (0, 1, 2):
        with pytest.raises(RangeGone) as gone:
            await store.read_batches(RangeRequest("orders", from_seq=from_seq, to_seq=4))
        assert gone.value.first_seq == 3
    assert await seqs(store, from_seq=3) == [3, 4]
    assert await seqs(store) == [3, 4]
    clock.advance(60)
    await store.apply_retention()
    with pytest.raises(RangeGone):
        await store.read_batches(RangeRequest("orders", from_seq=4, to_seq=4))
    assert await seqs(store, from_seq=5) == []


async def test_finished_messages_that_retention_removed_are_absent(store: Store, clock: FakeClock) -> None:
    await configure(store, QueueOptions(completed_retention_seconds=60))
    await store.push([item("a", "slow"), item("b", "quick"), item("c", "slow"), item("d", "quick")])
    await finish(store, await take(store, partition="quick"))
    clock.advance(61)
    assert await store.apply_retention() == 2
    assert (await store.bounds("orders")).first_seq == 1
    assert await payloads(store, from_seq=1) == [b"a", b"c"]


async def test_reader_goes_on_while_messages_are_pushed(store: Store) -> None:
    await store.push([item(str(i), payload=b"x" * 400_000) for i in range(8)])
    found = []
    async for batch in await store.read_batches(RangeRequest("orders")):
        found += batch.column("seq").to_pylist()
        await push(store, f"later {len(found)}")
    assert found == list(range(1, 9))


async def test_reader_that_retention_overtakes_never_misses_rows_in_silence(store: Store, clock: FakeClock) -> None:
    await configure(store, QueueOptions(retention_seconds=60))
    await store.push([item(str(i), payload=b"x" * 400_000) for i in range(12)])
    found: list[int] = []
    was_told = False
    try:
        async for batch in await store.read_batches(RangeRequest("orders")):
            found += batch.column("seq").to_pylist()
            clock.advance(61)
            await store.apply_retention()
    except RangeGone:
        was_told = True
    assert found == list(range(1, len(found) + 1))
    assert was_told or len(found) == 12
