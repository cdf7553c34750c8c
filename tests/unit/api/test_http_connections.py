"""The life of connections: who is closed for being quiet, how a server stops, and TLS."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from fixtures.served_app import Client, Served, on_uvloop, served, tls_contexts, until
from fixtures.waiting import settled
from forebay.api.connections import KEEP_ALIVE_SECONDS
from forebay.api.exchange import Request, Response

GET = b"GET / HTTP/1.1\r\nHost: h\r\n\r\n"
POST = b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\n"


class Slow:
    """Answers when it is told to, after the body is there."""

    def __init__(self) -> None:
        self.go_on = asyncio.Event()
        self.begun = 0
        self.cancelled = 0

    async def __call__(self, request: Request) -> Response:
        self.begun += 1
        try:
            await request.body()
            await self.go_on.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        return Response(200, b"done")


async def at_once(request: Request) -> Response:
    return Response(200, await request.body() or b"1")


def later(server: Served, seconds: float) -> None:
    """As if this time had passed without a sign from anybody."""
    server.connections._timer.cancel()
    server.connections.now += seconds
    server.connections.sweep(server.connections.now)


@pytest.mark.parametrize("answered", [b"", GET])
@pytest.mark.parametrize("begun", [b"", b"GET / HT", b"GET / HTTP/1.1\r\nA: b"])
@on_uvloop
async def test_connection_that_owes_a_request_is_closed_after_its_time(answered: bytes, begun: bytes) -> None:
    async with served(at_once) as server:
        client = await server.client()
        await client.send(answered + begun)
        if answered:
            await client.answer()
        await _arrived(server)
        later(server, KEEP_ALIVE_SECONDS - 1)
        assert len(server.connections) == 1
        if begun:  # a byte now and then is no request
            await client.send(b"T")
            await _arrived(server)
        later(server, 2)
        assert await client.rest() == b""
        await until(lambda: not len(server.connections))


@on_uvloop
async def test_first_byte_of_a_request_has_time_of_its_own() -> None:
    async with served(at_once) as server:
        client = await server.client()
        await client.ask(GET)
        later(server, KEEP_ALIVE_SECONDS - 1)
        await client.send(GET[:1])
        await _arrived(server)
        later(server, KEEP_ALIVE_SECONDS - 1)
        assert (await client.ask(GET[1:])).status == 200


async def _arrived(server: Served) -> None:
    await until(lambda: len(server.connections) == 1)
    await server.has_heard_all()


@on_uvloop
async def test_request_that_is_under_way_may_take_its_time() -> None:
    slow = Slow()
    async with served(slow) as server:
        client = await server.client()
        await client.send(GET)
        await until(lambda: slow.begun)
        later(server, 10 * KEEP_ALIVE_SECONDS)
        slow.go_on.set()
        assert (await client.answer()).body == b"done"


@on_uvloop
async def test_body_that_does_not_go_on_is_given_up() -> None:
    async with served(at_once) as server:
        client = await server.client()
        await client.send(POST + b"0")
        await _arrived(server)
        for _ in range(3):
            later(server, KEEP_ALIVE_SECONDS - 1)
            await client.send(b"1")
            await server.has_heard_all()
        assert len(server.connections) == 1
        later(server, KEEP_ALIVE_SECONDS + 1)
        await until(lambda: not len(server.connections))


@on_uvloop
async def test_answer_that_is_not_taken_is_given_up() -> None:
    async def large(request: Request) -> Response:
        return Response(200, b"x" * 30_000_000)

    async with served(large) as server:
        client = await server.client()
        await client.send(GET)
        await client.head()
        later(server, KEEP_ALIVE_SECONDS + 1)
        assert len(server.connections) == 1
        later(server, KEEP_ALIVE_SECONDS + 1)
        later(server, KEEP_ALIVE_SECONDS + 1)
        await until(lambda: not len(server.connections))


@on_uvloop
async def test_timer_looks_by_itself() -> None:
    async with served(at_once, keep_alive_seconds=0, sweep_seconds=0) as server:
        client = await server.client()
        first = (await client.ask(GET)).headers["date"]
        assert await client.rest() == b""
        again = await server.client()
        assert (await again.ask(GET)).headers["date"] != first


async def _stopping(server: Served, seconds: float) -> asyncio.Task[None]:
    stopping = asyncio.create_task(server.connections.stop(seconds))
    await asyncio.sleep(0)
    return stopping


@on_uvloop
async def test_stop_closes_the_idle_and_lets_the_others_finish() -> None:
    slow = Slow()
    async with served(slow) as server:
        idle, busy, sending = [await server.client() for _ in range(3)]
        await busy.send(GET)
        await sending.send(POST + b"0123")
        await until(lambda: slow.begun == 2 and len(server.connections) == 3)
        stopping = await _stopping(server, 60)
        assert await idle.rest() == b""
        assert not stopping.done()
        await sending.send(b"456789")
        slow.go_on.set()
        for client in (busy, sending):
            told = await client.answer()
            assert (told.headers["connection"], told.body) == ("close", b"done")
            assert await client.rest() == b""
        await stopping


@on_uvloop
async def test_stop_cuts_off_what_does_not_finish() -> None:
    slow = Slow()
    async with served(slow) as server:
        client = await server.client()
        await client.send(GET)
        await until(lambda: slow.begun)
        await server.connections.stop(0.05)
        assert slow.cancelled == 1
        assert await _ended(client)
        await until(lambda: not len(server.connections))


@on_uvloop
async def test_stop_waits_for_requests_whose_clients_have_gone() -> None:
    slow = Slow()
    async with served(slow) as server:
        client = await server.client()
        await client.send(GET)
        await until(lambda: slow.begun)
        client.close()
        await server.has_heard_the_end()
        stopping = await _stopping(server, 60)
        await settled(50)
        assert not stopping.done()
        slow.go_on.set()
        await stopping


async def _ended(client: Client) -> bool:
    try:
        return await client.rest() == b""
    except ConnectionResetError:
        return True


@on_uvloop
async def test_tls_serves_the_same(tmp_path: Path) -> None:
    ours, theirs = tls_contexts(tmp_path)
    async with served(at_once, tls=ours) as server:
        client = await server.client(tls=theirs)
        body = b"x" * 3_000_000
        for _ in range(2):
            told = await client.ask(POST.replace(b"10", b"%d" % len(body)) + body)
            assert (told.status, told.body) == (200, body)
        later(server, KEEP_ALIVE_SECONDS + 1)
        assert await client.rest() == b""
