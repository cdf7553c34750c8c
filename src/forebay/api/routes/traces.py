"""Traces: what consumers noted about messages on their way."""

from __future__ import annotations

from msgspec import Raw, Struct

from forebay.api.bodies import TraceBody
from forebay.api.exchange import Request, Response
from forebay.api.large_bodies import read_body
from forebay.api.parameters import LIMIT, OFFSET, Whole, checked_name
from forebay.api.problems import Problem
from forebay.api.reach import check_partitions
from forebay.api.responses import Pagination, answered, iso
from forebay.api.routing import Queues, Route, Scope
from forebay.api.service import Service
from forebay.broker.overview import TraceEvent
from forebay.model.queue import DEFAULT_GROUP

DATA_BYTES_MAX = 64 * 1024
"""Of what is noted in one trace. Together with the page's limit it bounds an answer."""
PAGE = Whole("limit", 100, "How many to answer with.", lowest=1, highest=1_000)


class TraceInfo(Struct, rename="camel"):
    partition_id: str
    transaction_id: str
    consumer_group: str
    event_type: str
    trace_names: list[str]
    data: Raw
    created_at: str


class TraceList(Struct):
    traces: list[TraceInfo]
    total: int
    pagination: Pagination | None = None


class TraceName(Struct, rename="camel"):
    trace_name: str
    trace_count: int


class TraceNameList(Struct, rename="camel"):
    trace_names: list[TraceName]
    total: int
    pagination: Pagination


class TraceAdded(Struct):
    success: bool


async def add_trace(service: Service, request: Request) -> Response:
    body = await read_body(TraceBody, request)
    names = body.trace_names or []
    names = [names] if isinstance(names, str) else names
    if len(bytes(body.data)) > DATA_BYTES_MAX:
        detail = f"has {len(bytes(body.data))} bytes, allowed are {DATA_BYTES_MAX}"
        raise Problem(413, detail, code="too_large", field="data")
    await check_partitions(service, request, [checked_name(body.partition_id, "partitionId")])
    for index, name in enumerate(names):
        checked_name(name, f"traceNames[{index}]")
    await service.store.add_trace(
        TraceEvent(
            body.partition_id,
            checked_name(body.transaction_id, "transactionId"),
            checked_name(body.consumer_group or DEFAULT_GROUP, "consumerGroup"),
            checked_name(body.event_type or "info", "eventType"),
            tuple(dict.fromkeys(names)),
            bytes(body.data),
            service.clock.now_us(),
        )
    )
    return answered(TraceAdded(True), 201)


def _info(event: TraceEvent) -> TraceInfo:
    return TraceInfo(
        event.partition_id,
        event.transaction_id,
        event.group,
        event.event_type,
        list(event.names),
        Raw(event.data),
        iso(event.created_us),
    )


async def traces_of_message(service: Service, request: Request) -> Response:
    partition_id, transaction_id = request.path
    await check_partitions(service, request, [partition_id])
    found = await service.store.traces(partition_id, transaction_id)
    return answered(TraceList([_info(event) for event in found], len(found)))


async def traces_by_name(service: Service, request: Request) -> Response:
    limit, offset = PAGE.read(request.query), OFFSET.read(request.query)
    found, total = await service.store.traces_named(request.path[0], limit, offset)
    return answered(TraceList([_info(event) for event in found], total, Pagination(limit, offset, total)))


async def trace_names(service: Service, request: Request) -> Response:
    limit, offset = LIMIT.read(request.query), OFFSET.read(request.query)
    found, total = await service.store.trace_names(limit, offset)
    names = [TraceName(name, count) for name, count in found]
    return answered(TraceNameList(names, total, Pagination(limit, offset, total)))


ROUTES = (
    Route(
        "POST",
        "/api/v1/traces",
        add_trace,
        "Note something about a message.",
        Scope.WRITE,
        answers={201: TraceAdded},
        body=TraceBody,
        problems=(413, 415, 503, 507),
        or_scope=Scope.CONSUME,
        queues=Queues.NAMED,
    ),
    Route(
        "GET",
        "/api/v1/traces/names",
        trace_names,
        "List the names of traces.",
        Scope.READ,
        answers={200: TraceNameList},
        query=(LIMIT, OFFSET),
        problems=(503,),
    ),
    Route(
        "GET",
        "/api/v1/traces/by-name/{name}",
        traces_by_name,
        "Traces of one name, the newest first.",
        Scope.READ,
        answers={200: TraceList},
        query=(PAGE, OFFSET),
        problems=(503,),
    ),
    Route(
        "GET",
        "/api/v1/traces/{partitionId}/{transactionId}",
        traces_of_message,
        "Traces of one message.",
        Scope.READ,
        answers={200: TraceList},
        problems=(503,),
        queues=Queues.NAMED,
    ),
)
