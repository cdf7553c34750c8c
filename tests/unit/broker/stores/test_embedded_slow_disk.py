"""On a disk whose syncs are slow, what needs many of them is done in turns: others go on in between."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path

import pytest
import pytest_asyncio

from fixtures.store_steps import finish, item, push, take, taken_ids
from forebay.broker.delivery import FAILED
from forebay.broker.overview import DeadLetterFilter
from forebay.broker.stores.embedded import EmbeddedStore
from forebay.broker.stores.embedded.store_thread import Work
from forebay.filesystem import RealFilesystem
from forebay.model.queue import QueueOptions
from forebay.testing.faulty_filesystem import FaultyFilesystem, Operation

pytestmark = [pytest.mark.asyncio, pytest.mark.slow]

SYNC_SECONDS = 0.003
CYCLE_SECONDS_MAX = 0.1
"""What no request may hold up another for."""
QUEUES = 120


class SlowDisk:
    """A plan: each sync takes its time. It notes how much of it each cycle of the store's thread took."""

    def __init__(self) -> None:
        self.cycles: list[float] = []
        self._seconds = 0.0
        self.is_slow = False

    def __call__(self, operation: Operation) -> None:
        if self.is_slow and operation.name in ("sync", "sync_directory"):
            time.sleep(SYNC_SECONDS)
            self._seconds += SYNC_SECONDS

    def watch(self, store: EmbeddedStore) -> None:
        line = store._line
        assert line is not None
        inner = line._cycle

        def watched(work: Sequence[Work]) -> None:
            self._seconds = 0.0
            inner(work)
            self.cycles.append(self._seconds)

        line._cycle = watched


@pytest.fixture
def disk() -> SlowDisk:
    return SlowDisk()


@pytest_asyncio.fixture
async def store(tmp_path: Path, disk: SlowDisk) -> AsyncIterator[EmbeddedStore]:
    store = EmbeddedStore(tmp_path, filesystem=FaultyFilesystem(RealFilesystem(), disk))
    await store.open(lambda queue, count: None)
    disk.watch(store)
    await store.push([item("old", queue=f"old{n}") for n in range(QUEUES)])
    disk.cycles.clear()
    disk.is_slow = True
    yield store
    disk.is_slow = False
    await store.close()


async def replay(store: EmbeddedStore) -> object:
    for number in range(40):
        await store.configure(f"old{number}", QueueOptions(retry_limit=0), "", "")
        popped = await take(store, queue=f"old{number}")
        await finish(store, popped, FAILED)
    assert await store.replay_dead_letters(DeadLetterFilter()) == 40
    return None


LONG: dict[str, Callable[[EmbeddedStore], Awaitable[object]]] = {
    "a push to many new queues": lambda store: store.push([item("x", queue=f"new{n}") for n in range(20)]),
    "a push to some new queues": lambda store: store.push([item("x", queue=f"new{n}") for n in range(8)]),
    "a push to many queues": lambda store: store.push([item("x", queue=f"old{n}") for n in range(QUEUES)]),
    "a transaction over new queues": lambda store: store.transact([item("x", queue=f"new{n}") for n in range(12)], []),
    "a replay to many queues": replay,
    "many pushes to a new queue each": lambda store: asyncio.gather(
        *[push(store, "x", queue=f"n{n}") for n in range(20)]
    ),
}


@pytest.mark.parametrize("long", LONG.values(), ids=LONG)
async def test_no_cycle_waits_long_for_the_disk(
    store: EmbeddedStore, disk: SlowDisk, long: Callable[[EmbeddedStore], Awaitable[object]]
) -> None:
    await long(store)
    assert max(disk.cycles) <= CYCLE_SECONDS_MAX


async def test_pushes_beside_one_that_makes_hundreds_of_queues_do_not_wait_for_it(
    store: EmbeddedStore, disk: SlowDisk
) -> None:
    making = asyncio.ensure_future(store.push([item("x", queue=f"new{n}") for n in range(200)]))
    waits: list[float] = []
    while not making.done():
        before = len(disk.cycles)
        await push(store, f"beside{len(waits)}", queue="old0")
        # Of the disk alone: a busy processor is not what this is about.
        waits.append(sum(disk.cycles[before:]))
    assert len(waits) > 20
    assert statistics.median(waits) < CYCLE_SECONDS_MAX
    assert {one.status for one in await making} == {"queued"}
    assert await taken_ids(store, queue="new199") == ["x"]
