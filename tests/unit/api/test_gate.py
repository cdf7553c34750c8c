"""Wrong keys are limited; sessions stand for keys, and only for pages of this server."""

from __future__ import annotations

from functools import partial
from http.cookies import SimpleCookie

import pytest

from fixtures.keyed_app import KeyedApp, Told
from forebay.access import keys
from forebay.access.failed_attempts import WRONG_KEYS_MAX
from forebay.access.values import NewKey

pytestmark = pytest.mark.asyncio

QUEUES = "/api/v1/resources/queues"
SESSION = "/api/v1/session"
CLEAR = "/api/v1/queues/q/clear"


async def sign_in(api: KeyedApp, key: str, **more: str) -> tuple[Told, str]:
    """The answer, and the cookie as a browser sends it."""
    told = await api.send("POST", SESSION, {"key": key}, **more)
    assert told.status == 200, told
    found = SimpleCookie(told.headers["set-cookie"])["forebay_session"]
    return told, f"forebay_session={found.value}"


async def guess(api: KeyedApp, times: int, address: str = "10.0.0.1") -> list[int]:
    return [(await api.send("GET", QUEUES, key=f"guess {n}", address=address)).status for n in range(times)]


async def test_too_many_wrong_keys_are_429_and_a_right_one_too() -> None:
    api = KeyedApp()
    key = await api.make("root", "admin")
    assert await guess(api, WRONG_KEYS_MAX + 1) == [401] * WRONG_KEYS_MAX + [429]
    told = await api.send("GET", QUEUES, key=key)
    assert (told.status, told.headers["retry-after"], told.json["code"]) == (429, "60", "too_many_attempts")
    assert (await api.send("POST", SESSION, {"key": key})).status == 429
    assert (await api.send("GET", QUEUES, key=key, address="10.0.0.2")).status == 200
    api.clock.advance(60)
    assert (await api.send("GET", QUEUES, key=key)).status == 200


async def test_key_that_was_right_from_there_is_not_locked_out_by_others() -> None:
    api = KeyedApp()
    key = await api.make("root", "admin")
    assert (await api.send("GET", QUEUES, key=key)).status == 200
    await guess(api, WRONG_KEYS_MAX + 1)
    assert (await api.send("GET", QUEUES, key=key)).status == 200


async def test_head_that_is_known_from_elsewhere_is_no_way_around_the_limit() -> None:
    api = KeyedApp()
    key = await api.make("root", "admin")
    head = ((b"x-api-key", key.encode()),)
    assert (await api.send_head("GET", QUEUES.encode(), b"", head, address="10.0.0.2")).status == 200
    await guess(api, WRONG_KEYS_MAX)
    assert (await api.send_head("GET", QUEUES.encode(), b"", head, address="10.0.0.1")).status == 429
    assert (await api.send_head("GET", QUEUES.encode(), b"", head, address="10.0.0.2")).status == 200


async def test_request_without_a_key_is_no_attempt() -> None:
    api = KeyedApp()
    key = await api.make("root", "admin")
    for _ in range(WRONG_KEYS_MAX * 2):
        assert (await api.send("GET", QUEUES)).status == 401
    assert (await api.send("GET", QUEUES, key=key)).status == 200


async def test_session_says_whether_keys_are_in_force_and_which_key_it_is() -> None:
    api = KeyedApp()
    told = await api.send("GET", SESSION)
    assert told.json == {
        "keysInForce": False,
        "signedIn": True,
        "name": "no keys",
        "scopes": ["admin"],
        "queues": [],
        "expiresAt": None,
    }
    assert (await api.send("POST", SESSION, {"key": "any"})).status == 409
    await api.make("root", "admin")
    key = await api.make("shop", "read", "consume", queues=("orders.*",))
    assert (await api.send("GET", SESSION)).json["signedIn"] is False
    assert (await api.send("GET", SESSION, key="wrong")).json["signedIn"] is False
    shown = (await api.send("GET", SESSION, key=key)).json
    assert (shown["name"], shown["scopes"], shown["queues"]) == ("shop", ["read", "consume"], ["orders.*"])
    _, cookie = await sign_in(api, f" {key} ")
    shown = (await api.send("GET", SESSION, cookie=cookie)).json
    assert (shown["name"], shown["expiresAt"]) == ("shop", "2026-01-01T12:00:00.000000Z")


async def test_cookie_is_for_this_server_alone() -> None:
    api = KeyedApp()
    key = await api.make("root", "admin")
    told, _ = await sign_in(api, key)
    words = told.headers["set-cookie"].split("; ")
    assert words[1:] == ["Path=/", "Max-Age=43200", "HttpOnly", "SameSite=Strict"]
    assert told.headers["cache-control"] == "no-store"
    assert key not in told.headers["set-cookie"] + told.body.decode()
    behind, _ = await sign_in(api, key, x_forwarded_proto="https")
    assert behind.headers["set-cookie"].endswith("; Secure")


async def test_cookie_of_a_server_with_tls_is_secure() -> None:
    api = KeyedApp(is_tls=True)
    told, _ = await sign_in(api, await api.make("root", "admin"))
    assert told.headers["set-cookie"].endswith("; Secure")


async def test_wrong_key_does_not_sign_in() -> None:
    api = KeyedApp()
    await api.make("root", "admin")
    told = await api.send("POST", SESSION, {"key": "wrong"})
    assert (told.status, "set-cookie" in told.headers) == (401, False)


async def test_session_does_what_its_key_may_on_any_server_of_the_store() -> None:
    api = KeyedApp()
    await api.make("root", "admin")
    other = KeyedApp(api.clock, api.store)
    await other.service.keyring.follow()
    _, cookie = await sign_in(api, await api.make("reader", "read"))
    await other.service.keyring.follow()
    for server in (api, other):
        assert (await server.send("GET", QUEUES, cookie=f"a=b; {cookie}")).status == 200
        assert (await server.send("DELETE", CLEAR, cookie=cookie, x_forebay="1")).status == 403


async def test_request_that_changes_something_with_a_cookie_needs_our_header() -> None:
    api = KeyedApp()
    key = await api.make("root", "admin")
    _, cookie = await sign_in(api, key)
    body = {"items": [{"queue": "q", "payload": 1}]}
    for method, path in (("POST", "/api/v1/push"), ("GET", "/api/v1/pop/queue/q"), ("DELETE", SESSION)):
        told = await api.send(method, path, body if method == "POST" else None, cookie=cookie)
        assert (told.status, told.json["code"]) == (403, "foreign_page"), path
    assert (await api.send("POST", "/api/v1/push", body, cookie=cookie, x_forebay="1")).status == 201
    foreign = {"cookie": cookie, "x_forebay": "1", "sec_fetch_site": "cross-site"}
    assert (await api.send("POST", "/api/v1/push", body, **foreign)).status == 403
    assert (await api.send("POST", "/api/v1/push", body, key=key)).status == 201


async def test_page_of_another_site_cannot_sign_a_browser_in() -> None:
    api = KeyedApp()
    key = await api.make("root", "admin")
    told = await api.send("POST", SESSION, {"key": key}, sec_fetch_site="cross-site")
    assert (told.status, told.json["code"]) == (403, "foreign_page")


async def test_signing_out_ends_the_session_everywhere() -> None:
    api = KeyedApp()
    key = await api.make("root", "admin")
    other = KeyedApp(api.clock, api.store)
    await other.service.keyring.follow()
    _, cookie = await sign_in(api, key)
    assert (await other.send("GET", QUEUES, cookie=cookie)).status == 200
    told = await api.send("DELETE", SESSION, cookie=cookie, x_forebay="1")
    assert told.status == 200
    assert "Max-Age=0" in told.headers["set-cookie"]
    assert (await api.send("GET", QUEUES, cookie=cookie)).status == 401
    await other.service.keyring.follow()
    assert (await other.send("GET", QUEUES, cookie=cookie)).status == 401
    assert (await api.send("DELETE", SESSION)).status == 200


async def test_session_ends_at_its_time_and_with_its_key() -> None:
    api = KeyedApp(session_seconds=600.0)
    await api.make("root", "admin")
    key, info = await api.made(NewKey("reader", ("read",)))
    _, first = await sign_in(api, key)
    assert (await api.send("GET", QUEUES, cookie=first)).status == 200
    api.clock.advance(600)
    assert (await api.send("GET", QUEUES, cookie=first)).status == 401
    _, second = await sign_in(api, key)
    assert (await api.send("GET", QUEUES, cookie=second)).status == 200
    await api.store.together(partial(keys.revoke, info.key_id))
    await api.service.keyring.follow()
    assert (await api.send("GET", QUEUES, cookie=second)).status == 401


async def test_made_up_sessions_are_limited_like_wrong_keys() -> None:
    api = KeyedApp()
    await api.make("root", "admin")
    found = [
        (await api.send("GET", QUEUES, cookie=f"forebay_session=made-up-{n}")).status for n in range(WRONG_KEYS_MAX + 1)
    ]
    assert found == [401] * WRONG_KEYS_MAX + [429]


@pytest.mark.parametrize(
    "cookie", ["forebay_session", "forebay_session=", "x=forebay_session", "forebay_session=\x7f;"]
)
async def test_broken_cookie_is_no_session(cookie: str) -> None:
    api = KeyedApp()
    await api.make("root", "admin")
    assert (await api.send("GET", QUEUES, cookie=cookie)).status == 401
