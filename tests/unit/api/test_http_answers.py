"""Answers as bytes on a socket: how they are framed, and what a client sees of one that breaks off."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable

import pytest

from fixtures.served_app import Served, on_uvloop, served, until
from forebay.api.exchange import NO_CONTENT, Request, Response, StreamedResponse
from forebay.api.response_bytes import JOINED_BYTES_MAX

GET = b"GET / HTTP/1.1\r\nHost: h\r\n\r\n"
GET_1_0 = b"GET / HTTP/1.0\r\n\r\n"
HEAD = b"HEAD / HTTP/1.1\r\nHost: h\r\n\r\n"


def answering(answer: Response | StreamedResponse):  # type: ignore[no-untyped-def]
    async def handler(request: Request) -> Response | StreamedResponse:
        return answer

    return handler


@on_uvloop
async def test_answer_is_these_bytes() -> None:
    answer = Response(429, b'{"a":1}', b"application/json", ((b"retry-after", b"1"), (b"x", b"y")))
    async with served(answering(answer)) as server:
        client = await server.client()
        await client.send(GET.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
        raw = await client.rest()
    date = re.search(rb"\r\n(date: \w{3}, \d\d \w{3} \d{4} \d\d:\d\d:\d\d GMT\r\n)", raw)
    assert date is not None
    assert raw.replace(date[1], b"") == (
        b"HTTP/1.1 429 Too Many Requests\r\ncontent-type: application/json\r\ncontent-length: 7\r\n"
        b'retry-after: 1\r\nx: y\r\nconnection: close\r\n\r\n{"a":1}'
    )


@pytest.mark.parametrize("size", [0, 1, JOINED_BYTES_MAX, JOINED_BYTES_MAX + 1, 5_000_000])
@on_uvloop
async def test_body_of_any_size_arrives_and_the_connection_goes_on(size: int) -> None:
    async with served(answering(Response(200, b"x" * size))) as server:
        client = await server.client()
        for _ in range(3):
            told = await client.ask(GET)
            assert (told.status, told.headers["content-length"], told.body) == (200, str(size), b"x" * size)
            assert ("content-type" in told.headers) is bool(size)


@pytest.mark.parametrize(
    ("raw", "connection"),
    [
        (GET, None),
        (GET.replace(b"Host: h", b"Connection: close"), "close"),
        (GET_1_0, "close"),
        (GET_1_0.replace(b"1.0\r\n", b"1.0\r\nConnection: keep-alive\r\n"), "keep-alive"),
    ],
)
@on_uvloop
async def test_connection_is_kept_as_the_client_asks(raw: bytes, connection: str | None) -> None:
    async with served(answering(Response(200, b"1"))) as server:
        client = await server.client()
        told = await client.ask(raw)
        assert told.headers.get("connection") == connection
        if connection == "close":
            assert await client.rest() == b""
        else:
            assert (await client.ask(raw)).status == 200


@on_uvloop
async def test_what_follows_a_last_request_is_not_served() -> None:
    begun: list[bytes] = []

    async def seen(request: Request) -> Response:
        begun.append(request.raw_path)
        return Response(200, b"1")

    async with served(seen) as server:
        client = await server.client()
        await client.send(b"GET /last HTTP/1.1\r\nConnection: close\r\n\r\n" + GET)
        assert (await client.answer()).headers["connection"] == "close"
        assert await client.rest() == b""
    assert begun == [b"/last"]


@on_uvloop
async def test_204_has_no_length_and_head_has_the_head_of_the_get() -> None:
    async with served(answering(NO_CONTENT)) as server:
        client = await server.client()
        told = await client.ask(GET)
        assert (told.status, set(told.headers)) == (204, {"date"})
        assert (await client.ask(GET)).status == 204
    async with served(answering(Response(200, b"12345"))) as server:
        client = await server.client()
        await client.send(HEAD + GET)
        told = await client.answer(has_body=False)
        assert (told.status, told.headers["content-length"]) == (200, "5")
        assert (await client.answer()).body == b"12345"


class Parts:
    """A body that is made while it is sent, and what became of it."""

    def __init__(self, *parts: bytes, fails: bool = False) -> None:
        self._parts = parts
        self._fails = fails
        self.made = 0
        self.is_closed = False

    async def _chunks(self) -> AsyncIterator[bytes]:
        try:
            for part in self._parts:
                self.made += 1
                await asyncio.sleep(0)
                yield part
            if self._fails:
                raise OSError("the disk is gone")
        finally:
            self.is_closed = True

    async def __call__(self, request: Request) -> StreamedResponse:
        return StreamedResponse(200, self._chunks(), b"text/plain")


@on_uvloop
async def test_streamed_answer_is_chunked_and_an_empty_part_does_not_end_it() -> None:
    async with served(Parts(b"one", b"", b"three")) as server:
        client = await server.client()
        for _ in range(2):
            await client.send(GET)
            _, headers = await client.head()
            assert (headers["transfer-encoding"], headers["content-type"]) == ("chunked", "text/plain")
            assert [chunk async for chunk in client.chunks()] == [b"one", b"three"]


@on_uvloop
async def test_streamed_answer_of_nothing_is_whole() -> None:
    async with served(Parts()) as server:
        assert (await (await server.client()).ask(GET)).body == b""


@on_uvloop
async def test_streamed_answer_to_http_1_0_ends_with_the_connection() -> None:
    async with served(Parts(b"one", b"two")) as server:
        client = await server.client()
        await client.send(GET_1_0.replace(b"1.0\r\n", b"1.0\r\nConnection: keep-alive\r\n"))
        _, headers = await client.head()
        assert headers["connection"] == "close"
        assert "transfer-encoding" not in headers
        assert await client.rest() == b"onetwo"


@on_uvloop
async def test_head_of_a_streamed_answer_makes_nothing_of_it() -> None:
    parts = Parts(b"one")
    async with served(parts) as server:
        client = await server.client()
        await client.send(HEAD)
        assert (await client.answer(has_body=False)).headers["transfer-encoding"] == "chunked"
        assert parts.made == 0
        assert (await client.ask(GET)).body == b"one"


@on_uvloop
async def test_answer_that_breaks_off_is_never_ended() -> None:
    parts = Parts(b"one", fails=True)
    async with served(parts) as server:
        client = await server.client()
        await client.send(GET)
        assert (await client.rest()).endswith(b"\r\n\r\n3\r\none\r\n")
        assert parts.is_closed
        old = await server.client()
        await old.send(GET_1_0)
        with pytest.raises(ConnectionResetError):
            await old.rest()


@on_uvloop
async def test_stream_waits_for_its_reader_and_ends_when_it_goes() -> None:
    parts = Parts(*[b"x" * 100_000] * 1000)
    async with served(parts) as server:
        client = await server.client()
        await client.send(GET)
        await client.head()
        await _stands_still(lambda: parts.made)
        assert 1 < parts.made < 500
        before = parts.made
        for _ in range(before * 100_000 // 65_536 + 1):
            await client.reader.readexactly(65_536)
        await until(lambda: parts.made > before)
        client.close()
        await until(lambda: parts.is_closed)
        assert parts.made < 1000
        await until(lambda: not len(server.connections))


async def _stands_still(count: Callable[[], int]) -> None:
    seen = -1
    while seen != count():
        seen = count()
        await asyncio.sleep(0.1)


@on_uvloop
async def test_line_goes_on_only_when_answers_are_taken() -> None:
    begun = 0

    async def large(request: Request) -> Response:
        nonlocal begun
        begun += 1
        return Response(200, b"x" * 3_000_000)

    async with served(large) as server:
        client = await server.client()
        many = 100
        await client.send(GET * many)
        await until(lambda: begun)
        await _stands_still(lambda: begun)
        assert begun < 20
        for _ in range(many):
            assert len((await client.answer()).body) == 3_000_000
        assert begun == many


async def _broken(request: Request) -> Response:
    raise ZeroDivisionError


@on_uvloop
async def test_bug_of_the_application_cuts_the_connection_and_no_other() -> None:
    async with served(_broken) as server:
        client, other = await server.client(), await server.client()
        await client.send(GET)
        await _ends(server, 1)
        server.connections.app.answer = answering(Response(200))  # type: ignore[method-assign]
        assert (await other.ask(GET)).status == 200


async def _ends(server: Served, left: int) -> None:
    await until(lambda: len(server.connections) == left)
