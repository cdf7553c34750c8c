"""Admin actions are noted: which key, what, from where, with which outcome; and nothing else is."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from fixtures.keyed_app import KeyedApp
from forebay.errors import StoreUnavailable
from forebay.testing.memory_store import MemoryStore

pytestmark = pytest.mark.asyncio


async def actions(api: KeyedApp, key: str = "", query: str = "") -> list[dict[str, Any]]:
    told = await api.send("GET", f"/api/v1/audit-log{query}", key=key)
    assert told.status == 200, told
    return list(told.json["actions"])


async def test_admin_action_is_noted_with_its_key(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "forebay.api")
    api = KeyedApp()
    key = await api.make("root", "admin")
    await api.send("DELETE", "/api/v1/resources/queues/orders", key=key, address="10.0.0.7")
    (noted,) = await actions(api, key)
    assert noted.pop("keyId")
    assert noted.pop("number")
    assert noted == {
        "at": "2026-01-01T00:00:00.000000Z",
        "keyName": "root",
        "method": "DELETE",
        "route": "/api/v1/resources/queues/{queue}",
        "subject": "orders",
        "address": "10.0.0.7",
        "status": 200,
    }
    (line,) = [record for record in caplog.records if getattr(record, "action", "") == "admin"]
    assert "DELETE /api/v1/resources/queues/{queue} of 'orders': 200, by root" in line.getMessage()


async def test_without_keys_that_is_said() -> None:
    api = KeyedApp()
    await api.send("POST", "/api/v1/system/maintenance/pop", {"enabled": True})
    (noted,) = await actions(api)
    assert (noted["keyId"], noted["keyName"], noted["subject"]) == (None, "no keys", "pop maintenance on")


async def test_what_is_no_admin_action_is_not_noted() -> None:
    api = KeyedApp()
    key = await api.make("root", "admin")
    await api.send("POST", "/api/v1/push", {"items": [{"queue": "q", "payload": 1}]}, key=key)
    await api.send("GET", "/api/v1/pop/queue/q", key=key)
    await api.send("GET", "/api/v1/keys", key=key)
    assert await actions(api, key) == []


async def test_refused_action_does_not_fill_the_log_and_a_failed_one_is_there() -> None:
    api = KeyedApp()
    key = await api.make("root", "admin")
    reader = await api.make("reader", "read")
    await api.send("DELETE", "/api/v1/resources/queues/orders", key=reader)
    await api.send("DELETE", "/api/v1/resources/queues/orders", key="wrong")
    await api.send("DELETE", "/api/v1/resources/queues/orders")
    await api.send("DELETE", "/api/v1/queues/nowhere/clear", key=key)
    assert [(one["route"], one["status"]) for one in await actions(api, key)] == [("/api/v1/queues/{queue}/clear", 404)]


async def test_changes_of_keys_are_noted_and_no_key_is_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "forebay")
    api = KeyedApp()
    made = (await api.send("POST", "/api/v1/keys", {"name": "root", "scopes": ["admin"]})).json
    key = made["key"]
    second = (await api.send("POST", "/api/v1/keys", {"name": "second", "scopes": ["read"]}, key=key)).json
    await api.send("POST", f"/api/v1/keys/{second['info']['id']}/rotate", key=key)
    await api.send("DELETE", f"/api/v1/keys/{second['info']['id']}", key=key)
    found = await actions(api, key)
    assert [(one["method"], one["keyName"]) for one in found] == [
        ("DELETE", "root"),
        ("POST", "root"),
        ("POST", "root"),
        ("POST", "no keys"),
    ]
    assert found[0]["subject"] == f"{second['info']['id']} (second)"
    assert key not in caplog.text + str(found)


async def test_every_seek_is_noted_with_its_target() -> None:
    api = KeyedApp()
    key = await api.make("root", "admin")
    await api.send("POST", "/api/v1/push", {"items": [{"queue": "orders", "payload": 1}]}, key=key)
    path = "/api/v1/consumer-groups/billing/queues/orders"
    for body in ({"toEnd": True}, {"seq": 1}, {"timestamp": "2026-01-01T00:00:00Z"}):
        assert (await api.send("POST", f"{path}/seek", body, key=key)).status == 200
    assert (await api.send("POST", f"{path}/partitions/Default/seek", None, key=key)).status == 200
    assert [one["subject"] for one in await actions(api, key)] == [
        "billing/orders/Default to the end",
        "billing/orders to 2026-01-01T00:00:00Z",
        "billing/orders to seq 1",
        "billing/orders to the end",
    ]


async def test_group_that_a_stream_moves_with_every_batch_is_noted_once_in_ten_minutes() -> None:
    api = KeyedApp()
    key = await api.make("root", "admin")
    await api.send("POST", "/api/v1/push", {"items": [{"queue": "orders", "payload": 1}]}, key=key)

    async def seek(group: str) -> int:
        path = f"/api/v1/consumer-groups/{group}/queues/orders/seek"
        return (await api.send("POST", path, {"seq": 1, "follow": True}, key=key)).status

    assert [await seek("spark") for _ in range(3)] == [200] * 3
    await seek("another")
    assert [one["subject"] for one in await actions(api, key)] == ["another/orders", "spark/orders"]
    api.clock.advance(600)
    await seek("spark")
    assert [one["subject"] for one in await actions(api, key)] == ["spark/orders", "another/orders", "spark/orders"]


async def test_log_is_read_page_by_page_and_by_key() -> None:
    api = KeyedApp()
    key = await api.make("root", "admin")
    for number in range(5):
        await api.send("DELETE", f"/api/v1/resources/queues/q{number}", key=key)
    first = (await api.send("GET", "/api/v1/audit-log?limit=3", key=key)).json
    second = (await api.send("GET", f"/api/v1/audit-log?limit=3&before={first['next']}", key=key)).json
    assert [one["subject"] for one in first["actions"] + second["actions"]] == ["q4", "q3", "q2", "q1", "q0"]
    assert second["next"] is None
    own = first["actions"][0]["keyId"]
    assert len(await actions(api, key, f"?key={own}")) == 5
    assert await actions(api, key, "?key=another") == []


class ForgetfulStore(MemoryStore):
    """Does what it is asked for, but keeps no notes of it."""

    async def together(self, begin: Any, *, has_stages: bool = False) -> Any:
        raise StoreUnavailable("away")


async def test_action_that_cannot_be_noted_is_done_and_said_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "forebay.api")
    api = KeyedApp(store=ForgetfulStore())
    assert (await api.send("DELETE", "/api/v1/resources/queues/orders")).status == 200
    lines = [record for record in caplog.records if getattr(record, "action", "") == "admin"]
    assert [line.levelname for line in lines] == ["INFO", "WARNING"]
