"""API keys on every store: made, rotated, revoked, expired, and known by their version."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest

from forebay.access import keys
from forebay.access.faults import KeyNameTaken, KeyRefused, LastAdminKey, UnknownKey
from forebay.access.values import KeyInfo, Keys, NewKey
from forebay.broker.store import Store
from forebay.testing.fake_clock import FakeClock

pytestmark = pytest.mark.asyncio

ADMIN = NewKey("root", ("admin",))


async def make(store: Store, wanted: NewKey, digest: str = "") -> KeyInfo:
    return await store.together(partial(keys.create, wanted, digest or f"digest of {wanted.name}"))


async def read(store: Store) -> Keys:
    return await store.look(keys.read)


async def test_store_without_keys_needs_none(store: Store) -> None:
    assert (await read(store))[:3] == (0, False, [])


async def test_key_is_kept_as_it_was_made(store: Store, clock: FakeClock) -> None:
    await make(store, ADMIN)
    wanted = NewKey("loader", ("consume", "write"), ("orders.*", 'it\'s "one"'), 60.0, "root")
    made = await make(store, wanted, "d2")
    now_us = clock.now_us()
    assert made[1:] == (
        "loader",
        "d2",
        "",
        0,
        ("write", "consume"),
        ("orders.*", 'it\'s "one"'),
        "root",
        now_us,
        now_us + 60_000_000,
        None,
        None,
    )
    found = await read(store)
    assert found.is_in_force
    assert {key.key_id for key in found.keys} >= {made.key_id}
    assert made in found.keys


async def test_every_change_raises_the_version(store: Store) -> None:
    seen = [await store.look(keys.version)]
    key = await make(store, ADMIN)
    seen.append(await store.look(keys.version))
    await store.together(partial(keys.rotate, key.key_id, "d2", 60.0))
    seen.append(await store.look(keys.version))
    other = await make(store, NewKey("other", ("read",)))
    await store.together(partial(keys.revoke, other.key_id))
    seen.append(await store.look(keys.version))
    assert seen == sorted(set(seen))


async def test_refused_change_leaves_the_version(store: Store) -> None:
    await make(store, ADMIN)
    before = await read(store)
    with pytest.raises(KeyNameTaken):
        await make(store, ADMIN, "another digest")
    assert await read(store) == before


@pytest.mark.parametrize("first", [NewKey("a", ("read", "write", "consume")), NewKey("a", ("admin",), ("orders.*",))])
async def test_first_key_has_to_be_able_to_make_others(store: Store, first: NewKey) -> None:
    with pytest.raises(KeyRefused, match="first key"):
        await make(store, first)
    assert not (await read(store)).is_in_force
    made = await store.together(partial(keys.create, first, "d", has_other_admin=True))
    assert made.name == "a"


async def test_rotated_key_has_its_old_text_for_the_grace_time_only(store: Store, clock: FakeClock) -> None:
    key = await make(store, ADMIN, "first")
    second = await store.together(partial(keys.rotate, key.key_id, "second", 60.0))
    assert (second.digest, second.previous_digest) == ("second", "first")
    assert second.previous_until_us == clock.now_us() + 60_000_000
    third = await store.together(partial(keys.rotate, key.key_id, "third", 0.0))
    assert (third.digest, third.previous_digest) == ("third", "second")
    assert third.previous_until_us == clock.now_us()


async def test_revoked_key_is_shown_and_its_name_is_free(store: Store, clock: FakeClock) -> None:
    await make(store, ADMIN)
    key = await make(store, NewKey("loader", ("write",)), "d1")
    revoked = await store.together(partial(keys.revoke, key.key_id))
    assert revoked.state_at(clock.now_us()) == "revoked"
    again = await make(store, NewKey("loader", ("write",)), "d2")
    assert again.key_id != key.key_id
    for change in (partial(keys.revoke, key.key_id), partial(keys.rotate, key.key_id, "d3", 1.0)):
        with pytest.raises(UnknownKey):
            await store.together(change)


async def test_last_admin_key_is_not_revoked(store: Store, clock: FakeClock) -> None:
    key = await make(store, ADMIN)
    await make(store, NewKey("of some queues", ("admin",), ("a",)))
    await make(store, NewKey("for a minute", ("admin",), (), 60.0))
    clock.advance(60)
    with pytest.raises(LastAdminKey):
        await store.together(partial(keys.revoke, key.key_id))
    await make(store, NewKey("second", ("admin",)))
    await store.together(partial(keys.revoke, key.key_id))


async def test_key_expires_at_its_time(store: Store, clock: FakeClock) -> None:
    key = await make(store, ADMIN._replace(lasts_seconds=60.0))
    clock.advance(59.999)
    assert key.state_at(clock.now_us()) == "active"
    clock.advance(0.001)
    assert key.state_at(clock.now_us()) == "expired"
    assert (await read(store)).is_in_force


async def test_use_is_noted_without_another_version(store: Store, clock: FakeClock) -> None:
    used, unused = await make(store, ADMIN), await make(store, NewKey("unused", ("read",)))
    before = await store.look(keys.version)
    clock.advance(5)
    await store.together(partial(keys.note_uses, [used.key_id, "nowhere"]))
    found = {key.key_id: key.used_us for key in (await read(store)).keys}
    assert found == {used.key_id: clock.now_us(), unused.key_id: None}
    assert await store.look(keys.version) == before


async def test_revoked_keys_are_forgotten_when_they_are_old(store: Store, clock: FakeClock) -> None:
    await make(store, ADMIN)
    key = await make(store, NewKey("loader", ("write",)))
    await store.together(partial(keys.revoke, key.key_id))
    assert await store.together(partial(keys.forget_revoked, clock.now_us())) == 0
    assert await store.together(partial(keys.forget_revoked, clock.now_us() + 1)) == 1
    assert [found.name for found in (await read(store)).keys] == ["root"]


async def test_forgetting_all_opens_the_store_again(store: Store) -> None:
    await make(store, ADMIN)
    assert await store.together(keys.forget_all) == 1
    found = await read(store)
    assert (found.is_in_force, list(found.keys)) == (False, [])


@pytest.mark.parametrize(
    ("wanted", "field"),
    [
        (ADMIN._replace(name=""), "name"),
        (ADMIN._replace(name="x" * 101), "name"),
        (ADMIN._replace(name="two\nlines"), "name"),
        (ADMIN._replace(scopes=()), "scopes"),
        (ADMIN._replace(scopes=("root",)), "scopes"),
        (ADMIN._replace(queues=("",)), "queues"),
        (ADMIN._replace(queues=("a\0",)), "queues"),
        (ADMIN._replace(queues=("a",) * 101), "queues"),
        (ADMIN._replace(lasts_seconds=-1.0), "expires"),
    ],
)
async def test_key_that_cannot_be_is_refused_by_field(store: Store, wanted: NewKey, field: str) -> None:
    with pytest.raises(KeyRefused) as refused:
        await make(store, wanted)
    assert refused.value.field == field


async def test_of_keys_of_one_name_that_are_made_together_one_is_kept(store: Store) -> None:
    await make(store, ADMIN)
    wanted = NewKey("loader", ("write",))
    found = await asyncio.gather(*[make(store, wanted, f"d{n}") for n in range(5)], return_exceptions=True)
    assert sum(isinstance(one, KeyInfo) for one in found) == 1
    assert sum(isinstance(one, KeyNameTaken) for one in found) == 4
