"""The way in: `POST /push`."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from time import perf_counter

from forebay.api.bodies import PushBody, decoded, push_runs
from forebay.api.exchange import Request, Response
from forebay.api.large_bodies import LARGE_BYTES_MIN, decoded_push
from forebay.api.parameters import Switch
from forebay.api.problems import without_paths
from forebay.api.push_traces import end_push, traced
from forebay.api.responses import BufferedItem, FailedItem, PushedItem, PushSummary, answered, message_id, message_ids
from forebay.api.routing import Needs, Queues, Route, Scope
from forebay.api.run_response import run_answer
from forebay.api.service import Service
from forebay.broker.messages import FAILED, QUEUED, UNKNOWN, Pushed
from forebay.broker.numbering import each_message
from forebay.model.push_run import PushRun, message_count

ITEMS_AT_ONCE_MAX = 4000
"""Messages of a request or an answer that are gone through on the event loop: a few milliseconds."""
SUMMARY = Switch("summary", False, "Answer with a summary instead of one entry per message.")


async def push(service: Service, request: Request) -> Response:
    """Store messages and answer when they are as durable as their receipts say: all or none, or item by item."""
    runs, size, buffer_ms, buffer_max = await _read(request)
    if request.caller.patterns is not None:
        _check_queues(request, runs)
    trace = None
    # Heads that are sent again and again are the same object: they are looked through once.
    if request.headers is not service.untraced_headers or service.tracer.is_on:
        header = request.header(b"traceparent")
        if header or service.tracer.is_on:
            trace = traced(service.tracer, runs, header)
            runs = trace.runs
        else:
            service.untraced_headers = request.headers
    is_qos0 = buffer_ms is not None or buffer_max is not None
    pushed: Sequence[Pushed] = ()
    began = perf_counter()
    try:
        if runs and is_qos0:
            pushed = await service.intake.push_qos0(runs, buffer_ms, buffer_max)
        elif runs:
            pushed = await service.push(runs)
    except BaseException as error:
        if trace is not None:
            end_push(service.tracer, trace, error)
        raise
    if trace is not None:
        end_push(service.tracer, trace)
    service.note_push(perf_counter() - began)
    counts, count = service.counts, message_count(runs)
    counts.pushed += count
    counts.bytes_in += size
    if is_qos0 or (request.query_string and SUMMARY.read(request.query)):
        return _summary(service, pushed, is_qos0=is_qos0)
    if 0 in [found.seq for found in pushed]:
        return answered(_pushed_in_part(runs, pushed, service), 201)
    service.waiting.announce_runs(runs)
    if _is_one_new_run(runs, pushed) and (text := run_answer(runs[0], pushed[0])) is not None:
        return Response(201, text)
    if count > ITEMS_AT_ONCE_MAX:
        return await asyncio.to_thread(lambda: answered(_pushed_items(runs, pushed), 201))
    return answered(_pushed_items(runs, pushed), 201)


def _is_one_new_run(runs: Sequence[PushRun], pushed: Sequence[Pushed]) -> bool:
    """Whether there are many messages, and all that their answers differ in are ids and seqs."""
    return (
        len(runs) == len(pushed) == 1 and pushed[0].count > 1 and pushed[0].status == QUEUED and not runs[0].trace_ids
    )


def _check_queues(request: Request, runs: Sequence[PushRun]) -> None:
    """Nothing is pushed where one of the messages is for another queue than the key's."""
    index = 0
    for run in runs:
        request.caller.check_queue(run.queue, f"items[{index}].queue")
        index += len(run)


_Read = tuple[Sequence[PushRun], int, int | None, int | None]
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
    return push_runs(body.items, body_bytes=size), size, body.buffer_ms, body.buffer_max


def _summary(service: Service, pushed: Sequence[Pushed], *, is_qos0: bool) -> Response:
    accepted = [found for found in pushed if found.status not in (FAILED, UNKNOWN)]
    receipts = {found.receipt for found in accepted}
    weakest = "buffer" if "buffer" in receipts else next(iter(receipts), None)
    is_complete, count = len(accepted) == len(pushed), sum(found.count for found in accepted)
    return answered(PushSummary(is_complete, is_qos0, service.is_db_healthy, count, weakest), 201)


def _pushed_items(runs: Sequence[PushRun], pushed: Sequence[Pushed]) -> list[PushedItem]:
    """Column by column, in a third of the time that message by message takes where there are many."""
    if not runs:
        return []
    if len(pushed) == 1 and pushed[0].count == 1:
        [run] = runs
        return [_pushed_item(0, run.queue, run.transaction_ids[0], run.trace_ids[0] if run.trace_ids else "", *pushed)]
    each = each_message(pushed)
    queues, ids, traces = _columns(runs)
    seqs = [found.seq for found in each]
    partition_ids = [found.partition_id for found in each]
    is_one = queues.count(queues[0]) == len(queues)
    own_ids = message_ids(queues[0], seqs) if is_one else list(map(message_id, queues, seqs))
    trace_ids = [trace_id or None for trace_id in traces]
    return list(
        map(
            PushedItem,
            range(len(each)),
            [found.status for found in each],
            ids,
            ids,
            own_ids,
            own_ids,
            partition_ids,
            partition_ids,
            seqs,
            [found.receipt for found in each],
            trace_ids,
            trace_ids,
        )
    )


def _columns(runs: Sequence[PushRun]) -> tuple[list[str], list[str], list[str]]:
    """Queue, id and trace of each message."""
    queues: list[str] = []
    ids: list[str] = []
    traces: list[str] = []
    for run in runs:
        queues += [run.queue] * len(run.transaction_ids)
        ids += run.transaction_ids
        traces += run.trace_column()
    return queues, ids, traces


def _pushed_item(index: int, queue: str, own_id: str, trace: str, found: Pushed) -> PushedItem:
    shown_id, trace_id = message_id(queue, found.seq), trace or None
    return PushedItem(
        index,
        found.status,
        own_id,
        own_id,
        shown_id,
        shown_id,
        found.partition_id,
        found.partition_id,
        found.seq,
        found.receipt,
        trace_id,
        trace_id,
    )


def _pushed_in_part(
    runs: Sequence[PushRun], pushed: Sequence[Pushed], service: Service
) -> list[PushedItem | FailedItem]:
    """Where some messages were not stored, or not yet."""
    is_healthy = service.is_db_healthy
    items: list[PushedItem | FailedItem] = []
    for index, (queue, own_id, trace, found) in enumerate(zip(*_columns(runs), each_message(pushed), strict=True)):
        if found.status in (FAILED, UNKNOWN):
            reason = without_paths(found.receipt, service.folders)
            items.append(FailedItem(index, own_id, reason, found.status == UNKNOWN))
        elif found.seq:
            items.append(_pushed_item(index, queue, own_id, trace, found))
        else:
            items.append(
                BufferedItem(
                    index,
                    found.status,
                    own_id,
                    own_id,
                    None,
                    None,
                    "",
                    "",
                    None,
                    found.receipt,
                    trace or None,
                    trace or None,
                    is_healthy,
                )
            )
    return items


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
