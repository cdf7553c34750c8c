"""More that can go wrong on the way out: disks that refuse, connections that break, queues that are too small."""

from __future__ import annotations

import asyncio
import errno
from pathlib import Path
from typing import Any

import pytest

from fixtures.http_sink import HttpSink, eventually, http_sink
from forebay.errors import SendQueueWriteFailed
from forebay.export import queue_feed
from forebay.export.batch import CODEC, ExportBatch
from forebay.export.dead_letters import DeadLetters
from forebay.export.delivery import DeliveryOptions
from forebay.export.destinations.otlp_http import OtlpHttpDestination
from forebay.export.exporter import Exporter, ExporterOptions
from forebay.export.http_sender import HttpOptions
from forebay.export.outcome import ErrorClass
from forebay.export.queue_feed import QueueFeed, QueueFeedOptions
from forebay.export.way_out import Outlet, WayOut
from forebay.filesystem import RealFilesystem
from forebay.sendqueue.queue import Limits
from forebay.sendqueue.queues.fastqueue import FastQueue, FastQueueOptions
from forebay.sendqueue.queues.memory import MemoryQueue
from forebay.sendqueue.scaling import Scaler
from forebay.testing.faulty_filesystem import Fail, Fault, FaultyFilesystem, Operation
from integration.test_exporter import CLOCK, QUICK, batch, exporting, keys


class RefusingDisk:
    """A plan for a disk that refuses to write chunks while `is_refusing`."""

    is_refusing = False

    def __call__(self, operation: Operation) -> Fault | None:
        is_chunk = len(operation.path.name) == 16
        return Fail(errno.ENOSPC) if self.is_refusing and is_chunk and operation.name == "write" else None


def feed_on(disk: RefusingDisk, folder: Path, failover_batches: int = 10) -> QueueFeed:
    filesystem = FaultyFilesystem(RealFilesystem(), disk)
    options = FastQueueOptions(inmemory_blocks=2)
    queue = FastQueue(folder, Limits(1000, 10_000_000), CODEC, CLOCK, filesystem, options=options)
    failover = MemoryQueue(Limits(failover_batches, 1_000_000), CODEC, CLOCK)
    letters = DeadLetters(RealFilesystem(), folder, CLOCK)
    return QueueFeed("sink", queue, failover, letters, CLOCK, QueueFeedOptions(sync_seconds=3600))


async def test_what_the_disk_refuses_goes_to_the_failover_queue_and_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue_feed, "FAILOVER_SECONDS", 0.05)
    disk = RefusingDisk()
    feed = feed_on(disk, tmp_path / "q")
    await feed.open()
    await feed.push(batch(0))
    await feed.push(batch(1))
    disk.is_refusing = True
    for number in range(2, 12):
        await feed.push(batch(number))
    assert feed.counts["failover_push"] == 10
    with pytest.raises(SendQueueWriteFailed, match="No space left"):
        await feed.push(batch(12))
    assert feed.dropped == {"disk_full": 1}
    assert feed.counts["disk_full"] == 11
    disk.is_refusing = False
    await eventually(lambda: feed.counts["failover_drain"] == 10)
    found = []
    while feed.queue.figures().batches:
        claim = await feed.claim()
        assert claim is not None
        found.append(claim.batch.key)
        await feed.confirm(claim)
    assert found == [f"b{number}" for number in range(12)]
    await feed.close()


async def test_a_connection_that_is_reset_is_a_network_error_and_the_batch_is_sent_again(tmp_path: Path) -> None:
    resets = 0

    async def reset(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal resets
        resets += 1
        await reader.read(10)
        writer.transport.abort()

    server = await asyncio.start_server(reset, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with exporting(f"http://127.0.0.1:{port}", tmp_path / "q") as (exporter, feed):
        await feed.push(batch(0))
        await eventually(lambda: exporter.delivery.failures[ErrorClass.NETWORK] >= 2)
        server.close()
        await server.wait_closed()
        sink = HttpSink()
        async with http_sink(sink, port=port):
            await eventually(lambda: keys(sink) == ["b0"])
    assert resets >= 1


async def test_a_destination_that_is_slow_holds_up_no_other(tmp_path: Path) -> None:
    slow, quick = HttpSink(delay_seconds=1.0), HttpSink()
    async with (
        http_sink(slow),
        http_sink(quick),
        exporting(slow.url, tmp_path / "slow", options=ExporterOptions(workers=1)) as (_, slow_feed),
        exporting(quick.url, tmp_path / "quick") as (_, quick_feed),
    ):
        for number in range(20):
            await slow_feed.push(batch(number))
            await quick_feed.push(batch(number))
        await eventually(lambda: len(quick.received) == 20)
        assert len(slow.received) < 20


async def test_an_outage_that_is_longer_than_the_queue_costs_the_oldest_and_says_so(tmp_path: Path) -> None:
    async with http_sink() as sink:
        port = sink.port
    async with exporting(sink.url, tmp_path / "q", limits=Limits(10, 1_000_000)) as (_, feed):
        for number in range(30):
            await feed.push(batch(number))
            await asyncio.sleep(0)
        dropped = feed.dropped["oldest"]
        assert dropped == 20
        async with http_sink(sink, port=port):
            await eventually(lambda: feed.queue.figures().batches == 0)
    assert len(set(keys(sink))) == 10
    assert "b29" in keys(sink)


async def test_a_batch_is_sent_at_once_if_that_is_wanted_and_queued_if_it_fails(tmp_path: Path) -> None:
    async with http_sink(HttpSink(answers=[500])) as sink, exporting(sink.url, tmp_path / "q") as (exporter, feed):
        assert not await exporter.delivery.try_at_once(batch(0))
        await feed.push(batch(0))
        assert await exporter.delivery.try_at_once(batch(1))
        await eventually(lambda: sorted(keys(sink)) == ["b0", "b1"])


async def test_workers_are_added_while_batches_pile_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("forebay.export.exporter.DECISION_SECONDS", 0.02)
    options = ExporterOptions(
        workers=1, is_adaptive=True, workers_min=1, workers_max=5, delivery=DeliveryOptions(QUICK)
    )
    sink = HttpSink(hang=asyncio.Event())
    async with http_sink(sink), exporting(sink.url, tmp_path / "q", options=options, timeout=60) as (exporter, feed):
        for number in range(200):
            await feed.push(batch(number))
        await eventually(lambda: exporter.workers == 5 and len(sink.attempts) == 5)
        assert exporter.scaler.adjustments["up"] == 4
        assert sink.hang is not None
        sink.hang.set()
        await eventually(lambda: len(sink.received) == 200)


def outlet(folder: Path) -> Outlet:
    queue: MemoryQueue[ExportBatch] = MemoryQueue(Limits(10, 1000), CODEC, CLOCK)
    letters = DeadLetters(RealFilesystem(), folder, CLOCK)
    feed = QueueFeed("sink", queue, queue, letters, CLOCK, QueueFeedOptions())
    destination = OtlpHttpDestination("sink", HttpOptions("http://127.0.0.1:1"), CLOCK)
    exporter = Exporter(destination, feed, CLOCK, ExporterOptions(), asyncio.Semaphore(1))
    return Outlet(exporter, feed, "memory", 0.0, is_adaptive=True)


async def test_an_adaptive_queue_takes_less_while_memory_is_short(tmp_path: Path) -> None:
    one = outlet(tmp_path)

    async def no_buffers() -> None:
        return None

    store: Any = None
    way_out = WayOut(store, {"sink": one}, {}, (), no_buffers)
    way_out.adapt(0.95)
    assert one.feed.queue.limits == Limits(10, 750)
    for _ in range(10):
        way_out.adapt(0.2)
    assert one.feed.queue.limits == Limits(10, 1000)


def test_a_scaler_never_leaves_its_bounds() -> None:
    assert Scaler(2, 4, 99).workers == 4
    assert Scaler(2, 4, 0).workers == 2


async def test_destinations_that_hang_keep_no_other_from_sending(tmp_path: Path) -> None:
    """As many as there are: unless it is set, the limit of all sends together has room for each of them."""
    from forebay.assemble_export import Surroundings, way_out
    from forebay.broker.waiting import WaitingRoom
    from forebay.config.lists import DestinationSettings, ExportSettings
    from forebay.config.model import Settings
    from forebay.testing.memory_store import MemoryStore

    names = [f"d{number}" for number in range(40)]
    destinations = [DestinationSettings(name=name, type="http", url="http://127.0.0.1:1") for name in names]
    exports = [ExportSettings.model_validate({"name": name, "from": f"q@{name}", "to": name}) for name in names]
    waiting = WaitingRoom(asyncio.get_running_loop())
    store = MemoryStore()
    around = Surroundings(store, waiting, CLOCK, store.push, cpus=2)
    made = way_out(Settings(), destinations, exports, around)
    [limit] = {
        id(export.exporter.delivery._limit): export.exporter.delivery._limit for export in made.exports.values()
    }.values()
    assert limit._value == 40 * 4
    waiting.close()
