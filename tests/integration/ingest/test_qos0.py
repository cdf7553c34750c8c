"""QoS 0 when things go wrong for real: the database goes, the server is stopped, or it is killed at a named point."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack, asynccontextmanager
from functools import partial
from pathlib import Path

import pytest

from fixtures.outage_load import Load, buffers, stored_numbers, until_drained
from fixtures.running_stores import Http
from fixtures.waiting import until_told
from forebay.testing.running_server import FOREBAY, RunningServer
from forebay.testing.servers import PostgresServer
from integration.ingest.doomed_server import POINTS
from integration.ingest.test_killed_at_points import armed_file, doomed, until_dead
from integration.ingest.test_outages import FAULTS, database, postgres

__all__ = ["database", "postgres"]

BUFFER_MS = 20
HOUR_MS = 3_600_000
QOS0_POINTS = [point for point in POINTS if point.startswith("qos0-")]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RunningServer]:
    """On the embedded store; not started yet."""
    with ExitStack() as stack:
        yield stack.push(RunningServer(tmp_path / "data"))


async def has_noticed(server: RunningServer) -> bool:
    return not (await buffers(server.url))["dbHealthy"]


@pytest.mark.parametrize("fault", ["kill-9", "read-only"])
async def test_outage_loses_doubles_and_reorders_nothing(
    fault: str, postgres: PostgresServer, database: str, tmp_path: Path
) -> None:
    begin, mode = FAULTS[fault]
    with RunningServer(tmp_path / "data", store=database) as server:
        load = Load(server.url, "clicks", producers=8, groups=1, buffer_ms=BUFFER_MS)
        async with load.running():
            await load.goes_on()
            async with asynccontextmanager(begin)(postgres, database, mode):
                await until_told(partial(has_noticed, server))
                await load.goes_on()
                assert (await buffers(server.url))["pending"] > 0
                await asyncio.to_thread(server.kill)
                await asyncio.to_thread(server.start)  # without its database
            await load.goes_on()
        await until_drained(server.url)
        load.check(await stored_numbers(server.url, "clicks"))
    statuses = load.statuses()
    assert statuses["os"] > 100, statuses
    assert not [status for status in statuses if status not in ("os", "broken", "503 recovering")], statuses


async def test_kill_at_a_point_loses_doubles_and_reorders_nothing(server: RunningServer) -> None:
    server.program = doomed(QOS0_POINTS[0], server)
    await asyncio.to_thread(server.start)
    for point, successor in zip(QOS0_POINTS, [*QOS0_POINTS[1:], None], strict=True):
        load = Load(server.url, point, producers=8, groups=1, buffer_ms=BUFFER_MS)
        async with load.running():
            await load.goes_on()
            armed_file(server).touch()
            await until_dead(server)
            server.kill()
            armed_file(server).unlink()
            server.program = doomed(successor, server) if successor else FOREBAY
            await asyncio.to_thread(server.start)
            await load.goes_on()
        # While producers push there is always something pending.
        await until_drained(server.url)
        load.check(await stored_numbers(server.url, point))
        assert load.statuses()["broken"] > 0, f"the kill at {point} was noticed by nobody"
        told = await buffers(server.url)
        assert (told["pending"], told["failed"], told["failedFiles"]) == (0, 0, []), point


def push_all(http: Http, count: int) -> None:
    for number in range(count):
        told = http.post("/push", {"items": [{"queue": "clicks", "payload": number}], "bufferMs": HOUR_MS})
        assert (told.status, told.json["receipt"]) == (201, "os")
    assert http.get("/api/v1/status/buffers").json["pending"] == count


def test_sigterm_stores_what_waits(server: RunningServer) -> None:
    with server:
        with Http(server.url) as http:
            push_all(http, 50)
        assert server.stop() == 0
        assert not (server.data_dir / "buffers" / "qos0.buf").exists()
        server.start()
        with Http(server.url) as http:
            assert [message["data"] for message in http.pop("clicks", batch=100)] == list(range(50))


def test_sigterm_without_a_database_leaves_what_waits_to_the_next_start(
    postgres: PostgresServer, database: str, tmp_path: Path
) -> None:
    with RunningServer(tmp_path / "data", store=database) as server:
        with Http(server.url) as http:
            push_all(http, 50)
        postgres.stop("fast")
        try:
            assert server.stop() == 0
        finally:
            postgres.start()
        server.start()
        with Http(server.url) as http:
            messages: list[int] = []
            while len(messages) < 50:
                messages += [m["data"] for m in http.pop("clicks", batch=100, wait="true", autoAck="true")]
            assert messages == list(range(50))
