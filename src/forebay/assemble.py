"""The wiring: from settings to the objects that obey them, in the order of a message's journey.

Only this module and the command line know both the settings and the rooms; a room is handed what it needs.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path
from socket import gethostname

import forebay
from forebay.api.asgi import AsgiApp
from forebay.api.browsers import browsers_for
from forebay.api.disk_watch import DiskWatch
from forebay.api.keys_file import KeysFile
from forebay.api.known_keys import KnownKeys
from forebay.api.memory import Memory
from forebay.api.retention import Ages
from forebay.api.service import Limits, Service
from forebay.assemble_dispatch import dispatcher
from forebay.assemble_export import Surroundings, way_out
from forebay.broker.encryption import Cipher, cipher_from
from forebay.broker.sealed_store import SealedStore
from forebay.broker.store import Store
from forebay.broker.waiting import WaitingRoom
from forebay.clock import SystemClock
from forebay.commitlog import LogOptions
from forebay.config.lists import DestinationSettings, ExportSettings
from forebay.config.load import load
from forebay.config.masking import masked
from forebay.config.model import BufferSettings, LogSettings, ServerSettings, Settings
from forebay.errors import SettingFault, SettingsRefused
from forebay.filesystem import RealFilesystem
from forebay.ingest import BufferLimits, Intake
from forebay.telemetry.span_export import SpanExport
from forebay.telemetry.tracing import Tracer


def log_options(settings: LogSettings) -> LogOptions:
    """How commit logs are kept."""
    return LogOptions(
        segment_bytes=settings.segment_size,
        roll_daily=settings.roll_daily,
        read_chunk_bytes=settings.read_chunk,
        compress=settings.compression == "auto",
    )


def buffer_limits(settings: BufferSettings) -> BufferLimits:
    """How much may wait in buffer files, and how long."""
    return BufferLimits(
        flush_seconds=settings.flush_time.total_seconds(),
        batch_events=settings.max_batch,
        alert_bytes=settings.alert_size,
        alert_events=settings.alert_events,
        max_bytes=settings.max_size,
        max_events=settings.max_events,
        store_seconds=settings.store_timeout.total_seconds(),
    )


def buffer_directory(settings: Settings) -> Path:
    return Path(settings.buffer.dir) if settings.buffer.dir else settings.data_dir / "buffers"


def api_service(
    settings: Settings,
    store: Store,
    *,
    store_name: str,
    destinations: Sequence[DestinationSettings] = (),
    exports: Sequence[ExportSettings] = (),
    is_key_required: bool = False,
) -> Service:
    """The whole journey, behind HTTP: has to be called on the event loop that it will run on.

    `is_key_required`: keys are needed even if there are none, because others than this machine can connect.
    """
    server = settings.server
    clock = SystemClock()
    waiting = WaitingRoom(asyncio.get_running_loop())
    intake = Intake(
        store,
        RealFilesystem(),
        buffer_directory(settings).absolute(),
        clock,
        limits=buffer_limits(settings.buffer),
        cipher=queue_cipher(settings),
        is_remote=store_name.startswith("postgres"),
        on_stored=waiting.announce_runs,
    )
    traces = settings.telemetry.traces
    tracer = Tracer(is_on=bool(traces.endpoint), sample_ratio=traces.sample_ratio, spans_max=traces.buffer_spans)
    resource = {"service.name": traces.service_name, "service.version": forebay.__version__, "host.name": gethostname()}
    return Service(
        store=store,
        waiting=waiting,
        clock=clock,
        store_name=store_name,
        intake=intake,
        dispatcher=dispatcher(settings.dispatch, store, clock),
        way_out=way_out(settings, destinations, exports, Surroundings(store, waiting, clock, intake.push, tracer)),
        tracer=tracer,
        span_export=SpanExport(tracer, traces.endpoint, resource),
        metrics_namespace=settings.telemetry.namespace,
        queue_series_max=settings.telemetry.queue_series_max,
        limits=Limits(
            body_bytes_max=server.body_size,
            body_seconds_max=server.body_time.total_seconds(),
            poll_seconds_max=int(server.poll_time.total_seconds()),
        ),
        memory=Memory(server.memory_size),
        browsers=browsers_for(server.host, server.allowed_hosts, has_keys=False),
        browsers_with_keys=browsers_for(server.host, server.allowed_hosts, has_keys=True),
        keys=KeysFile(Path(server.keys)) if server.keys else None,
        known_keys=KnownKeys(settings.data_dir) if server.store != "memory://" else None,
        is_key_required=is_key_required,
        is_tls=bool(server.certificate),
        session_seconds=server.session_time.total_seconds(),
        folders=tuple(
            {str(path) for one in (settings.data_dir, buffer_directory(settings)) for path in (one, one.absolute())}
        ),
        retention_seconds=server.retention_interval.total_seconds(),
        ages=_ages(server),
        disks=DiskWatch([*([settings.data_dir] if server.store == "embedded" else []), buffer_directory(settings)]),
    )


def _ages(server: ServerSettings) -> Ages:
    """How old things may become."""
    return Ages(
        stage_seconds=server.stage_retention.total_seconds(),
        commit_seconds=server.commit_retention.total_seconds(),
        trace_seconds=server.trace_retention.total_seconds(),
        dead_letter_seconds=server.dead_letter_retention.total_seconds(),
        idle_group_seconds=server.idle_group_retention.total_seconds(),
        empty_partition_seconds=server.empty_partition_retention.total_seconds(),
        audit_seconds=server.audit_retention.total_seconds(),
    )


def broker_store(settings: Settings) -> tuple[Store, str]:
    """The store that the settings name, closed as yet, and what to call it when talking to people."""
    url = settings.server.store
    if url == "embedded":
        from forebay.broker.stores.embedded import EmbeddedStore

        store = EmbeddedStore(settings.data_dir, log_options(settings.log))
        return _sealed(store, settings), f"embedded, data in {settings.data_dir}"
    if url.startswith(("postgresql://", "postgres://")):
        from forebay.broker.stores.postgres import PostgresStore

        return _sealed(PostgresStore(url), settings), f"postgres at {masked(url)}"
    allowed = "embedded, or a URL that begins with postgresql://"
    raise SettingsRefused([SettingFault("server.store", masked(url), allowed, "settings")])


def queue_cipher(settings: Settings) -> Cipher | None:
    """The keys of encrypted queues, if there are any."""
    file = settings.server.encryption_key_file
    return cipher_from(os.environ, Path(file) if file else None)


def _sealed(store: Store, settings: Settings) -> Store:
    return SealedStore(store, queue_cipher(settings))


def asgi_application(*, is_insecure: bool = False) -> AsgiApp:
    """For ASGI servers: `uvicorn --factory forebay.assemble:asgi_application`. Settings come from the environment.

    Where the server listens is not known here, so API keys are needed (`forebay keys create`), unless `is_insecure`.
    """
    loaded = load(environ=os.environ)

    def make_service() -> Service:
        store, name = broker_store(loaded.settings)
        return api_service(
            loaded.settings,
            store,
            store_name=name,
            destinations=loaded.destinations,
            exports=loaded.exports,
            is_key_required=not is_insecure,
        )

    return AsgiApp(make_service)
