"""The wiring of the way out: from settings to destinations, send queues, exporters and receivers."""

from __future__ import annotations

import asyncio
import os
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from forebay.broker.messages import Pushed, PushItem
from forebay.broker.store import Store
from forebay.broker.waiting import WaitingRoom
from forebay.clock import Clock
from forebay.config.export_model import ReceiversSettings, SendQueueSettings
from forebay.config.lists import DestinationSettings, ExportSettings
from forebay.config.model import Settings
from forebay.config.receiver_targets import listening, receiver_faults
from forebay.errors import Permanent, SettingFault, SettingsRefused, StoreUnavailable, Transient
from forebay.export.batch import CODEC, OVERHEAD_BYTES, ExportBatch
from forebay.export.dead_letters import DeadLetters
from forebay.export.delivery import DeliveryOptions
from forebay.export.destination import Destination
from forebay.export.destinations.file import FileDestination
from forebay.export.destinations.http import HttpDestination
from forebay.export.destinations.otlp_grpc import GrpcOptions, OtlpGrpcDestination
from forebay.export.destinations.otlp_http import OtlpHttpDestination
from forebay.export.destinations.queue import OutgoingMessage, QueueDestination
from forebay.export.destinations.remote_write import RemoteWriteDestination
from forebay.export.exporter import Exporter, ExporterOptions, PipelineOptions
from forebay.export.group_feed import GroupFeed, GroupFeedOptions
from forebay.export.http_sender import HttpOptions
from forebay.export.queue_feed import QueueFeed, QueueFeedOptions
from forebay.export.way_out import Outlet, QueueExport, Receiver, WayOut
from forebay.filesystem import Kind as FileKind
from forebay.filesystem import RealFilesystem
from forebay.ingest.receivers.decoding import Telemetry
from forebay.ingest.receivers.in_flight import InFlight
from forebay.ingest.receivers.intake_sink import Accept
from forebay.ingest.receivers.metrics_buffer import MetricsBuffer
from forebay.ingest.receivers.otlp_grpc import GrpcReceiver
from forebay.ingest.receivers.otlp_http import HttpReceiver
from forebay.otlp.kinds import Kind
from forebay.sendqueue.backoff import Backoff
from forebay.sendqueue.queue import Limits, SendQueue
from forebay.sendqueue.queues.fastqueue import FastQueue, FastQueueOptions
from forebay.sendqueue.queues.hybrid import HybridQueue
from forebay.sendqueue.queues.memory import MemoryQueue
from forebay.sendqueue.sizing import memory_limit_bytes
from forebay.sendqueue.spilling import Spilling

SIGNALS: dict[str, frozenset[Kind]] = {
    "otlp_http": frozenset({Kind.METRICS, Kind.TRACES, Kind.LOGS}),
    "otlp_grpc": frozenset({Kind.METRICS, Kind.TRACES, Kind.LOGS}),
    "remote_write": frozenset({Kind.REMOTE_WRITE}),
}
"""What each receiver knows."""
Push = Callable[[Sequence[PushItem]], Awaitable[Sequence[Pushed]]]


class SecretMissing(Permanent):
    """A header's value is to come from a variable or a file that is not there."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What the way out needs of the server it is part of."""

    store: Store
    waiting: WaitingRoom
    clock: Clock
    push: Push
    cpus: int = os.cpu_count() or 1


def way_out(
    settings: Settings,
    destinations: Sequence[DestinationSettings],
    exports: Sequence[ExportSettings],
    around: Surroundings,
) -> WayOut:
    """Has to be called on the event loop that it will run on. Raises SettingsRefused and SecretMissing."""
    _check_sizes(settings, destinations)
    by_name = {one.name: one for one in destinations}
    fed = _fed_by_receivers(settings.receivers, by_name)
    sends = [exporter_options(by_name[name].queue, around.cpus).sends_max for name in fed]
    sends += [one.workers for one in exports]
    # Unless it is set, the limit has room for all: destinations that hang must not keep others from sending.
    limit = asyncio.Semaphore(settings.exporter.global_send_limit or max(8 * around.cpus, sum(sends)))
    outlets = {name: _outlet(by_name[name], settings, around, limit) for name in by_name if name in fed}
    queue_exports = {one.name: _export(one, by_name[one.to], around, limit) for one in exports}
    buffers: list[MetricsBuffer] = []
    receivers = _receivers(settings.receivers, outlets, around, buffers)

    async def close_buffers() -> None:
        for buffer in buffers:
            await buffer.close()

    return WayOut(around.store, outlets, queue_exports, receivers, close_buffers)


# destinations


def destination(settings: DestinationSettings, around: Surroundings, *, name: str = "") -> Destination:
    """The destination that these settings describe; `name` tells apart several users of it."""
    name = name or settings.name
    headers = {
        key: secret(value, f"destinations.{settings.name}.headers.{key}") for key, value in settings.headers.items()
    }
    http = HttpOptions(
        settings.url,
        headers,
        settings.timeout.total_seconds(),
        settings.ca_file,
        settings.certificate,
        settings.certificate_key,
    )
    match settings.type:
        case "otlp_http":
            return OtlpHttpDestination(name, http, around.clock, compression=settings.compression or "gzip")
        case "otlp_grpc":
            endpoint = settings.url.removeprefix("http://").removeprefix("https://")
            is_insecure = settings.insecure or settings.url.startswith("http://")
            grpc = GrpcOptions(endpoint, headers, http.timeout_seconds, is_insecure, settings.ca_file)
            return OtlpGrpcDestination(name, grpc)
        case "remote_write":
            return RemoteWriteDestination(name, http, around.clock)
        case "http":
            compression = settings.compression or "none"
            return HttpDestination(name, http, around.clock, body_format=settings.format, compression=compression)
        case "queue":
            return QueueDestination(name, settings.queue_name, _pusher(around.push))
        case "file":
            return FileDestination(
                name,
                Path(settings.path),
                RealFilesystem(),
                around.clock,
                body_format="envelopes" if settings.format == "envelopes" else "ndjson",
                size_max=settings.max_size,
            )


def secret(value: str, key: str) -> str:
    """A value that is written out, or that `env:NAME` or `file:PATH` stands for. Raises SecretMissing."""
    if value.startswith("env:"):
        name = value.removeprefix("env:")
        if name not in os.environ:
            raise SecretMissing(f"{key}: the environment has no {name}", remedy=f"Set {name}")
        return os.environ[name]
    if value.startswith("file:"):
        path = Path(value.removeprefix("file:"))
        try:
            return path.read_text().strip()
        except OSError as error:
            raise SecretMissing(f"{key}: {path} cannot be read: {error.strerror}") from error
    return value


def _pusher(push: Push) -> Callable[[Sequence[OutgoingMessage]], Awaitable[None]]:
    async def store(messages: Sequence[OutgoingMessage]) -> None:
        items = [PushItem(m.queue, m.partition, m.payload, m.transaction_id, is_binary=m.is_bytes) for m in messages]
        for pushed in await push(items):
            if pushed.status in ("failed", "unknown"):
                raise StoreUnavailable(pushed.receipt)

    return store


# send queues


def queue_directory(settings: Settings, one: DestinationSettings) -> Path:
    base = Path(one.queue.path) if one.queue.path else settings.data_dir / "export"
    return (base / one.name).absolute()


def _limits(queue: SendQueueSettings) -> Limits:
    share = int(queue.memory_percent * memory_limit_bytes())
    return Limits(queue.max_size, share or queue.max_bytes)


def send_queue(queue: SendQueueSettings, directory: Path, clock: Clock) -> SendQueue[ExportBatch]:
    """The send queue of a destination, opened. Raises SendQueueLocked and the like."""
    limits = _limits(queue)
    options = FastQueueOptions(
        queue.inmemory_blocks, queue.chunk_size, queue.write_buffer_size, compress=queue.compression == "snappy"
    )

    def open_disk() -> FastQueue[ExportBatch]:
        directory.parent.mkdir(0o700, parents=True, exist_ok=True)
        return FastQueue(
            directory, limits, CODEC, clock, RealFilesystem(), options=options, owner=f"process {os.getpid()}"
        )

    if queue.mode == "disk":
        return open_disk()
    spilling = None
    if queue.mode == "hybrid":
        spilling = Spilling(queue.hybrid_spillover_pct / 100, is_fifo=queue.order == "fifo")
    has_left_overs = RealFilesystem().status(directory).kind is FileKind.DIRECTORY
    return HybridQueue(MemoryQueue(limits, CODEC, clock), open_disk, spilling, has_left_overs=has_left_overs)


def _outlet(one: DestinationSettings, settings: Settings, around: Surroundings, limit: asyncio.Semaphore) -> Outlet:
    sink, directory = destination(one, around), queue_directory(settings, one)
    queue = _in_order(one.queue) if sink.is_in_order else one.queue
    failover_limits = Limits(queue.failover_max_size, queue.failover_max_bytes)

    def open_failover() -> FastQueue[ExportBatch]:
        directory.mkdir(0o700, parents=True, exist_ok=True)
        return FastQueue(directory / "failover", failover_limits, CODEC, around.clock, RealFilesystem())

    failover = HybridQueue(
        MemoryQueue(failover_limits, CODEC, around.clock),
        open_failover,
        Spilling(0.8),
        has_left_overs=(directory / "failover").is_dir(),
    )
    sync = min(queue.meta_sync_interval, queue.stale_flush_interval).total_seconds()
    feed = QueueFeed(
        one.name,
        send_queue(queue, directory, around.clock),
        failover,
        DeadLetters(RealFilesystem(), directory, around.clock),
        around.clock,
        QueueFeedOptions(queue.full_behavior, queue.block_timeout.total_seconds(), sync),
    )
    exporter = Exporter(sink, feed, around.clock, exporter_options(queue, around.cpus), limit)
    return Outlet(
        exporter,
        feed,
        queue.mode,
        queue.drain_timeout.total_seconds(),
        queue.always_queue and queue.enabled,
        queue.enabled,
        queue.adaptive_enabled,
        queue.target_utilization,
    )


def _in_order(queue: SendQueueSettings) -> SendQueueSettings:
    """A hybrid queue lets batches overtake others, when they spill or when the server stops. FastQueue never does, and
    holds its newest batches in memory too: where order counts it takes the place of a hybrid one."""
    return queue.model_copy(update={"mode": "disk"}) if queue.mode == "hybrid" else queue


def exporter_options(queue: SendQueueSettings, cpus: int) -> ExporterOptions:
    """Workers, breaker and backoff as they are set; 0 is by the number of processors."""
    split, adaptive, breaker = queue.pipeline_split, queue.adaptive_workers, queue.circuit_breaker
    return ExporterOptions(
        delivery=DeliveryOptions(
            backoff=Backoff(
                queue.retry_interval.total_seconds(),
                queue.backoff.multiplier,
                queue.max_retry_delay.total_seconds(),
                queue.backoff.enabled,
            ),
            breaker_threshold=breaker.threshold,
            breaker_reset_seconds=breaker.reset_timeout.total_seconds(),
            is_breaker_enabled=breaker.enabled,
            max_attempts=queue.max_attempts,
            max_elapsed_seconds=queue.max_elapsed.total_seconds(),
        ),
        pipeline=PipelineOptions(
            split.enabled,
            split.preparer_count or cpus,
            split.sender_count or 2 * cpus,
            split.channel_size,
            queue.max_concurrent_sends,
        ),
        workers=queue.workers or 2 * cpus,
        is_adaptive=adaptive.enabled,
        workers_min=adaptive.min_workers,
        workers_max=max(adaptive.max_workers or 4 * cpus, adaptive.min_workers),
    )


def _check_sizes(settings: Settings, destinations: Sequence[DestinationSettings]) -> None:
    """What send queues may hold in memory, all together, has to fit."""
    promised = sum(_limits(one.queue).bytes_max for one in destinations if one.queue.mode != "disk")
    room = int(memory_limit_bytes() * settings.exporter.memory_limit_ratio)
    if promised > room:
        allowed = f"at most {room} bytes for all send queues in memory together (exporter.memory_limit_ratio)"
        raise SettingsRefused([SettingFault("exporter.queue.max_bytes", promised, allowed, "settings")])


# exports


def _export(
    one: ExportSettings, target: DestinationSettings, around: Surroundings, limit: asyncio.Semaphore
) -> QueueExport:
    sink = destination(target, around, name=one.name)
    kind = Kind(one.format)
    if kind not in sink.kinds:
        allowed = f"a format that {target.name} ({target.type}) takes: {', '.join(sorted(sink.kinds))}"
        raise SettingsRefused([SettingFault(f"exports.{one.name}.format", one.format, allowed, "settings")])
    options = GroupFeedOptions(
        one.queue,
        one.group,
        kind,
        one.batch.max_messages,
        one.batch.max_bytes,
        one.batch.max_wait.total_seconds(),
        held_max=one.workers,
        subscription=one.subscription,
    )
    feed = GroupFeed(one.name, around.store, around.waiting, around.clock, options)
    base = exporter_options(target.queue, around.cpus)
    exporter = Exporter(sink, feed, around.clock, ExporterOptions(delivery=base.delivery, workers=one.workers), limit)
    return QueueExport(one.name, target.name, exporter, feed)


# receivers


def _fed_by_receivers(settings: ReceiversSettings, destinations: Mapping[str, DestinationSettings]) -> set[str]:
    """The destinations that receivers name. Raises SettingsRefused for one that does not exist, or no place at all."""
    if faults := list(receiver_faults(settings, destinations)):
        raise SettingsRefused(faults)
    targets = [receiver.to.partition(":") for _, receiver in listening(settings)]
    return {target for kind, _, target in targets if kind == "destination"}


def _receivers(
    settings: ReceiversSettings, outlets: Mapping[str, Outlet], around: Surroundings, buffers: list[MetricsBuffer]
) -> list[Receiver]:
    found: list[Receiver] = []
    in_flight = InFlight(settings.in_flight_size, body_bytes_max=settings.body_size)
    for name, one in listening(settings):
        kind, _, target = one.to.partition(":")
        if kind == "queue":
            accept, taken = _to_queue(target, around), SIGNALS[name]
        else:
            taken = _taken_kinds(name, outlets[target])
            buffer = _buffer(settings, outlets[target], around)
            buffers.append(buffer)
            accept = buffer.accept
        host, _, port = one.listen.rpartition(":")
        receiver = GrpcReceiver if name == "otlp_grpc" else HttpReceiver
        address = (host.strip("[]") or "127.0.0.1", int(port))
        found.append(receiver(name, *address, accept, settings.body_size, taken, in_flight))
    return found


def _taken_kinds(receiver: str, outlet: Outlet) -> frozenset[Kind]:
    """What this receiver may take for the destination. Raises SettingsRefused if there is nothing."""
    taken = SIGNALS[receiver] & outlet.exporter.destination.kinds
    if not taken:
        allowed = f"a destination that takes {', '.join(sorted(SIGNALS[receiver]))}"
        raise SettingsRefused([SettingFault(f"receivers.{receiver}.to", outlet.name, allowed, "settings")])
    return taken


def _to_queue(queue: str, around: Surroundings) -> Accept:
    async def accept(telemetry: Telemetry) -> str:
        name = queue.replace("{signal}", telemetry.kind)
        item = PushItem(name, telemetry.kind, telemetry.body, uuid.uuid4().hex, is_minted=True, is_binary=True)
        [pushed] = await around.push([item])
        if pushed.status in ("failed", "unknown"):
            raise StoreUnavailable(pushed.receipt)
        return pushed.receipt

    return accept


class NotSent(Transient):
    """The destination did not take the batch, and there is no send queue (`exporter.queue.enabled: false`)."""


def _buffer(settings: ReceiversSettings, outlet: Outlet, around: Surroundings) -> MetricsBuffer:
    receipt = "memory" if outlet.mode != "disk" else "disk"

    async def hand_on(kind: Kind, body: bytes, items: int) -> str:
        batch = ExportBatch(kind, body, items, around.clock.now_us())
        if not outlet.is_queued_always and await outlet.exporter.delivery.try_at_once(batch):
            return "sent"
        if not outlet.is_queue_enabled:
            raise NotSent(f"{outlet.name} did not take the batch: {outlet.exporter.delivery.last_error}")
        await outlet.feed.push(batch)
        return receipt

    return MetricsBuffer(
        hand_on,
        flush_seconds=settings.buffer.flush_interval.total_seconds(),
        batch_items=settings.buffer.batch_items,
        # What fits into the send queue one by one must not be refused because it was joined.
        batch_bytes=min(settings.buffer.batch_bytes, outlet.feed.configured_bytes - OVERHEAD_BYTES),
    )
