"""Is it alive, is it ready, and what has it done: for machines that look after servers. No key is needed."""

from __future__ import annotations

from msgspec import Struct

import forebay
from forebay.api.answers import answered, iso
from forebay.api.exchange import Answer, Request
from forebay.api.export_metrics import add_way_out
from forebay.api.problems import Problem
from forebay.api.routes.analytics import Totals, totals_of
from forebay.api.routes.buffers import add_buffers
from forebay.api.routes.flows import add_flows
from forebay.api.routing import Needs, Route, Scope
from forebay.api.service import Service
from forebay.errors import StoreUnavailable
from forebay.telemetry import metrics
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


async def healthz(service: Service, request: Request) -> Answer:
    """The process answers. Nothing else is asked, so that a database that is away does not get servers restarted."""
    return answered(Alive("alive"))


async def readyz(service: Service, request: Request) -> Answer:
    """Recovered and serving; otherwise 503 with the reasons. `degraded`: the store is away, and pushes are buffered.

    A server that has lost messages to damage serves the others: that is among the reasons of one that is `ready`.
    """
    reasons = service.reasons_not_to_serve()
    if not reasons and service.intake is None and not await service.store.is_healthy():
        reasons = ["the store does not answer"]
    if service.is_started and not service.is_stopping and service.intake is not None:
        # Pushes are accepted, store or no store: whoever sends requests here must go on doing so.
        return answered(Ready("degraded" if reasons else "ready", reasons + _losses(service)))
    status = 503 if reasons else 200
    return answered(Ready("not ready" if reasons else "ready", reasons + _losses(service)), status)


def _losses(service: Service) -> list[str]:
    return [
        f"queue {queue!r}: {count} messages cannot be read any more; see /api/v1/status/lost"
        for queue, count in sorted(service.lost.items())
    ]


async def health(service: Service, request: Request) -> Answer:
    is_healthy = service.is_db_healthy if service.intake is not None else await service.store.is_healthy()
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


async def show_metrics(service: Service, request: Request) -> Answer:
    """Prometheus text, or Queen's JSON for who asks for JSON."""
    if b"application/json" in request.header(b"accept"):
        uptime = (service.clock.now_us() - service.started_us) / 1_000_000
        requests = sum(service.counts.requests.values())
        return answered(MetricsJson(uptime, requests, totals_of(service), len(service.waiting)))
    return await prometheus(service, request)


async def prometheus(service: Service, request: Request) -> Answer:
    page = Page(service.metrics_namespace)
    _add_server(page, service)
    await _add_stages(page, service)
    await add_flows(page, service)
    await add_buffers(page, service)
    add_way_out(page, service.way_out, service.clock)
    return Answer(200, ("\n".join(page.lines()) + "\n").encode(), PROMETHEUS_TEXT)


async def _add_stages(page: Page, service: Service) -> None:
    """None where the store does not answer: who looks after servers sees the others then too."""
    try:
        service.check_serves(Needs.STORE)
        figures = await service.store.stage_figures()
    except (Problem, StoreUnavailable):
        return
    page.add(metrics.STAGES, figures.stages)
    page.add(metrics.STAGE_BYTES, figures.size_bytes)
    page.add(metrics.STAGES_EXPIRED, figures.expired)


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
    page.declare(metrics.LOST, metrics.DISK_FREE, metrics.DISK_SIZE, metrics.REMOVED)
    for queue, count in sorted(service.lost.items()):
        page.add(metrics.LOST, count, queue)
    for disk in service.disks.disks:
        page.add(metrics.DISK_FREE, disk.free_bytes, disk.path)
        page.add(metrics.DISK_SIZE, disk.size_bytes, disk.path)
    for kind, count in sorted(service.retention.removed.items()):
        page.add(metrics.REMOVED, count, kind)
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
