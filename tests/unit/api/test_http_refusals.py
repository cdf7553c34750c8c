"""What is no request, or too large for one: refused before anything is done, and the connection closed."""

from __future__ import annotations

import json

import pytest

from fixtures.served_app import CHUNKED, echo, on_uvloop, served
from forebay.api import request_parser
from forebay.api.exchange import Request, Response

MALFORMED = {
    "no method": b"NONSENSE / HTTP/1.1\r\n\r\n",
    "TLS to plain": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    "length and chunks": b"POST / HTTP/1.1\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "chunks and length": b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
    "two lengths": b"POST / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\nx",
    "negative length": b"POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
    "huge length": b"POST / HTTP/1.1\r\nContent-Length: 99999999999999999999\r\n\r\n",
    "unknown coding": b"POST / HTTP/1.1\r\nTransfer-Encoding: gzip\r\n\r\nx",
    "chunked not last": b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked, gzip\r\n\r\n0\r\n\r\n",
    "broken chunk": b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    "blank in a name": b"GET / HTTP/1.1\r\nHost : h\r\n\r\n",
    "folded header": b"GET / HTTP/1.1\r\nA: b\r\n c: d\r\n\r\n",
    "NUL in a value": b"GET / HTTP/1.1\r\nA: \0\r\n\r\n",
    "bare newlines": b"GET / HTTP/1.1\nHost: h\n\n",
    "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "HTTP/2 by name": b"GET / HTTP/2.0\r\n\r\n",
    "HTTP/0.9": b"GET /\r\n\r\n",
    "chunks in HTTP/1.0": b"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "two hosts": b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
    "the same host twice": b"GET / HTTP/1.1\r\nHost: a\r\nhost: a\r\n\r\n",
    "compressed chunks": b"POST / HTTP/1.1\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "chunks twice": b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "chunks of chunks": b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n",
    "CONNECT": b"CONNECT host:80 HTTP/1.1\r\nHost: host\r\n\r\n",
    "no ASCII": b"GET /\xc3\xa9 HTTP/1.1\r\n\r\n",
}


@pytest.mark.parametrize("raw", [pytest.param(raw, id=name) for name, raw in MALFORMED.items()])
@on_uvloop
async def test_what_is_no_request_is_400_and_the_connection_closed(raw: bytes) -> None:
    begun: list[Request] = []

    async def seen(request: Request) -> Response:
        begun.append(request)
        return await echo(request)

    async with served(seen) as server:
        client = await server.client()
        told = await client.ask(raw)
        assert (told.status, told.headers["connection"]) == (400, "close")
        assert told.headers["content-type"] == "application/problem+json"
        assert json.loads(told.body)["status"] == 400
        assert await client.rest() == b""
        assert begun == []


@on_uvloop
async def test_fault_is_told_after_the_answers_to_what_came_before_it() -> None:
    async with served(echo) as server:
        client = await server.client()
        await client.send(b"GET /first HTTP/1.1\r\nHost: h\r\n\r\nrubbish\r\n\r\n")
        assert json.loads((await client.answer()).body)["path"] == "/first"
        assert (await client.answer()).status == 400
        assert await client.rest() == b""


@on_uvloop
async def test_body_that_breaks_while_it_is_read_is_400() -> None:
    async with served(echo) as server:
        client = await server.client()
        told = await client.ask(CHUNKED, b"3\r\nabc\r\n", b"zz\r\n")
        assert told.status == 400
        assert await client.rest() == b""


@pytest.mark.parametrize("has_end", [True, False])
@on_uvloop
async def test_head_above_the_limit_is_431(has_end: bool) -> None:
    async with served(echo) as server:
        fits = await server.client()
        padding = b"x" * (request_parser.HEAD_BYTES_MAX - 100)
        assert (await fits.ask(b"GET / HTTP/1.1\r\nA: " + padding + b"\r\n\r\n")).status == 200
        client = await server.client()
        told = await client.ask(b"GET / HTTP/1.1\r\nA: " + padding + b"x" * 200 + (b"\r\n\r\n" if has_end else b""))
        assert (told.status, told.headers["connection"]) == (431, "close")


@on_uvloop
async def test_endless_trailers_are_431() -> None:
    async with served(echo) as server:
        client = await server.client()
        await client.send(CHUNKED + b"1\r\nx\r\n0\r\nA: ")
        told = await client.ask(b"x" * (request_parser.HEAD_BYTES_MAX + 1))
        assert told.status == 431
