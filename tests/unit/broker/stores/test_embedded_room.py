"""A queue with a limit: what waits is counted only where it matters, and once for all pushes that came together."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from fixtures.store_steps import configure, finish, push, take
from forebay.broker.stores.embedded import EmbeddedStore
from forebay.broker.stores.embedded.queues import OpenQueue
from forebay.errors import QueueFull
from forebay.model.queue import QueueOptions

pytestmark = pytest.mark.asyncio


class Counting:
    def __init__(self, store: EmbeddedStore) -> None:
        self.pusher = store._engine._pusher
        self.inner = self.pusher._waiting
        self.calls = 0
        self.pusher._waiting = self

    def __call__(self, queue: OpenQueue) -> int:
        self.calls += 1
        return self.inner(queue)


@pytest_asyncio.fixture
async def store(tmp_path: Path) -> AsyncIterator[EmbeddedStore]:
    store = EmbeddedStore(tmp_path)
    await store.open(lambda queue, count: None)
    yield store
    await store.close()


async def test_pushes_below_the_limit_count_nothing_that_waits(store: EmbeddedStore) -> None:
    await configure(store, QueueOptions(max_size=100))
    await take(store)
    counting = Counting(store)
    for n in range(50):
        await push(store, f"m{n}", partition=str(n))
    assert counting.calls == 0


async def test_pushes_that_came_together_are_counted_once_and_get_no_more_than_there_is_room(
    store: EmbeddedStore,
) -> None:
    await configure(store, QueueOptions(max_size=20))
    await push(store, *[f"old {n}" for n in range(15)])
    await finish(store, await take(store, 10))
    counting = Counting(store)
    found = await asyncio.gather(*[push(store, f"new {n}") for n in range(30)], return_exceptions=True)
    assert [isinstance(one, QueueFull) for one in found] == [False] * 15 + [True] * 15
    assert counting.calls <= 2
