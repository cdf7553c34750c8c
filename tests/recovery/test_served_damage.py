"""A server on a store with one broken byte, any of them: only the damaged record is lost, and all else is served.

Application and store are in one process, so that every byte can be tried; `tests/acceptance/test_damaged_queue.py` does
it with a started server at a few.
"""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from fixtures.intakes import intake_of
from fixtures.scripted_dispatcher import ScriptedDispatcher
from forebay.api.app import App
from forebay.api.exchange import Request, Response
from forebay.api.service import Service
from forebay.broker.stores.embedded import EmbeddedStore
from forebay.broker.waiting import WaitingRoom
from forebay.commitlog.salvage import salvage
from forebay.filesystem import RealFile, RealFilesystem
from forebay.testing.fake_clock import FakeClock

pytestmark = [pytest.mark.asyncio, pytest.mark.slow]


class Served:
    """The answers of the API, as a client would see them."""

    def __init__(self, app: App) -> None:
        self._app = app

    async def ask(self, method: str, path: str, body: Any = None, *, query: str = "") -> Any:
        headers = [(b"content-type", b"application/json")] if body is not None else []
        request = Request(method, path.encode(), query.encode(), headers)
        if body is not None:
            request.stream.feed(json.dumps(body).encode())
        request.stream.end()
        answer = await self._app.answer(request)
        assert isinstance(answer, Response)
        text = b"".join([answer.body, *answer.more_body])
        assert answer.status < 300, (method, path, answer.status, text)
        return json.loads(text) if text else {"messages": []}

    async def push(self, queue: str, *payloads: Any) -> None:
        items = [{"queue": queue, "partition": "p", "payload": payload} for payload in payloads]
        await self.ask("POST", "/api/v1/push", {"items": items})

    async def pop(self, queue: str) -> list[Any]:
        popped = await self.ask("GET", f"/api/v1/pop/queue/{queue}", query="batch=10&autoAck=true")
        return [message["data"] for message in popped["messages"]]


@asynccontextmanager
async def served(directory: Path) -> AsyncIterator[Served]:
    store = EmbeddedStore(directory, clock=FakeClock())
    room = WaitingRoom(asyncio.get_running_loop())
    await store.open(room.on_available)
    try:
        clock, intake = FakeClock(), intake_of(store, FakeClock())
        service = Service(store, room, clock, intake, is_started=True, dispatcher=ScriptedDispatcher())
        yield Served(App(service))
    finally:
        await store.close()


def segment(directory: Path) -> Path:
    [path] = [path for path in (directory / "queues" / "1").rglob("*.data") if path.stat().st_size]
    return path


async def assert_only_one_record_is_lost(directory: Path) -> int:
    """Returns which of the two."""
    async with served(directory) as server:
        popped = await server.pop("orders")
        assert popped in (["a"], ["b", "c"])
        is_first_lost = popped == ["b", "c"]
        assert await server.pop("payments") == [1]
        shown = await server.ask("GET", "/api/v1/status/queues/orders/messages")
        assert [message["data"] for message in shown["messages"]] == popped
        [lost] = (await server.ask("GET", "/api/v1/status/lost"))["lost"]
        expected = ("orders", 1, 1) if is_first_lost else ("orders", 2, 2)
        assert (lost["queue"], lost["firstSeq"], lost["messages"]) == expected
        queues = (await server.ask("GET", "/api/v1/status/queues"))["queues"]
        assert {queue["name"]: queue["messages"]["lost"] for queue in queues} == {"orders": expected[2], "payments": 0}
        assert await server.ask("GET", "/api/v1/consumer-groups")
        await server.push("orders", "new")
        assert await server.pop("orders") == ["new"]
        return 0 if is_first_lost else 1


@pytest.fixture
def unsynced(monkeypatch: pytest.MonkeyPatch) -> None:
    """No power is cut here, and there are a thousand stores to open."""
    monkeypatch.setattr(RealFile, "sync", lambda file: None)
    monkeypatch.setattr(RealFile, "write_durably_at", RealFile.write_at)
    monkeypatch.setattr(RealFilesystem, "sync_directory", lambda filesystem, path: None)


@pytest.mark.usefixtures("unsynced")
@pytest.mark.parametrize("is_salvaged", [False, True])
async def test_every_flipped_byte_costs_its_record_and_every_route_answers(tmp_path: Path, is_salvaged: bool) -> None:
    good, damaged = tmp_path / "good", tmp_path / "damaged"
    async with served(good) as server:
        await server.push("orders", "a")
        await server.push("orders", "b", "c")
        await server.push("payments", 1)
    content = segment(good).read_bytes()
    lost = []
    for position in range(len(content)):
        shutil.copytree(good, damaged)
        changed = bytearray(content)
        changed[position] ^= 0xFF
        segment(damaged).write_bytes(changed)
        if is_salvaged:
            salvage(RealFilesystem(), damaged / "queues" / "1")
        lost.append(await assert_only_one_record_is_lost(damaged))
        shutil.rmtree(damaged)
    assert lost == sorted(lost), "bytes of the first record, then those of the second"
    assert set(lost) == {0, 1}
