"""Dead letters of the embedded store: many of them keep nobody else waiting."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from fixtures.store_steps import configure, finish, ids, push, take
from forebay.broker.delivery import DEAD
from forebay.broker.overview import DeadLetterFilter
from forebay.broker.store import Store
from forebay.broker.stores.embedded import EmbeddedStore
from forebay.broker.stores.embedded.limits import EmbeddedLimits
from forebay.model.queue import QueueOptions
from forebay.testing.fake_clock import FakeClock

pytestmark = pytest.mark.asyncio
LETTERS = 400


@pytest.mark.parametrize(
    "work",
    [
        lambda store: store.replay_dead_letters(DeadLetterFilter()),
        lambda store: store.purge_dead_letters(DeadLetterFilter()),
    ],
    ids=["replay", "purge"],
)
@pytest.mark.parametrize("limits", [EmbeddedLimits(letters_max=4)])
async def test_others_get_their_turn_between_the_pieces(
    store: EmbeddedStore, work: Callable[[Store], Awaitable[int]]
) -> None:
    await push(store, *[f"m{n}" for n in range(LETTERS)])
    await finish(store, await take(store, LETTERS), DEAD)
    working = asyncio.ensure_future(work(store))
    for n in range(3):
        await push(store, f"other {n}", queue="others")
    assert not working.done()
    assert await working == LETTERS


@pytest.mark.parametrize("limits", [EmbeddedLimits(reach_messages=n, buried_messages_max=20) for n in (3, 7)])
async def test_messages_that_waited_too_long_are_buried_in_pieces_whatever_the_batch(
    store: EmbeddedStore, clock: FakeClock
) -> None:
    await configure(store, QueueOptions(max_wait_seconds=10))
    await push(store, *[f"m{n}" for n in range(LETTERS)])
    clock.advance(11)
    await push(store, "a", "b", "c")
    popping_now = asyncio.ensure_future(take(store, 1))
    for n in range(3):
        await push(store, f"other {n}", queue="others")
    assert not popping_now.done()
    popped = await popping_now
    assert ids(popped) == ["a"]
    _, total = await store.dead_letters(DeadLetterFilter(), 1, 0)
    assert total == LETTERS
    await finish(store, popped)
    assert ids(await take(store, 2)) == ["b", "c"]
