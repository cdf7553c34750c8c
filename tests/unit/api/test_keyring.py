"""Which keys are in force: of the store and of a file, as they change, expire, and while the store is away."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest

from fixtures.keyed_app import KeyedApp
from forebay.access import keys
from forebay.access.digests import new_key
from forebay.access.values import NewKey
from forebay.api.keys_file import KeysFile
from forebay.broker.store import Store
from forebay.errors import StoreUnavailable
from forebay.testing.fake_clock import FakeClock
from forebay.testing.memory_store import MemoryStore

pytestmark = pytest.mark.asyncio

QUEUES = "/api/v1/resources/queues"


async def status(api: KeyedApp, key: str = "") -> int:
    return (await api.send("GET", QUEUES, key=key)).status


def keys_file(folder: Path, scope: str) -> tuple[KeysFile, str]:
    text, digest = new_key()
    path = folder / "keys.json"
    path.write_text(json.dumps({"keys": [{"name": "from a file", "sha256": digest, "scope": scope}]}))
    return KeysFile(path), text


async def test_first_key_puts_keys_in_force() -> None:
    api = KeyedApp()
    assert await status(api) == 200
    key = await api.make("root", "admin")
    assert (await status(api), await status(api, key), await status(api, key + "x")) == (401, 200, 401)


async def test_change_counts_on_every_server_of_a_store_when_it_follows() -> None:
    first = KeyedApp()
    second = KeyedApp(first.clock, first.store)
    key, info = await first.made(NewKey("root", ("admin",)))
    assert await status(second) == 200
    await second.service.keyring.follow()
    assert (await status(second), await status(second, key)) == (401, 200)
    await first.make("another", "admin")
    assert (await first.send("DELETE", f"/api/v1/keys/{info.key_id}", key=key)).status == 200
    assert await status(first, key) == 401
    assert await status(second, key) == 200
    await second.service.keyring.follow()
    assert await status(second, key) == 401


async def test_key_that_a_head_came_with_before_is_judged_anew_when_keys_change() -> None:
    api = KeyedApp()
    root = await api.make("root", "admin")
    key, info = await api.made(NewKey("reader", ("read",)))
    head = ((b"x-api-key", key.encode()),)
    for _ in range(2):
        assert (await api.send_head("GET", QUEUES.encode(), b"", head)).status == 200
    await api.send("DELETE", f"/api/v1/keys/{info.key_id}", key=root)
    assert (await api.send_head("GET", QUEUES.encode(), b"", head)).status == 401


async def test_key_ends_at_its_time_without_the_store() -> None:
    api = KeyedApp()
    await api.make("root", "admin")
    key = await api.make("for a minute", "read", seconds=60.0)
    api.clock.advance(59)
    api.service.keyring.follow_here()
    assert await status(api, key) == 200
    api.clock.advance(1)
    api.service.keyring.follow_here()
    assert await status(api, key) == 401


async def test_old_text_of_a_rotated_key_ends_with_the_grace_time() -> None:
    api = KeyedApp()
    key, info = await api.made(NewKey("root", ("admin",)))
    told = await api.send("POST", f"/api/v1/keys/{info.key_id}/rotate", {"graceSeconds": 60}, key=key)
    fresh = told.json["key"]
    assert told.headers["cache-control"] == "no-store"
    assert (await status(api, key), await status(api, fresh)) == (200, 200)
    api.clock.advance(60)
    api.service.keyring.follow_here()
    assert (await status(api, key), await status(api, fresh)) == (401, 200)


async def test_store_whose_keys_have_all_ended_is_closed_and_not_open() -> None:
    api = KeyedApp()
    key = await api.make("root", "admin", seconds=60.0)
    api.clock.advance(60)
    api.service.keyring.follow_here()
    assert (await status(api, key), await status(api)) == (401, 401)
    await api.store.together(keys.forget_all)
    await api.service.keyring.follow()
    assert await status(api) == 200


async def test_server_that_others_can_reach_never_serves_without_a_key() -> None:
    api = KeyedApp(is_key_required=True)
    assert await status(api) == 401
    key = await api.make("root", "admin")
    assert await status(api, key) == 200
    await api.store.together(keys.forget_all)
    await api.service.keyring.follow()
    assert await status(api) == 401


async def test_keys_of_a_file_and_of_the_store_count_beside_each_other(tmp_path: Path) -> None:
    file, from_file = keys_file(tmp_path, "admin")
    api = KeyedApp(keys=file)
    assert (await status(api), await status(api, from_file)) == (401, 200)
    made = await api.send("POST", "/api/v1/keys", {"name": "reader", "scopes": ["read"]}, key=from_file)
    assert made.status == 201, "the file has an admin key, so the first of the store need not be one"
    assert (await status(api, made.json["key"]), await status(api, from_file)) == (200, 200)
    file.path.write_text("keys: [")
    api.service.keyring.follow_here()
    assert await status(api, from_file) == 200


@pytest.mark.parametrize(
    ("scope", "statuses"),
    [
        ("read", (200, 403, 403, 403)),
        ("write", (200, 201, 204, 403)),
        ("consume", (403, 403, 204, 403)),
        ("admin", (200, 201, 204, 200)),
    ],
)
async def test_words_of_a_keys_file_mean_what_they_meant(tmp_path: Path, scope: str, statuses: tuple[int, ...]) -> None:
    file, key = keys_file(tmp_path, scope)
    api = KeyedApp(keys=file)
    found = [
        (await api.send("GET", QUEUES, key=key)).status,
        (await api.send("POST", "/api/v1/push", {"items": []}, key=key)).status,
        (await api.send("GET", "/api/v1/pop/queue/q", key=key)).status,
        (await api.send("DELETE", f"{QUEUES}/q", key=key)).status,
    ]
    assert tuple(found) == statuses


async def test_use_is_noted_once_a_minute_and_when_it_is_asked_for() -> None:
    api = KeyedApp()
    key = await api.make("root", "admin")
    await api.make("unused", "read")

    async def uses() -> dict[str, int | None]:
        return {found.name: found.used_us for found in (await api.store.look(keys.read)).keys}

    await status(api, key)
    await api.service.keyring.follow()
    assert await uses() == {"root": None, "unused": None}
    api.clock.advance(60)
    await api.service.keyring.follow()
    assert await uses() == {"root": api.clock.now_us(), "unused": None}
    api.clock.advance(1)
    shown = (await api.send("GET", "/api/v1/keys", key=key)).json["keys"]
    assert {found["name"]: found["lastUsedAt"] is not None for found in shown} == {"root": True, "unused": False}
    assert (await uses())["root"] == api.clock.now_us()


class AwayStore(MemoryStore):
    """A store that does not answer."""

    is_away = True

    async def look(self, begin):  # type: ignore[no-untyped-def]
        if self.is_away:
            raise StoreUnavailable("away")
        return await super().look(begin)


async def away(clock: FakeClock) -> Store:
    store = AwayStore(clock)
    await store.together(partial(keys.create, NewKey("root", ("admin",)), "d"))
    return store


async def test_server_that_starts_without_its_store_knows_the_keys_of_before(tmp_path: Path) -> None:
    before = KeyedApp(folder=tmp_path)
    key = await before.make("root", "admin")
    assert (tmp_path / "known-keys.json").stat().st_mode & 0o777 == 0o600
    assert key not in (tmp_path / "known-keys.json").read_text()
    store = AwayStore(before.clock)
    after = KeyedApp(before.clock, store, tmp_path)
    assert (await status(after), await status(after, key)) == (401, 200)
    store.is_away = False  # and it has no keys: it is another one
    await after.service.keyring.follow()
    assert await status(after) == 200
    assert not (tmp_path / "known-keys.json").exists()


async def test_known_keys_that_cannot_be_read_leave_the_server_closed(tmp_path: Path) -> None:
    (tmp_path / "known-keys.json").write_text("{")
    api = KeyedApp(store=AwayStore(FakeClock()), folder=tmp_path)
    assert await status(api) == 401


async def test_store_is_not_served_before_its_keys_were_read() -> None:
    clock = FakeClock()
    store = await away(clock)
    api = KeyedApp(clock, store)
    await api.service.start()
    assert await status(api) == 503
    store.is_away = False  # type: ignore[attr-defined]
    await api.service.keyring.follow()
    assert await status(api) == 401
    await api.service.stop()


async def test_host_is_free_while_keys_are_in_force() -> None:
    from forebay.api.browsers import browsers_for

    api = KeyedApp(
        browsers=browsers_for("127.0.0.1", "", has_keys=False),
        browsers_with_keys=browsers_for("127.0.0.1", "", has_keys=True),
    )
    assert (await api.send("GET", QUEUES, host="queue.example.com")).status == 403
    key = await api.make("root", "admin")
    assert (await api.send("GET", QUEUES, key=key, host="queue.example.com")).status == 200
