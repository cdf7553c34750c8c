"""The wiring of the way out: from settings to destinations, send queues, exporters and receivers."""

from __future__ import annotations

import asyncio
import os
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from forebay.broker.messages import Pushed
from forebay.broker.store import Store
from forebay.broker.waiting import WaitingRoom
from forebay.clock import Clock
from forebay.config.export_model import ReceiversSettings, SendQueueSettings
from forebay.config.lists import DestinationSettings, ExportSettings
from forebay.config.model import Settings
from forebay.config.receiver_targets import listening, receiver_faults
from forebay.errors import PathUnusable, Permanent, SettingFault, SettingsRefused, StoreUnavailable
from forebay.export.accepting import Acceptor
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
from forebay.export.http_sender import HttpOptions, tls_context
from forebay.export.outboxes import Outboxes
from forebay.export.queue_export import QueueExport
from forebay.export.queue_feed import FAILOVER_SECONDS, QueueFeed, QueueFeedOptions
from forebay.export.stranded import tell_stranded
from forebay.export.traced import TracedDestination
from forebay.export.way_out import Outlet, Receiver, WayOut
from forebay.filesystem import Filesystem, RealFilesystem
from forebay.ingest.receivers.decoding import Telemetry
from forebay.ingest.receivers.in_flight import InFlight
from forebay.ingest.receivers.intake_sink import Accept
from forebay.ingest.receivers.metrics_buffer import MetricsBuffer
from forebay.ingest.receivers.otlp_grpc import GrpcReceiver
from forebay.ingest.receivers.otlp_http import HttpReceiver
from forebay.model.internal_queues import EXPORT_GROUP, outbox_of
from forebay.model.push_run import PushRun, run_of_one
from forebay.otlp.kinds import Kind
from forebay.sendqueue.backoff import Backoff
from forebay.sendqueue.opening import FAILOVER_FOLDER, open_send_queue
from forebay.sendqueue.queue import Limits, SendQueue
from forebay.sendqueue.queues.fastqueue import FastQueueOptions
from forebay.sendqueue.sizing import memory_limit_bytes, share_bytes
from forebay.telemetry.tracing import NO_TRACER, Tracer

SIGNALS: dict[str, frozenset[Kind]] = {
    "otlp_http": frozenset({Kind.METRICS, Kind.TRACES, Kind.LOGS}),
    "otlp_grpc": frozenset({Kind.METRICS, Kind.TRACES, Kind.LOGS}),
    "remote_write": frozenset({Kind.REMOTE_WRITE}),
}
"""What each receiver knows."""
OUTBOX_FORMATS = {"otlp_http": "metrics", "otlp_grpc": "metrics", "remote_write": "metrics"}
"""What payloads in the outbox of a destination are, where they are not simply messages: OTLP requests in protobuf."""
Push = Callable[[Sequence[PushRun]], Awaitable[Sequence[Pushed]]]


class SecretMissing(Permanent):
    """A header's value is to come from a variable or a file that is not there."""


class CertificateUnusable(Permanent):
    """A certificate file of a destination is not there, or is none. Nothing was started."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What the way out needs of the server it is part of."""

    store: Store
    waiting: WaitingRoom
    clock: Clock
    push: Push
    tracer: Tracer = NO_TRACER
    filesystem: Filesystem = field(default_factory=RealFilesystem)
    """Where send queues and dead letters are."""
    cpus: int = os.cpu_count() or 1
    failover_seconds: float = FAILOVER_SECONDS


def way_out(
    settings: Settings,
    destinations: Sequence[DestinationSettings],
    exports: Sequence[ExportSettings],
    around: Surroundings,
) -> WayOut:
    """Has to be called on the event loop that it will run on. Raises SettingsRefused, SecretMissing,
    CertificateUnusable and PathUnusable."""
    by_name = {one.name: one for one in destinations}
    fed = _fed_by_receivers(settings.receivers, by_name)
    _check_sizes(settings, [by_name[name] for name in fed])
    # One limit for each destination: one that hangs with all its sends under way must not keep others from sending.
    sends_max = settings.exporter.global_send_limit or 8 * around.cpus
    limits = {name: asyncio.Semaphore(sends_max) for name in by_name}
    outlets = {name: _outlet(by_name[name], settings, around, limits[name]) for name in by_name if name in fed}
    drained = {outlet.directory for outlet in outlets.values()}
    bases = {
        send_queue_base(settings, queue) for queue in (settings.exporter.queue, *(one.queue for one in destinations))
    }
    tell_stranded(around.filesystem, bases, drained)
    queue_exports = {one.name: _export(one, by_name[one.to], around, limits[one.to]) for one in exports}
    read = {(one.queue, one.group) for one in exports}
    outboxes = [_outbox(one) for one in destinations if (outbox_of(one.name), EXPORT_GROUP) not in read]
    resting = Outboxes([_export(one, by_name[one.to], around, limits[one.to]) for one in outboxes])
    buffers: list[MetricsBuffer] = []
    to_prometheus = frozenset(name for name in fed if by_name[name].type == "remote_write")
    receivers = _receivers(settings.receivers, outlets, to_prometheus, around, buffers)

    async def close_buffers() -> None:
        for buffer in buffers:
            await buffer.close()

    return WayOut(around.store, outlets, queue_exports, receivers, close_buffers, resting)


# destinations


def destination(settings: DestinationSettings, around: Surroundings, *, name: str = "") -> Destination:
    """The destination that these settings describe; `name` tells apart several users of it."""
    return TracedDestination(plain_destination(settings, around, name or settings.name), around.tracer)


def plain_destination(settings: DestinationSettings, around: Surroundings, name: str) -> Destination:
    """The same, whose requests carry no traces."""
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
    _check_certificates(settings.name, http)
    match settings.type:
        case "otlp_http":
            return OtlpHttpDestination(name, http, around.clock, compression=settings.compression or "gzip")
        case "otlp_grpc":
            endpoint = settings.url.removeprefix("http://").removeprefix("https://").rstrip("/")
            is_insecure = settings.insecure or settings.url.startswith("http://")
            certificates = (settings.ca_file, settings.certificate, settings.certificate_key)
            is_compressed = settings.compression != "none"
            return OtlpGrpcDestination(
                name,
                GrpcOptions(endpoint, headers, http.timeout_seconds, is_insecure, *certificates, is_compressed),
            )
        case "remote_write":
            return RemoteWriteDestination(name, http, around.clock)
        case "http":
            compression = settings.compression or "none"
            return HttpDestination(name, http, around.clock, body_format=settings.format, compression=compression)
        case "queue":
            return QueueDestination(name, settings.queue_name, _pusher(around.push))
        case "file":
            path = Path(settings.path)
            _check_file(settings.name, path)
            return FileDestination(
                name,
                path,
                RealFilesystem(),
                around.clock,
                body_format="envelopes" if settings.format == "envelopes" else "ndjson",
                size_max=settings.max_size,
            )


def _check_certificates(name: str, http: HttpOptions) -> None:
    """Now, while a person is looking, and not when the first batch is to leave. Raises CertificateUnusable."""
    try:
        tls_context(http)
    except OSError as error:
        files = ", ".join(path for path in (http.ca_file, http.certificate, http.certificate_key) if path)
        raise CertificateUnusable(
            f"destinations.{name}: its certificates ({files}) cannot be used: {error.strerror or error}",
            remedy="Write the paths of PEM files that this user may read",
        ) from error


def _check_file(name: str, path: Path) -> None:
    """Now too: batches for a file that can never be there would wait for ever. Raises PathUnusable."""
    key, user = f"destinations.{name}.path", os.geteuid()
    if path.is_dir():
        raise PathUnusable(f"{key} {str(path)!r} is a directory", remedy=f"Name a file, with {key}")
    if not path.parent.is_dir():
        reason = f"{key} {str(path)!r} cannot be written: {str(path.parent)!r} is no directory"
        raise PathUnusable(reason, remedy=f"Make the directory, or name another file, with {key}")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        reason = f"{key} {str(path)!r} cannot be written by user {user}"
        raise PathUnusable(reason, remedy=f"Let user {user} write it, or name another file, with {key}")


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
            remedy = "Write the path of a file that this user may read"
            raise SecretMissing(f"{key}: {path} cannot be read: {error.strerror}", remedy=remedy) from error
        except UnicodeDecodeError:  # its message would hold a byte of the secret
            raise SecretMissing(f"{key}: {path} is no text", remedy="Write the value as UTF-8") from None
    return value


def _pusher(push: Push) -> Callable[[Sequence[OutgoingMessage]], Awaitable[None]]:
    async def store(messages: Sequence[OutgoingMessage]) -> None:
        runs = [
            run_of_one(m.queue, m.partition, m.payload, m.transaction_id, headers=m.headers, is_binary=m.is_bytes)
            for m in messages
        ]
        for pushed in await push(runs):
            if pushed.status in ("failed", "unknown"):
                raise StoreUnavailable(pushed.receipt)

    return store


# send queues


def send_queue_base(settings: Settings, queue: SendQueueSettings) -> Path:
    """The directory that holds the directories of send queues."""
    return (Path(queue.path) if queue.path else settings.data_dir / "export").absolute()


def queue_directory(settings: Settings, one: DestinationSettings) -> Path:
    return send_queue_base(settings, one.queue) / one.name


def _limits(queue: SendQueueSettings) -> Limits:
    bytes_max = share_bytes(queue.memory_percent) if queue.is_share_of_memory else queue.max_bytes
    return Limits(queue.max_size, bytes_max)


def send_queue(
    queue: SendQueueSettings, directory: Path, clock: Clock, filesystem: Filesystem | None = None
) -> SendQueue[ExportBatch]:
    """The send queue of a destination, opened. Raises SendQueueLocked and the like."""
    limits = _limits(queue)
    options = FastQueueOptions(
        queue.inmemory_blocks, queue.chunk_size, queue.write_buffer_size, compress=queue.compression == "snappy"
    )

    return open_send_queue(
        queue.mode,
        directory,
        limits,
        CODEC,
        clock,
        filesystem or RealFilesystem(),
        options=options,
        owner=f"process {os.getpid()}",
        spill_ratio=queue.hybrid_spillover_pct / 100,
        is_fifo=queue.order == "fifo",
    )


def _outlet(one: DestinationSettings, settings: Settings, around: Surroundings, limit: asyncio.Semaphore) -> Outlet:
    sink, directory, disk = destination(one, around), queue_directory(settings, one), around.filesystem
    queue = _in_order(one.queue) if sink.is_in_order else one.queue
    failover_limits = Limits(queue.failover_max_size, queue.failover_max_bytes)
    failover = open_send_queue("hybrid", directory / FAILOVER_FOLDER, failover_limits, CODEC, around.clock, disk)
    sync = min(queue.meta_sync_interval, queue.stale_flush_interval).total_seconds()
    feed = QueueFeed(
        one.name,
        send_queue(queue, directory, around.clock, disk),
        failover,
        DeadLetters(disk, directory, around.clock),
        around.clock,
        QueueFeedOptions(queue.full_behavior, queue.block_timeout.total_seconds(), sync, around.failover_seconds),
    )
    exporter = Exporter(sink, feed, around.clock, exporter_options(queue, around.cpus), limit)
    return Outlet(
        exporter,
        feed,
        directory,
        queue.mode,
        queue.order,
        queue.drain_timeout.total_seconds(),
        queue.always_queue,
        queue.enabled,
        queue.adaptive_enabled,
        queue.target_utilization,
    )


def _in_order(queue: SendQueueSettings) -> SendQueueSettings:
    """A hybrid queue lets batches overtake others when they spill, unless its settings say no: here they do."""
    return queue.model_copy(update={"order": "fifo"})


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


def _check_sizes(settings: Settings, fed: Sequence[DestinationSettings]) -> None:
    """What send queues may hold in memory, all together, has to fit. Only what receivers feed has one."""
    promised = sum(_limits(one.queue).bytes_max for one in fed if one.queue.mode != "disk")
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


def _outbox(target: DestinationSettings) -> ExportSettings:
    """What every destination has by itself: `.export.NAME@export`, with the defaults of an export."""
    return ExportSettings.model_construct(
        name=outbox_of(target.name),
        source=f"{outbox_of(target.name)}@{EXPORT_GROUP}",
        to=target.name,
        format=OUTBOX_FORMATS.get(target.type, "messages"),
    )


# receivers


def _fed_by_receivers(settings: ReceiversSettings, destinations: Mapping[str, DestinationSettings]) -> set[str]:
    """The destinations that receivers name. Raises SettingsRefused for one that does not exist, or no place at all."""
    if faults := list(receiver_faults(settings, destinations)):
        raise SettingsRefused(faults)
    targets = [receiver.to.partition(":") for _, receiver in listening(settings)]
    return {target for kind, _, target in targets if kind == "destination"}


def _receivers(
    settings: ReceiversSettings,
    outlets: Mapping[str, Outlet],
    to_prometheus: frozenset[str],
    around: Surroundings,
    buffers: list[MetricsBuffer],
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
        is_for_prometheus = kind == "destination" and target in to_prometheus
        found.append(
            receiver(
                name,
                *address,
                accept,
                settings.body_size,
                taken,
                in_flight,
                is_for_prometheus=is_for_prometheus,
            )
        )
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
        run = run_of_one(name, telemetry.kind, telemetry.body, uuid.uuid4().hex, is_minted=True, is_binary=True)
        [pushed] = await around.push([run])
        if pushed.status in ("failed", "unknown"):
            raise StoreUnavailable(pushed.receipt)
        return pushed.receipt

    return accept


def _buffer(settings: ReceiversSettings, outlet: Outlet, around: Surroundings) -> MetricsBuffer:
    return MetricsBuffer(
        Acceptor(outlet, around.clock).accept,
        flush_seconds=settings.buffer.flush_interval.total_seconds(),
        batch_items=settings.buffer.batch_items,
        # What fits into the send queue one by one must not be refused because it was joined.
        batch_bytes=min(settings.buffer.batch_bytes, outlet.feed.configured_bytes - OVERHEAD_BYTES),
    )
