"""More that can go wrong on the way out: disks that refuse, connections that break, queues that are too small."""

from __future__ import annotations

import asyncio
import errno
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fixtures.http_sink import HttpSink, http_sink
from fixtures.waiting import until
from forebay.errors import SendQueueWriteFailed
from forebay.export.batch import CODEC, ExportBatch
from forebay.export.compression import Compression
from forebay.export.dead_letters import DeadLetters
from forebay.export.delivery import PREPARED_INLINE_BYTES, DeliveryOptions
from forebay.export.destination import Prepared
from forebay.export.destinations.otlp_http import OtlpHttpDestination
from forebay.export.exporter import Exporter, ExporterOptions, Paces, PipelineOptions
from forebay.export.http_sender import HttpOptions
from forebay.export.outcome import ErrorClass
from forebay.export.queue_feed import QueueFeed, QueueFeedOptions
from forebay.export.way_out import Outlet, WayOut
from forebay.filesystem import RealFilesystem
from forebay.sendqueue.opening import Mode, open_send_queue
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


def feed_on(disk: RefusingDisk, folder: Path, failover_batches: int = 10, *, failover_seconds: float) -> QueueFeed:
    filesystem = FaultyFilesystem(RealFilesystem(), disk)
    options = FastQueueOptions(inmemory_blocks=2)
    queue = FastQueue(folder, Limits(1000, 10_000_000), CODEC, CLOCK, filesystem, options=options)
    failover = MemoryQueue(Limits(failover_batches, 1_000_000), CODEC, CLOCK)
    letters = DeadLetters(RealFilesystem(), folder, CLOCK)
    feed_options = QueueFeedOptions(sync_seconds=3600, failover_seconds=failover_seconds)
    return QueueFeed("sink", queue, failover, letters, CLOCK, feed_options)


async def test_what_the_disk_refuses_goes_to_the_failover_queue_and_back(tmp_path: Path) -> None:
    disk = RefusingDisk()
    feed = feed_on(disk, tmp_path / "q", failover_seconds=0.05)
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
    await until(lambda: feed.counts["failover_drain"] == 10)
    found = []
    while feed.queue.figures().batches:
        claim = await feed.claim()
        assert claim is not None
        found.append(claim.batch.key)
        await feed.confirm(claim)
    assert found == [f"b{number}" for number in range(12)]
    await feed.close()


async def test_no_more_than_ten_batches_leave_the_failover_queue_at_a_time(tmp_path: Path) -> None:
    disk = RefusingDisk()
    feed = feed_on(disk, tmp_path / "q", failover_batches=25, failover_seconds=0.02)
    for number in range(2):
        await feed.push(batch(number))
    disk.is_refusing = True
    for number in range(2, 27):
        await feed.push(batch(number))
    disk.is_refusing = False
    await feed.open()
    seen = [0]
    async with asyncio.timeout(30):
        while seen[-1] < 25:  # looks at every turn of the event loop
            await asyncio.sleep(0)
            if feed.counts["failover_drain"] != seen[-1]:
                seen.append(feed.counts["failover_drain"])
    assert seen == [0, 10, 20, 25]
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
        await until(lambda: exporter.delivery.failures[ErrorClass.NETWORK] >= 2)
        server.close()
        await server.wait_closed()
        sink = HttpSink()
        async with http_sink(sink, port=port):
            await until(lambda: keys(sink) == ["b0"])
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
        await until(lambda: len(quick.received) == 20)
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
            await until(lambda: feed.queue.figures().batches == 0)
    assert len(set(keys(sink))) == 10
    assert "b29" in keys(sink)


async def test_a_batch_is_sent_at_once_if_that_is_wanted_and_queued_if_it_fails(tmp_path: Path) -> None:
    async with http_sink(HttpSink(answers=[500])) as sink, exporting(sink.url, tmp_path / "q") as (exporter, feed):
        assert not await exporter.delivery.try_at_once(batch(0))
        await feed.push(batch(0))
        assert await exporter.delivery.try_at_once(batch(1))
        await until(lambda: sorted(keys(sink)) == ["b0", "b1"])


async def test_workers_are_added_while_batches_pile_up(tmp_path: Path) -> None:
    options = ExporterOptions(
        DeliveryOptions(QUICK),
        workers=1,
        is_adaptive=True,
        workers_min=1,
        workers_max=5,
        paces=Paces(decision_seconds=0.02),
    )
    sink = HttpSink(hang=asyncio.Event())
    async with http_sink(sink), exporting(sink.url, tmp_path / "q", options=options, timeout=60) as (exporter, feed):
        for number in range(200):
            await feed.push(batch(number))
        await until(lambda: exporter.workers == 5 and len(sink.attempts) == 5)
        assert exporter.scaler.adjustments["up"] == 4
        assert sink.hang is not None
        sink.hang.set()
        await until(lambda: len(sink.received) == 200)


async def test_senders_are_added_while_batches_pile_up_behind_a_pipeline_and_rest_when_none_do(
    tmp_path: Path,
) -> None:
    pipeline = PipelineOptions(is_enabled=True, preparers=1, senders=1, channel_size=4, concurrent_sends=2)
    options = ExporterOptions(
        DeliveryOptions(QUICK),
        pipeline,
        is_adaptive=True,
        workers_min=1,
        workers_max=3,
        paces=Paces(decision_seconds=0.02, idle_seconds=0.1),
    )
    assert options.sends_max == 6
    sink = HttpSink(hang=asyncio.Event())
    async with http_sink(sink), exporting(sink.url, tmp_path / "q", options=options, timeout=60) as (exporter, feed):
        assert exporter.scaler.workers == 1
        for number in range(200):
            await feed.push(batch(number))
        await until(lambda: exporter.scaler.workers == 3 and len(sink.attempts) == 6)
        assert sink.hang is not None
        sink.hang.set()
        await until(lambda: len(sink.received) == 200)
        await until(lambda: exporter.scaler.workers == 1)
        assert exporter.scaler.adjustments == {"up": 2, "down": 1}


def outlet(folder: Path) -> Outlet:
    queue: MemoryQueue[ExportBatch] = MemoryQueue(Limits(10, 1000), CODEC, CLOCK)
    letters = DeadLetters(RealFilesystem(), folder, CLOCK)
    feed = QueueFeed("sink", queue, queue, letters, CLOCK, QueueFeedOptions())
    destination = OtlpHttpDestination("sink", HttpOptions("http://127.0.0.1:1"), CLOCK)
    exporter = Exporter(destination, feed, CLOCK, ExporterOptions(), asyncio.Semaphore(1))
    return Outlet(exporter, feed, folder, "memory", "tiers", 0.0, is_adaptive=True)


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


@pytest.mark.parametrize("mode", ["disk", "hybrid"])
async def test_batches_on_disk_survive_a_shortage_of_memory(mode: Mode, tmp_path: Path) -> None:
    options = FastQueueOptions(inmemory_blocks=2)
    queue = open_send_queue(mode, tmp_path, Limits(1000, 100_000), CODEC, CLOCK, RealFilesystem(), options=options)
    letters = DeadLetters(RealFilesystem(), tmp_path, CLOCK)
    failover: MemoryQueue[ExportBatch] = MemoryQueue(Limits(1, 1000), CODEC, CLOCK)
    feed = QueueFeed("sink", queue, failover, letters, CLOCK, QueueFeedOptions("drop_oldest"))
    one = replace(outlet(tmp_path), feed=feed, mode=mode)

    async def no_buffers() -> None:
        return None

    count = 0
    while queue.figures().disk_bytes == 0 or queue.figures().bytes < 90_000:
        await feed.push(batch(count))
        queue.sync()
        count += 1
    way_out = WayOut(None, {"sink": one}, {}, (), no_buffers)
    for _ in range(10):
        way_out.adapt(0.95)
    await feed.push(batch(count))
    assert (feed.dropped, queue.figures().batches) == ({}, count + 1)
    assert queue.limits.bytes_max == (100_000 if mode == "disk" else 12_500)
    await feed.close()


def test_a_scaler_never_leaves_its_bounds() -> None:
    assert Scaler(2, 4, 99).workers == 4
    assert Scaler(2, 4, 0).workers == 2


async def test_all_workers_of_one_destination_send_no_more_at_a_time_than_its_limit(tmp_path: Path) -> None:
    sink, limit, options = HttpSink(hang=asyncio.Event()), asyncio.Semaphore(3), ExporterOptions(workers=8)
    async with (
        http_sink(sink),
        exporting(sink.url, tmp_path / "a", options=options, limit=limit, timeout=60) as (a, feed_a),
        exporting(sink.url, tmp_path / "b", options=options, limit=limit, timeout=60) as (b, feed_b),
    ):
        for number in range(20):
            await feed_a.push(batch(number))
            await feed_b.push(batch(number))
        await until(lambda: a.active.workers + b.active.workers == 16 and len(sink.attempts) == 3)
        assert a.delivery.counts["in_flight"] + b.delivery.counts["in_flight"] == 3
        assert sink.hang is not None
        sink.hang.set()
        await until(lambda: len(sink.received) == 40)


@pytest.mark.parametrize(
    ("points", "compression", "is_on_event_loop"), [(4, "gzip", True), (2000, "gzip", False), (2000, "none", True)]
)
async def test_batch_is_compressed_off_the_event_loop_if_it_is_large(
    points: int, compression: Compression, is_on_event_loop: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads = []
    one = batch(0, points=points)
    assert (one.size > PREPARED_INLINE_BYTES) is (points == 2000)
    async with http_sink() as sink:
        destination = OtlpHttpDestination("sink", HttpOptions(sink.url), CLOCK, compression=compression)
        prepare = destination.prepare

        def noted(prepared: ExportBatch) -> Prepared:
            threads.append(threading.get_ident())
            return prepare(prepared)

        monkeypatch.setattr(destination, "prepare", noted)
        queue: MemoryQueue[ExportBatch] = MemoryQueue(Limits(10, 1_000_000), CODEC, CLOCK)
        letters = DeadLetters(RealFilesystem(), tmp_path, CLOCK)
        feed = QueueFeed("sink", queue, queue, letters, CLOCK, QueueFeedOptions())
        exporter = Exporter(destination, feed, CLOCK, ExporterOptions(), asyncio.Semaphore(1))
        await exporter.start()
        await feed.push(one)
        await until(lambda: keys(sink) == ["b0"])
        await exporter.stop(0)
    assert [thread == threading.get_ident() for thread in threads] == [is_on_event_loop]


async def test_destinations_that_hang_keep_no_other_from_sending(tmp_path: Path) -> None:
    """As many as there are, however small the limit: each destination has one of its own."""
    from forebay.assemble_export import Surroundings, way_out
    from forebay.broker.waiting import WaitingRoom
    from forebay.config.export_model import ExporterSettings
    from forebay.config.lists import DestinationSettings, ExportSettings
    from forebay.config.model import Settings
    from forebay.testing.memory_store import MemoryStore

    names = [f"d{number}" for number in range(40)]
    destinations = [DestinationSettings(name=name, type="http", url="http://127.0.0.1:1") for name in names]
    exports = [ExportSettings.model_validate({"name": name, "from": f"q@{name}", "to": name}) for name in names]
    waiting = WaitingRoom(asyncio.get_running_loop())
    store = MemoryStore()
    around = Surroundings(store, waiting, CLOCK, store.push, cpus=2)
    made = way_out(Settings(exporter=ExporterSettings(global_send_limit=3)), destinations, exports, around)
    limits = [export.exporter.delivery._limit for export in made.exports.values()]
    assert len({id(limit) for limit in limits}) == 40
    assert {limit._value for limit in limits} == {3}
    waiting.close()
