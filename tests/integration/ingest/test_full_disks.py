"""Disks that fill up on the real kernel while the store is away: a tmpfs in a mount namespace of the server's own."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import pytest

from fixtures.outage_load import buffers, until_drained
from forebay.testing.running_server import FOREBAY, RunningServer
from forebay.testing.servers import PostgresServer

PADDING = "x" * 20_000
BUFFER_DISK = "6m"
"""More than a chunk of the drain: its position has to be noted on the way, on a disk without room."""
STORE_DISK = "24m"


def on_own_disk(folder: Path, size: str) -> tuple[str, ...]:
    """What starts a server that has a disk of that size at that folder, unseen by others."""
    folder.mkdir()
    # Root may mount in a namespace of its own; anyone else is root in a user namespace of their own first.
    namespace = ["unshare", "-m"] if os.geteuid() == 0 else ["unshare", "-rm"]
    mount_and_run = 'mount -t tmpfs -o "size=$1" tmpfs "$2" && shift 2 && exec "$@"'
    return (*namespace, "sh", "-c", mount_and_run, "sh", size, str(folder), *FOREBAY)


def inside(server: RunningServer, path: Path) -> Path:
    """The same path as the server sees it."""
    return Path(f"/proc/{server.pid}/root{path}")


def fill(folder: Path) -> Path:
    """Not a byte is left."""
    ballast = folder / "ballast"
    with ballast.open("ab", buffering=0) as file:
        for size in (1 << 20, 1 << 12, 1):
            with contextlib.suppress(OSError):
                while file.write(bytes(size)) == size:
                    pass
    return ballast


class Answer(NamedTuple):
    status: int
    told: Any
    retry_after: str | None


class Pusher:
    """Pushes 0, 1, 2, … to one partition and remembers which were accepted."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session
        self._next = 0
        self.accepted: list[int] = []

    async def push(self, count: int = 1, padding: str = PADDING) -> Answer:
        numbers = range(self._next, self._next + count)
        self._next += count
        items = [{"queue": "orders", "partition": "p", "payload": {"n": n, "padding": padding}} for n in numbers]
        async with self._session.post("/api/v1/push", json={"items": items}) as answer:
            told = await answer.json(content_type=None)
            if answer.status == 201:
                self.accepted += numbers
            return Answer(answer.status, told, answer.headers.get("Retry-After"))

    async def push_until_refused(self, **more: Any) -> Answer:
        for _ in range(2000):
            answer = await self.push(**more)
            if answer.status != 201:
                return answer
            assert answer.told[0]["status"] == "buffered"
        raise AssertionError("everything was accepted")

    async def stored(self) -> list[int]:
        found: list[int] = []
        from_seq: int | None = 1
        while from_seq is not None:
            async with self._session.get(f"/api/v1/messages?queue=orders&fromSeq={from_seq}&limit=500") as answer:
                page = await answer.json()
            found += [message["data"]["n"] for message in page["messages"]]
            from_seq = page["nextSeq"]
        return found


@contextlib.asynccontextmanager
async def pushing(server: RunningServer) -> AsyncIterator[Pusher]:
    async with aiohttp.ClientSession(server.url) as session:
        yield Pusher(session)


@contextlib.asynccontextmanager
async def away(postgres: PostgresServer) -> AsyncIterator[None]:
    await asyncio.to_thread(postgres.stop, "fast")
    try:
        yield
    finally:
        await asyncio.to_thread(postgres.start)


def is_refusal(answer: Answer) -> bool:
    return (answer.status, answer.told["code"], answer.retry_after) == (507, "buffer_full", "1")


@pytest.fixture
def disk(tmp_path: Path) -> Path:
    return tmp_path / "disk"


@pytest.fixture
def cramped(database: str, disk: Path, tmp_path: Path) -> Iterator[RunningServer]:
    """Its buffers are on a small disk."""
    program = on_own_disk(disk, BUFFER_DISK)
    environment = {"FILE_BUFFER_DIR": str(disk / "buffers")}
    with RunningServer(tmp_path / "data", store=database, program=program, environment=environment) as server:
        yield server


async def test_full_disk_refuses_keeps_what_it_has_and_takes_more_when_there_is_room(
    postgres: PostgresServer, cramped: RunningServer, disk: Path
) -> None:
    folder = inside(cramped, disk)
    async with pushing(cramped) as pusher:
        await pusher.push()
        async with away(postgres):
            assert is_refusal(await pusher.push_until_refused())
            assert len(pusher.accepted) > 200
            ballast = fill(folder)
            assert is_refusal(await pusher.push_until_refused(padding="")), "the last page had room for a few"
            for _ in range(5):
                assert is_refusal(await pusher.push(padding=""))
            told = await buffers(cramped.url)
            assert told["pending"] == len(pusher.accepted) - 1
        await until_drained(cramped.url)
        assert "could not be noted" in cramped.errors(), "the disk had room for the position"
        assert (await pusher.push()).told[0]["status"] == "queued"
        async with away(postgres):
            fill(folder)
            assert is_refusal(await pusher.push_until_refused())
            ballast.unlink()
            assert (await pusher.push()).told[0]["status"] == "buffered"
            assert (await pusher.push()).told[0]["status"] == "buffered"
        await until_drained(cramped.url)
        assert (await pusher.push()).told[0]["status"] == "queued"
        assert await pusher.stored() == pusher.accepted
    told = await buffers(cramped.url)
    assert (told["pending"], told["bytes"], told["damagedFiles"]) == (0, 0, [])
    assert "BUG" not in cramped.errors()


@pytest.mark.parametrize(
    ("limit", "events"),
    [(("--buffer-max-events", "50"), 50), (("--buffer-max-size", "64Ki"), 3)],
    ids=["events", "size"],
)
async def test_limit_refuses_whole_pushes_until_the_drain(
    limit: tuple[str, str], events: int, postgres: PostgresServer, database: str, tmp_path: Path
) -> None:
    with RunningServer(tmp_path / "data", store=database, arguments=limit) as server:
        async with pushing(server) as pusher:
            await pusher.push()
            async with away(postgres):
                assert (await pusher.push(events - 1)).status == 201
                assert is_refusal(await pusher.push(2)), "one of them would fit"
                assert (await pusher.push()).status == 201
                for _ in range(3):
                    assert is_refusal(await pusher.push())
                assert (await buffers(server.url))["pending"] == events
            await until_drained(server.url)
            assert (await pusher.push()).told[0]["status"] == "queued"
            assert await pusher.stored() == pusher.accepted


async def test_embedded_store_without_room_goes_on_in_a_buffer_elsewhere(disk: Path, tmp_path: Path) -> None:
    program = on_own_disk(disk, STORE_DISK)
    environment = {"FILE_BUFFER_DIR": str(tmp_path / "buffers")}
    with RunningServer(disk / "data", program=program, environment=environment) as server:
        async with pushing(server) as pusher:
            for _ in range(5):
                assert (await pusher.push()).told[0]["status"] == "queued"
            ballast = fill(inside(server, disk))
            statuses = [(await pusher.push()).told[0]["status"] for _ in range(60)]
            assert statuses[-30:] == ["buffered"] * 30
            told = await buffers(server.url)
            assert (told["dbHealthy"], told["pending"] >= 30) == (False, True)
            ballast.unlink()
            await until_drained(server.url, 20)
            assert (await pusher.push()).told[0]["status"] == "queued"
            assert await pusher.stored() == pusher.accepted
        assert "BUG" not in server.errors()
