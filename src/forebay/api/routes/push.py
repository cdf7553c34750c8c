"""The way in: `POST /push`."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from time import perf_counter

from forebay.api.bodies import PushBody, decoded, push_items
from forebay.api.exchange import Request, Response
from forebay.api.large_bodies import LARGE_BYTES_MIN, decoded_push
from forebay.api.parameters import Switch
from forebay.api.problems import without_paths
from forebay.api.push_traces import end_push, traced
from forebay.api.responses import BufferedItem, FailedItem, PushedItem, PushSummary, answered, message_id, message_ids
from forebay.api.routing import Needs, Queues, Route, Scope
from forebay.api.run_response import run_answer
from forebay.api.service import Service
from forebay.broker.messages import FAILED, UNKNOWN, Pushed, PushItem
from forebay.broker.push_run import PushedRun, PushRun

ITEMS_AT_ONCE_MAX = 4000
"""Messages of a request or an answer that are gone through on the event loop: a few milliseconds."""
SUMMARY = Switch("summary", False, "Answer with a summary instead of one entry per message.")


async def push(service: Service, request: Request) -> Response:
    """Store messages and answer when they are as durable as their receipts say: all or none, or item by item."""
    items, size, buffer_ms, buffer_max = await _read(request)
    if request.caller.patterns is not None:
        _check_queues(request, items)
    trace = None
    # Heads that are sent again and again are the same object: they are looked through once.
    if request.headers is not service.untraced_headers or service.tracer.is_on:
        header = request.header(b"traceparent")
        if header or service.tracer.is_on:
            trace = traced(service.tracer, items, header)
            items = trace.items
        else:
            service.untraced_headers = request.headers
    is_qos0 = buffer_ms is not None or buffer_max is not None
    pushed: Sequence[Pushed] = ()
    began = perf_counter()
    try:
        if items and is_qos0:
            pushed = await service.intake.push_qos0(items, buffer_ms, buffer_max)
        elif items:
            pushed = await service.push(items)
    except BaseException as error:
        if trace is not None:
            end_push(service.tracer, trace, error)
        raise
    if trace is not None:
        end_push(service.tracer, trace)
    service.note_push(perf_counter() - began)
    counts = service.counts
    counts.pushed += len(items)
    counts.bytes_in += size
    if is_qos0 or (request.query_string and SUMMARY.read(request.query)):
        return _summary(service, pushed, is_qos0=is_qos0)
    if type(pushed) is not PushedRun and 0 in [found.seq for found in pushed]:
        return answered(_pushed_in_part(items, pushed, service), 201)
    service.waiting.announce_items(items)
    if type(items) is PushRun and type(pushed) is PushedRun and (text := run_answer(items, pushed)) is not None:
        return Response(201, text)
    if len(items) > ITEMS_AT_ONCE_MAX:
        return await asyncio.to_thread(lambda: answered(_pushed_items(items, pushed), 201))
    return answered(_pushed_items(items, pushed) if items else [], 201)


def _check_queues(request: Request, items: Sequence[PushItem]) -> None:
    """Nothing is pushed where one of the messages is for another queue than the key's."""
    for index, item in enumerate(items):
        request.caller.check_queue(item.queue, f"items[{index}].queue")


_Read = tuple[Sequence[PushItem], int, int | None, int | None]
"""Messages, size, `bufferMs` and `bufferMax`. The rest of the body is let go: the next one may lie where it lay."""


async def _read(request: Request) -> _Read:
    text = await request.text()
    if len(text) < LARGE_BYTES_MIN:
        body = decoded(PushBody, text)
        if len(body.items) > ITEMS_AT_ONCE_MAX:
            return await asyncio.to_thread(_taken, body, len(text))
        return _taken(body, len(text))
    return await asyncio.to_thread(lambda: _taken(decoded_push(text), len(text)))


def _taken(body: PushBody, size: int) -> _Read:
    return push_items(body.items, body_bytes=size), size, body.buffer_ms, body.buffer_max


def _summary(service: Service, pushed: Sequence[Pushed], *, is_qos0: bool) -> Response:
    accepted = [found for found in pushed if found.status not in (FAILED, UNKNOWN)]
    receipts = {found.receipt for found in accepted}
    weakest = "buffer" if "buffer" in receipts else next(iter(receipts), None)
    is_complete = len(accepted) == len(pushed)
    return answered(PushSummary(is_complete, is_qos0, service.is_db_healthy, len(accepted), weakest), 201)


def _pushed_items(items: Sequence[PushItem], pushed: Sequence[Pushed]) -> list[PushedItem]:
    """Column by column, in a third of the time that message by message takes where there are many."""
    if len(items) == 1:
        return [_pushed_item(0, items[0], pushed[0])]
    seqs = [found.seq for found in pushed]
    partition_ids = [found.partition_id for found in pushed]
    trace_ids: list[str | None]
    if type(items) is PushRun:  # whose messages are made when they are read, payloads and all
        ids, trace_ids = list(items.transaction_ids), [None] * len(items)
        own_ids = message_ids(items.queue, seqs)
    else:
        ids, trace_ids = [item.transaction_id for item in items], [item.trace_id or None for item in items]
        queues = [item.queue for item in items]
        is_one = queues.count(queues[0]) == len(queues)
        own_ids = message_ids(queues[0], seqs) if is_one else list(map(message_id, queues, seqs))
    return list(
        map(
            PushedItem,
            range(len(items)),
            [found.status for found in pushed],
            ids,
            ids,
            own_ids,
            own_ids,
            partition_ids,
            partition_ids,
            seqs,
            [found.receipt for found in pushed],
            trace_ids,
            trace_ids,
        )
    )


def _pushed_item(index: int, item: PushItem, found: Pushed) -> PushedItem:
    own_id, trace_id = message_id(item.queue, found.seq), item.trace_id or None
    return PushedItem(
        index,
        found.status,
        item.transaction_id,
        item.transaction_id,
        own_id,
        own_id,
        found.partition_id,
        found.partition_id,
        found.seq,
        found.receipt,
        trace_id,
        trace_id,
    )


def _pushed_in_part(
    items: Sequence[PushItem], pushed: Sequence[Pushed], service: Service
) -> list[PushedItem | FailedItem]:
    """Where some messages were not stored, or not yet."""
    is_healthy = service.is_db_healthy
    items_of: list[PushedItem | FailedItem] = []
    for index, (item, found) in enumerate(zip(items, pushed, strict=True)):
        ids, trace_id = item.transaction_id, item.trace_id or None
        if found.status in (FAILED, UNKNOWN):
            reason = without_paths(found.receipt, service.folders)
            items_of.append(FailedItem(index, ids, reason, found.status == UNKNOWN))
        elif found.seq:
            items_of.append(_pushed_item(index, item, found))
        else:
            items_of.append(
                BufferedItem(
                    index,
                    found.status,
                    ids,
                    ids,
                    None,
                    None,
                    "",
                    "",
                    None,
                    found.receipt,
                    trace_id,
                    trace_id,
                    is_healthy,
                )
            )
    return items_of


ROUTES = (
    Route(
        "POST",
        "/api/v1/push",
        push,
        "Push messages. Queues and partitions are made as needed; a transactionId that its partition holds already is "
        "answered as duplicate. While the store is away, messages are accepted as buffered. Where only a part of the "
        "messages could be accepted, the others have the status failed and an error.",
        Scope.WRITE,
        answers={201: list[PushedItem] | PushSummary},
        body=PushBody,
        query=(SUMMARY,),
        problems=(413, 415, 429, 501, 503, 507),
        needs=Needs.RECOVERY,
        queues=Queues.NAMED,
    ),
)
