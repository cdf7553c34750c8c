"""Dead letters of the embedded store: many of them keep nobody else waiting."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from fixtures.store_steps import finish, push, take
from forebay.broker.delivery import DEAD
from forebay.broker.overview import DeadLetterFilter
from forebay.broker.store import Store
from forebay.broker.stores.embedded import letters
from forebay.broker.stores.embedded.store import EmbeddedStore

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
async def test_others_get_their_turn_between_the_pieces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, work: Callable[[Store], Awaitable[int]]
) -> None:
    monkeypatch.setattr(letters, "PIECE_LETTERS_MAX", 4)
    store = EmbeddedStore(tmp_path)
    await store.open(lambda queue, count: None)
    try:
        await push(store, *[f"m{n}" for n in range(LETTERS)])
        await finish(store, await take(store, LETTERS), DEAD)
        working = asyncio.ensure_future(work(store))
        for n in range(3):
            await push(store, f"other {n}", queue="others")
        assert not working.done()
        assert await working == LETTERS
    finally:
        await store.close()
