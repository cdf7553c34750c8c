"""Analytics in Queen's shapes. Forebay keeps no history of its own: each answer has one point, taken now.

Dashboards that want curves ask Prometheus, which `/metrics` feeds.
"""

from __future__ import annotations

import os
import resource

from msgspec import Struct

from forebay.api.answers import answered, iso
from forebay.api.exchange import Answer, Request
from forebay.api.figures import MessageCounts, counts_of
from forebay.api.parameters import Moment, Text
from forebay.api.problems import wrong
from forebay.api.routes.status import Throughput, throughput_of
from forebay.api.routing import Route, Scope
from forebay.api.service import Service

FROM = Moment("from", None, "The beginning of the time asked for.")
TO = Moment("to", None, "Its end.")
INTERVAL = Text("interval", "", "How far the points are apart.", words=("", "minute", "hour", "day"))
QUERY = (FROM, TO, INTERVAL)


class TimeRange(Struct, rename="camel"):
    from_: str | None
    to: str


class AnalyticsAnswer(Struct, rename="camel"):
    time: str
    messages: MessageCounts
    throughput: Throughput


class SystemPoint(Struct, rename="camel"):
    timestamp: str
    cpu_seconds: float
    memory_bytes_max: int
    load: list[float]


class SystemMetrics(Struct):
    replicas: list[str]
    points: list[SystemPoint]


class WorkerPoint(Struct, rename="camel"):
    timestamp: str
    waiting_consumers: int
    throughput: Throughput


class WorkerMetrics(Struct):
    workers: list[str]
    points: list[WorkerPoint]


class LagPoint(Struct, rename="camel"):
    queue: str
    consumer_group: str
    lag_messages: int
    lag_seconds: float


class QueueLag(Struct):
    timestamp: str
    queues: list[LagPoint]


class OpsPoint(Struct):
    queue: str
    pushed: int
    messages: int


class QueueOps(Struct):
    timestamp: str
    queues: list[OpsPoint]


class Refreshed(Struct):
    success: bool


def _check_range(request: Request) -> None:
    start, end = FROM.read(request.query), TO.read(request.query)
    INTERVAL.read(request.query)
    if start is not None and end is not None and start > end:
        raise wrong(FROM.name, "is later than to")


async def show_analytics(service: Service, request: Request) -> Answer:
    _check_range(request)
    statuses, lags = await service.store.queues(), await service.store.groups()
    now = iso(service.clock.now_us())
    return answered(AnalyticsAnswer(now, counts_of(statuses, lags), throughput_of(service)))


async def system_metrics(service: Service, request: Request) -> Answer:
    _check_range(request)
    usage = resource.getrusage(resource.RUSAGE_SELF)
    point = SystemPoint(
        iso(service.clock.now_us()),
        round(usage.ru_utime + usage.ru_stime, 3),
        usage.ru_maxrss * 1024,
        [round(each, 2) for each in os.getloadavg()],
    )
    return answered(SystemMetrics([os.uname().nodename], [point]))


async def worker_metrics(service: Service, request: Request) -> Answer:
    _check_range(request)
    point = WorkerPoint(iso(service.clock.now_us()), len(service.waiting), throughput_of(service))
    return answered(WorkerMetrics([os.uname().nodename], [point]))


async def queue_lag(service: Service, request: Request) -> Answer:
    _check_range(request)
    points = [
        LagPoint(lag.queue, lag.group, lag.lag_messages, round(lag.lag_seconds, 3))
        for lag in await service.store.groups()
    ]
    return answered(QueueLag(iso(service.clock.now_us()), points))


async def queue_ops(service: Service, request: Request) -> Answer:
    _check_range(request)
    points = [OpsPoint(each.queue.name, each.pushed, each.messages) for each in await service.store.queues()]
    return answered(QueueOps(iso(service.clock.now_us()), points))


async def refresh(service: Service, request: Request) -> Answer:
    """Figures are counted when they are asked for, so there is nothing to refresh."""
    return answered(Refreshed(True))


_BASE = "/api/v1/analytics"

ROUTES = (
    Route(
        "GET",
        "/api/v1/status/analytics",
        show_analytics,
        "Messages and throughput now.",
        Scope.READ,
        answers={200: AnalyticsAnswer},
        query=QUERY,
        problems=(503,),
    ),
    Route(
        "GET",
        f"{_BASE}/system-metrics",
        system_metrics,
        "Processor and memory of the server now.",
        Scope.READ,
        answers={200: SystemMetrics},
        query=QUERY,
    ),
    Route(
        "GET",
        f"{_BASE}/worker-metrics",
        worker_metrics,
        "What the server has done since it started.",
        Scope.READ,
        answers={200: WorkerMetrics},
        query=QUERY,
    ),
    Route(
        "GET",
        f"{_BASE}/queue-lag",
        queue_lag,
        "How far each group is behind now.",
        Scope.READ,
        answers={200: QueueLag},
        query=QUERY,
        problems=(503,),
    ),
    Route(
        "GET",
        f"{_BASE}/queue-ops",
        queue_ops,
        "What each queue has accepted and keeps.",
        Scope.READ,
        answers={200: QueueOps},
        query=QUERY,
        problems=(503,),
    ),
    Route(
        "POST",
        "/api/v1/stats/refresh",
        refresh,
        "For Queen's clients; figures are always fresh.",
        Scope.ADMIN,
        answers={200: Refreshed},
    ),
)
