"""A real PostgreSQL goes away in every way there is, while 16 producers push and 4 groups consume."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import psycopg
import pytest

from fixtures.outage_load import Load, buffers, stored_numbers, until_away, until_drained
from forebay.testing.running_server import RunningServer
from forebay.testing.servers import PostgresServer


@pytest.fixture(scope="module")
def postgres() -> Iterator[PostgresServer]:
    with PostgresServer() as server:
        with psycopg.connect(server.url, autocommit=True) as connection:
            connection.execute("CREATE ROLE clerk LOGIN")
        yield server


@pytest.fixture
def database(postgres: PostgresServer) -> str:
    """Of a role that owns it and is no superuser, so that rights can be taken from it."""
    name = f"d{random.getrandbits(48):x}"
    with psycopg.connect(postgres.url, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name} OWNER clerk")
    return postgres.database_url(name).replace("forebay@", "clerk@")


@pytest.fixture
def server(database: str, tmp_path: Path) -> Iterator[RunningServer]:
    with RunningServer(tmp_path / "data", store=database) as running:
        yield running


def as_superuser(postgres: PostgresServer, database: str) -> psycopg.Connection[tuple[object, ...]]:
    return psycopg.connect(postgres.database_url(database.rpartition("/")[2]), autocommit=True)


async def stopped(postgres: PostgresServer, database: str, mode: str) -> AsyncIterator[None]:
    await asyncio.to_thread(postgres.stop, mode)
    yield
    await asyncio.to_thread(postgres.start)


async def frozen(postgres: PostgresServer, database: str, mode: str) -> AsyncIterator[None]:
    postgres.pause()
    yield
    postgres.resume()


async def revoked(postgres: PostgresServer, database: str, mode: str) -> AsyncIterator[None]:
    with as_superuser(postgres, database) as connection:
        connection.execute("REVOKE ALL ON ALL TABLES IN SCHEMA forebay FROM clerk")
        yield
        connection.execute("GRANT ALL ON ALL TABLES IN SCHEMA forebay TO clerk")


async def read_only(postgres: PostgresServer, database: str, mode: str) -> AsyncIterator[None]:
    name = database.rpartition("/")[2]
    with as_superuser(postgres, database) as connection:
        for is_on in ("on", "off"):
            connection.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = {is_on}")
            connection.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'clerk'")
            if is_on == "on":
                yield


async def restarted(postgres: PostgresServer, database: str, mode: str) -> AsyncIterator[None]:
    await asyncio.to_thread(postgres.restart, "fast")
    yield


FAULTS: dict[str, tuple[Callable[[PostgresServer, str, str], AsyncIterator[None]], str]] = {
    "stop-fast": (stopped, "fast"),
    "stop-immediate": (stopped, "immediate"),
    "kill-9": (stopped, "kill"),
    "frozen": (frozen, ""),
    "revoked": (revoked, ""),
    "read-only": (read_only, ""),
    "restart": (restarted, ""),
}


@pytest.mark.parametrize("fault", FAULTS)
async def test_outage_loses_duplicates_and_reorders_nothing(
    fault: str, postgres: PostgresServer, database: str, server: RunningServer
) -> None:
    load = Load(server.url, "orders")
    begin, mode = FAULTS[fault]
    async with load.running():
        await load.goes_on()
        async with asynccontextmanager(begin)(postgres, database, mode):
            if fault != "restart":
                await until_away(server.url)
            await load.goes_on()
            if fault != "restart":
                told = await buffers(server.url)
                assert (told["dbHealthy"], told["pending"] > 0, told["partitionsHeld"] > 0) == (False, True, True)
        await until_drained(server.url)
        await load.goes_on()
    load.check(await stored_numbers(server.url, "orders"))
    statuses = load.statuses()
    assert set(statuses) <= {"queued", "buffered"}, statuses
    assert statuses["queued"] > 0
    assert max(one.slowest_seconds for one in load.producers) < 10
    assert (await buffers(server.url))["failedFiles"] == []


@pytest.mark.parametrize("seed", [1, 2])
async def test_server_and_database_killed_again_and_again(
    seed: int, postgres: PostgresServer, database: str, server: RunningServer
) -> None:
    chance = random.Random(seed)
    load = Load(server.url, "orders")
    async with load.running():
        for _ in range(3):
            await asyncio.sleep(chance.uniform(0.2, 1.0))
            await asyncio.to_thread(postgres.stop, "kill")
            await asyncio.sleep(chance.uniform(0.0, 1.5))
            await asyncio.to_thread(server.kill)
            if chance.random() < 0.5:
                await asyncio.to_thread(server.start)  # without its database
                await asyncio.sleep(chance.uniform(0.0, 1.0))
                await asyncio.to_thread(server.kill)
            await asyncio.to_thread(postgres.start)
            if chance.random() < 0.5:
                starting = asyncio.create_task(asyncio.to_thread(server.start))
                await starting
                await asyncio.sleep(chance.uniform(0.0, 0.5))
                await asyncio.to_thread(server.kill)
            await asyncio.to_thread(server.start)
        await until_drained(server.url)
    load.check(await stored_numbers(server.url, "orders"))
    assert load.statuses()["buffered"] > 0
