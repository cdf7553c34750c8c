"""Status: the server, its queues and its buffers, for dashboards."""

from __future__ import annotations

from msgspec import Struct

from forebay.api.exchange import Request, Response
from forebay.api.figures import (
    FILTERS,
    INTERNAL,
    MessageCounts,
    QueueInfo,
    chosen,
    counts_of,
    info_of,
    listed,
    status_of,
)
from forebay.api.history import Minute, Span
from forebay.api.parameters import LIMIT, OFFSET, Name
from forebay.api.responses import Pagination, answered, iso
from forebay.api.routes.analytics import QUERY, TimeRange, Totals, per_second, points_of, span_of, time_range, totals_of
from forebay.api.routes.groups import GroupInfo, info_of_group
from forebay.api.routes.messages import FROM_SEQ, MessageList, browse
from forebay.api.routes.resources import PARTITION
from forebay.api.routing import Queues, Route, Scope
from forebay.api.service import Service

QUEUE = Name("queue", None, "Only of this queue.")


class ThroughputPoint(Struct, rename="camel"):
    timestamp: str
    ingested: int
    processed: int
    ingested_per_second: float
    processed_per_second: float


class StatusQueue(Struct, rename="camel"):
    id: str
    name: str
    namespace: str
    task: str
    partitions: int


class Leases(Struct):
    active: int
    """Messages under leases."""


class DeadLetterCount(Struct, rename="camel"):
    total_messages: int


class DispatchWarning(Struct, rename="camel"):
    check: str
    action_class: str | None
    message: str


class DispatchStatus(Struct):
    """Parcels by the state of their step, and what ought to be looked at."""

    queued: int
    cold: int
    leased: int
    joining: int
    exporting: int
    errors: int
    warnings: list[DispatchWarning]


class Status(Struct, rename="camel"):
    time: str
    uptime_seconds: float
    store: str
    time_range: TimeRange
    bucket_minutes: int
    point_count: int
    throughput: list[ThroughputPoint]
    """Of this server, the newest first."""
    totals: Totals
    queues: list[StatusQueue]
    partitions: int
    messages: MessageCounts
    leases: Leases
    dead_letter_queue: DeadLetterCount
    waiting_consumers: int
    dispatch: DispatchStatus


class QueueStatusList(Struct):
    queues: list[QueueInfo]
    pagination: Pagination


class QueueStatusDetail(Struct, rename="camel"):
    queue: QueueInfo
    consumer_groups: list[GroupInfo]


class LostInfo(Struct, rename="camel"):
    """Messages of one partition that were accepted and cannot be read any more."""

    queue: str
    partition: str | None
    """Null where it is not known: the messages were never indexed."""
    first_seq: int
    last_seq: int
    messages: int
    """How many those are; other partitions may have seqs between the first and the last."""
    reason: str
    found_at: str


class LostList(Struct):
    lost: list[LostInfo]
    pagination: Pagination


def _throughput(point: Minute, span: Span) -> ThroughputPoint:
    pushed, done = point.figures.pushed, point.figures.completed
    return ThroughputPoint(iso(point.start_us), pushed, done, per_second(pushed, span), per_second(done, span))


async def show_status(service: Service, request: Request) -> Response:
    span = span_of(service, request)
    statuses, lags = await listed(service, request)
    now_us = service.clock.now_us()
    points, messages = points_of(service, span), counts_of(statuses, lags)
    queues = [
        StatusQueue(each.queue.name, each.queue.name, each.queue.namespace, each.queue.task, each.partitions)
        for each in statuses
    ]
    return answered(
        Status(
            iso(now_us),
            (now_us - service.started_us) / 1_000_000,
            service.store_name,
            time_range(span),
            span.bucket_minutes,
            len(points),
            [_throughput(point, span) for point in reversed(points)],
            totals_of(service),
            queues,
            sum(status.partitions for status in statuses),
            messages,
            Leases(messages.processing),
            DeadLetterCount(messages.dead_letter),
            len(service.waiting),
            await _dispatch(service, request),
        )
    )


async def _dispatch(service: Service, request: Request) -> DispatchStatus:
    """Warnings name action classes and flows of any queue, so a key for some queues does not see them."""
    figures, warnings = await service.dispatch_watch.health()
    warnings = warnings if request.caller.patterns is None else []
    shown = [DispatchWarning(each.check, each.action_class or None, each.message) for each in warnings]
    return DispatchStatus(
        figures.queued,
        figures.cold,
        figures.leased,
        figures.joining,
        figures.exporting,
        figures.errors,
        shown,
    )


async def list_queue_status(service: Service, request: Request) -> Response:
    limit, offset = LIMIT.read(request.query), OFFSET.read(request.query)
    found, lags = await chosen(service, request)
    page = [info_of(each, [lag for lag in lags if lag.queue == each.queue.name]) for each in found]
    return answered(QueueStatusList(page[offset : offset + limit], Pagination(limit, offset, len(found))))


async def show_queue_status(service: Service, request: Request) -> Response:
    status, lags = await status_of(service, request.path[0])
    now_us = service.clock.now_us()
    return answered(QueueStatusDetail(info_of(status, lags), [info_of_group(lag, now_us) for lag in lags]))


async def list_lost(service: Service, request: Request) -> Response:
    """What damage has taken, to the seq: queue, partition, seqs, reason. Everything else is delivered and read."""
    limit, offset, queue = LIMIT.read(request.query), OFFSET.read(request.query), QUEUE.read(request.query)
    found = [
        each
        for each in await service.store.lost_messages()
        if queue in (None, each.queue) and request.caller.allows(each.queue)
    ]
    page = [LostInfo(*each[:-1], iso(each.found_us)) for each in found[offset : offset + limit]]
    return answered(LostList(page, Pagination(limit, offset, len(found))))


async def list_queue_messages(service: Service, request: Request) -> Response:
    return await browse(service, request, request.path[0])


_BASE = "/api/v1/status"

ROUTES = (
    Route(
        "GET",
        _BASE,
        show_status,
        "The server and its queues in numbers.",
        Scope.READ,
        answers={200: Status},
        query=(*QUERY, INTERNAL),
        problems=(503,),
        queues=Queues.SHOWN,
    ),
    Route(
        "GET",
        f"{_BASE}/queues",
        list_queue_status,
        "Queues in numbers.",
        Scope.READ,
        answers={200: QueueStatusList},
        query=(*FILTERS, LIMIT, OFFSET),
        problems=(503,),
        queues=Queues.SHOWN,
    ),
    Route(
        "GET",
        f"{_BASE}/lost",
        list_lost,
        "Messages that were accepted and cannot be read any more.",
        Scope.READ,
        answers={200: LostList},
        query=(QUEUE, LIMIT, OFFSET),
        problems=(503,),
        queues=Queues.SHOWN,
    ),
    Route(
        "GET",
        f"{_BASE}/queues/{{queue}}",
        show_queue_status,
        "A queue and its groups in numbers.",
        Scope.READ,
        answers={200: QueueStatusDetail},
        problems=(404, 503),
        queues=Queues.NAMED,
    ),
    Route(
        "GET",
        f"{_BASE}/queues/{{queue}}/messages",
        list_queue_messages,
        "Messages of a queue in order, without popping them.",
        Scope.READ,
        answers={200: MessageList},
        query=(PARTITION, FROM_SEQ, LIMIT),
        problems=(404, 410, 503),
        queues=Queues.NAMED,
    ),
)
