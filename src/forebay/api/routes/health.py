"""Is it alive, is it ready, and what has it done: for machines that look after servers. No key is needed."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

import forebay
from forebay.api.answers import answered, iso
from forebay.api.exchange import Answer, Request
from forebay.api.problems import Problem
from forebay.api.routes.analytics import Totals, totals_of
from forebay.api.routes.buffers import buffer_lines
from forebay.api.routing import Needs, Route, Scope
from forebay.api.service import Service
from forebay.errors import StoreUnavailable

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


async def metrics(service: Service, request: Request) -> Answer:
    """Prometheus text, or Queen's JSON for who asks for JSON."""
    if b"application/json" in request.header(b"accept"):
        uptime = (service.clock.now_us() - service.started_us) / 1_000_000
        requests = sum(service.counts.requests.values())
        return answered(MetricsJson(uptime, requests, totals_of(service), len(service.waiting)))
    return await prometheus(service, request)


async def prometheus(service: Service, request: Request) -> Answer:
    lines = [*_lines(service), *await _stage_lines(service), *await buffer_lines(service)]
    return Answer(200, ("\n".join(lines) + "\n").encode(), PROMETHEUS_TEXT)


async def _stage_lines(service: Service) -> list[str]:
    """None where the store does not answer: whoever looks after servers sees the others then too."""
    try:
        service.check_serves(Needs.STORE)
        figures = await service.store.stage_figures()
    except Problem:
        return []
    except StoreUnavailable:
        return []
    return [
        *_head("forebay_stages", "gauge", "Stages that wait for their commit."),
        f"forebay_stages {figures.stages}",
        *_head("forebay_stage_bytes", "gauge", "Bytes of the payloads in them."),
        f"forebay_stage_bytes {figures.size_bytes}",
        *_head("forebay_stages_expired_total", "counter", "Stages that this server removed, uncommitted in time."),
        f"forebay_stages_expired_total {figures.expired}",
    ]


def _lines(service: Service) -> Iterator[str]:
    counts = service.counts
    yield from _head("forebay_http_requests_total", "counter", "Requests answered, by operation and status.")
    for (method, path, status), count in sorted(counts.requests.items()):
        yield f'forebay_http_requests_total{{method="{method}",path="{path}",status="{status}"}} {count}'
    yield from _head("forebay_messages_pushed_total", "counter", "Messages accepted by this server.")
    yield f"forebay_messages_pushed_total {counts.pushed}"
    yield from _head("forebay_messages_popped_total", "counter", "Messages delivered by this server.")
    yield f"forebay_messages_popped_total {counts.popped}"
    yield from _head("forebay_messages_acknowledged_total", "counter", "Answers of consumers, by status.")
    for word, count in sorted(counts.acknowledged.items()):
        yield f'forebay_messages_acknowledged_total{{status="{word}"}} {count}'
    yield from _head("forebay_push_bytes_total", "counter", "Bytes of push requests, decompressed.")
    yield f"forebay_push_bytes_total {counts.bytes_in}"
    yield from _head("forebay_waiting_consumers", "gauge", "Long polls that wait for messages.")
    yield f"forebay_waiting_consumers {len(service.waiting)}"
    memory = service.memory
    yield from _head("forebay_request_memory_bytes", "gauge", "Memory that bodies and answers hold.")
    yield f"forebay_request_memory_bytes {memory.used + memory.unasked}"
    yield from _head("forebay_request_memory_waiting", "gauge", "Requests that wait for memory.")
    yield f"forebay_request_memory_waiting {memory.waiting}"
    yield from _head("forebay_request_memory_refused_total", "counter", "Requests that waited for memory in vain.")
    yield f"forebay_request_memory_refused_total {memory.refused}"
    yield from _head("forebay_request_memory_slow_total", "counter", "Clients that lost their memory, being slow.")
    yield f"forebay_request_memory_slow_total {memory.slow}"
    yield from _head("forebay_messages_lost", "gauge", "Messages accepted and not readable any more, by queue.")
    for queue, count in sorted(service.lost.items()):
        yield f'forebay_messages_lost{{queue="{_label(queue)}"}} {count}'
    yield from _head("forebay_disk_free_bytes", "gauge", "Room on the disks that the server writes to.")
    for disk in service.disks.disks:
        yield f'forebay_disk_free_bytes{{path="{_label(str(disk.path))}"}} {disk.free_bytes}'
    yield from _head("forebay_disk_size_bytes", "gauge", "Size of those disks.")
    for disk in service.disks.disks:
        yield f'forebay_disk_size_bytes{{path="{_label(str(disk.path))}"}} {disk.size_bytes}'
    yield from _head("forebay_removed_total", "counter", "What this server removed for its age, by kind.")
    for kind, count in sorted(service.retention.removed.items()):
        yield f'forebay_removed_total{{kind="{kind}"}} {count}'
    yield from _head("forebay_clock_jumps_total", "counter", "How often the clock was seen to jump forward.")
    yield f"forebay_clock_jumps_total {service.retention.watch.jumps}"
    yield from _head("forebay_maintenance", "gauge", "1 while maintenance is on.")
    yield f'forebay_maintenance{{of="push"}} {int(service.is_push_paused)}'
    yield f'forebay_maintenance{{of="pop"}} {int(service.is_pop_paused)}'


def _label(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def _head(name: str, kind: str, text: str) -> Iterator[str]:
    yield f"# HELP {name} {text}"
    yield f"# TYPE {name} {kind}"


ROUTES = (
    Route("GET", "/healthz", healthz, "Is the process alive.", Scope.OPEN, answers={200: Alive}),
    Route("GET", "/readyz", readyz, "Can it serve.", Scope.OPEN, answers={200: Ready, 503: Ready}),
    Route("GET", "/health", health, "Health in Queen's form.", Scope.OPEN, answers={200: Health, 503: Health}),
    Route(
        "GET",
        "/metrics",
        metrics,
        "Metrics as Prometheus text, or as JSON with `Accept: application/json`.",
        Scope.OPEN,
        answers={200: MetricsJson | str},
    ),
    Route("GET", "/metrics/prometheus", prometheus, "Metrics as Prometheus text.", Scope.OPEN, answers={200: str}),
)
