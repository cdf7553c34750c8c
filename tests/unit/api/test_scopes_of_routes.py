"""Every route of the description, with a key of every scope: what is not allowed is refused, and nothing else is."""

from __future__ import annotations

import json
import re

import pytest
from msgspec.structs import replace

from fixtures.keyed_app import SCOPES, KeyedApp, with_scopes
from fixtures.scripted_dispatcher import DEFINITION, STATUS
from forebay.access.scopes import FILE_BITS, bits_of
from forebay.api.routes import ALL_ROUTES
from forebay.api.routing import Route
from forebay.dispatch.views import FlowStatus

pytestmark = pytest.mark.asyncio


def path_of(route: Route) -> str:
    """Somewhere that leads nowhere, so that what is allowed does nothing."""
    return re.sub(r"\{\w+\}", "nowhere", route.path)


async def status_of(api: KeyedApp, route: Route, key: str) -> tuple[int, str]:
    told = await api.send(route.method, path_of(route), {} if route.body is not None else None, key=key)
    return told.status, told.json.get("code", "") if told.status >= 400 else ""


async def test_every_route_is_open_to_its_scopes_and_to_no_other() -> None:
    api, keys = await with_scopes()
    for route in ALL_ROUTES:
        for scope in SCOPES:
            status, code = await status_of(api, route, keys[scope])
            is_allowed = not route.needed or bool(bits_of([scope]) & route.needed)
            assert (code == "forbidden") is not is_allowed, f"{route.method} {route.path} with {scope}: {status} {code}"
            assert status != 401
            assert is_allowed or status == 403


async def test_no_route_but_the_open_ones_is_served_without_a_key_or_with_a_wrong_one() -> None:
    api, _ = await with_scopes()
    for number, route in enumerate(ALL_ROUTES):
        for key in ("", "forebay_wrong"):
            told = await api.send(route.method, path_of(route), None, key=key, address=f"10.0.{number}.1")
            assert (told.status == 401) is bool(route.needed) or route.path == "/api/v1/session", (
                f"{route.path}: {told}"
            )


async def test_every_scope_is_needed_for_something_and_described() -> None:
    described = {scope for route in ALL_ROUTES for scope in route.scopes}
    assert described == set(SCOPES)
    assert all(route.scopes for route in ALL_ROUTES if route.needed)


async def test_write_of_a_keys_file_does_all_but_what_was_always_admin() -> None:
    refused = {
        (route.method, route.path) for route in ALL_ROUTES if route.needed and not FILE_BITS["write"] & route.needed
    }
    assert ("POST", "/api/v1/consumer-groups/{group}/queues/{queue}/seek") not in refused
    assert ("GET", "/api/v1/pop/queue/{queue}") not in refused
    assert ("DELETE", "/api/v1/messages/{partitionId}/{transactionId}") not in refused
    assert ("DELETE", "/api/v1/resources/queues/{queue}") in refused
    assert ("POST", "/api/v1/keys") in refused


async def test_transaction_needs_the_scope_of_each_of_its_parts() -> None:
    api, keys = await with_scopes()
    push = {"type": "push", "items": [{"queue": "q", "payload": 1}]}
    ack = {"type": "ack", "transactionId": "t", "partitionId": "1-1"}
    expected = {"read": (403, 403), "write": (200, 403), "consume": (403, 200), "admin": (200, 200)}
    for scope, statuses in expected.items():
        found = [
            (await api.send("POST", "/api/v1/transaction", {"operations": [part]}, key=keys[scope])).status
            for part in (push, ack)
        ]
        assert tuple(found) == statuses, scope
    both = {"operations": [push, ack]}
    assert [(await api.send("POST", "/api/v1/transaction", both, key=keys[s])).status for s in expected] == [
        403,
        403,
        403,
        200,
    ]


async def test_other_options_for_a_queue_that_is_there_need_admin_and_are_noted() -> None:
    api, keys = await with_scopes()
    made = {"queue": "orders", "options": {"leaseTime": 60}}
    other = {"queue": "orders", "options": {"leaseTime": 90}}
    for _ in range(2):
        assert (await api.send("POST", "/api/v1/configure", made, key=keys["write"])).status == 200
    assert (await api.send("POST", "/api/v1/configure", other, key=keys["write"])).status == 403
    assert (await api.send("POST", "/api/v1/configure", other, key=keys["admin"])).status == 200
    told = (await api.send("GET", "/api/v1/audit-log", key=keys["admin"])).json["actions"]
    assert [(one["route"], one["subject"], one["keyName"]) for one in told] == [
        ("/api/v1/configure", "orders", "the admin key")
    ]


async def test_rows_that_a_lease_commits_need_write() -> None:
    api, keys = await with_scopes()
    body = {"outcomes": [], "producer": "p", "epoch": "1", "stages": ["s"]}
    path = "/api/v1/dispatch/leases/l/complete"
    assert (await api.send("POST", path, body, key=keys["consume"])).status == 403
    assert (await api.send("POST", path, {"outcomes": []}, key=keys["consume"])).status == 200
    both = await api.make("both", "write", "consume")
    assert (await api.send("POST", path, body, key=both)).status == 200


async def test_dead_letters_for_every_group_are_new_messages() -> None:
    api, keys = await with_scopes()
    assert (await api.send("POST", "/api/v1/dlq/replay", {"queue": "q"}, key=keys["consume"])).status == 200
    everywhere = {"queue": "q", "toAllGroups": True}
    assert (await api.send("POST", "/api/v1/dlq/replay", everywhere, key=keys["consume"])).status == 403


async def test_passwords_of_a_flow_are_shown_to_keys_that_may_work_on_it_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    api, keys = await with_scopes()
    options = {"url": "jdbc:postgresql://me:hidden@db/x", "password": "hidden", "fetchsize": "10"}
    spec = {
        "tables": {"users": {"format": "jdbc", "options": options}},
        "actions": [
            {"name": "hide", "params": {"columns": ["user"], "salt": "hidden"}},
            {"name": "n", "sql": "SELECT 1"},
        ],
        "errorQueue": "set-aside",
    }
    status = STATUS._replace(definition=replace(DEFINITION, spec=spec))

    async def flow(name: str) -> FlowStatus:
        return status

    async def flows() -> list[FlowStatus]:
        return [status]

    monkeypatch.setattr(api.dispatcher, "flow", flow)
    monkeypatch.setattr(api.dispatcher, "flows", flows)
    for path in ("/api/v1/dispatch/flows/orders", "/api/v1/dispatch/flows"):
        shown = {scope: (await api.send("GET", path, key=keys[scope])) for scope in ("read", "admin")}
        assert {scope: told.status for scope, told in shown.items()} == {"read": 200, "admin": 200}
        assert b"hidden" not in shown["read"].body
        assert all(word in shown["read"].body for word in (b"SELECT 1", b"set-aside", b"fetchsize", b"me:***@db"))
        assert json.dumps(spec, separators=(",", ":")).encode() in shown["admin"].body
