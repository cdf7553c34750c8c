"""Is it alive, is it ready, and what has it done: for machines that look after servers. No key is needed."""

from __future__ import annotations

import asyncio

from msgspec import Struct

import forebay
from forebay.api.dispatch_watch import add_dispatch
from forebay.api.exchange import Request, Response
from forebay.api.export_metrics import add_way_out
from forebay.api.latencies import add_latencies
from forebay.api.ledger import add_ledger, ledger
from forebay.api.problems import Problem
from forebay.api.queue_figures import queue_figures
from forebay.api.responses import answered, iso
from forebay.api.routes.analytics import Totals, totals_of
from forebay.api.routes.buffers import add_buffers
from forebay.api.routes.flows import add_flows
from forebay.api.routing import Needs, Route, Scope
from forebay.api.service import Service
from forebay.errors import StoreUnavailable
from forebay.telemetry import metrics
from forebay.telemetry.own_process import own_process
from forebay.telemetry.page import Page

PROMETHEUS_TEXT = b"text/plain; version=0.0.4; charset=utf-8"


class Alive(Struct):
    status: str


class Ready(Struct):
    status: str
    reasons: list[str]


class Health(Struct, rename="camel"):
    status: str
    database: str
    server: str
    version: str
    timestamp: str


class MetricsJson(Struct, rename="camel"):
    uptime_seconds: float
    requests: int
    messages: Totals
    waiting_consumers: int


async def healthz(service: Service, request: Request) -> Response:
    """The process answers. Nothing else is checked, so that a database that is away does not get servers restarted."""
    return answered(Alive("alive"))


async def readyz(service: Service, request: Request) -> Response:
    """Recovered and serving; otherwise 503 with the reasons. `degraded`: the store is away, and pushes are buffered.

    A server that has lost messages to damage serves the others: that is among the reasons of one that is `ready`.
    """
    reasons = service.reasons_not_to_serve()
    if service.is_started and not service.is_stopping:
        # Pushes are accepted, store or no store: a balancer that sends requests here must go on doing so.
        return answered(Ready("degraded" if reasons else "ready", reasons + _losses(service)))
    return answered(Ready("not ready", reasons + _losses(service)), 503)


def _losses(service: Service) -> list[str]:
    return [
        f"queue {queue!r}: {count} messages cannot be read any more; see /api/v1/status/lost"
        for queue, count in sorted(service.lost.items())
    ]


async def health(service: Service, request: Request) -> Response:
    is_healthy = service.is_db_healthy
    return answered(
        Health(
            "healthy" if is_healthy else "unhealthy",
            "connected" if is_healthy else "disconnected",
            "forebay",
            forebay.__version__,
            iso(service.clock.now_us()),
        ),
        200 if is_healthy else 503,
    )


async def show_metrics(service: Service, request: Request) -> Response:
    """Prometheus text, or Queen's JSON for requests that accept JSON."""
    if b"application/json" in request.header(b"accept"):
        uptime = (service.clock.now_us() - service.started_us) / 1_000_000
        requests = sum(service.counts.requests.values())
        return answered(MetricsJson(uptime, requests, totals_of(service), len(service.waiting)))
    return await prometheus(service, request)


async def prometheus(service: Service, request: Request) -> Response:
    page = Page(service.metrics_namespace)
    _add_process(page)
    _add_server(page, service)
    add_latencies(page, service)
    _add_traces(page, service)
    await _add_queues(page, service)
    await _add_ledger(page, service)
    await _add_stages(page, service)
    await add_flows(page, service)
    await _add_dispatch(page, service)
    await add_buffers(page, service)
    add_way_out(page, service.way_out, service.clock)
    return Response(200, ("\n".join(page.lines()) + "\n").encode(), PROMETHEUS_TEXT)


async def _add_queues(page: Page, service: Service) -> None:
    """None where the store does not answer; while it only is slow, those of some seconds ago."""
    try:
        service.check_serves(Needs.STORE)
        figures = await queue_figures(service)
    except (Problem, StoreUnavailable):
        return
    await asyncio.to_thread(service.queue_samples.add, page, figures)
    page.add(metrics.QUEUE_FIGURES_AGE, round(service.queue_watch.age_seconds, 3))
    page.add(metrics.QUEUE_FIGURES_SECONDS, round(service.queue_watch.took_seconds, 6))


async def _add_ledger(page: Page, service: Service) -> None:
    try:
        service.check_serves(Needs.STORE)
        found = await ledger(service)
    except (Problem, StoreUnavailable):
        return
    add_ledger(page, found)


async def _add_stages(page: Page, service: Service) -> None:
    """None where the store does not answer: the operator sees the others then too."""
    try:
        service.check_serves(Needs.STORE)
        figures = await service.store.stage_figures()
    except (Problem, StoreUnavailable):
        return
    page.add(metrics.STAGES, figures.stages)
    page.add(metrics.STAGE_BYTES, figures.size_bytes)
    page.add(metrics.STAGES_EXPIRED, figures.expired)


async def _add_dispatch(page: Page, service: Service) -> None:
    try:
        service.check_serves(Needs.STORE)
        health = await service.dispatch_watch.health()
    except (Problem, StoreUnavailable):
        return
    add_dispatch(page, health)


def _add_process(page: Page) -> None:
    found = own_process()
    page.add(metrics.PROCESS_CPU, round(found.cpu_seconds, 3))
    page.add(metrics.PROCESS_RESIDENT, found.resident_bytes)
    page.add(metrics.PROCESS_VIRTUAL, found.virtual_bytes)
    page.add(metrics.PROCESS_FILES, found.open_files)
    page.add(metrics.PROCESS_FILES_MAX, found.open_files_max)
    page.add(metrics.PROCESS_START, round(found.start_seconds, 2))
    page.add(metrics.PROCESS_THREADS, found.threads)


def _add_traces(page: Page, service: Service) -> None:
    if service.tracer.is_on:
        page.add(metrics.SPANS_WAITING, len(service.tracer.waiting))
        page.add(metrics.SPANS_SENT, service.span_export.sent)
        page.add(metrics.SPANS_DROPPED, service.tracer.dropped)


def _add_server(page: Page, service: Service) -> None:
    counts, memory = service.counts, service.memory
    page.declare(metrics.HTTP_REQUESTS)
    for (method, path, status), count in sorted(counts.requests.items()):
        page.add(metrics.HTTP_REQUESTS, count, method, path, status)
    page.add(metrics.PUSHED, counts.pushed)
    page.add(metrics.POPPED, counts.popped)
    page.declare(metrics.ACKNOWLEDGED)
    for word, count in sorted(counts.acknowledged.items()):
        page.add(metrics.ACKNOWLEDGED, count, word)
    page.add(metrics.PUSH_BYTES, counts.bytes_in)
    page.add(metrics.WAITING_CONSUMERS, len(service.waiting))
    page.add(metrics.REQUEST_MEMORY, memory.used + memory.unasked)
    page.add(metrics.REQUEST_MEMORY_WAITING, memory.waiting)
    page.add(metrics.REQUEST_MEMORY_REFUSED, memory.refused)
    page.add(metrics.REQUEST_MEMORY_SLOW, memory.slow)
    page.declare(metrics.LOST, metrics.DISK_FREE, metrics.DISK_SIZE, metrics.REMOVED, metrics.DROPPED)
    for queue, count in sorted(service.lost.items()):
        page.add(metrics.LOST, count, queue)
    for disk in service.disks.disks:
        page.add(metrics.DISK_FREE, disk.free_bytes, disk.path)
        page.add(metrics.DISK_SIZE, disk.size_bytes, disk.path)
    for kind, count in sorted(service.retention.removed.items()):
        page.add(metrics.REMOVED, count, kind)
    for kind, count in sorted(service.store.dropped().items()):
        page.add(metrics.DROPPED, count, kind)
    page.add(metrics.CLOCK_JUMPS, service.retention.watch.jumps)
    page.add(metrics.MAINTENANCE, int(service.is_push_paused), "push")
    page.add(metrics.MAINTENANCE, int(service.is_pop_paused), "pop")


ROUTES = (
    Route("GET", "/healthz", healthz, "Is the process alive.", Scope.OPEN, answers={200: Alive}),
    Route("GET", "/readyz", readyz, "Can it serve.", Scope.OPEN, answers={200: Ready, 503: Ready}),
    Route("GET", "/health", health, "Health in Queen's form.", Scope.OPEN, answers={200: Health, 503: Health}),
    Route(
        "GET",
        "/metrics",
        show_metrics,
        "Metrics as Prometheus text, or as JSON with `Accept: application/json`.",
        Scope.OPEN,
        answers={200: MetricsJson | str},
    ),
    Route("GET", "/metrics/prometheus", prometheus, "Metrics as Prometheus text.", Scope.OPEN, answers={200: str}),
)
