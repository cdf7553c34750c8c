"""Sessions on every store: they end at their time, at sign-out, and with their key."""

from __future__ import annotations

from functools import partial

import pytest

from forebay.access import keys, sessions
from forebay.access.values import NewKey, Session
from forebay.broker.store import Store
from forebay.testing.fake_clock import FakeClock

pytestmark = pytest.mark.asyncio


async def begin(store: Store, session: str, key: str = "k", seconds: float = 60.0) -> Session:
    return await store.together(partial(sessions.begin, session, key, seconds))


async def found(store: Store, session: str) -> Session | None:
    return await store.look(partial(sessions.find, session))


async def test_session_lasts_until_its_time(store: Store, clock: FakeClock) -> None:
    begun = await begin(store, "s")
    assert begun == ("k", clock.now_us() + 60_000_000)
    clock.advance(59.9)
    assert await found(store, "s") == begun
    assert await found(store, "another") is None
    clock.advance(0.1)
    assert await found(store, "s") is None


async def test_session_that_is_signed_out_is_gone_and_servers_notice(store: Store) -> None:
    await begin(store, "s")
    await begin(store, "t")
    before = await store.look(keys.version)
    assert await store.together(partial(sessions.end, "s"))
    assert not await store.together(partial(sessions.end, "s"))
    assert await found(store, "s") is None
    assert await found(store, "t") is not None
    assert await store.look(keys.version) == before + 1


async def test_session_ends_with_its_key(store: Store) -> None:
    await store.together(partial(keys.create, NewKey("root", ("admin",)), "d0"))
    key = await store.together(partial(keys.create, NewKey("a", ("read",)), "d1"))
    await begin(store, "old text", "d1")
    await store.together(partial(keys.rotate, key.key_id, "d2", 60.0))
    await begin(store, "new text", "d2")
    await begin(store, "of another", "d0")
    await store.together(partial(keys.revoke, key.key_id))
    assert [await found(store, name) for name in ("old text", "new text")] == [None, None]
    assert await found(store, "of another") is not None


async def test_oldest_sessions_end_at_the_limit(store: Store, clock: FakeClock) -> None:
    for number in range(5):
        clock.advance(1)
        await store.together(partial(sessions.begin, f"s{number}", "k", 60.0, sessions_max=3))
    assert [number for number in range(5) if await found(store, f"s{number}") is not None] == [2, 3, 4]
