"""Requests as bytes on a socket: what is understood, at whose pace, and where one ends and the next begins."""

from __future__ import annotations

import asyncio
import json

import pytest

from fixtures.served_app import CHUNKED, Client, Served, echo, on_uvloop, served, until
from forebay.api.body_stream import HELD_BYTES_MAX
from forebay.api.exchange import ClientGone, Request, Response
from forebay.api.http_protocol import REQUESTS_IN_LINE_MAX


async def echoed(*parts: bytes) -> dict[str, object]:
    async with served(echo) as server:
        client = await server.client()
        told = await client.ask(*parts)
        assert told.status == 200
        return dict(json.loads(told.body))


@on_uvloop
async def test_names_of_headers_are_lower_case_and_the_rest_is_as_it_was_sent() -> None:
    seen = await echoed(b"GET /a%2Fb/%C3%A9?x=%20&y HTTP/1.1\r\nHost: h\r\nX-Mixed-CASE: Some Value\r\n\r\n")
    assert seen == {
        "method": "GET",
        "path": "/a%2Fb/%C3%A9",
        "query": "x=%20&y",
        "headers": [["host", "h"], ["x-mixed-case", "Some Value"]],
        "body": "",
    }


@pytest.mark.parametrize(
    ("target", "path", "query"),
    [
        ("http://host:80/p/q?a=b", "/p/q", "a=b"),
        ("http://host", "/", ""),
        ("/p#fragment", "/p", ""),
        ("//p?a=b?c", "//p", "a=b?c"),
    ],
)
@on_uvloop
async def test_every_form_of_target_is_read(target: str, path: str, query: str) -> None:
    seen = await echoed(f"GET {target} HTTP/1.1\r\nHost: h\r\n\r\n".encode())
    assert (seen["path"], seen["query"]) == (path, query)


HEAD = b"POST /p HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\n"


@pytest.mark.parametrize(
    "parts",
    [
        pytest.param((HEAD + b"0123456789",), id="at once"),
        pytest.param((HEAD, b"0123456789"), id="head, then body"),
        pytest.param(tuple(bytes([byte]) for byte in HEAD + b"0123456789"), id="byte by byte"),
        pytest.param((CHUNKED + b"3\r\n012\r\n7;x=y\r\n3456789\r\n0\r\n\r\n",), id="chunked"),
        pytest.param((CHUNKED, b"5\r\n01", b"234\r\n5\r\n", b"56789\r\n0\r", b"\n\r\n"), id="chunked in pieces"),
    ],
)
@on_uvloop
async def test_body_is_the_same_however_it_arrives(parts: tuple[bytes, ...]) -> None:
    assert (await echoed(*parts))["body"] == "0123456789"


@on_uvloop
async def test_trailers_do_not_get_among_the_headers_of_any_request() -> None:
    async with served(echo) as server:
        client = await server.client()
        body = b"1\r\nx\r\n0\r\nX-API-Key: stolen\r\n\r\n"
        for _ in range(2):
            told = await client.ask(CHUNKED + body)
            assert b"stolen" not in told.body
        assert b"stolen" not in (await client.ask(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")).body


@pytest.mark.parametrize(
    "framing", [b"Content-Length: 3\r\n\r\nabc", b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"]
)
@on_uvloop
async def test_request_to_upgrade_is_served_as_it_is(framing: bytes) -> None:
    async with served(echo) as server:
        client = await server.client()
        upgrade = b"POST /up HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
        after = b"GET /after HTTP/1.1\r\nHost: h\r\n\r\n"
        await client.send(upgrade + framing + after)
        first, second = [json.loads((await client.answer()).body) for _ in range(2)]
        assert (first["path"], first["body"], second["path"]) == ("/up", "abc", "/after")
        await client.send(upgrade, framing[:-2], framing[-2:] + after)
        first, second = [json.loads((await client.answer()).body) for _ in range(2)]
        assert (first["path"], first["body"], second["path"]) == ("/up", "abc", "/after")


@on_uvloop
async def test_any_number_of_requests_to_upgrade_may_come_together() -> None:
    count = 1500
    async with served(echo) as server:
        client = await server.client()
        await client.send(b"GET /up HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n" * count)
        told = [json.loads((await client.answer()).body)["path"] for _ in range(count)]
        assert told == ["/up"] * count


@on_uvloop
async def test_continue_is_sent_when_the_body_is_asked_for() -> None:
    asked = asyncio.Event()

    async def patient(request: Request) -> Response:
        await asked.wait()
        return await echo(request)

    async with served(patient) as server:
        client = await server.client()
        await client.send(b"POST /p HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(client.reader.readexactly(1), 0.1)
        asked.set()
        assert await client.reader.readexactly(25) == b"HTTP/1.1 100 Continue\r\n\r\n"
        assert json.loads((await client.ask(b"ok")).body)["body"] == "ok"


@on_uvloop
async def test_who_is_refused_instead_of_told_to_continue_is_closed() -> None:
    async with served(lambda request: asyncio.sleep(0, Response(401))) as server:
        client = await server.client()
        told = await client.ask(b"POST /p HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n")
        assert (told.status, told.headers["connection"]) == (401, "close")
        assert await client.rest() == b""


@on_uvloop
async def test_body_that_nobody_read_does_not_become_the_next_request() -> None:
    async def hasty(request: Request) -> Response:
        return Response(404) if request.method == "POST" else await echo(request)

    async with served(hasty) as server:
        client = await server.client()
        hidden = b"GET /hidden HTTP/1.1\r\n\r\n"
        head = b"POST /p HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n" % (200_000 + len(hidden))
        assert (await client.ask(head + hidden)).status == 404
        await client.send(b"x" * 200_000)
        told = await client.ask(b"GET /next HTTP/1.1\r\nHost: h\r\n\r\n")
        assert json.loads(told.body)["path"] == "/next"


@on_uvloop
async def test_body_above_the_limit_is_read_to_its_end_and_answered() -> None:
    async def small(request: Request) -> Response:
        request.body_bytes_max = 1000
        return await echo(request)

    async with served(small) as server:
        client = await server.client()
        size = 3_000_000
        told = await client.ask(b"POST /p HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n" % size, b"x" * size)
        assert (told.status, told.headers["connection"]) == (413, "close")
        assert await client.rest() == b""


async def _stuck_sending(client: Client, data: bytes) -> bool:
    client.writer.write(data)
    try:
        await asyncio.wait_for(client.writer.drain(), 0.3)
    except TimeoutError:
        return True
    return False


@on_uvloop
async def test_body_that_nobody_asks_for_is_not_read() -> None:
    asked = asyncio.Event()
    seen: list[Request] = []

    async def patient(request: Request) -> Response:
        seen.append(request)
        await asked.wait()
        return Response(200, b"%d" % len(await request.body()))

    async with served(patient) as server:
        client = await server.client()
        size = 30_000_000
        await client.send(b"POST /p HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n" % size)
        assert await _stuck_sending(client, b"x" * size)
        assert HELD_BYTES_MAX < seen[0].stream.held_bytes < 1_000_000
        asked.set()
        assert (await client.answer()).body == b"%d" % size


@on_uvloop
async def test_requests_are_answered_in_order_and_a_long_line_is_not_read_further() -> None:
    go_on = asyncio.Event()
    begun = 0

    async def patient(request: Request) -> Response:
        nonlocal begun
        begun += 1
        await go_on.wait()
        return Response(200, request.raw_path)

    async with served(patient) as server:
        client = await server.client()
        many = 20_000
        assert await _stuck_sending(
            client, b"".join([b"GET /%d HTTP/1.1\r\n%b\r\n" % (n, b"A: %b\r\n" % (b"x" * 990)) for n in range(many)])
        )
        assert begun == 1
        assert REQUESTS_IN_LINE_MAX < _in_line(server) < 2000
        go_on.set()
        for number in range(many):
            assert (await client.answer()).body == b"/%d" % number


def _in_line(server: Served) -> int:
    (connection,) = server.connections._open
    return len(connection._line)  # type: ignore[attr-defined]


@on_uvloop
async def test_handlers_hear_that_their_client_has_gone() -> None:
    heard: list[str] = []

    async def waits(request: Request) -> Response | None:
        if request.method == "GET":
            await request.disconnected()
            heard.append("watching")
            return Response(200)
        try:
            await request.body()
        except ClientGone:
            heard.append("reading")
        return None

    async with served(waits) as server:
        for raw in (b"GET / HTTP/1.1\r\nHost: h\r\n\r\n", HEAD + b"0"):
            client = await server.client()
            await client.send(raw)
            await until(lambda: server.connections._open)
            client.close()
            await until(lambda: not len(server.connections))
        assert heard == ["watching", "reading"]
