"""The way in: `POST /push`."""

from __future__ import annotations

from collections.abc import Sequence

from forebay.api.answers import PushedItem, PushSummary, answered, message_id
from forebay.api.bodies import PushBody, decoded, push_items
from forebay.api.exchange import Answer, Request
from forebay.api.parameters import Switch
from forebay.api.problems import unavailable
from forebay.api.routing import Route, Scope
from forebay.api.service import Service
from forebay.broker.store import Pushed, PushItem

SUMMARY = Switch("summary", False, "Answer with a summary instead of one entry per message.")


async def push(service: Service, request: Request) -> Answer:
    """Store messages, all or none, and answer when they are as durable as their receipts say."""
    raw = await request.body()
    body = decoded(PushBody, raw)
    if service.is_push_paused:
        raise unavailable("push maintenance is on", "maintenance")
    items = push_items(body.items)
    pushed = await service.store.push(items) if items else []
    counts = service.counts
    counts.pushed += len(items)
    counts.bytes_in += len(raw)
    if service.waiting.has_lines_for_partitions:
        for item in items:
            service.waiting.announce_partition(item.queue, item.partition)
    is_buffered = body.buffer_ms is not None or body.buffer_max is not None
    if is_buffered or (request.scope["query_string"] and SUMMARY.read(request.query)):
        return answered(PushSummary(True, False, True, len(pushed)), 201)
    return answered(_told(items, pushed), 201)


def _told(items: Sequence[PushItem], pushed: Sequence[Pushed]) -> list[PushedItem]:
    return [
        PushedItem(
            index,
            found.status,
            transaction_id := item.transaction_id,
            transaction_id,
            own_id := message_id(item.queue, found.seq),
            own_id,
            partition_id := found.partition_id,
            partition_id,
            found.seq,
            found.receipt,
            trace_id := item.trace_id or None,
            trace_id,
        )
        for index, (item, found) in enumerate(zip(items, pushed, strict=True))
    ]


ROUTES = (
    Route(
        "POST",
        "/api/v1/push",
        push,
        "Push messages. Queues and partitions are made as needed; a transactionId that its partition holds already is "
        "answered as duplicate.",
        Scope.WRITE,
        answers={201: list[PushedItem] | PushSummary},
        body=PushBody,
        query=(SUMMARY,),
        problems=(413, 415, 429, 503, 507),
    ),
)
