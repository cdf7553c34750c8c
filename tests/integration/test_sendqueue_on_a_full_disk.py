"""A disk that is full under a send queue and its failover queue, from the receiver's port to the account of batches."""

from __future__ import annotations

import asyncio
import errno
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from fixtures.http_sink import HttpSink, http_sink
from fixtures.telemetry import gauges, post
from fixtures.waiting import until
from forebay.api.journey.gathering import outlet_now
from forebay.assemble_export import Surroundings, way_out
from forebay.broker.waiting import WaitingRoom
from forebay.clock import SystemClock
from forebay.config.lists import DestinationSettings
from forebay.config.model import Settings
from forebay.export.queue_feed import FAILOVER_SECONDS
from forebay.export.way_out import Outlet, WayOut
from forebay.filesystem import RealFilesystem
from forebay.sendqueue.opening import FAILOVER_FOLDER
from forebay.testing.faulty_filesystem import Fail, Fault, FaultyFilesystem, Operation
from forebay.testing.memory_store import MemoryStore

NEEDS_ROOM = {"write", "create", "make_directory"}


class FullDisk:
    """A plan: nothing is written, created or made while `is_full`."""

    is_full = False
    writable = ""
    """What is in a folder of this name is written all the same."""

    def __call__(self, operation: Operation) -> Fault | None:
        is_refused = self.is_full and operation.name in NEEDS_ROOM and self.writable not in operation.path.parts
        return Fail(errno.ENOSPC) if is_refused else None


@asynccontextmanager
async def receiving(
    folder: Path, url: str, disk: FullDisk, queue: dict[str, Any], *, failover_seconds: float = FAILOVER_SECONDS
) -> AsyncIterator[tuple[WayOut, str]]:
    """A receiver that leads to a destination with this send queue: the way out, and where to push."""
    settings = Settings.model_validate(
        {
            "data_dir": folder,
            "receivers": {
                "otlp_http": {"listen": "127.0.0.1:0", "to": "destination:d"},
                "buffer": {"flush_interval": "0s"},
            },
        }
    )
    base = {"retry_interval": "50ms", "circuit_breaker": {"reset_timeout": "100ms"}, "workers": 2}
    to = {"name": "d", "type": "otlp_http", "url": url, "queue": base | queue}
    store, waiting = MemoryStore(), WaitingRoom(asyncio.get_running_loop())
    filesystem = FaultyFilesystem(RealFilesystem(), disk)
    around = Surroundings(
        store, waiting, SystemClock(), store.push, filesystem=filesystem, cpus=2, failover_seconds=failover_seconds
    )
    made = way_out(settings, [DestinationSettings.model_validate(to)], [], around)
    await made.start()
    try:
        yield made, f"http://127.0.0.1:{made.receivers[0].port}/v1/metrics"
    finally:
        await made.stop_receivers()
        await made.stop()
        waiting.close()


async def pushed(url: str, numbers: range) -> Counter[tuple[int, str | None]]:
    """The answers: status and Retry-After."""
    found: Counter[tuple[int, str | None]] = Counter()
    for number in numbers:
        answer = await asyncio.to_thread(post, url, gauges("g", {number + 1: float(number)}))
        found[answer.status, answer.headers.get("Retry-After")] += 1
    return found


def accounted(outlet: Outlet) -> None:
    assert outlet.feed.account().faults() == []


@pytest.mark.parametrize("mode", ["disk", "hybrid"])
async def test_a_full_disk_fills_memory_and_then_refuses_with_a_status_that_clients_try_again(
    mode: str, tmp_path: Path
) -> None:
    disk = FullDisk()
    # `disk` holds 10 batches in its channel, `hybrid` 10 in memory; the failover queue 10 more.
    queue = {"mode": mode, "inmemory_blocks": 10, "max_size": 10 if mode == "hybrid" else 1000, "failover_max_size": 10}
    async with http_sink() as away:
        port = away.port
    async with receiving(tmp_path, away.url, disk, queue, failover_seconds=0.05) as (made, url):
        outlet = made.outlets["d"]
        disk.is_full = True
        answers = await pushed(url, range(40))
        assert set(answers) == {(200, None), (503, "5")}
        accepted = answers[200, None]
        assert accepted >= 20
        assert outlet.feed.failover.figures().batches == 10
        assert outlet.feed.dropped == {"disk_full": 40 - accepted}
        accounted(outlet)
        disk.is_full = False
        async with http_sink(HttpSink(), port=port) as sink:
            await until(lambda: len(sink.received) == accepted, 60)
        await until(outlet.feed.is_empty)
        accounted(outlet)


async def test_failover_queue_spills_to_disk_rather_than_drop_what_its_memory_cannot_hold(
    tmp_path: Path,
) -> None:
    disk = FullDisk()
    disk.writable = FAILOVER_FOLDER
    queue = {"mode": "disk", "inmemory_blocks": 10, "failover_max_size": 14, "meta_sync_interval": "50ms"}
    async with http_sink() as away:
        port = away.port
    async with receiving(tmp_path, away.url, disk, queue, failover_seconds=0.05) as (made, url):
        feed = made.outlets["d"].feed
        disk.is_full = True
        assert await pushed(url, range(40)) == {(200, None): 40}
        assert feed.failover.figures().batches > 14, "more than its memory holds"
        assert feed.dropped == {}
        accounted(made.outlets["d"])
        await until(lambda: feed.failover.figures().disk_bytes > 0)
        await until(lambda: outlet_now(made.outlets["d"], SystemClock().now_us()).at_risk < 40)
        disk.is_full = False
        async with http_sink(HttpSink(), port=port) as sink:
            await until(lambda: len(sink.received) == 40, 60)
        await until(feed.is_empty)
        accounted(made.outlets["d"])


async def test_what_is_in_memory_when_the_disk_refuses_is_written_at_a_stop_once_it_takes_again(
    tmp_path: Path,
) -> None:
    disk = FullDisk()
    async with receiving(tmp_path, "http://127.0.0.1:1", disk, {"mode": "hybrid", "max_size": 10}) as (made, url):
        disk.is_full = True
        assert await pushed(url, range(9)) == {(200, None): 9}
        assert made.outlets["d"].feed.dropped == {}
        disk.is_full = False
    async with receiving(tmp_path, "http://127.0.0.1:1", disk, {"mode": "hybrid"}) as (made, _):
        assert made.outlets["d"].feed.queue.figures().batches == 9
