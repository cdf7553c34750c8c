"""Two servers on one PostgreSQL and one buffer directory, and producers that alternate between the two."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from fixtures.outage_load import BUSY_SECONDS, Load, Producer, buffers, stored_numbers, until_drained
from fixtures.waiting import until_told
from forebay.testing.running_server import RunningServer
from forebay.testing.servers import PostgresServer

SERVERS = ("first", "second")


class AlternatingLoad(Load):
    """Every producer pushes its even numbers to one server and its odd ones to the other."""

    def __init__(self, urls: list[str], queue: str, **more: int) -> None:
        super().__init__(urls[0], queue, **more)
        self.urls = urls

    async def _produce(self, session: aiohttp.ClientSession, one: Producer) -> None:
        number = 0
        while self._is_pushing:
            item = {"queue": self.queue, "partition": one.name, "payload": number}
            url = f"{self.urls[number % len(self.urls)]}/api/v1/push"
            try:
                async with session.post(url, json={"items": [item]}) as answer:
                    told: Any = json.loads(await answer.read())
                    accepted = answer.status == 201
                    (one.accepted if accepted else one.refused).append(number)
                    status = told[0]["status"] if accepted else f"{answer.status} {told['code']}"
            except (aiohttp.ClientError, OSError):
                one.unknown.append(number)
                status = "broken"
            one.statuses[status] = one.statuses.get(status, 0) + 1
            number += 1
            await asyncio.sleep(BUSY_SECONDS)

    def accepted_of(self, stored: dict[str, list[int]]) -> dict[str, list[int]]:
        """What a killed server took and never answered has no order: its producer went on at the other one."""
        accepted = {one.name: set(one.accepted) for one in self.producers}
        return {name: [n for n in numbers if n in accepted[name]] for name, numbers in stored.items()}


@pytest.fixture
def servers(database: str, tmp_path: Path) -> Iterator[list[RunningServer]]:
    shared = {"FILE_BUFFER_DIR": str(tmp_path / "shared")}
    with (
        RunningServer(tmp_path / SERVERS[0], store=database, environment=shared) as first,
        RunningServer(tmp_path / SERVERS[1], store=database, environment=shared) as second,
    ):
        yield [first, second]


async def owners(servers: list[RunningServer]) -> list[bool]:
    return [(await buffers(server.url))["isDrainer"] for server in servers]


async def until_direct(load: AlternatingLoad) -> None:
    """Both servers are back on the direct way: a while in which nothing else was told."""

    async def is_direct() -> bool:
        for one in load.producers:
            one.statuses.clear()
        await load.goes_on()
        return set(load.statuses()) == {"queued"}

    await until_told(is_direct, what="nothing but direct pushes")


@pytest.mark.parametrize("mode", ["fast", "kill"])
async def test_outage_seen_by_two_servers_keeps_the_order_of_acceptance(
    mode: str, postgres: PostgresServer, servers: list[RunningServer]
) -> None:
    assert await owners(servers) == [True, False]
    load = AlternatingLoad([server.url for server in servers], "orders", producers=8, groups=1)
    async with load.running():
        await load.goes_on()
        await asyncio.to_thread(postgres.stop, mode)
        await load.goes_on()
        await asyncio.to_thread(postgres.start)
        for server in servers:
            await until_drained(server.url)
        await until_direct(load)
    load.check(await stored_numbers(servers[0].url, "orders"))
    for server in servers:
        told = await buffers(server.url)
        assert (told["pending"], told["bytes"], told["failedFiles"], told["damagedFiles"]) == (0, 0, [], [])


async def test_other_server_takes_over_from_a_killed_owner(
    postgres: PostgresServer, servers: list[RunningServer]
) -> None:
    first, second = servers
    load = AlternatingLoad([second.url, first.url], "orders", producers=8, groups=1)
    async with load.running():
        await load.goes_on()
        await asyncio.to_thread(postgres.stop, "fast")
        await load.goes_on()
        assert (await buffers(first.url))["isDrainer"]
        await asyncio.to_thread(first.kill)
        load.urls = [second.url]
        await asyncio.to_thread(postgres.start)

        async def has_taken_over() -> bool:
            return bool((await buffers(second.url))["isDrainer"])

        await until_told(has_taken_over)
        await until_drained(second.url)
        await asyncio.to_thread(first.start)
        assert await owners(servers) == [False, True]
        load.urls = [first.url, second.url]
        await asyncio.to_thread(postgres.stop, "fast")
        await load.goes_on()
        await asyncio.to_thread(postgres.start)
        for server in servers:
            await until_drained(server.url)
    statuses = load.statuses()
    assert set(statuses) <= {"queued", "buffered", "broken"}, statuses
    assert statuses["buffered"] > 0
    load.check(load.accepted_of(await stored_numbers(second.url, "orders")))
