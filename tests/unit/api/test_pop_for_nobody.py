"""A client that goes away in the moment in which messages are claimed for it."""

from __future__ import annotations

import asyncio

import pytest

from fixtures.intakes import intake_of
from fixtures.scripted_dispatcher import ScriptedDispatcher
from fixtures.waiting import settled
from forebay.api.app import App
from forebay.api.exchange import Request
from forebay.api.service import Service
from forebay.broker.messages import Popped, PopRequest
from forebay.broker.waiting import WaitingRoom
from forebay.model.push_run import run_of_one
from forebay.testing.fake_clock import FakeClock
from forebay.testing.memory_store import MemoryStore


class SlowStore(MemoryStore):
    """Answers a pop that found something only when it is told to."""

    def __init__(self) -> None:
        super().__init__(FakeClock())
        self.has_claimed = asyncio.Event()
        self.may_answer = asyncio.Event()

    async def pop(self, request: PopRequest) -> Popped:
        popped = await super().pop(request)
        if popped.messages:
            self.has_claimed.set()
            await self.may_answer.wait()
        return popped


class Client:
    """One request, and whether its client is still there."""

    def __init__(self, store: MemoryStore, room: WaitingRoom, query: str) -> None:
        clock, intake = FakeClock(), intake_of(store, FakeClock())
        app = App(Service(store, room, clock, intake, is_started=True, dispatcher=ScriptedDispatcher()))
        self._request = Request("GET", b"/api/v1/pop/queue/q", query.encode())
        self._request.stream.end()
        self.task = asyncio.create_task(app.answer(self._request))

    def go_away(self) -> None:
        self._request.stream.lose()


@pytest.mark.parametrize("is_gone", [True, False])
@pytest.mark.parametrize("query", ["batch=9", "batch=9&wait=true", "batch=9&wait=true&autoAck=true"])
async def test_claim_for_nobody_is_given_back(query: str, is_gone: bool) -> None:
    store, room = SlowStore(), WaitingRoom(asyncio.get_running_loop())
    await store.open(room.on_available)
    if "wait" not in query:
        await store.push([run_of_one("q", "p", b"1", "a")])
    client = Client(store, room, query)
    await settled(10)
    if "wait" in query:
        assert len(room) == 1
        await store.push([run_of_one("q", "p", b"1", "a")])
    await asyncio.wait_for(store.has_claimed.wait(), 60)
    if is_gone:
        client.go_away()
        await settled(10)
    store.may_answer.set()
    answer = await asyncio.wait_for(client.task, 60)
    assert (None if answer is None else answer.status) == (None if is_gone else 200)
    again = await store.pop(PopRequest(queue="q"))
    assert [(message.transaction_id, message.attempts) for message in again.messages] == ([("a", 1)] if is_gone else [])
    room.close()


async def test_who_goes_while_it_waits_is_out_of_its_line_and_not_answered() -> None:
    store, room = SlowStore(), WaitingRoom(asyncio.get_running_loop())
    client = Client(store, room, "wait=true")
    await settled(10)
    assert len(room) == 1
    client.go_away()
    assert await asyncio.wait_for(client.task, 60) is None
    assert len(room) == 0
    room.close()


async def test_what_is_acknowledged_on_delivery_at_the_first_look_is_at_most_once() -> None:
    store, room = SlowStore(), WaitingRoom(asyncio.get_running_loop())
    await store.push([run_of_one("q", "p", b"1", "a")])
    client = Client(store, room, "autoAck=true")
    await asyncio.wait_for(store.has_claimed.wait(), 60)
    client.go_away()
    await settled(10)
    store.may_answer.set()
    await asyncio.wait_for(client.task, 60)
    assert (await store.pop(PopRequest(queue="q"))).messages == []
    room.close()
