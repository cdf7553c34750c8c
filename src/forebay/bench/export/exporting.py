"""Exporters that send to a sink, and a bare loop that sends the same bytes."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import aiohttp

from forebay.bench.sendqueue import batch
from forebay.clock import SystemClock
from forebay.export.batch import CODEC, ExportBatch
from forebay.export.compression import Compression
from forebay.export.dead_letters import DeadLetters
from forebay.export.destinations.otlp_http import OtlpHttpDestination
from forebay.export.exporter import Exporter, ExporterOptions, PipelineOptions
from forebay.export.http_sender import HttpOptions
from forebay.export.queue_feed import QueueFeed, QueueFeedOptions
from forebay.filesystem import RealFilesystem
from forebay.sendqueue.queue import Limits
from forebay.sendqueue.queues.memory import MemoryQueue

WORKERS = 8


def batches_per_second(
    url: str,
    directory: Path,
    count: int,
    *,
    compression: Compression = "none",
    is_split: bool = False,
    size: int = 50 << 10,
) -> float:
    """How many batches an exporter sends."""
    options = ExporterOptions(
        workers=WORKERS, pipeline=PipelineOptions(is_split, preparers=2, senders=2, concurrent_sends=4)
    )
    bodies = [batch(size) for _ in range(8)]
    return asyncio.run(_export(url, directory, count, bodies, compression, options))


async def _export(
    url: str,
    directory: Path,
    count: int,
    bodies: list[ExportBatch],
    compression: Compression,
    options: ExporterOptions,
) -> float:
    clock = SystemClock()
    limits = Limits(count + 1, 1 << 50)
    feed = QueueFeed(
        "bench",
        MemoryQueue(limits, CODEC, clock),
        MemoryQueue(limits, CODEC, clock),
        DeadLetters(RealFilesystem(), directory, clock),
        clock,
        QueueFeedOptions(),
    )
    destination = OtlpHttpDestination("bench", HttpOptions(url), clock, compression=compression)
    exporter = Exporter(destination, feed, clock, options, asyncio.Semaphore(64))
    for index in range(count):
        await feed.push(bodies[index % len(bodies)])
    started = time.perf_counter()
    await exporter.start()
    while feed.queue.figures().batches:
        await asyncio.sleep(0.005)
    taken = time.perf_counter() - started
    await exporter.stop(1.0)
    return count / taken


def bare_batches_per_second(url: str, count: int, size: int = 50 << 10) -> float:
    """How many requests of the same bytes a loop of aiohttp sends, with as many under way."""
    bodies = [batch(size).body for _ in range(8)]
    return asyncio.run(_bare(url + "/v1/metrics", count, bodies))


async def _bare(url: str, count: int, bodies: list[bytes]) -> float:
    left = iter(range(count))
    headers = {"Content-Type": "application/x-protobuf"}

    async def work(session: aiohttp.ClientSession) -> None:
        for index in left:
            async with session.post(url, data=bodies[index % len(bodies)], headers=headers) as response:
                await response.read()

    async with aiohttp.ClientSession() as session:
        started = time.perf_counter()
        await asyncio.gather(*(work(session) for _ in range(WORKERS)))
        return count / (time.perf_counter() - started)
