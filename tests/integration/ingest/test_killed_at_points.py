"""The server kills itself at each named point of append, rotation, drain and removal, in a real outage under load.

`tests/recovery/test_buffer_crashes.py` visits every state of a simulated disk; here the disk, the database and the
processes are real, and producers see the answers.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fixtures.outage_load import Load, buffers, stored_numbers, until_drained
from fixtures.waiting import until
from forebay.testing.running_server import FOREBAY, RunningServer
from forebay.testing.servers import PostgresServer
from integration.ingest.doomed_server import POINTS

SCRIPT = Path(__file__).with_name("doomed_server.py")
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


async def until_dead(server: RunningServer) -> None:
    """Until the process has killed itself. It is not reaped, so its number stays its own."""

    def is_dead() -> bool:
        return Path(f"/proc/{server.pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"

    try:
        await until(is_dead, what="the passage of the point")
    except AssertionError as error:
        error.add_note(server.errors())
        raise


def doomed(point: str, server: RunningServer) -> tuple[str, ...]:
    return (sys.executable, str(SCRIPT), point, str(PASSAGES.get(point, 1)), str(armed_file(server)))


def armed_file(server: RunningServer) -> Path:
    return server.data_dir.with_name("armed")


async def outage_with_a_kill(
    point: str, postgres: PostgresServer, server: RunningServer, successor: tuple[str, ...]
) -> Load:
    """Whoever comes after the killed server has to recover what it left."""
    load = Load(server.url, point, producers=8, groups=1)
    async with load.running():
        await load.goes_on()
        await asyncio.to_thread(postgres.stop, "fast")
        armed_file(server).touch()
        try:
            await load.goes_on()
        finally:
            await asyncio.to_thread(postgres.start)
        await until_dead(server)
        server.kill()
        armed_file(server).unlink()
        server.program = successor
        await asyncio.to_thread(server.start)
        await until_drained(server.url)
    return load


@pytest.mark.parametrize("work", ["append", "rotate", "drain", "delete", "failed"])
async def test_kill_at_a_point_loses_duplicates_and_reorders_nothing(
    work: str, postgres: PostgresServer, server: RunningServer
) -> None:
    points = [point for point in POINTS if point.startswith(f"{work}-")]
    server.program = doomed(points[0], server)
    await asyncio.to_thread(server.start)
    successors = [*(doomed(point, server) for point in points[1:]), FOREBAY]
    torn = 0
    for point, successor in zip(points, successors, strict=True):
        load = await outage_with_a_kill(point, postgres, server, successor)
        load.check(await stored_numbers(server.url, point))
        statuses = load.statuses()
        assert statuses["queued"] > 0, point
        assert statuses["broken"] > 0, f"the kill at {point} was noticed by nobody"
        told = await buffers(server.url)
        assert (told["pending"], told["failed"], told["failedFiles"], told["unknownFiles"]) == (0, 0, [], []), point
        torn += point.endswith("half-written")
        assert len(told["damagedFiles"]) == torn, point
