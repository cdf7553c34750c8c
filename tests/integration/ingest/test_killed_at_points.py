"""The server kills itself at each named point of append, rotation, drain and removal, in a real outage under load.

`tests/recovery/test_buffer_crashes.py` visits every state of a simulated disk; here the disk, the database and the
processes are real, and producers see the answers.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from fixtures.outage_load import Load, buffers, stored_numbers, until_drained
from forebay.testing.running_server import FOREBAY, RunningServer
from forebay.testing.servers import PostgresServer
from integration.ingest.doomed_server import POINTS

pytestmark = pytest.mark.xdist_group("killed-at-points")

SCRIPT = Path(__file__).with_name("doomed_server.py")
CALM_SECONDS = 0.2
AWAY_SECONDS = 0.5
PASSAGES = {
    "append-before-write": 3,
    "append-half-written": 5,
    "append-before-sync": 9,
    "append-before-answer": 20,
    "drain-before-push": 2,
    "drain-before-note": 2,
    "failed-before-note": 2,
}
"""With which passage the kill comes; at the other points with the first."""


@pytest.fixture
def server(database: str, tmp_path: Path) -> Iterator[RunningServer]:
    """Not started yet."""
    with contextlib.ExitStack() as stack:
        yield stack.push(RunningServer(tmp_path / "data", store=database))


async def until_dead(server: RunningServer, seconds_max: float = 20.0) -> None:
    """Until the process has killed itself. It is not reaped, so its number stays its own."""
    deadline = time.monotonic() + seconds_max
    while Path(f"/proc/{server.pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z":
        assert time.monotonic() < deadline, f"the point was never passed: {server.errors()}"
        await asyncio.sleep(0.02)


async def outage_with_a_kill(point: str, postgres: PostgresServer, server: RunningServer) -> Load:
    server.program = (sys.executable, str(SCRIPT), point, str(PASSAGES.get(point, 1)))
    await asyncio.to_thread(server.start)
    load = Load(server.url, "orders", producers=8, groups=1)
    async with load.running():
        await asyncio.sleep(CALM_SECONDS)
        await asyncio.to_thread(postgres.stop, "fast")
        try:
            await asyncio.sleep(AWAY_SECONDS)
        finally:
            await asyncio.to_thread(postgres.start)
        await until_dead(server)
        server.kill()
        server.program = FOREBAY
        await asyncio.to_thread(server.start)
        await until_drained(server.url)
    return load


@pytest.mark.parametrize("point", POINTS)
async def test_kill_at_a_point_loses_duplicates_and_reorders_nothing(
    point: str, postgres: PostgresServer, server: RunningServer
) -> None:
    load = await outage_with_a_kill(point, postgres, server)
    load.check(await stored_numbers(server.url, "orders"))
    statuses = load.statuses()
    assert statuses["queued"] > 0
    assert statuses["broken"] > 0, "the kill was noticed by nobody"
    told = await buffers(server.url)
    assert (told["pending"], told["failed"], told["failedFiles"], told["unknownFiles"]) == (0, 0, [], [])
    assert len(told["damagedFiles"]) == (1 if point.endswith("half-written") else 0)
