"""Clients that send what they have, say that there is no more (a half-close), and then read what they are told."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fixtures.intakes import intake_of
from fixtures.scripted_dispatcher import ScriptedDispatcher
from fixtures.served_app import CHUNKED, echo, on_both_loops, on_uvloop, served, tls_contexts, until
from fixtures.waiting import settled
from forebay.api.app import App
from forebay.api.exchange import ClientGone, Request, Response, StreamedResponse
from forebay.api.http_protocol import REQUESTS_IN_LINE_MAX
from forebay.api.service import Service
from forebay.broker.messages import Popped, PopRequest
from forebay.broker.waiting import WaitingRoom
from forebay.clock import SystemClock
from forebay.testing.memory_store import MemoryStore

GET = b"GET /%d HTTP/1.1\r\nHost: h\r\n\r\n"
POST = b"POST /p HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\n"
WAITING = b"GET /api/v1/pop/queue/q?wait=true&autoAck=true&timeout=60000 HTTP/1.1\r\nHost: h\r\n\r\n"


class Slow:
    """Answers with what it is asked for, when it is told to."""

    def __init__(self) -> None:
        self.go_on = asyncio.Event()
        self.begun: list[bytes] = []

    async def __call__(self, request: Request) -> Response:
        self.begun.append(request.raw_path)
        await self.go_on.wait()
        await request.body()
        return Response(200, request.raw_path)


@pytest.mark.parametrize("count", [1, 3, REQUESTS_IN_LINE_MAX, 5 * REQUESTS_IN_LINE_MAX])
@on_both_loops
async def test_what_came_whole_is_answered_and_then_the_connection_ends(count: int) -> None:
    slow = Slow()
    async with served(slow) as server:
        client = await server.client()
        await client.send(b"".join([GET % number for number in range(count)]))
        client.end_sending()
        await until(lambda: slow.begun)
        await server.has_heard_the_end()
        slow.go_on.set()
        assert [(await client.answer()).body for _ in range(count)] == [b"/%d" % number for number in range(count)]
        assert await client.rest() == b""
        await until(lambda: not len(server.connections))


@pytest.mark.parametrize(
    "unfinished",
    [
        pytest.param(b"GET /half HTT", id="half a head"),
        pytest.param(POST + b"01234", id="half a body"),
        pytest.param(CHUNKED + b"5\r\n01234\r\n", id="chunks without an end"),
        pytest.param(POST.replace(b"Host", b"Expect: 100-continue\r\nHost"), id="a body to be asked for"),
    ],
)
@on_both_loops
async def test_what_came_in_part_is_not_begun(unfinished: bytes) -> None:
    slow = Slow()
    async with served(slow) as server:
        client = await server.client()
        await client.send(GET % 0 + GET % 1 + unfinished)
        client.end_sending()
        await until(lambda: slow.begun)
        await server.has_heard_the_end()
        slow.go_on.set()
        assert [(await client.answer()).body for _ in range(2)] == [b"/0", b"/1"]
        assert await client.rest() == b""
        assert slow.begun == [b"/0", b"/1"]


@pytest.mark.parametrize("has_begun_reading", [True, False])
@on_both_loops
async def test_who_reads_a_body_that_will_not_come_hears_that_its_client_has_gone(has_begun_reading: bool) -> None:
    may_read = asyncio.Event()
    heard: list[str] = []

    async def reading(request: Request) -> Response:
        await may_read.wait()
        try:
            return Response(200, await request.body())
        except ClientGone:
            heard.append("gone")
            raise

    async with served(reading) as server:
        client = await server.client()
        if has_begun_reading:
            may_read.set()
        await client.send(POST + b"01234")
        await server.has_heard_all()
        await settled()  # a handler that may read has begun to
        client.end_sending()
        await server.has_heard_the_end()
        may_read.set()
        assert await client.rest() == b""
        assert heard == ["gone"]


@on_both_loops
async def test_fault_behind_what_came_whole_is_told() -> None:
    slow = Slow()
    async with served(slow) as server:
        client = await server.client()
        await client.send(GET % 0 + b"rubbish\r\n\r\n")
        client.end_sending()
        await until(lambda: slow.begun)
        await server.has_heard_the_end()
        slow.go_on.set()
        assert [(await client.answer()).status for _ in range(2)] == [200, 400]
        assert await client.rest() == b""


@on_both_loops
async def test_large_answers_arrive_whole() -> None:
    size = 5_000_000

    async def large(request: Request) -> Response | StreamedResponse:
        if request.raw_path == b"/0":
            return Response(200, b"x" * size)
        return StreamedResponse(200, _pieces(), b"text/plain")

    async def _pieces() -> AsyncIterator[bytes]:
        for _ in range(size // 100_000):
            await asyncio.sleep(0)
            yield b"x" * 100_000

    async with served(large) as server:
        client = await server.client()
        await client.send(GET % 0 + GET % 1)
        client.end_sending()
        await server.has_heard_the_end()
        assert [len((await client.answer()).body) for _ in range(2)] == [size, size]
        assert await client.rest() == b""


@pytest.mark.parametrize("before", [b"", GET % 0, b"GET / HT", POST + b"0123456789"])
@on_both_loops
async def test_who_owes_nothing_closes_at_once(before: bytes) -> None:
    async with served(echo) as server:
        client = await server.client()
        await client.send(before)
        if before.endswith((b"\n", b"9")):
            await client.answer()
        client.end_sending()
        assert await client.rest() == b""
        await until(lambda: not len(server.connections))


@on_uvloop
async def test_stop_waits_for_what_is_still_to_be_answered() -> None:
    slow = Slow()
    async with served(slow) as server:
        client = await server.client()
        await client.send(GET % 0)
        client.end_sending()
        await until(lambda: slow.begun)
        await server.has_heard_the_end()
        stopping = asyncio.create_task(server.connections.stop(60))
        await settled(50)
        assert not stopping.done()
        slow.go_on.set()
        assert (await client.answer()).body == b"/0"
        await stopping


class SlowStore(MemoryStore):
    """Pops when it is told to: a client has the time to say that it sends no more."""

    def __init__(self) -> None:
        super().__init__()
        self.go_on = asyncio.Event()

    async def pop(self, request: PopRequest) -> Popped:
        await self.go_on.wait()
        return await super().pop(request)


async def _app() -> tuple[App, WaitingRoom, SlowStore]:
    room, store = WaitingRoom(asyncio.get_running_loop()), SlowStore()
    await store.open(room.on_available)
    clock, intake = SystemClock(), intake_of(store, SystemClock())
    return App(Service(store, room, clock, intake, is_started=True, dispatcher=ScriptedDispatcher())), room, store


def _push(transaction_id: str) -> bytes:
    body = json.dumps({"items": [{"queue": "q", "payload": 1, "transactionId": transaction_id}]}).encode()
    return b"POST /api/v1/push HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)


@on_both_loops
async def test_pushes_and_pops_that_do_not_wait_are_answered() -> None:
    app, _, store = await _app()
    async with served(app) as server:
        client = await server.client()
        pop = WAITING.replace(b"wait=true", b"wait=false")
        await client.send(_push("a") + pop + pop + b"GET /healthz HTTP/1.1\r\nHost: h\r\n\r\n")
        client.end_sending()
        await server.has_heard_the_end()
        store.go_on.set()
        assert [(await client.answer()).status for _ in range(4)] == [201, 200, 204, 200]
        assert await client.rest() == b""


@on_both_loops
async def test_who_waits_for_a_message_has_gone() -> None:
    app, room, store = await _app()
    store.go_on.set()
    async with served(app) as server:
        client = await server.client()
        await client.send(WAITING + _push("a"))
        await until(lambda: len(room) == 1)
        client.end_sending()
        assert await client.rest() == b""
        await until(lambda: not len(room))
        assert (await app.service.store.pop(PopRequest(queue="q"))).messages == []


@on_both_loops
async def test_wait_that_would_begin_only_then_does_not_begin_and_what_was_before_it_is_answered() -> None:
    app, _, store = await _app()
    async with served(app) as server:
        client = await server.client()
        other = WAITING.replace(b"wait=true", b"wait=false").replace(b"/q?", b"/other?")
        await client.send(other + _push("a") + WAITING + _push("b"))
        client.end_sending()
        await server.has_heard_the_end()
        store.go_on.set()
        assert [(await client.answer()).status for _ in range(2)] == [204, 201]
        assert await client.rest() == b""
        await until(lambda: not len(server.connections))
        left = (await app.service.store.pop(PopRequest(queue="q", batch=10))).messages
        assert [(message.transaction_id, message.attempts) for message in left] == [("a", 1)]


@on_both_loops
async def test_in_tls_it_is_the_end_of_everything(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    slow = Slow()
    ours, theirs = tls_contexts(tmp_path)
    async with served(slow, tls=ours) as server:
        client = await server.client(tls=theirs)
        await client.send(GET % 0 + GET % 1)
        await until(lambda: slow.begun)
        client.close()
        await server.has_heard_the_end()
        slow.go_on.set()
        await until(lambda: not len(server.connections))
        assert slow.begun == [b"/0"]
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []
