"""A store whose logs are broken at every byte: it opens, everything but the damaged records comes, the rest is told."""

from __future__ import annotations

import asyncio
import logging
import shutil
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from fixtures.store_steps import answer, configure, finish, ids, item, push, take, taken_ids
from forebay.broker.bulk import RangeRequest
from forebay.broker.delivery import DEAD, RETRY
from forebay.broker.overview import DeadLetterFilter
from forebay.broker.stores.embedded import EmbeddedStore
from forebay.commitlog.salvage import salvage
from forebay.errors import RangeIncomplete
from forebay.filesystem import RealFilesystem
from forebay.model.queue import QueueOptions
from forebay.testing.fake_clock import FakeClock

pytestmark = pytest.mark.asyncio
RECORDS = {1: ("a1", "b2", "a3"), 4: ("a4",), 5: ("b5", "a6")}
"""What stands in each record of the queue: partition, and number."""
ALL = [text for texts in RECORDS.values() for text in texts]
MASKS = (0xFF, 0x40)


@asynccontextmanager
async def opened(directory: Path, clock: FakeClock | None = None) -> AsyncIterator[EmbeddedStore]:
    store = EmbeddedStore(directory, clock=clock or FakeClock())
    await store.open(lambda queue, count: None)
    try:
        yield store
    finally:
        await store.close()


async def fill(directory: Path) -> None:
    async with opened(directory) as store:
        await configure(store, QueueOptions(retention_seconds=10))
        for texts in RECORDS.values():
            await store.push([item(text, text[0]) for text in texts])
        await push(store, "other", queue="payments")
        await configure(store, QueueOptions(retention_seconds=10), "payments")


def segment(directory: Path, queue: int = 1) -> Path:
    [path] = [path for path in (directory / "queues" / str(queue)).rglob("*.data") if path.stat().st_size]
    return path


def flip(path: Path, position: int, mask: int = 0xFF) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= mask
    path.write_bytes(data)


def forget_what_was_read(store: EmbeddedStore) -> None:
    store._engine._cache.forget()
    store._engine.queues.by_name["orders"].log._reader.let_go()


def flips(directory: Path) -> Iterator[tuple[int, int]]:
    size = segment(directory).stat().st_size
    return ((position, MASKS[position % len(MASKS)]) for position in range(size))


async def read_all(store: EmbeddedStore, queue: str = "orders", **narrowing: Any) -> list[str]:
    batches = await store.read_batches(RangeRequest(queue, **narrowing))
    return [text async for batch in batches for text in batch.column("transaction_id").to_pylist()]


async def assert_all_but_the_lost(store: EmbeddedStore, clock: FakeClock) -> list[str]:
    """Ask for everything in every way; returns what is lost."""
    popped = ids(await take(store, 100, partitions=10)) + ids(await take(store, 100, partitions=10))
    lost = [text for text in ALL if text not in popped]
    assert sorted(popped) == sorted(set(ALL) - set(lost))
    assert await read_all(store) == [text for text in ALL if text not in lost]
    assert ids(await store.read("orders", 1, 100)) == [text for text in ALL if text not in lost]
    for partition in "ab":
        kept = [text for text in ALL if text[0] == partition and text not in lost]
        assert ids(await store.read("orders", 1, 100, partition)) == kept
    [orders, payments] = await store.queues()
    assert (orders.messages, orders.pushed, orders.lost) == (len(popped), len(ALL), len(lost))
    assert (payments.messages, payments.lost) == (1, 0)
    [lag] = [lag for lag in await store.groups() if lag.queue == "orders"]
    assert (lag.lag_messages, lag.leased) == (len(popped), len(popped))
    told = await store.lost_messages()
    assert sum(each.messages for each in told) == len(lost)
    assert {each.partition for each in told} == {text[0] for text in lost}
    for each in told:
        numbers = [int(text[1:]) for text in lost if text[0] == each.partition]
        assert each.queue == "orders"
        assert set(numbers) & set(range(each.first_seq, each.last_seq + 1))
    clock.advance(100)
    assert await store.apply_retention() == len(popped) + 1, "retention goes on, also of the queue behind"
    assert [status.messages for status in await store.queues()] == [0, 0]
    await push(store, "new", partition="a")
    clock.advance(1000)
    assert ids(await take(store, 100)) == ["new"]
    return lost


async def test_reader_that_counts_on_lost_messages_is_told_before_it_gets_what_is_behind_them(tmp_path: Path) -> None:
    await fill(tmp_path)
    # In the second record, of which all messages are of partition a.
    path = segment(tmp_path)
    [first] = [size for size in range(1, path.stat().st_size) if path.read_bytes()[size:].startswith(b"a4")][:1]
    flip(path, first)
    async with opened(tmp_path) as store:
        for _ in range(3):
            with pytest.raises(RangeIncomplete) as told:
                await read_all(store, removed_up_to=0)
            assert (told.value.first_seq, told.value.last_seq, told.value.reason) == (4, 4, "damage")
        assert await read_all(store, removed_up_to=0, from_seq=5) == ["b5", "a6"]
        assert await read_all(store, removed_up_to=0, to_seq=3) == ["a1", "b2", "a3"]
        assert await read_all(store, removed_up_to=0, partitions=("b",)) == ["b2", "b5"]
        assert await read_all(store) == [text for text in ALL if text != "a4"]
        assert (await store.bounds("orders")).lost == ((4, 4, 1),)
        assert (await store.bounds("orders", partitions=["b"])).lost == ()


@pytest.mark.slow
@pytest.mark.parametrize("is_salvaged", [False, True])
async def test_every_flipped_byte_costs_at_most_its_record(
    tmp_path: Path, is_salvaged: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR)
    await fill(tmp_path / "good")
    found = set()
    for position, mask in list(flips(tmp_path / "good")):
        damaged = tmp_path / "damaged"
        shutil.copytree(tmp_path / "good", damaged)
        flip(segment(damaged), position, mask)
        if is_salvaged:
            salvage(RealFilesystem(), damaged / "queues" / "1")
        caplog.clear()
        clock = FakeClock()
        async with opened(damaged, clock) as store:
            if is_salvaged:
                assert (await store.queues())[0].lost, "opening finds out what a salvage gave up"
            lost = await assert_all_but_the_lost(store, clock)
        assert tuple(lost) in RECORDS.values(), (position, mask)
        lines = [line for line in caplog.records if getattr(line, "action", "") == "store_messages_lost"]
        assert len(lines) == 1, "told once"
        found.add(tuple(lost))
        shutil.rmtree(damaged)
    assert found == set(RECORDS.values())


async def test_reader_notices_a_loss_that_another_one_noted_since_it_began(tmp_path: Path) -> None:
    large = bytes(2 << 20)  # a batch of its own each, and a reader looks two batches ahead
    ends = []
    async with opened(tmp_path) as store:
        for text in "abcdef":
            await store.push([item(text, payload=large if text < "e" else b"small")])
            ends.append(-(-len(segment(tmp_path).read_bytes().rstrip(b"\0")) // 8) * 8)
    flip(segment(tmp_path), ends[3] + 60)
    async with opened(tmp_path) as store:
        batches = await store.read_batches(RangeRequest("orders", removed_up_to=0))
        assert (await anext(batches)).column("transaction_id").to_pylist() == ["a"]
        assert await read_all(store) == ["a", "b", "c", "d", "f"]
        assert [one.messages for one in await store.lost_messages()] == [1]
        with pytest.raises(RangeIncomplete) as gone:
            assert [batch async for batch in batches]
        assert (gone.value.first_seq, gone.value.last_seq) == (5, 5)


async def test_loss_stays_told_and_salvage_after_it_changes_nothing(tmp_path: Path) -> None:
    await fill(tmp_path)
    flip(segment(tmp_path), 60)
    async with opened(tmp_path) as store:
        await read_all(store)
        told = await store.lost_messages()
        assert [(each.partition, each.first_seq, each.last_seq, each.messages) for each in told] == [
            ("a", 1, 3, 2),
            ("b", 2, 2, 1),
        ]
    salvage(RealFilesystem(), tmp_path / "queues" / "1")
    async with opened(tmp_path) as store:
        assert await store.lost_messages() == told
        assert sorted(ids(await take(store, 100, partitions=2))) == ["a4", "a6", "b5"]
        assert await store.delete_queue("orders")
        assert await store.lost_messages() == []


async def test_group_that_holds_a_lost_message_passes_it(tmp_path: Path) -> None:
    await fill(tmp_path)
    async with opened(tmp_path) as store:
        popped = await take(store, 100, partition="a")
        assert ids(popped) == ["a1", "a3", "a4", "a6"]
    flip(segment(tmp_path), 60)
    async with opened(tmp_path) as store:
        await read_all(store)  # which finds out
        by_id = {message.transaction_id: message for message in popped.messages}
        [refused] = await store.acknowledge([answer(popped, by_id["a1"])])
        assert not refused.answered.is_accepted
        accepted = await store.acknowledge([answer(popped, by_id[text]) for text in ("a4", "a6")])
        assert all(one.answered.is_accepted for one in accepted)
        [lag] = await store.groups()
        assert (lag.lag_messages, lag.leased) == (1, 0), "b5 is left, and b2 is lost"
        assert await taken_ids(store) == ["b5"]
        [lag] = await store.groups()
        assert (lag.lag_messages, lag.leased) == (0, 0)


async def test_answer_that_needs_a_message_which_is_lost_is_refused_and_the_others_count(tmp_path: Path) -> None:
    await fill(tmp_path)
    async with opened(tmp_path) as store:
        popped = await take(store, 100, partition="a")
    flip(segment(tmp_path), 60)
    async with opened(tmp_path) as store:
        answers = await store.acknowledge([answer(popped, message, DEAD) for message in popped.messages])
        assert [one.answered.is_accepted for one in answers] == [False, False, True, True]
        [lag] = await store.groups()
        assert lag.lag_messages == 1, "b5 is left, and b2 is lost with its record"
        letters, _ = await store.dead_letters(DeadLetterFilter(), 10, 0)
        assert {letter.message.transaction_id for letter in letters} == {"a4", "a6"}


async def test_message_that_is_lost_while_it_waits_for_its_retry_is_passed(tmp_path: Path) -> None:
    clock = FakeClock()
    await fill(tmp_path)
    async with opened(tmp_path, clock) as store:
        await finish(store, await take(store, 100, partition="a"), RETRY)
        flip(segment(tmp_path), 60)
        forget_what_was_read(store)
        clock.advance(1000)
        assert await taken_ids(store, partition="a") == ["a4", "a6"]
        assert await taken_ids(store) == ["b5"]
        assert [lag.lag_messages for lag in await store.groups()] == [0]


async def test_lease_that_ended_over_lost_messages_gives_what_is_left(tmp_path: Path) -> None:
    clock = FakeClock()
    await fill(tmp_path)
    async with opened(tmp_path, clock) as store:
        await finish(store, await take(store, 1, partition="a"))
        assert ids(await take(store, 100, partition="a")) == ["a3", "a4", "a6"]
        flip(segment(tmp_path), 60)
        forget_what_was_read(store)
        clock.advance(1000)
        assert ids(await take(store, 100, partition="a")) == ["a4", "a6"]


async def test_id_of_a_lost_message_can_be_pushed_again(tmp_path: Path) -> None:
    await fill(tmp_path)
    flip(segment(tmp_path), 60)
    async with opened(tmp_path) as store:
        assert [one.status for one in await push(store, "a1", partition="a")] == ["duplicate"]
        await read_all(store)
        [again, known] = await push(store, "a1", "a4", partition="a")
        assert (again.status, known.status) == ("queued", "duplicate")
        assert ids(await take(store, 100, partition="a")) == ["a4", "a6", "a1"]


async def test_deleted_and_removed_messages_are_not_lost_as_well(tmp_path: Path) -> None:
    clock = FakeClock()
    async with opened(tmp_path, clock) as store:
        await configure(store, QueueOptions(completed_retention_seconds=1))
        [first, *_] = await store.push([item(f"{name}{n}", name) for n in range(4) for name in "ab"])
        await finish(store, await take(store, 2, partition="a"))
        assert await store.delete_message(first.partition_id, "a3")
        clock.advance(10)
        assert await store.apply_retention() == 2
    flip(segment(tmp_path), 60)
    async with opened(tmp_path, clock) as store:
        assert await read_all(store) == []
        told = await store.lost_messages()
        assert sorted((each.partition, each.messages) for each in told) == [("a", 1), ("b", 4)]
        [status] = await store.queues()
        assert (status.messages, status.pushed, status.lost) == (0, 8, 5)


async def test_damage_in_a_tail_that_is_not_indexed_keeps_no_server_from_starting(tmp_path: Path) -> None:
    live, killed = tmp_path / "live", tmp_path / "killed"
    async with opened(live) as store:
        await push(store, "a", partition="p")
        assert await read_all(store) == ["a"]  # and it is indexed
        size = segment(live).read_bytes().rstrip(b"\0").__len__()
        await push(store, "b", partition="p")
        await push(store, "c", partition="p")
        await asyncio.to_thread(shutil.copytree, live, killed)
    flip(segment(killed), size + 60)
    async with opened(killed) as store:
        assert await taken_ids(store) == ["a", "c"]
        [told] = await store.lost_messages()
        assert (told.queue, told.partition, told.first_seq, told.last_seq, told.messages) == ("orders", None, 2, 2, 1)
        assert (await push(store, "d", partition="p"))[0].seq == 4
    async with opened(killed) as store:
        assert await taken_ids(store) == ["d"]
        assert await store.lost_messages() == [told]


async def test_missing_segment_costs_its_messages_and_nothing_else(tmp_path: Path) -> None:
    clock = FakeClock()
    async with opened(tmp_path, clock) as store:
        for n in range(3):
            await push(store, f"m{n}", partition="p")
            store._engine.queues.by_name["orders"].log.roll()
    [_, middle, _] = sorted(path for path in tmp_path.rglob("*.data") if path.stat().st_size)
    middle.unlink()
    async with opened(tmp_path, clock) as store:
        assert await read_all(store) == ["m0", "m2"]
        assert await taken_ids(store) == ["m0", "m2"]
        [told] = await store.lost_messages()
        assert (told.first_seq, told.last_seq, told.partition) == (2, 2, "p")


async def test_index_that_knows_more_than_the_log_gives_no_seq_twice(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The log's directory is of an earlier moment than the database: a lying disk, or a copy taken while running."""
    old = tmp_path / "old"
    data = tmp_path / "data"
    async with opened(data) as store:
        await push(store, "a", partition="p")
    shutil.copytree(data / "queues", old)
    async with opened(data) as store:
        await push(store, "b", "c", partition="p")
        assert await taken_ids(store) == ["a", "b", "c"]
        await push(store, "d", partition="q")
        assert await read_all(store) == ["a", "b", "c", "d"]
    shutil.rmtree(data / "queues")
    shutil.copytree(old, data / "queues")
    caplog.clear()
    async with opened(data) as store:
        assert "store_log_behind" in [getattr(line, "action", "") for line in caplog.records]
        told = await store.lost_messages()
        assert [(one.partition, one.first_seq, one.last_seq, one.messages) for one in told] == [
            ("p", 2, 3, 2),
            ("q", 4, 4, 1),
        ]
        [pushed] = await push(store, "e", partition="p")
        assert pushed.seq == 5
        assert await taken_ids(store) == ["e"]
        assert await read_all(store) == ["a", "e"]
        assert [status.next_seq for status in await store.queues()] == [6]
    async with opened(data) as store:
        assert await store.lost_messages() == told
        assert await read_all(store) == ["a", "e"]
