"""Clients that go away while they wait for a message, with more sent behind that: nothing may be popped for nobody."""

from __future__ import annotations

import asyncio
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from fixtures.intakes import intake_of
from fixtures.scripted_dispatcher import ScriptedDispatcher
from fixtures.served_app import Client, Served, on_both_loops, on_uvloop, served, tls_contexts, until
from fixtures.waiting import settled
from forebay.api import http_protocol
from forebay.api.app import App
from forebay.api.body_stream import HELD_BYTES_MAX
from forebay.api.exchange import Request, Response
from forebay.api.http_protocol import HttpProtocol
from forebay.api.service import Service
from forebay.broker.messages import PopRequest
from forebay.broker.waiting import WaitingRoom
from forebay.clock import SystemClock
from forebay.model.push_run import run_of_one
from forebay.testing.memory_store import MemoryStore

POLL = b"GET /api/v1/pop/queue/q?wait=true&timeout=60000%b HTTP/1.1\r\nHost: h\r\n\r\n"
ALIVE = b"GET /healthz HTTP/1.1\r\nHost: h\r\n\r\n"
PUSH = b"POST /api/v1/push HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n"
TOO_MUCH = 4 * http_protocol.WATCHED_HELD_BYTES_MAX
BEHIND = {
    "nothing": b"",
    "many requests": ALIVE * (3 * http_protocol.REQUESTS_IN_LINE_MAX),
    "large body": PUSH % TOO_MUCH + b"x" * (4 * HELD_BYTES_MAX),
    "large bodies": (PUSH % 50_000 + b"x" * 50_000) * 15,
}

Leave = Callable[[Client], None]


class Broker:
    """An application with one queue `q`, and who waits for it."""

    def __init__(self) -> None:
        self.room = WaitingRoom(asyncio.get_running_loop())
        self.store = MemoryStore()
        clock, intake = SystemClock(), intake_of(self.store, SystemClock())
        self.app = App(Service(self.store, self.room, clock, intake, is_started=True, dispatcher=ScriptedDispatcher()))

    async def push(self) -> None:
        await self.store.push([run_of_one("q", "p", b"1", "a")])

    async def first_attempts(self) -> list[int]:
        """How often each message of the queue was claimed, with this claim."""
        return [message.attempts for message in (await self.store.pop(PopRequest(queue="q"))).messages]


@asynccontextmanager
async def polled(tls: ssl.SSLContext | None = None) -> AsyncIterator[tuple[Broker, Served]]:
    broker = Broker()
    await broker.store.open(broker.room.on_available)
    async with served(broker.app, tls=tls) as server:
        yield broker, server


def reset(client: Client) -> None:
    client.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.vanish()


@pytest.mark.parametrize("leave", [Client.vanish, reset])
@pytest.mark.parametrize("behind", [pytest.param(raw, id=name) for name, raw in BEHIND.items()])
@on_both_loops
async def test_nothing_is_popped_for_who_has_gone_whatever_it_sent_behind_its_poll(behind: bytes, leave: Leave) -> None:
    async with polled() as (broker, server):
        await _poll_and_leave(broker, server, await server.client(), behind, leave)


async def _poll_and_leave(broker: Broker, server: Served, client: Client, behind: bytes, leave: Leave) -> None:
    await client.send(POLL % b"&autoAck=true" + behind)
    await until(lambda: len(broker.room) == 1)
    await server.has_heard_all()
    await settled()
    assert len(broker.room) == 1
    leave(client)
    await until(lambda: not len(broker.room))
    await until(lambda: not len(server.connections))
    await broker.push()
    assert await broker.first_attempts() == [1]


@pytest.mark.parametrize("leave", [Client.vanish, Client.close])
@pytest.mark.parametrize("behind", [pytest.param(raw, id=name) for name, raw in BEHIND.items()])
@on_both_loops
async def test_that_holds_in_tls(tmp_path: Path, behind: bytes, leave: Leave) -> None:
    ours, theirs = tls_contexts(tmp_path)
    async with polled(tls=ours) as (broker, server):
        await _poll_and_leave(broker, server, await server.client(tls=theirs), behind, leave)


@on_uvloop
async def test_that_holds_for_a_poll_that_begins_when_no_more_is_read() -> None:
    async with polled() as (broker, server):
        client = await server.client()
        before, behind = 20, 30
        await client.send(ALIVE * before + POLL % b"" + ALIVE * behind)
        for _ in range(before):
            assert (await client.answer()).status == 200
        await _poll_and_leave(broker, server, client, b"", Client.vanish)


@pytest.mark.parametrize("behind", [ALIVE * 30, PUSH % 300_000 + b"x" * 300_000])
@on_uvloop
async def test_client_that_stays_is_told_everything_in_order(behind: bytes) -> None:
    async with polled() as (broker, server):
        client = await server.client()
        await client.send(POLL % b"" + behind)
        await until(lambda: len(broker.room) == 1)
        await broker.push()
        told = await client.answer()
        assert (told.status, b'"transactionId":"a"' in told.body) == (200, True)
        for _ in range(behind.count(b"HTTP/1.1")):
            assert (await client.answer()).status in (200, 400)


@pytest.mark.parametrize(
    ("behind", "answers"),
    [
        pytest.param(PUSH % TOO_MUCH + b" " * TOO_MUCH, [400], id="body"),
        pytest.param(ALIVE * 500, [200] * 500, id="requests"),
    ],
)
@pytest.mark.parametrize("is_waiting_before", [True, False])
@on_both_loops
async def test_poll_is_over_when_more_is_sent_behind_it_than_is_taken(
    behind: bytes, answers: list[int], is_waiting_before: bool
) -> None:
    async with polled() as (broker, server):
        client = await server.client()
        if is_waiting_before:
            await client.send(POLL % b"")
            await until(lambda: len(broker.room) == 1)
            await client.send(behind)
        else:
            await client.send(POLL % b"" + behind)
        assert (await client.answer()).status == 204
        assert [(await client.answer()).status for _ in answers] == answers
        assert (await client.ask(ALIVE)).status == 200


@on_uvloop
async def test_poll_that_finds_a_message_at_once_gets_it_whatever_is_behind_it() -> None:
    async with polled() as (broker, server):
        await broker.push()
        client = await server.client()
        await client.send(POLL % b"" + ALIVE * 500)
        assert [(await client.answer()).status for _ in range(501)] == [200] * 501


@on_uvloop
async def test_nobody_is_told_to_go_on_with_a_body_while_the_poll_before_it_waits() -> None:
    async with polled() as (broker, server):
        client = await server.client()
        await client.send(POLL % b"" + (PUSH % 2).replace(b"Host", b"Expect: 100-continue\r\nHost"))
        await until(lambda: len(broker.room) == 1)
        await broker.push()
        assert (await client.answer()).status == 200
        assert await client.reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        assert (await client.ask(b"{}")).status == 400


class Unsent(asyncio.Transport):
    """A connection that takes long to close: there is something that its client does not read."""

    def __init__(self) -> None:
        super().__init__()
        self.is_closed = False

    def is_closing(self) -> bool:
        return self.is_closed

    def close(self) -> None:
        self.is_closed = True

    abort = close


@on_uvloop
async def test_who_watches_hears_of_the_end_although_answers_are_not_taken() -> None:
    heard: list[bool] = []

    async def watching(request: Request) -> Response | None:
        await request.disconnected()
        heard.append(request.stream.is_gone)
        return None

    async with served(watching) as server:
        protocol = HttpProtocol(server.connections)
        protocol.connection_made(Unsent())
        protocol.data_received(ALIVE)
        await asyncio.sleep(0)
        assert not protocol.eof_received()
        await until(lambda: heard)
        assert heard == [True]
        protocol.connection_lost(None)
