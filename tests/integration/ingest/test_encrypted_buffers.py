"""Payloads of an encrypted queue are on no disk in clear, neither in the store nor in the buffers before it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import aiohttp
import psycopg

from fixtures.outage_load import buffers, until_drained
from forebay.testing.running_server import RunningServer
from forebay.testing.servers import PostgresServer

KEY = {"FOREBAY_ENCRYPTION_KEY": "5e" * 32}
SECRET = "the colour of the door is vermilion"
COUNT = 20


async def push(server: RunningServer, first: int, **more: int) -> list[Any] | dict[str, Any]:
    items = [{"queue": "secrets", "partition": "p", "payload": f"{n} {SECRET}"} for n in range(first, first + COUNT)]
    body = {"items": items, **more}
    async with aiohttp.ClientSession(server.url) as session, session.post("/api/v1/push", json=body) as answer:
        assert answer.status == 201
        told: list[Any] | dict[str, Any] = await answer.json()
        return told


async def stored(server: RunningServer) -> list[str]:
    path = "/api/v1/messages?queue=secrets&fromSeq=1&limit=1000"
    async with aiohttp.ClientSession(server.url) as session, session.get(path) as answer:
        return [message["data"] for message in (await answer.json())["messages"]]


async def configure(server: RunningServer) -> None:
    body = {"queue": "secrets", "options": {"encryptionEnabled": True}}
    async with aiohttp.ClientSession(server.url) as session, session.post("/api/v1/configure", json=body) as answer:
        assert answer.status == 200, await answer.text()


def files_with_the_secret(folder: Path) -> list[str]:
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert any(path.stat().st_size > COUNT * len(SECRET) for path in files), "nothing is buffered"
    return [path.name for path in files if SECRET.encode() in path.read_bytes()]


async def test_secrets_are_in_no_buffer_file_and_wait_for_their_key(
    postgres: PostgresServer, database: str, tmp_path: Path
) -> None:
    server = RunningServer(tmp_path / "data", store=database, environment=KEY)
    with server:
        await configure(server)
        await asyncio.to_thread(postgres.stop, "fast")
        try:
            told = await push(server, 0)
            assert isinstance(told, list)
            assert {one["status"] for one in told} == {"buffered"}
            await push(server, COUNT, bufferMs=10)
            folder = server.data_dir / "buffers"
            assert files_with_the_secret(folder) == []
            server.kill()
        finally:
            await asyncio.to_thread(postgres.start)
        server.environment = {}
        await asyncio.to_thread(server.start)  # without the key: nothing is lost, and nothing is stored in clear
        told = await buffers(server.url)
        assert (told["failed"], told["pending"], len(told["failedFiles"])) == (2 * COUNT, 0, 2)
        assert await stored(server) == []
        assert files_with_the_secret(folder) == []
        server.stop()
        server.environment = KEY
        await asyncio.to_thread(server.start)
        await until_drained(server.url)
        assert await stored(server) == [f"{n} {SECRET}" for n in range(2 * COUNT)]
        assert (await buffers(server.url))["failedFiles"] == []
    with psycopg.connect(database) as connection:
        tables = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'forebay'").fetchall()
        for (table,) in tables:
            found = connection.execute(f"SELECT count(*) FROM forebay.{table} t WHERE t::text LIKE %s", [f"%{SECRET}%"])
            assert found.fetchone() == (0,), table
