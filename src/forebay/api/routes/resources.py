"""Queues and their partitions as they stand."""

from __future__ import annotations

from msgspec import Struct

from forebay.api.exchange import Request, Response
from forebay.api.figures import FILTERS, MessageCounts, QueueInfo, chosen, counts_of, info_of, status_of
from forebay.api.parameters import LIMIT, OFFSET, Name
from forebay.api.problems import wrong
from forebay.api.responses import Pagination, answered, iso_or_none
from forebay.api.routing import Queues, Route, Scope
from forebay.api.service import Service
from forebay.broker.overview import PartitionStatus
from forebay.model.queue import options_to_wire

QUEUE = Name("queue", None, "The queue.")
PARTITION = Name("partition", None, "Only this partition.")
GROUP = Name("group", None, "The group whose backlog is meant; without it, the one that is furthest behind.")


class QueueList(Struct):
    queues: list[QueueInfo]
    pagination: Pagination


class PartitionInfo(Struct, rename="camel"):
    id: str
    name: str
    messages: int
    last_seq: int
    last_activity: str | None


class QueueDetail(Struct, rename="camel"):
    id: str
    name: str
    namespace: str
    task: str
    priority: int
    created_at: str | None
    config: dict[str, int | bool]
    totals: MessageCounts
    first_seq: int
    next_seq: int
    size_bytes: int
    partitions: list[PartitionInfo]


class QueueDeleted(Struct):
    deleted: bool
    queue: str


class QueueCleared(Struct):
    success: bool
    queue: str
    removed: int


class Depth(Struct, rename="camel"):
    queue: str
    group: str | None
    pending: int
    partitions_pending: int
    conflation: bool
    effective_pending: int


class PartitionList(Struct):
    queue: str
    partitions: list[PartitionInfo]
    pagination: Pagination


def _partition_info(partition: PartitionStatus) -> PartitionInfo:
    return PartitionInfo(
        partition.partition_id,
        partition.name,
        partition.messages,
        partition.last_seq,
        iso_or_none(partition.newest_us),
    )


async def list_queues(service: Service, request: Request) -> Response:
    limit, offset = LIMIT.read(request.query), OFFSET.read(request.query)
    found, lags = await chosen(service, request)
    page = [
        info_of(status, [lag for lag in lags if lag.queue == status.queue.name])
        for status in found[offset : offset + limit]
    ]
    return answered(QueueList(page, Pagination(limit, offset, len(found))))


async def show_queue(service: Service, request: Request) -> Response:
    limit, offset = LIMIT.read(request.query), OFFSET.read(request.query)
    status, lags = await status_of(service, request.path[0])
    queue = status.queue
    partitions = await service.store.partitions(queue.name, limit, offset)
    return answered(
        QueueDetail(
            queue.name,
            queue.name,
            queue.namespace,
            queue.task,
            queue.options.priority,
            iso_or_none(queue.created_us),
            options_to_wire(queue.options),
            counts_of([status], lags),
            status.first_seq,
            status.next_seq,
            status.size_bytes,
            [_partition_info(partition) for partition in partitions],
        )
    )


async def delete_queue(service: Service, request: Request) -> Response:
    (name,) = request.path
    await service.intake.wait_until_stored(name)
    was_there = await service.store.delete_queue(name)
    service.waiting.forget(name)
    return answered(QueueDeleted(was_there, name))


async def clear_queue(service: Service, request: Request) -> Response:
    """What is pushed meanwhile stays; so do options, groups and dead letters."""
    (name,) = request.path
    removed = await service.store.clear_queue(name, PARTITION.read(request.query))
    return answered(QueueCleared(True, name, removed))


async def queue_depth(service: Service, request: Request) -> Response:
    group = GROUP.read(request.query)
    status, lags = await status_of(service, request.path[0])
    wanted = [lag for lag in lags if group in (None, lag.group)]
    pending = max((lag.lag_messages for lag in wanted), default=status.messages)
    partitions = max((lag.partitions_with_lag for lag in wanted), default=status.partitions)
    return answered(Depth(status.queue.name, group, pending, partitions, False, pending))


async def list_partitions(service: Service, request: Request) -> Response:
    limit, offset = LIMIT.read(request.query), OFFSET.read(request.query)
    queue = QUEUE.read(request.query)
    if queue is None:
        raise wrong(QUEUE.name, "is missing")
    request.caller.check_queue(queue, QUEUE.name)
    found = await service.store.partitions(queue, limit, offset)
    return answered(PartitionList(queue, [_partition_info(each) for each in found], Pagination(limit, offset)))


_QUEUES = "/api/v1/resources/queues"

ROUTES = (
    Route(
        "GET",
        _QUEUES,
        list_queues,
        "List queues.",
        Scope.READ,
        answers={200: QueueList},
        query=(*FILTERS, LIMIT, OFFSET),
        problems=(503,),
        queues=Queues.SHOWN,
    ),
    Route(
        "GET",
        f"{_QUEUES}/{{queue}}",
        show_queue,
        "Show a queue with its options and partitions.",
        Scope.READ,
        or_scope=Scope.CONSUME,
        answers={200: QueueDetail},
        query=(LIMIT, OFFSET),
        problems=(404, 503),
        queues=Queues.NAMED,
    ),
    Route(
        "DELETE",
        f"{_QUEUES}/{{queue}}",
        delete_queue,
        "Delete a queue with its messages, groups, dead letters and traces.",
        Scope.ADMIN,
        answers={200: QueueDeleted},
        problems=(503,),
        queues=Queues.NAMED,
    ),
    Route(
        "DELETE",
        "/api/v1/queues/{queue}/clear",
        clear_queue,
        "Remove the messages of a queue, or of one partition.",
        Scope.ADMIN,
        answers={200: QueueCleared},
        query=(PARTITION,),
        problems=(404, 503),
        queues=Queues.NAMED,
    ),
    Route(
        "GET",
        f"{_QUEUES}/{{queue}}/depth",
        queue_depth,
        "How many messages of a queue wait.",
        Scope.READ,
        answers={200: Depth},
        query=(GROUP,),
        problems=(404, 503),
        queues=Queues.NAMED,
    ),
    Route(
        "GET",
        "/api/v1/resources/partitions",
        list_partitions,
        "List the partitions of a queue.",
        Scope.READ,
        answers={200: PartitionList},
        query=(QUEUE, LIMIT, OFFSET),
        problems=(404, 503),
        queues=Queues.NAMED,
    ),
)
