"""The way out in numbers, for `/metrics`."""

from __future__ import annotations

import shutil

from forebay.clock import Clock
from forebay.export.exporter import Exporter
from forebay.export.way_out import Outlet, QueueExport, WayOut
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
    ratio = max(figures.batches / limits.batches_max, figures.bytes / limits.bytes_max)
    for metric, value in (
        (metrics.QUEUE_SIZE, figures.batches),
        (metrics.QUEUE_BYTES, figures.bytes),
        (metrics.QUEUE_MAX_SIZE, limits.batches_max),
        (metrics.QUEUE_MAX_BYTES, feed.configured_bytes),
        (metrics.QUEUE_EFFECTIVE_MAX_SIZE, limits.batches_max),
        (metrics.QUEUE_EFFECTIVE_MAX_BYTES, limits.bytes_max),
        (metrics.QUEUE_UTILIZATION, round(ratio, 4)),
        (metrics.QUEUE_OLDEST_AGE, age),
        (metrics.QUEUE_MEMORY_BYTES, figures.memory_bytes),
        (metrics.QUEUE_MEMORY_BATCHES, figures.memory_batches),
        (metrics.QUEUE_MEMORY_UTILIZATION, round(figures.memory_bytes / limits.bytes_max, 4)),
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
    queue = outlet.feed.queue
    disk = queue.disk if isinstance(queue, HybridQueue) else queue
    damaged = 0
    if isinstance(queue, HybridQueue):
        page.add(metrics.QUEUE_SPILLOVER, queue.spilled, name)
        page.add(metrics.SPILLOVER_MODE, int(queue.spilling.level) if queue.spilling else 0, name)
    if isinstance(disk, FastQueue):
        figures, counts = disk.figures(), disk.counts
        damaged = counts["damaged"]
        page.add(metrics.QUEUE_DISK_AVAILABLE, shutil.disk_usage(disk.directory).free, name)
        page.add(metrics.FASTQUEUE_INMEMORY, figures.memory_batches, name)
        page.add(metrics.FASTQUEUE_DISK_BYTES, figures.disk_bytes, name)
        page.add(metrics.FASTQUEUE_META_SYNC, counts["meta_sync"], name)
        page.add(metrics.FASTQUEUE_META_SYNC_SKIP, counts["meta_sync_skip"], name)
        page.add(metrics.FASTQUEUE_ROTATIONS, counts["chunk_rotations"], name)
        page.add(metrics.FASTQUEUE_FLUSHES, counts["inmemory_flushes"], name)
        page.add(metrics.FASTQUEUE_SYNC_FAILURES, counts["sync_failures"], name)
        page.add(metrics.QUEUE_DROPPED, damaged, name, "damaged")
    page.add(metrics.DATA_LOSS, outlet.feed.dropped["oldest"] + damaged, name)


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
    for direction, count in exporter.scaler.adjustments.items():
        page.add(metrics.SCALER_ADJUSTMENTS, count, name, direction)
    for state in State:
        page.add(metrics.BREAKER_STATE, int(breaker.state is state), name, state)
    page.declare(metrics.RETRY_FAILURE)
    for error, count in sorted(delivery.failures.items()):
        page.add(metrics.RETRY_FAILURE, count, name, error)


def _add_export(page: Page, name: str, export: QueueExport) -> None:
    page.add(metrics.LEASES_LOST, export.feed.counts["lease_lost"], name)
