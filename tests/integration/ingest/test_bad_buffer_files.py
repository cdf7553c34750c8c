"""Start-up on buffer files that a crash, a bad disk or a stranger has left; and on very many good ones."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from fixtures.outage_load import Load, buffers, stored_numbers, until_drained
from fixtures.waiting import until
from forebay.ingest.event import frames_of
from forebay.model.ids import minted_id
from forebay.model.push_run import run_of_one
from forebay.testing.running_server import RunningServer
from forebay.testing.servers import PostgresServer

MANY = 100_000
PARTITIONS = 8
ACCEPTED_US = 1_700_000_000_000_000
ZEROS = bytes(70_000)
TEXT = b'Dear reader,\n\nthis is no buffer file. {"queue": "orders"}\n' * 20


@pytest.fixture
def server(database: str, tmp_path: Path) -> Iterator[RunningServer]:
    """Not started yet."""
    (tmp_path / "data" / "buffers" / "failed").mkdir(parents=True)
    with contextlib.ExitStack() as stack:
        yield stack.push(RunningServer(tmp_path / "data", store=database))


def frames(partition: str, numbers: range) -> list[bytes]:
    items = [run_of_one("orders", partition, b"%d" % n, minted_id(), is_minted=True) for n in numbers]
    return frames_of(items, is_failover=True, now_us=ACCEPTED_US, cipher=None)


def bytes_of(partition: str, numbers: range) -> bytes:
    return b"".join(frames(partition, numbers))


def write_bad_files(folder: Path) -> list[bytes]:
    """Returns what holds no event, as it has to be found again."""
    failed = folder / "failed"
    (failed / "failover_2026-01-01T00:00:00.buf").write_bytes(bytes_of("p", range(5)))
    (failed / "failover_2026-01-02T00:00:00.000001.buf").write_bytes(b"")
    (failed / "qos0_2026-01-01T00:00:00.buf").write_bytes(bytes_of("quick", range(3)))
    (failed / "qos0_2026-01-02T00:00:00.buf").write_bytes(ZEROS)
    (failed / "failover_2025-01-01T00:00:00.damaged").write_bytes(b"of an earlier life")
    (folder / "failover_processing.buf").write_bytes(bytes_of("p", range(5, 10)))
    (folder / "failover_processing.pos").write_bytes(b"999999 of 1000000\n")
    whole = frames("p", range(10, 16))
    damaged = whole[2].replace(b'"payload":12', b'"payload":13')
    assert damaged != whole[2]
    torn = whole[5][:-7]
    (folder / "failover.buf").write_bytes(b"".join([*whole[:2], damaged, *whole[3:5], torn]))
    (folder / "qos0_processing.pos").write_bytes(b"300 of 400\n")  # of a file that is gone
    (folder / "qos0.buf").write_bytes(bytes_of("quick", range(3, 6)) + TEXT + bytes_of("quick", range(6, 8)))
    (folder / "notes.txt").write_bytes(b"somebody's")
    return [damaged, torn, ZEROS, TEXT, b"of an earlier life"]


async def test_whole_events_are_stored_and_damaged_bytes_are_kept_and_told(server: RunningServer) -> None:
    folder = server.data_dir / "buffers"
    kept = write_bad_files(folder)
    await asyncio.to_thread(server.start)
    stored = await stored_numbers(server.url, "orders")
    assert stored == {"p": [*range(12), 13, 14], "quick": list(range(8))}
    told = await buffers(server.url)
    assert (told["pending"], told["failed"], told["failedFiles"], told["bytes"]) == (0, 0, [], 0)
    assert told["unknownFiles"] == ["notes.txt"]
    found = {path.name: path.read_bytes() for path in (folder / "failed").iterdir()}
    assert sorted(told["damagedFiles"]) == sorted(found)
    assert sorted(found.values()) == sorted(kept)
    log = server.errors()
    for name in sorted(found)[1:]:
        assert name in log
    assert (log.count("a torn end"), log.count(": damaged (")) == (2, 2), log
    assert (folder / "notes.txt").read_bytes() == b"somebody's"
    server.kill()
    await asyncio.to_thread(server.start)
    assert await stored_numbers(server.url, "orders") == stored, "the next start finds nothing to do"
    assert {path.name for path in (folder / "failed").iterdir()} == set(found)


# many events


def write_many(folder: Path) -> None:
    """Of every partition the numbers up to -1, so that a producer that begins with 0 goes on with them."""
    each = MANY // PARTITIONS
    for name, numbers in (
        ("failover_processing.buf", range(-each, -each // 2)),
        ("failover.buf", range(-each // 2, 0)),
    ):
        by_partition = [frames(f"p{partition:02}", numbers) for partition in range(PARTITIONS)]
        (folder / name).write_bytes(b"".join(frame for group in zip(*by_partition, strict=True) for frame in group))


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Witness:
    """Asks a server that recovers whatever one can ask."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.reasons: list[str] = []
        self.refusals: list[tuple[int, str, str | None]] = []
        self.recovering: list[str] = []
        self.looks_seconds: list[float] = []

    async def watch(self) -> None:
        async with aiohttp.ClientSession(self.url) as session:
            while True:
                began = time.monotonic()
                with contextlib.suppress(aiohttp.ClientConnectionError):
                    if await self._look(session):
                        return
                    self.looks_seconds.append(time.monotonic() - began)
                await asyncio.sleep(0.02)

    async def _look(self, session: aiohttp.ClientSession) -> bool:
        async with session.get("/healthz") as answer:
            assert answer.status == 200
        async with session.get("/readyz") as answer:
            told: Any = await answer.json()
            if answer.status == 200:
                return True
            assert (answer.status, told["status"]) == (503, "not ready")
            self.reasons += told["reasons"]
        # Of another queue: the recovery may end between the last answer and this push, which is stored then.
        item = {"queue": "impatient", "payload": "too early"}
        async with session.post("/api/v1/push", json={"items": [item]}) as answer:
            if answer.status != 201:
                problem = await answer.json(content_type=None)
                self.refusals.append((answer.status, problem["code"], answer.headers.get("Retry-After")))
        async with session.get("/api/v1/status/buffers") as answer:
            self.recovering.append((await answer.json())["recovering"])
        return False


async def test_recovery_of_many_events_is_told_and_holds_pushes_off(server: RunningServer) -> None:
    write_many(server.data_dir / "buffers")
    server._port = free_port()
    witness = Witness(f"http://127.0.0.1:{server._port}")
    starting = asyncio.create_task(asyncio.to_thread(server.start))
    await witness.watch()
    await starting
    assert any(reason.startswith("recovering: storing buffered events (failover): ") for reason in witness.reasons)
    assert f"of {MANY}" in witness.reasons[-1]
    assert len(set(witness.reasons)) > 2, "it tells how far it is"
    assert set(witness.refusals) == {(503, "recovering", "1")}
    assert witness.recovering[0]
    looks = witness.looks_seconds
    assert max(looks) < max(2.0, sum(looks) / 2), "no look waited for most of the recovery"
    stored = await stored_numbers(server.url, "orders")
    each = MANY // PARTITIONS
    assert stored == {f"p{partition:02}": list(range(-each, 0)) for partition in range(PARTITIONS)}
    told = await buffers(server.url)
    assert (told["pending"], told["recovering"], told["bytes"]) == (0, None, 0)


async def test_many_events_are_drained_in_order_while_producers_go_on(
    postgres: PostgresServer, server: RunningServer
) -> None:
    write_many(server.data_dir / "buffers")
    async with contextlib.AsyncExitStack() as stack:
        await asyncio.to_thread(postgres.stop, "fast")
        try:
            await asyncio.to_thread(server.start)
            told = await buffers(server.url)
            assert (told["pending"], told["dbHealthy"], told["partitionsHeld"]) == (MANY, False, PARTITIONS)
            load = Load(server.url, "orders", producers=PARTITIONS, groups=0)
            await stack.enter_async_context(load.running())
            await load.goes_on(5)
            assert set(load.statuses()) == {"buffered"}
        finally:
            await asyncio.to_thread(postgres.start)
        await until_drained(server.url)
        await until(lambda: "queued" in load.statuses())
    stored = await stored_numbers(server.url, "orders")
    load.check(stored)
    each = MANY // PARTITIONS
    assert all(numbers[:each] == list(range(-each, 0)) for numbers in stored.values())
    assert set(load.statuses()) == {"buffered", "queued"}
