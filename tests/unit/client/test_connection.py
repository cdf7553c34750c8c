"""The client's own HTTP against a socket that says what it is told to, byte for byte."""

from __future__ import annotations

import asyncio

import pytest

from forebay.client.connection import NotHttp, Origin, Response
from forebay.client.messages import Refused, Unreachable
from forebay.client.transport import Transport
from unit.client.hand_made_server import OK, serving


async def ask(origin: Origin, body: bytes | None = None) -> Response:
    return await origin.request("GET" if body is None else "POST", "/x?y=%2F", body, "application/json")


async def test_requests_one_after_the_other_share_a_connection() -> None:
    async with serving(lambda n, request: [OK]) as (peer, url):
        origin = Origin(url + "/base/", {"Authorization": "Bearer k"})
        assert await ask(origin) == Response(200, b"ok")
        assert await ask(origin, b'{"a":1}') == Response(200, b"ok")
        assert peer.connections == 1
        assert peer.requests[0].startswith(b"GET /base/x?y=%2F HTTP/1.1\r\nHost: 127.0.0.1:")
        assert b"\r\nAuthorization: Bearer k\r\n" in peer.requests[0]
        assert peer.requests[1].endswith(
            b"\r\nContent-Type: application/json\r\nContent-Length: 7\r\n\r\n" + b'{"a":1}'
        )
        await origin.close()


async def test_requests_at_the_same_time_have_connections_of_their_own() -> None:
    async with serving(lambda n, request: [OK]) as (peer, url):
        origin = Origin(url, {})
        assert await asyncio.gather(*[ask(origin) for _ in range(5)]) == [Response(200, b"ok")] * 5
        assert peer.connections == 5
        await origin.close()


@pytest.mark.parametrize(
    ("pieces", "expected"),
    [
        ([OK[i : i + 1] for i in range(len(OK))], Response(200, b"ok")),
        ([b"HTTP/1.1 204 No Content\r\n\r\n"], Response(204, b"")),
        ([b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n", b"2\r\nde\r\n0\r\n\r\n"],
         Response(200, b"abcde")),
        ([b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\nall", b" of it", b""], Response(200, b"all of it")),
        ([b"HTTP/1.0 200 OK\r\n\r\nold", b""], Response(200, b"old")),
        ([b"HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n", OK], Response(200, b"ok")),
        ([b"HTTP/1.1 307 Temporary Redirect\r\nlocation: http://b/\r\ncontent-length: 0\r\n\r\n"],
         Response(307, b"", "http://b/")),
    ],
)  # fmt: skip
async def test_answers_of_every_shape(pieces: list[bytes], expected: Response) -> None:
    async with serving(lambda n, request: pieces) as (_, url):
        origin = Origin(url, {})
        assert await ask(origin) == expected
        assert await ask(origin) == expected
        await origin.close()


async def test_large_bodies_go_and_come_whole() -> None:
    big = bytes(range(256)) * 40_000
    head = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(big)
    async with serving(lambda n, request: [head, big]) as (peer, url):
        origin = Origin(url, {})
        assert (await ask(origin, big)).body == big
        assert peer.requests[0].endswith(big)
        await origin.close()


@pytest.mark.parametrize("cut", [b"", b"HTTP/1.1 200 OK\r\ncont", b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf"])
async def test_an_answer_that_is_cut_short_is_an_error(cut: bytes) -> None:
    async with serving(lambda n, request: [cut, b""]) as (_, url):
        with pytest.raises(ConnectionError):
            await ask(Origin(url, {}))


async def test_what_is_no_http_is_told() -> None:
    async with serving(lambda n, request: [b"SSH-2.0-OpenSSH\r\n"]) as (_, url):
        with pytest.raises(NotHttp, match="no HTTP"):
            await ask(Origin(url, {}))


async def test_a_kept_connection_that_the_server_has_closed_is_replaced_at_once() -> None:
    def script(number: int, request: bytes) -> list[bytes] | None:
        return None if number == 2 else [OK]

    async with serving(script) as (peer, url):
        origin = Origin(url, {})
        assert (await ask(origin)).status == 200
        assert (await ask(origin)).status == 200  # its first try ended without an answer
        assert (peer.connections, len(peer.requests)) == (2, 3)
        await origin.close()


async def test_the_answer_to_a_cancelled_request_is_not_taken_for_the_next_one() -> None:
    def script(number: int, request: bytes) -> list[bytes]:
        return [b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\n" + request.removeprefix(b"GET /")[:1]]

    async with serving(script) as (peer, url):
        origin = Origin(url, {})
        assert (await origin.request("GET", "/1", None, "")).body == b"1"
        cancelled = asyncio.create_task(origin.request("GET", "/2", None, ""))
        await asyncio.sleep(0)
        cancelled.cancel()
        with pytest.raises(asyncio.CancelledError):
            await cancelled
        assert (await origin.request("GET", "/3", None, "")).body == b"3"
        assert peer.connections == 2
        await origin.close()


async def test_name_and_password_of_the_url_are_sent() -> None:
    async with serving(lambda n, request: [OK]) as (peer, url):
        origin = Origin(url.replace("//", "//ann:p%40ss@"), {})
        await ask(origin)
        assert b"\r\nAuthorization: Basic YW5uOnBAc3M=\r\n" in peer.requests[0]
        assert b"ann" not in peer.requests[0].split(b"\r\n")[1]
        await origin.close()


def transport(url: str) -> Transport:
    return Transport(
        [url], attempts=2, first_pause_seconds=0.01, timeout_seconds=0.2, retry_unhealthy_seconds=1, api_key=None
    )


async def test_silence_and_redirects_are_told_in_words() -> None:
    async with serving(lambda n, request: []) as (_, url):
        with pytest.raises(Unreachable, match="TimeoutError"):
            await transport(url).request("GET", "/x")
    moved = b"HTTP/1.1 301 Moved\r\nlocation: https://b/\r\ncontent-length: 0\r\n\r\n"
    async with serving(lambda n, request: [moved]) as (_, url):
        with pytest.raises(Refused, match="https://b/"):
            await transport(url).request("GET", "/x")
