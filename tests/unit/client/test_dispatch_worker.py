"""The worker without Spark, against a server whose dispatcher does what the test says."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from fixtures.intakes import intake_of
from fixtures.scripted_dispatcher import DEFINITION, ScriptedDispatcher
from fixtures.served_app import served, until
from forebay.api.app import App
from forebay.api.service import Service
from forebay.broker.waiting import WaitingRoom
from forebay.client import AsyncClient, Client, DispatchWorker, ParcelOutcome, ParcelWork, SyncDispatchWorker
from forebay.clock import SystemClock
from forebay.dispatch.values import CompleteRequest, Lease, LeasedParcel, Outcome, Range
from forebay.errors import LeaseLost, StoreUnavailable
from forebay.model.push_run import run_of_one
from forebay.testing.memory_store import MemoryStore


def lease(number: int, *dids: str, action_class: str = "geo.Code", seconds: float = 60.0) -> Lease:
    parcels = [
        LeasedParcel(did, 0, "orders", 1, "geo", action_class, 1, [Range("in", 2, 4)], 3, 0) for did in dids or ("d",)
    ]
    until_us = SystemClock().now_us() + int(seconds * 1_000_000)
    return Lease(f"lease-{number}", until_us, parcels, {"orders@1": DEFINITION})


class Broker:
    def __init__(self, url: str, dispatcher: ScriptedDispatcher) -> None:
        self.url = url
        self.dispatcher = dispatcher

    def requests(self, name: str) -> list[Any]:
        return [value for called, value in self.dispatcher.asked if called == name]

    def outcomes(self) -> list[Outcome]:
        completions: list[CompleteRequest] = self.requests("complete")
        return [outcome for completion in completions for outcome in completion.outcomes]


@asynccontextmanager
async def running() -> AsyncIterator[Broker]:
    store, room = MemoryStore(), WaitingRoom(asyncio.get_running_loop())
    await store.open(room.on_available)
    await store.push([run_of_one("in", "p", b'{"n": %d}' % n, f"t{n}") for n in range(1, 6)])
    dispatcher = ScriptedDispatcher()
    clock, intake = SystemClock(), intake_of(store, SystemClock())
    app = App(Service(store, room, clock, intake, is_started=True, dispatcher=dispatcher))
    async with served(app) as server:
        yield Broker(f"http://127.0.0.1:{server.port}", dispatcher)


@pytest.fixture
async def broker() -> AsyncIterator[Broker]:
    async with running() as found:
        yield found


@pytest.fixture
async def client(broker: Broker) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(broker.url, attempts=1) as found:
        yield found


async def test_a_handler_reads_the_messages_of_its_parcel_and_the_lease_is_completed(
    broker: Broker, client: AsyncClient
) -> None:
    broker.dispatcher.leases = [lease(1, "d1", "d2")]
    seen: list[Any] = []

    async def handler(work: ParcelWork) -> None:
        seen.append((work.parcel.did, [message["data"]["n"] async for message in work.messages()]))
        assert work.definition["steps"][0]["action"] == "geo"

    worker = DispatchWorker(client, {"geo.*": handler}, name="w", plugin="shop:1")
    await worker.run(once=True)
    assert seen == [("d1", [2, 3, 4]), ("d2", [2, 3, 4])]
    assert [(outcome.did, outcome.state) for outcome in broker.outcomes()] == [("d1", "COMPLETE"), ("d2", "COMPLETE")]
    assert [run.action for run in broker.outcomes()[0].actions] == ["geo"]
    request = broker.requests("lease")[0]
    assert (request.worker, request.classes, request.plugin) == ("w", ("geo.*",), "shop:1")
    assert worker.completed == 2


async def test_what_a_handler_raises_is_the_error_of_its_parcel_alone(broker: Broker, client: AsyncClient) -> None:
    broker.dispatcher.leases = [lease(1, "bad", "good")]

    async def handler(work: ParcelWork) -> None:
        if work.parcel.did == "bad":
            raise ValueError("no such place")

    await DispatchWorker(client, {"*": handler}).run(once=True)
    bad, good = broker.outcomes()
    assert bad.state == "ERROR"
    assert bad.error.startswith("ValueError: no such place\n\nTraceback")
    assert good.state == "COMPLETE"


async def test_a_handler_says_what_became_of_its_parcel(broker: Broker, client: AsyncClient) -> None:
    broker.dispatcher.leases = [lease(1)]

    async def handler(work: ParcelWork) -> ParcelOutcome:
        return work.outcome("FILTERED", rows_in=3, filtered=3, annotations={"why": "empty"})

    await DispatchWorker(client, {"*": handler}).run(once=True)
    (outcome,) = broker.outcomes()
    assert (outcome.state, outcome.filtered, outcome.annotations) == ("FILTERED", 3, {"why": "empty"})


async def test_a_handler_that_returns_something_else_is_in_error(broker: Broker, client: AsyncClient) -> None:
    broker.dispatcher.leases = [lease(1)]

    async def handler(work: ParcelWork) -> object:
        return 7

    await DispatchWorker(client, {"*": handler}).run(once=True)
    assert "TypeError" in broker.outcomes()[0].error


async def test_the_class_itself_is_preferred_to_a_pattern(broker: Broker, client: AsyncClient) -> None:
    broker.dispatcher.leases = [lease(1, "a"), lease(2, "b", action_class="geo.Other")]
    called: list[str] = []

    async def exact(work: ParcelWork) -> None:
        called.append(f"exact {work.parcel.did}")

    async def pattern(work: ParcelWork) -> None:
        called.append(f"pattern {work.parcel.did}")

    await DispatchWorker(client, {"geo.*": pattern, "geo.Code": exact}).run(once=True)
    assert called == ["exact a", "pattern b"]


async def test_heartbeats_keep_the_lease_while_a_handler_works(broker: Broker, client: AsyncClient) -> None:
    broker.dispatcher.leases = [lease(1, seconds=0.4)]

    async def handler(work: ParcelWork) -> None:
        await until(lambda: len(broker.requests("heartbeat")) >= 2)

    await DispatchWorker(client, {"*": handler}).run(once=True)
    assert broker.outcomes()[0].state == "COMPLETE"


async def test_a_lost_lease_is_not_completed_and_its_other_parcels_are_left_alone(
    broker: Broker, client: AsyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    broker.dispatcher.leases = [lease(1, "first", "second", seconds=0.2)]
    handled: list[str] = []

    async def handler(work: ParcelWork) -> None:
        handled.append(work.parcel.did)
        broker.dispatcher.error = LeaseLost("lease-1", "it has ended")
        await until(lambda: "lease lease-1 is lost" in caplog.text)
        broker.dispatcher.error = None

    await DispatchWorker(client, {"*": handler}).run(once=True)
    assert handled == ["first"]
    assert broker.requests("complete") == []


async def test_a_server_that_is_away_is_told_again_until_the_lease_is_over(broker: Broker, client: AsyncClient) -> None:
    broker.dispatcher.leases = [lease(1)]

    async def handler(work: ParcelWork) -> None:
        broker.dispatcher.error = StoreUnavailable("away")

    async def return_later() -> None:
        await until(lambda: len(broker.requests("complete")) >= 2)
        broker.dispatcher.error = None

    later = asyncio.create_task(return_later())
    worker = DispatchWorker(client, {"*": handler})
    await worker.run(once=True)
    await later
    assert worker.completed == 1


async def test_stop_lets_the_parcels_at_hand_be_finished(broker: Broker, client: AsyncClient) -> None:
    broker.dispatcher.leases = [lease(1, "a", "b"), lease(2, "c")]
    worker: DispatchWorker

    async def handler(work: ParcelWork) -> None:
        worker.stop()

    worker = DispatchWorker(client, {"*": handler})
    await worker.run()
    assert [outcome.did for outcome in broker.outcomes()] == ["a", "b"]


async def test_stop_ends_a_request_that_waits_for_parcels(broker: Broker, client: AsyncClient) -> None:
    worker = DispatchWorker(client, {"*": print}, wait_seconds=60)
    running_worker = asyncio.create_task(worker.run())
    await until(lambda: broker.requests("lease"))
    worker.stop()
    await asyncio.wait_for(running_worker, 60)


async def test_a_cancelled_worker_gives_its_parcels_back(broker: Broker, client: AsyncClient) -> None:
    broker.dispatcher.leases = [lease(1)]
    began = asyncio.Event()

    async def handler(work: ParcelWork) -> None:
        began.set()
        await asyncio.Event().wait()

    task = asyncio.create_task(DispatchWorker(client, {"*": handler}).run())
    await began.wait()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert broker.requests("release") == ["lease-1"]
    assert broker.requests("complete") == []


async def test_plain_functions_run_in_threads_and_read(broker: Broker, client: AsyncClient) -> None:
    broker.dispatcher.leases = [lease(1)]
    seen: list[int] = []

    def handler(work: ParcelWork) -> None:
        seen.extend(message["data"]["n"] for message in work.read())

    await DispatchWorker(client, {"*": handler}).run(once=True)
    assert seen == [2, 3, 4]


async def test_the_same_without_an_event_loop(broker: Broker) -> None:
    broker.dispatcher.leases = [lease(1)]
    seen: list[int] = []

    def handler(work: ParcelWork) -> None:
        seen.extend(message["data"]["n"] for message in work.read())

    def run() -> int:
        with Client(broker.url, attempts=1) as client:
            worker = SyncDispatchWorker(client, {"*": handler})
            worker.run(once=True)
            return worker.completed

    assert await asyncio.to_thread(run) == 1
    assert seen == [2, 3, 4]


def test_a_worker_without_handlers_is_refused() -> None:
    with pytest.raises(ValueError, match="handler"):
        DispatchWorker(AsyncClient(), {})
