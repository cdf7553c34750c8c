"""The way out in numbers, for `/metrics`."""

from __future__ import annotations

import contextlib
import shutil
from collections import Counter
from pathlib import Path

from forebay.clock import Clock
from forebay.export.exporter import Exporter
from forebay.export.queue_export import QueueExport
from forebay.export.way_out import Outlet, WayOut
from forebay.ingest.receivers.otlp_grpc import GrpcReceiver
from forebay.ingest.receivers.otlp_http import HttpReceiver
from forebay.sendqueue.breaker import State
from forebay.sendqueue.queues.fastqueue import FastQueue
from forebay.sendqueue.queues.hybrid import HybridQueue
from forebay.telemetry import metrics
from forebay.telemetry.page import Page


def add_way_out(page: Page, way_out: WayOut, clock: Clock) -> None:
    """All of it. Destinations without a receiver have no send queue, and no figures of one."""
    for receiver in way_out.receivers:
        if isinstance(receiver, HttpReceiver | GrpcReceiver):
            for status, count in sorted(receiver.requests.items()):
                page.add(metrics.RECEIVER_REQUESTS, count, receiver.name, status)
            for kind, items in sorted(receiver.items.items()):
                page.add(metrics.RECEIVER_ITEMS, items, receiver.name, kind)
    for name, outlet in way_out.outlets.items():
        _add_queue(page, name, outlet, clock)
        _add_fastqueue(page, name, outlet)
        _add_exporter(page, name, outlet.exporter)
        page.add(metrics.DEAD_LETTERS, len(outlet.feed.dead_letters.ids()), name)
    for name, export in way_out.exports.items():
        _add_exporter(page, name, export.exporter)
        _add_export(page, name, export)


def _add_queue(page: Page, name: str, outlet: Outlet, clock: Clock) -> None:
    feed, queue = outlet.feed, outlet.feed.queue
    figures, limits = queue.figures(), queue.limits
    age = max(clock.now_us() - figures.oldest_us, 0) / 1_000_000 if figures.oldest_us else 0.0
    in_memory = queue.memory.figures() if isinstance(queue, HybridQueue) else figures
    for metric, value in (
        (metrics.QUEUE_SIZE, figures.batches),
        (metrics.QUEUE_BYTES, figures.bytes),
        (metrics.QUEUE_MAX_SIZE, limits.batches_max),
        (metrics.QUEUE_MAX_BYTES, feed.configured_bytes),
        (metrics.QUEUE_EFFECTIVE_MAX_SIZE, limits.batches_max),
        (metrics.QUEUE_EFFECTIVE_MAX_BYTES, limits.bytes_max),
        (metrics.QUEUE_UTILIZATION, round(queue.fill_ratio, 4)),
        (metrics.QUEUE_OLDEST_AGE, age),
        (metrics.QUEUE_MEMORY_BYTES, figures.memory_bytes),
        (metrics.QUEUE_MEMORY_BATCHES, figures.memory_batches),
        (metrics.QUEUE_MEMORY_UTILIZATION, round(in_memory.memory_bytes / limits.bytes_max, 4)),
        (metrics.QUEUE_PUSH, feed.counts["pushed"]),
        (metrics.QUEUE_DISK_FULL, feed.counts["disk_full"]),
        (metrics.FAILOVER_PUSH, feed.counts["failover_push"]),
        (metrics.FAILOVER_DRAIN, feed.counts["failover_drain"]),
        (metrics.FAILOVER_DRAIN_ERRORS, feed.counts["failover_drain_errors"]),
        (metrics.MEMQUEUE_SIZE, feed.failover.figures().batches),
        (metrics.MEMQUEUE_BYTES, feed.failover.figures().bytes),
    ):
        page.add(metric, value, name)
    page.declare(metrics.QUEUE_DROPPED)
    for reason, count in sorted(feed.dropped.items()):
        page.add(metrics.QUEUE_DROPPED, count, name, reason)


def _add_fastqueue(page: Page, name: str, outlet: Outlet) -> None:
    """Every figure in every mode: 0 where there is no disk part (yet). A dashboard tells 0 from no answer."""
    queue = outlet.feed.queue
    disk = queue.disk if isinstance(queue, HybridQueue) else queue
    spilling = queue.spilling if isinstance(queue, HybridQueue) else None
    counts, in_memory, on_disk = Counter[str](), 0, 0
    if isinstance(disk, FastQueue):
        counts, figures = disk.counts, disk.figures()
        in_memory, on_disk = figures.memory_batches, figures.disk_bytes
    for metric, value in (
        (metrics.QUEUE_SPILLOVER, queue.spilled if isinstance(queue, HybridQueue) else 0),
        (metrics.SPILLOVER_MODE, int(spilling.level) if spilling else 0),
        (metrics.QUEUE_DISK_AVAILABLE, _free_bytes(outlet.directory)),
        (metrics.FASTQUEUE_INMEMORY, in_memory),
        (metrics.FASTQUEUE_DISK_BYTES, on_disk),
        (metrics.FASTQUEUE_META_SYNC, counts["meta_sync"]),
        (metrics.FASTQUEUE_META_SYNC_SKIP, counts["meta_sync_skip"]),
        (metrics.FASTQUEUE_ROTATIONS, counts["chunk_rotations"]),
        (metrics.FASTQUEUE_FLUSHES, counts["inmemory_flushes"]),
        (metrics.FASTQUEUE_SYNC_FAILURES, counts["sync_failures"]),
        (metrics.DATA_LOSS, outlet.feed.dropped["oldest"] + counts["damaged"]),
    ):
        page.add(metric, value, name)
    page.add(metrics.QUEUE_DROPPED, counts["damaged"], name, "damaged")


def _free_bytes(directory: Path) -> int:
    """Room where the directory is, or will be."""
    for folder in (directory, *directory.parents):
        with contextlib.suppress(OSError):
            return shutil.disk_usage(folder).free
    return 0


def _add_exporter(page: Page, name: str, exporter: Exporter) -> None:
    delivery, active, pipeline = exporter.delivery, exporter.active, exporter.options.pipeline
    counts, breaker = delivery.counts, delivery.breaker
    for metric, value in (
        (metrics.WORKERS_ACTIVE, active.workers),
        (metrics.WORKERS_TOTAL, 0 if pipeline.is_enabled else exporter.workers),
        (
            metrics.WORKERS_DESIRED,
            exporter.scaler.workers if exporter.options.is_adaptive else exporter.options.workers,
        ),
        (metrics.PREPARERS_ACTIVE, active.preparers),
        (metrics.PREPARERS_TOTAL, pipeline.preparers if pipeline.is_enabled else 0),
        (metrics.SENDERS_ACTIVE, active.senders),
        (metrics.SENDERS_TOTAL, pipeline.senders if pipeline.is_enabled else 0),
        (metrics.CHANNEL_LENGTH, exporter.channel.qsize()),
        (metrics.SENDS_INFLIGHT, counts["in_flight"]),
        (metrics.LATENCY, round(delivery.latency.seconds, 6)),
        (metrics.RETRY, counts["retried"]),
        (metrics.RETRY_SUCCESS, counts["retried_well"]),
        (metrics.BREAKER_OPEN, breaker.opened),
        (metrics.BREAKER_REJECTED, breaker.rejected),
        (metrics.BACKOFF, round(delivery.backoff_seconds, 3)),
        (metrics.CONFIRMED, counts["sent"]),
        (metrics.CONFIRMED_ITEMS, counts["sent_items"]),
        (metrics.REJECTED_ITEMS, counts["rejected_items"]),
        (metrics.SPLITS, counts["split"]),
        (metrics.CEILING, delivery.ceiling_bytes or 0),
        (metrics.DEAD, counts["buried"]),
        (metrics.PAUSED, int(exporter.is_paused)),
    ):
        page.add(metric, value, name)
    page.add_histogram(metrics.SEND_SECONDS, delivery.times.now(), name)
    for direction, count in exporter.scaler.adjustments.items():
        page.add(metrics.SCALER_ADJUSTMENTS, count, name, direction)
    for state in State:
        page.add(metrics.BREAKER_STATE, int(breaker.state is state), name, state)
    page.declare(metrics.RETRY_FAILURE)
    for error, count in sorted(delivery.failures.items()):
        page.add(metrics.RETRY_FAILURE, count, name, error)


def _add_export(page: Page, name: str, export: QueueExport) -> None:
    page.add(metrics.LEASES_LOST, export.feed.counts["lease_lost"], name)
