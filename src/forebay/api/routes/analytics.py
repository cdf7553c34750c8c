"""Analytics in the shapes that Queen's dashboard reads: curves of the last day, of this server alone (`api.history`).

What Forebay does not measure is left out. Dashboards that want more ask Prometheus, which `/metrics` feeds.
"""

from __future__ import annotations

import os

import msgspec
from msgspec import Struct

from forebay.api.exchange import Request, Response
from forebay.api.figures import INTERNAL, MessageCounts, counts_of, listed
from forebay.api.history import MINUTE_US, Minute, Span
from forebay.api.parameters import Moment, Text
from forebay.api.problems import wrong
from forebay.api.responses import answered, iso
from forebay.api.routing import Queues, Route, Scope
from forebay.api.service import Service

_HOUR_US = 60 * MINUTE_US
FROM = Moment("from", None, "The beginning of the requested time; an hour ago where it is not given.")
TO = Moment("to", None, "Its end; now where it is not given.")
INTERVAL = Text(
    "interval",
    "",
    "Not needed: how far the points are apart follows from the requested time.",
    words=("", "minute", "hour", "day"),
)
QUERY = (FROM, TO, INTERVAL)


class TimeRange(Struct):
    to: str
    from_: str = msgspec.field(name="from")


class Totals(Struct):
    """Of this server, since it started. Rates come from two looks at these, or from `/metrics`."""

    pushed: int
    popped: int
    acknowledged: int
    refused: int


class AnalyticsResponse(Struct, rename="camel"):
    time: str
    messages: MessageCounts
    totals: Totals


class Spread(Struct):
    avg: float
    min: float
    max: float
    last: float


class Processor(Struct):
    """In hundredths of a percent of one processor, as Queen has it; the names are Queen's too."""

    user_us: Spread
    system_us: Spread


class Resident(Struct):
    rss_bytes: Spread


class SystemFigures(Struct):
    cpu: Processor
    memory: Resident


class SystemPoint(Struct, rename="camel"):
    timestamp: str
    sample_count: int
    metrics: SystemFigures


class Replica(Struct, rename="camel"):
    hostname: str
    worker_id: int
    time_series: list[SystemPoint]


class SystemMetrics(Struct, rename="camel"):
    time_range: TimeRange
    bucket_minutes: int
    point_count: int
    replica_count: int
    replicas: list[Replica]


class WorkerPoint(Struct, rename="camel"):
    timestamp: str
    push_messages: int
    pop_messages: int
    ack_messages: int
    push_per_second: float
    pop_per_second: float
    ack_per_second: float
    ack_success: int
    ack_failed: int
    dlq_count: int


class Worker(Struct, rename="camel"):
    hostname: str
    worker_id: int
    waiting_consumers: int
    messages_processed: int
    last_seen: str


class WorkerMetrics(Struct, rename="camel"):
    time_range: TimeRange
    bucket_minutes: int
    point_count: int
    time_series: list[WorkerPoint]
    workers: list[Worker]


class RetentionPoint(Struct, rename="camel"):
    bucket: str
    total_msgs: int


class RetentionTotals(Struct, rename="camel"):
    total_msgs: int


class RetentionMetrics(Struct, rename="camel"):
    time_range: TimeRange
    bucket_minutes: int
    series: list[RetentionPoint]
    totals: RetentionTotals


class ParkedPoint(Struct, rename="camel"):
    bucket: str
    queue_name: str
    hostname: str
    worker_id: int
    parked_count: int


class ParkedReplica(Struct, rename="camel"):
    hostname: str
    worker_id: int


class ParkedReplicas(Struct, rename="camel"):
    time_range: TimeRange
    bucket_minutes: int
    series: list[ParkedPoint]
    replicas: list[ParkedReplica]


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


def span_of(service: Service, request: Request) -> Span:
    """The requested time."""
    end = TO.read(request.query)
    INTERVAL.read(request.query)
    to_us = service.clock.now_us() if end is None else end
    start = FROM.read(request.query)
    from_us = max(to_us - _HOUR_US, 0) if start is None else start
    if from_us > to_us:
        raise wrong(FROM.name, "is later than to")
    return Span(from_us, to_us)


def points_of(service: Service, span: Span) -> list[Minute]:
    """What this server did in that time, up to this moment."""
    service.note_figures()
    return service.history.points(span)


def time_range(span: Span) -> TimeRange:
    return TimeRange(iso(span.to_us), iso(span.from_us))


def totals_of(service: Service) -> Totals:
    counts = service.counts
    refused = counts.acknowledged["refused"]
    return Totals(counts.pushed, counts.popped, sum(counts.acknowledged.values()) - refused, refused)


def per_second(count: int, span: Span) -> float:
    return round(count / (span.bucket_minutes * 60), 2)


async def show_analytics(service: Service, request: Request) -> Response:
    span_of(service, request)
    statuses, lags = await listed(service, request)
    now = iso(service.clock.now_us())
    return answered(AnalyticsResponse(now, counts_of(statuses, lags), totals_of(service)))


async def system_metrics(service: Service, request: Request) -> Response:
    span = span_of(service, request)
    series = [_system_point(point, span) for point in points_of(service, span)]
    replica = Replica(os.uname().nodename, 0, series)
    return answered(SystemMetrics(time_range(span), span.bucket_minutes, len(series), 1, [replica]))


def _system_point(point: Minute, span: Span) -> SystemPoint:
    def share(processor_us: int) -> Spread:
        return _even(round(processor_us * 10_000 / (span.bucket_minutes * MINUTE_US), 2))

    figures = point.figures
    cpu = Processor(share(figures.user_us), share(figures.system_us))
    return SystemPoint(iso(point.start_us), point.samples, SystemFigures(cpu, Resident(_even(point.rss_bytes))))


def _even(value: float) -> Spread:
    """Of each minute one value is kept."""
    return Spread(value, value, value, value)


async def worker_metrics(service: Service, request: Request) -> Response:
    span = span_of(service, request)
    series = [_worker_point(point, span) for point in reversed(points_of(service, span))]
    counts, now = service.counts, iso(service.clock.now_us())
    done = counts.pushed + sum(counts.acknowledged.values())
    worker = Worker(os.uname().nodename, 0, len(service.waiting), done, now)
    return answered(WorkerMetrics(time_range(span), span.bucket_minutes, len(series), series, [worker]))


def _worker_point(point: Minute, span: Span) -> WorkerPoint:
    did = point.figures
    acks = did.completed + did.failed + did.dead
    return WorkerPoint(
        iso(point.start_us),
        did.pushed,
        did.popped,
        acks,
        per_second(did.pushed, span),
        per_second(did.popped, span),
        per_second(acks, span),
        did.completed,
        did.failed,
        did.dead,
    )


async def retention_metrics(service: Service, request: Request) -> Response:
    span = span_of(service, request)
    points = [point for point in points_of(service, span) if point.figures.removed]
    series = [RetentionPoint(iso(point.start_us), point.figures.removed) for point in points]
    total = RetentionTotals(sum(point.figures.removed for point in points))
    return answered(RetentionMetrics(time_range(span), span.bucket_minutes, series, total))


async def parked_replicas(service: Service, request: Request) -> Response:
    """Consumers that wait for messages at this server, by queue, now."""
    span, host, now = span_of(service, request), os.uname().nodename, iso(service.clock.now_us())
    waiting = [found for found in sorted(service.waiting.by_queue().items()) if request.caller.allows(found[0])]
    series = [ParkedPoint(now, queue, host, 0, count) for queue, count in waiting]
    return answered(ParkedReplicas(time_range(span), span.bucket_minutes, series, [ParkedReplica(host, 0)]))


async def queue_lag(service: Service, request: Request) -> Response:
    span_of(service, request)
    points = [
        LagPoint(lag.queue, lag.group, lag.lag_messages, round(lag.lag_seconds, 3))
        for lag in await service.store.groups()
        if request.caller.allows(lag.queue)
    ]
    return answered(QueueLag(iso(service.clock.now_us()), points))


async def queue_ops(service: Service, request: Request) -> Response:
    span_of(service, request)
    found = [each for each in await service.store.queues() if request.caller.allows(each.queue.name)]
    points = [OpsPoint(each.queue.name, each.pushed, each.messages) for each in found]
    return answered(QueueOps(iso(service.clock.now_us()), points))


async def refresh(service: Service, request: Request) -> Response:
    """Figures are counted when they are requested, so there is nothing to refresh."""
    return answered(Refreshed(True))


_BASE = "/api/v1/analytics"

ROUTES = (
    Route(
        "GET",
        "/api/v1/status/analytics",
        show_analytics,
        "Messages now, and what this server has done since it started.",
        Scope.READ,
        answers={200: AnalyticsResponse},
        query=(*QUERY, INTERNAL),
        problems=(503,),
        queues=Queues.SHOWN,
    ),
    Route(
        "GET",
        f"{_BASE}/system-metrics",
        system_metrics,
        "Processor and memory of this server, minute by minute for the last day.",
        Scope.READ,
        answers={200: SystemMetrics},
        query=QUERY,
        queues=Queues.SHOWN,
    ),
    Route(
        "GET",
        f"{_BASE}/worker-metrics",
        worker_metrics,
        "What this server did, minute by minute for the last day.",
        Scope.READ,
        answers={200: WorkerMetrics},
        query=QUERY,
        queues=Queues.SHOWN,
    ),
    Route(
        "GET",
        f"{_BASE}/retention",
        retention_metrics,
        "How many messages this server removed by retention, minute by minute for the last day.",
        Scope.READ,
        answers={200: RetentionMetrics},
        query=QUERY,
        queues=Queues.SHOWN,
    ),
    Route(
        "GET",
        f"{_BASE}/queue-parked-replicas",
        parked_replicas,
        "How many consumers wait at this server for each queue now.",
        Scope.READ,
        answers={200: ParkedReplicas},
        query=QUERY,
        queues=Queues.SHOWN,
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
        queues=Queues.SHOWN,
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
        queues=Queues.SHOWN,
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
