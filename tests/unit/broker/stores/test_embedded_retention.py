"""Retention of the embedded store: one walk through the log for all partitions, in pieces that let others in."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from fixtures.embedded_stores import opened
from fixtures.store_steps import configure, finish, ids, item, push, take
from forebay.broker.stores.embedded import EmbeddedStore, retention
from forebay.broker.stores.embedded.limits import EmbeddedLimits
from forebay.broker.stores.embedded.records import StoredRecord
from forebay.model.queue import QueueOptions
from forebay.testing.fake_clock import FakeClock

pytestmark = pytest.mark.asyncio
PUSHES = 20
PER_PUSH = 40


@pytest_asyncio.fixture
async def store(tmp_path: Path, clock: FakeClock, limits: EmbeddedLimits) -> AsyncIterator[EmbeddedStore]:
    """With messages in as many partitions as there are in a push, all of them too old, and some that are not."""
    store = await opened(tmp_path, clock, limits=limits)
    await configure(store, QueueOptions(retention_seconds=10))
    for number in range(PUSHES):
        await store.push([item(f"{number}-{n}", f"p{n}") for n in range(PER_PUSH)])
    clock.advance(100)
    await store.push([item(f"new {n}", f"p{n}") for n in range(PER_PUSH)])
    yield store
    await store.close()


@pytest.mark.parametrize("limits", [EmbeddedLimits(walked_messages_max=1)])
async def test_pieces_remove_the_same_and_others_get_their_turn_between_them(store: EmbeddedStore) -> None:
    removing = asyncio.ensure_future(store.apply_retention())
    for n in range(3):
        await push(store, f"other {n}", queue="others")
    assert not removing.done()
    assert await removing == PUSHES * PER_PUSH
    [orders] = [status for status in await store.queues() if status.queue.name == "orders"]
    assert (orders.messages, orders.pushed) == (PER_PUSH, (PUSHES + 1) * PER_PUSH)
    assert orders.size_bytes == sum(len(message.payload) for message in await store.read("orders", 1, 1000))
    popped = await take(store, 1000, partitions=PER_PUSH)
    assert sorted(ids(popped)) == sorted(f"new {n}" for n in range(PER_PUSH))
    assert await store.apply_retention() == 0


async def test_a_record_is_read_once_however_many_partitions_it_has(
    store: EmbeddedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[int] = []

    class Counted(StoredRecord):
        def __init__(self, plain: Any) -> None:
            made.append(plain.first_seq)
            super().__init__(plain)

    monkeypatch.setattr(retention, "StoredRecord", Counted)
    monkeypatch.setattr(store._engine._cache, "get", _no_single_records)
    assert await store.apply_retention() == PUSHES * PER_PUSH
    assert len(made) == len(set(made)) <= PUSHES + 1


async def test_retention_of_what_is_finished_reads_no_backlog(
    store: EmbeddedStore, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    await configure(store, QueueOptions(completed_retention_seconds=10))
    await take(store, 1, group="slow")
    read_from: list[int] = []
    log = store._engine.queues.by_name["orders"].log
    read_records = log.read_records

    def noted(from_seq: int, to_seq: int | None = None, **more: Any) -> Iterator[Any]:
        read_from.append(from_seq)
        return read_records(from_seq, to_seq, **more)

    monkeypatch.setattr(log, "read_records", noted)
    assert await store.apply_retention() == 0
    assert read_from == []
    # The only one that is finished by every group is at the end of the queue.
    await store.push([item("last", "by itself")])
    await finish(store, await take(store, group="slow", partition="by itself"), group="slow")
    clock.advance(11)
    assert await store.apply_retention() == 1
    assert set(read_from) == {(PUSHES + 1) * PER_PUSH + 1}


def _no_single_records(*_: Any) -> Iterator[None]:
    raise AssertionError("a record was read for one partition")
