"""Answers that are made while they are sent: one that breaks off is never ended, one that nobody reads is not made."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from forebay.api.app import App
from forebay.api.service import Service
from forebay.broker.arrow.outgoing import of_messages
from forebay.broker.store import Message, RangeRequest
from forebay.broker.waiting import WaitingRoom
from forebay.clock import SystemClock
from forebay.errors import StoreUnavailable
from forebay.testing.memory_store import MemoryStore

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


async def sent_by(store: MemoryStore, *, is_client_gone: bool = False) -> list[dict[str, Any]]:
    sent: list[dict[str, Any]] = []
    asked = iter([{"type": "http.request", "body": b"", "more_body": False}])

    async def receive() -> dict[str, Any]:
        message = next(asked, None)
        if message is None and not is_client_gone:
            await asyncio.Event().wait()
        return message or {"type": "http.disconnect"}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    service = Service(store, WaitingRoom(asyncio.get_running_loop()), SystemClock(), is_started=True)
    scope = {
        "type": "http",
        "method": "GET",
        "raw_path": b"/api/v1/arrow/queues/q",
        "path": "/api/v1/arrow/queues/q",
        "query_string": b"",
        "headers": [],
    }
    await App(service)(scope, receive, send)
    return sent


async def test_whole_answer_ends_with_the_marker() -> None:
    head, *bodies = await sent_by(BreakingStore(2, fails=False))
    assert head["status"] == 200
    assert b"".join(bytes(body["body"]) for body in bodies).endswith(END_MARKER)
    assert [body.get("more_body", False) for body in bodies] == [True, True, True, False]


async def test_answer_that_breaks_in_the_middle_is_never_ended() -> None:
    head, *bodies = await sent_by(BreakingStore(2))
    assert head["status"] == 200
    assert [body["more_body"] for body in bodies] == [True, True]
    assert END_MARKER not in b"".join(bytes(body["body"]) for body in bodies)[-8:]


async def test_what_breaks_before_the_first_batch_is_answered_properly() -> None:
    head, body = await sent_by(BreakingStore(0))
    assert head["status"] == 503
    assert b"store_unavailable" in body["body"]


async def test_nothing_more_is_read_for_a_client_that_has_gone() -> None:
    store = BreakingStore(1000, fails=False)
    await sent_by(store, is_client_gone=True)
    assert store.given < 10
