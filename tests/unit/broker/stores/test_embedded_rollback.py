"""Cycles of the embedded store that cannot be committed: nothing of them happened, and the store lives on."""

from __future__ import annotations

import asyncio
import random
import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import pytest_asyncio

from fixtures.embedded_stores import before_commits, opened
from fixtures.store_steps import configure, finish, ids, item, push, take
from forebay.broker.store import Store
from forebay.broker.stores.embedded import EmbeddedStore
from forebay.commitlog import LogOptions
from forebay.errors import ForebayError, StoreUnavailable
from forebay.model.push_run import run_of_one
from forebay.model.queue import QueueOptions
from forebay.testing.fake_clock import FakeClock

pytestmark = pytest.mark.asyncio
SMALL_SEGMENTS = LogOptions(segment_bytes=1 << 16)
SECONDS_MAX = 20


@contextmanager
def commits_fail(store: EmbeddedStore) -> Iterator[None]:
    """Its database cannot be written any more."""

    def refuse() -> None:
        raise sqlite3.OperationalError("database or disk is full")

    with before_commits(store, refuse):
        yield


@pytest_asyncio.fixture
async def store(tmp_path: Path, clock: FakeClock) -> AsyncIterator[EmbeddedStore]:
    store = await opened(tmp_path, clock, options=SMALL_SEGMENTS)
    yield store
    async with asyncio.timeout(SECONDS_MAX):
        await store.close()


async def test_queue_that_could_not_be_deleted_is_there_with_its_messages(store: EmbeddedStore) -> None:
    await push(store, "a")
    async with asyncio.timeout(SECONDS_MAX):
        with commits_fail(store), pytest.raises(StoreUnavailable):
            await store.delete_queue("orders")
        await push(store, "b")
        assert ids(await take(store)) == ["a", "b"]
        assert await store.delete_queue("orders")
        assert await store.queues() == []


async def test_queue_that_could_not_be_made_leaves_nothing_to_the_next_one(
    store: EmbeddedStore, tmp_path: Path, clock: FakeClock
) -> None:
    await push(store, "a", queue="first")
    with commits_fail(store), pytest.raises(StoreUnavailable):
        await push(store, "secret", queue="lost", partition="p")
    await configure(store, QueueOptions(), queue="other")
    assert await store.read("other", 1, 10) == []
    assert [status.queue.name for status in await store.queues()] == ["first", "other"]
    await push(store, "mine", queue="other")
    await store.close()
    again = await opened(tmp_path, clock, options=SMALL_SEGMENTS)
    assert ids(await take(again, queue="other", partitions=5)) == ["mine"]
    await again.close()


async def test_log_of_a_queue_that_was_never_committed_is_not_taken_by_another(
    tmp_path: Path, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    """As a kill leaves it between the sync of the log and the commit of the queue."""
    store = await opened(tmp_path, clock, options=SMALL_SEGMENTS)
    await push(store, "a", queue="first")
    await store.close()
    (tmp_path / "queues" / "1").rename(tmp_path / "queues" / "2")
    (tmp_path / "queues" / "2").rename(tmp_path / "queues" / "7")
    (tmp_path / "store.sqlite").unlink()
    store = await opened(tmp_path, clock, options=SMALL_SEGMENTS)
    assert "logs of no queue that the database knows: 7" in caplog.text
    await push(store, "b", queue="second")
    assert ids(await take(store, queue="second")) == ["b"]
    assert (tmp_path / "queues" / "7").is_dir()
    await store.close()


async def filled(store: Store, clock: FakeClock) -> None:
    """Many old messages over several segments, and one that is kept."""
    await configure(store, QueueOptions(retention_seconds=10))
    chance = random.Random(1)
    for start in range(0, 1000, 100):
        await store.push([item(str(n), payload=chance.randbytes(1000)) for n in range(start, start + 100)])
    clock.advance(100)
    await push(store, "new")


async def test_retention_that_could_not_be_committed_removes_nothing(store: EmbeddedStore, clock: FakeClock) -> None:
    await filled(store, clock)
    with commits_fail(store), pytest.raises(StoreUnavailable):
        await store.apply_retention()
    assert len(await store.read("orders", 1, 10_000)) == 1001
    assert await store.apply_retention() == 1000
    assert ids(await take(store)) == ["new"]
    assert await store.groups()


async def test_segments_go_only_after_the_commit_that_makes_them_useless(
    store: EmbeddedStore, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    await filled(store, clock)
    log, database = store._engine.queues.by_name["orders"].log, store._engine.database
    was_open = []

    def truncate(seq: int) -> None:
        was_open.append(database._connection.in_transaction)

    monkeypatch.setattr(log, "truncate_before", truncate)
    assert await store.apply_retention() == 1000
    assert was_open == [False]


async def test_segments_that_are_gone_cost_their_messages_and_nothing_else(
    tmp_path: Path, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    store = await opened(tmp_path, clock, options=SMALL_SEGMENTS)
    await filled(store, clock)
    await finish(store, await take(store, 1))
    store._engine.queues.by_name["orders"].log.truncate_before(900)
    await store.close()
    store = await opened(tmp_path, clock, options=SMALL_SEGMENTS)
    assert "are not in the log any more" in caplog.text
    [first, *_] = found = await store.read("orders", 1, 10_000)
    assert 1 < first.seq <= 900
    assert ids(await take(store, 10_000)) == ids(found)
    [status] = await store.queues()
    assert (status.messages, status.pushed) == (len(found), 1001)
    assert (await store.groups())[0].lag_messages == len(found)
    await store.close()


async def test_store_that_is_being_closed_refuses_what_comes_too_late(tmp_path: Path, clock: FakeClock) -> None:
    store = await opened(tmp_path, clock, options=SMALL_SEGMENTS)
    await push(store, "a")
    closing = asyncio.create_task(store.close())

    async def push_for_ever() -> None:
        while True:
            await store.push([run_of_one("orders", "p", b"1", "b")])
            await asyncio.sleep(0)

    with pytest.raises(ForebayError):
        await asyncio.wait_for(push_for_ever(), SECONDS_MAX)
    await closing
