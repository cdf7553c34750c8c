"""Two servers on one PostgreSQL and one Valkey, each of which is killed or restarted while workers are at it.

Whatever happens: every message is in exactly one parcel, every parcel ends once, and its rows are in the result queue
exactly once.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from fixtures.waiting import until_told
from forebay.client import AsyncClient, DispatchWorker, ParcelWork
from forebay.client.dispatch_worker import Handler
from forebay.testing.running_server import RunningServer
from forebay.testing.servers import PostgresServer, ValkeyServer

pytestmark = [pytest.mark.asyncio, pytest.mark.slow]

MESSAGES = 3_000
PARCEL = 10
SECONDS_MAX = 120.0
FLOW = {
    "source": {"queue": "orders", "parcelMessages": PARCEL},
    "steps": [
        {"action": "double", "actionClass": "shop.Double", "retry": {"maxAttempts": 20, "delaySeconds": 0.1}},
        {"action": "check", "actionClass": "shop.Check", "retry": {"maxAttempts": 20, "delaySeconds": 0.1}},
    ],
}


class Place:
    """Two servers, their database and their warm tier."""

    def __init__(self, folder: Path, postgres: PostgresServer, valkey: ValkeyServer) -> None:
        self.postgres, self.valkey = postgres, valkey
        words = ["--warm", valkey.url, "--dispatch-in-memory-queue-size", "50", "--dispatch-lease-time", "2s"]
        words += ["--dispatch-heartbeat-time", "500ms"]
        self.servers = [
            RunningServer(folder / name, store=postgres.url, arguments=words) for name in ("first", "second")
        ]

    @property
    def urls(self) -> list[str]:
        return [server.url for server in self.servers]


async def double(work: ParcelWork) -> None:
    found = [message async for message in work.messages()]
    payloads = [str(2 * message["data"]["n"]).encode() for message in found]
    await work.stage("results", pa.table({"payload": pa.array(payloads, pa.binary())}), is_output=False)


async def check(work: ParcelWork) -> None:
    assert len([message async for message in work.messages()]) == PARCEL


async def settled(client: AsyncClient) -> bool:
    # A server that is down is asked again: the client goes to the other one.
    with contextlib.suppress(Exception):
        told = await client.flow("doubling")
        waiting = told["queued"] + told["cold"] + told["leased"] + told["errors"]
        return bool(told["nextSeq"] > MESSAGES and not waiting)
    return False


async def worked_off(place: Place, trouble: Callable[[], object]) -> None:
    async with AsyncClient(place.urls) as client:
        handlers: dict[str, Handler] = {"shop.Double": double, "shop.Check": check}
        workers = [DispatchWorker(client, handlers, name=f"w{n}", parcels=7, wait_seconds=1) for n in range(3)]
        running = [asyncio.create_task(worker.run()) for worker in workers]
        for first in range(0, MESSAGES, 500):
            await client.push_many("orders", [{"n": number} for number in range(first, first + 500)])
            await asyncio.to_thread(trouble)
        await until_told(partial(settled, client), SECONDS_MAX, "all parcels are done")
        for worker in workers:
            worker.stop()
        await asyncio.gather(*running)


async def check_exact(place: Place) -> None:
    async with AsyncClient(place.urls) as client:
        parcels = [parcel async for parcel in every_parcel(client)]
        assert Counter(parcel["state"] for parcel in parcels) == {"COMPLETE": len(parcels)}
        seqs = Counter(seq for p in parcels for seq in range(p["firstSeq"], p["lastSeq"] + 1))
        assert seqs == Counter(range(1, MESSAGES + 1))
        results = [int(message["data"]) async for message in client.read("results")]
        assert Counter(results) == Counter(range(0, 2 * MESSAGES, 2))


async def every_parcel(client: AsyncClient) -> AsyncIterator[dict[str, Any]]:
    after = None
    while True:
        query = {"limit": 100} | ({} if after is None else {"after": after})
        page = await client.get("/api/v1/parcels", query)
        for parcel in page["parcels"]:
            yield parcel
        after = page.get("next")
        if not after:
            return


@pytest.fixture
def place(tmp_path: Path, postgres_server: PostgresServer, valkey_server: ValkeyServer) -> Place:
    return Place(tmp_path, postgres_server, valkey_server)


async def with_servers(place: Place, trouble: Callable[[], object]) -> None:
    for server in place.servers:
        await asyncio.to_thread(server.start)
    try:
        async with AsyncClient(place.urls) as client:
            await client.define_flow("doubling", FLOW)
        await worked_off(place, trouble)
        await check_exact(place)
    finally:
        for server in place.servers:
            await asyncio.to_thread(server.stop)


async def test_servers_killed_in_turn_lose_and_double_nothing(place: Place) -> None:
    turn = 0

    def kill_one() -> None:
        nonlocal turn
        server = place.servers[turn % 2]
        turn += 1
        server.kill()
        server.start()

    await with_servers(place, kill_one)


async def test_restarts_of_postgres_and_valkey_lose_and_double_nothing(place: Place) -> None:
    turn = 0

    def restart_one() -> None:
        nonlocal turn
        turn += 1
        if turn % 2:
            place.valkey.stop("kill")
            place.valkey.start()
        else:
            place.postgres.restart()

    await with_servers(place, restart_one)
