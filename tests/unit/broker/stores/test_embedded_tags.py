"""Tags of transactions: they go when nobody can ask for them any more, and until then nobody misses one."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pyarrow as pa
import pytest
import pytest_asyncio

from fixtures.arrow_steps import commit, payloads, stage
from fixtures.embedded_stores import before_commits, opened
from fixtures.store_steps import configure, ids, item, push, take
from forebay.broker.stores.embedded import EmbeddedStore
from forebay.broker.stores.embedded.limits import EmbeddedLimits
from forebay.broker.stores.embedded.reading import RangeReader
from forebay.commitlog import LogOptions
from forebay.errors import RangeGone, UnknownQueue
from forebay.model.queue import QueueOptions
from forebay.testing.fake_clock import FakeClock
from forebay.testing.faulty_filesystem import FaultyFilesystem, Operation

pytestmark = pytest.mark.asyncio
SMALL_SEGMENTS = LogOptions(segment_bytes=1 << 10, compress=False)
PADDING = b"." * 200
OLD, NEW = range(12), range(12, 16)


@pytest_asyncio.fixture
async def store(
    tmp_path: Path, clock: FakeClock, disk: FaultyFilesystem, limits: EmbeddedLimits
) -> AsyncIterator[EmbeddedStore]:
    """Messages of transactions and of stages, in a few segments: most of them too old for `orders`, not for `kept`."""
    store = await opened(tmp_path / "data", clock, disk, options=SMALL_SEGMENTS, limits=limits)
    await configure(store, QueueOptions(retention_seconds=10))
    for number in [*OLD, *NEW]:
        if number == NEW[0]:
            clock.advance(100)
        await add(store, number)
    yield store
    await store.close()


def text(number: int) -> str:
    return f"{number:02}"


async def add(store: EmbeddedStore, number: int) -> None:
    """Every third one goes to `kept` as well, every fifth is staged, and some are pushes without a tag."""
    content = text(number).encode() + PADDING
    mine = item(text(number), f"p{number % 2}", payload=content)
    if number % 5 == 4:
        await commit(
            store, await stage(store, content, partition=[mine.partition], epoch=text(number)), epoch=text(number)
        )
    elif number % 3 == 0:
        await store.transact([mine, item(text(number), queue="kept")], [])
    elif number % 4 == 1:
        await store.push([mine])
    else:
        await store.transact([mine], [])


def tag_count(directory: Path) -> int:
    with closing(sqlite3.connect(directory / "store.sqlite")) as database, database:
        ((committed,),) = database.execute("SELECT count(*) FROM committed_tags").fetchall()
        ((noted,),) = database.execute("SELECT count(DISTINCT tag) FROM tagged_records").fetchall()
    assert committed == noted
    return int(committed)


async def test_tags_go_after_the_segments_that_hold_their_records(store: EmbeddedStore, tmp_path: Path) -> None:
    before = tag_count(tmp_path / "data")
    assert await store.apply_retention() == len(OLD)
    assert tag_count(tmp_path / "data") == before, "their records may still be there"
    await store.apply_retention()
    needed_by_others = {number for number in OLD if number % 3 == 0 and number % 5 != 4}
    own = {number for number in NEW if not (number % 4 == 1 and number % 3 and number % 5 != 4)}
    # A segment may begin with old ones that are removed, and end with new ones.
    assert len(needed_by_others | own) <= tag_count(tmp_path / "data") < before
    assert ids(await store.read("kept", 1, 100)) == [text(n) for n in sorted(needed_by_others | {12, 15})]
    assert [payload[:2].decode() for payload in await payloads(store)] == list(map(text, NEW))
    await store.delete_queue("kept")
    await store.delete_queue("orders")
    assert tag_count(tmp_path / "data") == 0


async def test_transaction_that_stores_nothing_leaves_no_tag(store: EmbeddedStore, tmp_path: Path) -> None:
    before = tag_count(tmp_path / "data")
    await push(store, "a", queue="others")
    popped = await take(store, queue="others")
    assert not (await store.transact([item("a", queue="others")], [])).pushed
    await store.transact([], [])
    assert len(popped.messages) == 1
    assert tag_count(tmp_path / "data") == before


@pytest.mark.parametrize("limits", [EmbeddedLimits(removed_tags_max=1)])
async def test_tags_go_in_pieces_between_which_others_get_their_turn(store: EmbeddedStore, tmp_path: Path) -> None:
    before = tag_count(tmp_path / "data")
    await store.apply_retention()
    removing = asyncio.ensure_future(store.apply_retention())
    for n in range(3):
        await push(store, f"other {n}", queue="others")
    assert not removing.done()
    await removing
    assert tag_count(tmp_path / "data") < before - 3


# --- crashes ---


@contextmanager
def images(store: EmbeddedStore, disk: FaultyFilesystem, source: Path, target: Path) -> Iterator[list[Path]]:
    """The directory before everything that changes it, as a kill would leave it, and at the end."""
    found: list[Path] = []

    def copy(operation: Operation | None = None) -> None:
        if operation is None or operation.name != "read":
            found.append(target / str(len(found)))
            shutil.copytree(source, found[-1])

    disk.plan = copy
    try:
        with before_commits(store, copy):
            yield found
    finally:
        disk.plan = lambda operation: None
        copy()


def floors(directory: Path) -> dict[tuple[str, str], int]:
    with closing(sqlite3.connect(directory / "store.sqlite")) as database, database:
        rows = database.execute(
            "SELECT q.name, p.name, p.floor_seq FROM partitions p JOIN queues q ON q.id = p.queue_id"
        ).fetchall()
    return {(queue, partition): floor for queue, partition, floor in rows}


async def seen(store: EmbeddedStore, queue: str) -> list[bytes]:
    """By whoever reads, whichever way."""
    read = [message.payload for message in await store.read(queue, 1, 100)]
    popped = await take(store, queue=queue, group="another", partitions=10)
    assert sorted(message.payload for message in popped.messages) == sorted(read)
    assert await payloads(store, queue) == read
    return read


@pytest.mark.parametrize("limits", [EmbeddedLimits(walked_messages_max=4, removed_tags_max=2)])
async def test_whenever_the_process_dies_readers_see_what_is_above_the_floors(
    store: EmbeddedStore, disk: FaultyFilesystem, clock: FakeClock, tmp_path: Path
) -> None:
    pushed = {queue: await store.read(queue, 1, 100) for queue in ("orders", "kept")}
    with images(store, disk, tmp_path / "data", tmp_path) as found:
        await store.apply_retention()
        await store.apply_retention()
    counts = [tag_count(image) for image in found]
    assert counts[0] > counts[-1]
    assert len(found) > 15
    for image in found:
        # After a kill; and as if the power had gone, and none of what the logs did since had reached the disk.
        powerless = image.with_name(f"{image.name} without power")
        shutil.copytree(image, powerless)
        shutil.rmtree(powerless / "queues")
        shutil.copytree(found[0] / "queues", powerless / "queues")
        for directory in (image, powerless):
            above = floors(directory)
            left = await opened(directory, clock, options=SMALL_SEGMENTS)
            for queue, messages in pushed.items():
                kept = [m.payload for m in messages if m.seq > above[queue, m.partition]]
                assert await seen(left, queue) == kept, directory.name
            await left.close()


async def test_database_of_before_opens_and_its_tags_stay(
    store: EmbeddedStore, clock: FakeClock, tmp_path: Path
) -> None:
    await store.close()
    data = tmp_path / "data"
    before = tag_count(data)
    with closing(sqlite3.connect(data / "store.sqlite")) as database, database:
        database.execute("DROP TABLE tagged_records")
    again = await opened(data, clock, options=SMALL_SEGMENTS)
    for _ in range(2):
        await again.apply_retention()
    assert len(await seen(again, "orders")) == len(NEW)
    await add(again, 18)
    await again.close()
    with closing(sqlite3.connect(data / "store.sqlite")) as database, database:
        assert database.execute("SELECT count(*) FROM committed_tags").fetchone() == (before + 1,)


# --- readers beside the store's thread ---


async def reading(store: EmbeddedStore) -> tuple[RangeReader, Iterator[pa.RecordBatch]]:
    """In the middle of a segment, whose file is open: what happens to the segment does not end the reading."""
    readable = await store._readable("orders")
    first = readable.log.state.entries[0]
    assert first.end_seq > first.start_seq
    reader = store._reader(readable)
    batches = reader._stored(first.start_seq, first.end_seq)
    next(batches)
    return reader, batches


async def test_reader_that_retention_overtakes_is_told_so(store: EmbeddedStore) -> None:
    reader, batches = await reading(store)
    with reader:
        await store.apply_retention()
        await store.apply_retention()
        with pytest.raises(RangeGone):
            list(batches)


async def test_reader_whose_queue_is_deleted_is_told_so(store: EmbeddedStore) -> None:
    reader, batches = await reading(store)
    with reader:
        await store.delete_queue("orders")
        with pytest.raises(UnknownQueue):
            list(batches)
