"""How long it takes until a server notices that its PostgreSQL is away: five ways of being away, two seconds."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest

from fixtures.outage_load import until_drained
from fixtures.tcp_proxy import TcpProxy
from forebay.testing.running_server import RunningServer
from forebay.testing.servers import PostgresServer
from integration.ingest.test_outages import database, frozen, postgres, read_only, stopped

__all__ = ["database", "postgres"]

SECONDS_MAX = 2.0
ROUNDS = 3
"""A machine with other load may delay a round. What is wrong with the server delays all of them."""
CALM_PUSHES = 20


async def black_hole(proxy: TcpProxy) -> AsyncIterator[None]:
    proxy.is_black_hole = True
    yield
    proxy.is_black_hole = False


Fault = Callable[[PostgresServer, str, TcpProxy], AsyncIterator[None]]
WAYS: dict[str, Fault] = {
    "refused": lambda postgres, database, proxy: stopped(postgres, database, "fast"),
    "killed": lambda postgres, database, proxy: stopped(postgres, database, "kill"),
    "frozen": lambda postgres, database, proxy: frozen(postgres, database, ""),
    "black hole": lambda postgres, database, proxy: black_hole(proxy),
    "read-only": lambda postgres, database, proxy: read_only(postgres, database, ""),
}


class Pushing:
    """One push after the other; knows when the last one went to the database."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session
        self.seconds_without = 0.0
        """From the last answer that a message is stored to the first that it is buffered."""

    async def until(self, wanted: str, count: int) -> None:
        clock = asyncio.get_running_loop().time
        last_stored = clock()
        while count:
            body = {"items": [{"queue": "orders", "payload": 1}]}
            async with self._session.post("/api/v1/push", json=body) as answer:
                [told] = json.loads(await answer.read())
            if told["status"] == "queued":
                last_stored = clock()
            if told["status"] == wanted:
                count -= 1
        self.seconds_without = clock() - last_stored


@pytest.mark.parametrize("way", WAYS)
async def test_outage_is_noticed_within_two_seconds(
    way: str, postgres: PostgresServer, database: str, tmp_path: Path
) -> None:
    measured = []
    async with TcpProxy(database) as proxy:
        server = RunningServer(tmp_path / "data", store=proxy.url)
        await asyncio.to_thread(server.start)
        try:
            async with aiohttp.ClientSession(server.url) as session:
                for _ in range(ROUNDS):
                    pushing = Pushing(session)
                    await pushing.until("queued", CALM_PUSHES)
                    noticing = asyncio.create_task(pushing.until("buffered", 1))
                    async with asynccontextmanager(WAYS[way])(postgres, database, proxy):
                        async with asyncio.timeout(30):
                            await noticing
                    measured.append(pushing.seconds_without)
                    if measured[-1] < SECONDS_MAX:
                        return
                    await until_drained(server.url)
        finally:
            await asyncio.to_thread(server.stop)
    raise AssertionError(f"noticed after {measured} s")
