"""Answers that are made while they are sent: one that breaks off is never ended, one that nobody reads is not made."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from fixtures.intakes import intake_of
from fixtures.scripted_dispatcher import ScriptedDispatcher
from fixtures.served_app import on_uvloop, served, until
from forebay.api.app import App
from forebay.api.service import Service
from forebay.broker.bulk import RangeRequest
from forebay.broker.messages import Message
from forebay.broker.waiting import WaitingRoom
from forebay.clock import SystemClock
from forebay.errors import StoreUnavailable
from forebay.testing.memory_store import MemoryStore
from forebay.testing.memory_store.arrow import of_messages

END_MARKER = b"\xff\xff\xff\xff\0\0\0\0"
ROW = Message(1, "q", "p", "1-1", "t", "", 1, b"1", b"", False)


class BreakingStore(MemoryStore):
    """Gives some batches, then fails."""

    def __init__(self, batches: int, fails: bool = True) -> None:
        super().__init__()
        self.given = 0
        self._batches = batches
        self._fails = fails

    async def read_batches(self, wanted: RangeRequest) -> AsyncIterator[Any]:
        return self._some()

    async def _some(self) -> AsyncIterator[Any]:
        for _ in range(self._batches):
            self.given += 1
            await asyncio.sleep(0)
            yield of_messages([ROW])
        if self._fails:
            raise StoreUnavailable("away")


def app_on(store: MemoryStore) -> App:
    return App(
        Service(
            store,
            WaitingRoom(asyncio.get_running_loop()),
            SystemClock(),
            intake_of(store, SystemClock()),
            is_started=True,
            dispatcher=ScriptedDispatcher(),
        )
    )


GET = b"GET /api/v1/arrow/queues/q HTTP/1.1\r\nHost: h\r\n\r\n"


@on_uvloop
async def test_whole_answer_ends_with_the_marker() -> None:
    async with served(app_on(BreakingStore(2, fails=False))) as server:
        client = await server.client()
        for _ in range(2):
            told = await client.ask(GET)
            assert (told.status, told.headers["transfer-encoding"]) == (200, "chunked")
            assert told.body.endswith(END_MARKER)


@on_uvloop
async def test_answer_that_breaks_in_the_middle_is_never_ended() -> None:
    async with served(app_on(BreakingStore(2))) as server:
        client = await server.client()
        await client.send(GET)
        told = await client.rest()
    assert told.startswith(b"HTTP/1.1 200 OK\r\n")
    assert not told.endswith(b"0\r\n\r\n")
    assert END_MARKER not in told[-20:]


@on_uvloop
async def test_what_breaks_before_the_first_batch_is_answered_properly() -> None:
    async with served(app_on(BreakingStore(0))) as server:
        told = await (await server.client()).ask(GET)
    assert told.status == 503
    assert b"store_unavailable" in told.body


@on_uvloop
async def test_nothing_more_is_read_for_a_client_that_has_gone() -> None:
    store = BreakingStore(1_000_000, fails=False)
    async with served(app_on(store)) as server:
        client = await server.client()
        await client.send(GET)
        await client.head()
        client.close()
        await until(lambda: not len(server.connections))
        assert store.given < 1_000_000
