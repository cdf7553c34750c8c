"""The way out: pop from a queue, from one partition, or from all queues of a namespace and task; at once or waiting.

A client may go away while it waits, or in the moment in which messages are claimed for it. Who waits is out of its line
at once. A claim that was made for nobody is given back (`release`): no attempt is counted, and the next consumer gets
it at once. With `autoAck` that holds for consumers that had to wait; for one that is served at its first look,
delivery is the acknowledgement, and what is on the way to a client that vanishes is gone: at most once.
What was sent to a client that vanishes before it reads it comes again when its lease ends.
"""

from __future__ import annotations

import asyncio
from itertools import chain, repeat, starmap

from msgspec import Raw

from forebay.api.answers import (
    Autopilot,
    PopAnswer,
    PopColumns,
    PoppedMessage,
    PoppedRun,
    answered,
    data_of,
    iso,
    message_ids,
)
from forebay.api.exchange import NO_CONTENT, Answer, ClientGone, Request
from forebay.api.pop_query import NAMESPACE, QUERY, TASK, Question, question_of
from forebay.api.problems import wrong
from forebay.api.routing import Route, Scope
from forebay.api.service import Service
from forebay.broker import delivery
from forebay.broker.delivery import COMPLETED
from forebay.broker.message_columns import MessageColumns, columns_of
from forebay.broker.store import Acknowledgement, Popped, PopRequest
from forebay.broker.waiting import Wanted

NOTHING = Popped("", [], 0)


async def pop_queue(service: Service, request: Request) -> Answer:
    """Claim messages of a queue."""
    question = question_of(request)
    return await _pop(service, request, question, question.asked._replace(queue=request.path[0]))


async def pop_partition(service: Service, request: Request) -> Answer:
    """Claim messages of one partition."""
    queue, partition = request.path
    question = question_of(request)
    return await _pop(service, request, question, question.asked._replace(queue=queue, partition=partition))


async def pop_selected(service: Service, request: Request) -> Answer:
    """Claim messages of any queue of a namespace and task, the highest priority first."""
    namespace, task = NAMESPACE.read(request.query) or "", TASK.read(request.query) or ""
    if not namespace and not task:
        raise wrong("namespace", "give a namespace, a task or both, or pop from /pop/queue/{queue}")
    question = question_of(request)
    return await _pop(service, request, question, question.asked._replace(namespace=namespace, task=task))


async def _pop(service: Service, request: Request, question: Question, asked: PopRequest) -> Answer:
    watch = request.disconnected()
    try:
        if question.is_waiting:
            popped = await _waited(service, watch, asked, question.timeout_ms / 1000)
        else:
            popped = await _looked(service, watch, asked)
    finally:
        watch.cancel()
    if not popped.messages:
        return NO_CONTENT
    service.counts.popped += len(popped.messages)
    shaped = _in_columns if question.has_columns else _one_by_one
    return answered(shaped(asked, popped, question.is_autopilot))


async def _looked(
    service: Service, watch: asyncio.Future[None], asked: PopRequest, *, is_careful: bool = False
) -> Popped:
    """Ask the store once. What it claims for a client that has gone meanwhile is given back at once.

    What is acknowledged on delivery is finished with the claim and cannot be given back. Who is careful leases it
    first and finishes it when the client is still there: one more step, for consumers that have waited anyway.
    """
    if service.is_pop_paused:
        return NOTHING
    is_finished_here = asked.auto_ack and is_careful
    popped = await service.store.pop(asked._replace(auto_ack=False) if is_finished_here else asked)
    if not popped.messages:
        return popped
    if watch.done():
        await service.store.release(popped.lease_id)
        raise ClientGone
    return await _finished(service, asked, popped) if is_finished_here else popped


async def _finished(service: Service, asked: PopRequest, popped: Popped) -> Popped:
    """All of it acknowledged."""
    outcomes = await service.store.acknowledge(
        [
            Acknowledgement(m.partition_id, asked.group, popped.lease_id, delivery.Answer(m.transaction_id, COMPLETED))
            for m in popped.messages
        ]
    )
    kept = [m for m, outcome in zip(popped.messages, outcomes, strict=True) if outcome.answered.is_accepted]
    return popped._replace(lease_id="", messages=kept)


async def _waited(service: Service, watch: asyncio.Future[None], asked: PopRequest, seconds: float) -> Popped:
    """Look, wait, look again, until there is something, or the time is over, or the client has gone."""
    deadline = asyncio.get_running_loop().time() + min(seconds, service.limits.poll_seconds_max)
    visit = service.waiting.enter(Wanted(asked.group, asked.queue, asked.partition, asked.namespace, asked.task))
    watch.add_done_callback(lambda _: visit.abandon())
    has_waited = False
    try:
        while True:
            popped = await _looked(service, watch, asked, is_careful=has_waited)
            visit.looked(len(popped.messages), asked.batch)
            if popped.messages:
                return popped
            if not service.is_pop_paused:
                visit.look_again_in(await service.store.seconds_until_due(asked))
            if not await visit.until_woken(deadline) or visit.is_abandoned:
                break
            has_waited = True
        if visit.is_abandoned:
            raise ClientGone
        return popped
    finally:
        visit.leave()


def _in_columns(asked: PopRequest, popped: Popped, is_autopilot: bool) -> PopColumns:
    found = columns_of(popped.messages)
    return PopColumns(
        True,
        popped.lease_id,
        asked.group,
        popped.partitions_claimed,
        list(starmap(PoppedRun, found.runs)),
        found.seqs,
        found.transaction_ids,
        _times(found),
        found.attempts,
        _data(found),
        _traces(found) if any(found.trace_ids) else None,
        _encodings(found) if any(found.are_binary) else None,
        _autopilot(asked, is_autopilot),
    )


def _one_by_one(asked: PopRequest, popped: Popped, is_autopilot: bool) -> PopAnswer:
    found = columns_of(popped.messages)
    first = found.runs[0]
    ids = [message_ids(queue, seqs) for queue, seqs in found.seqs_by_run()]
    messages = map(
        PoppedMessage,
        chain.from_iterable(ids),
        found.transaction_ids,
        _traces(found),
        _data(found),
        _times(found),
        found.queues(),
        found.partitions(),
        found.partition_ids(),
        repeat(popped.lease_id),
        repeat(asked.group),
        found.seqs,
        found.attempts,
        _encodings(found),
    )
    return PopAnswer(
        True,
        first.queue,
        first.partition,
        first.partition_id,
        popped.lease_id,
        asked.group,
        popped.partitions_claimed,
        list(messages),
        _autopilot(asked, is_autopilot),
    )


def _data(found: MessageColumns) -> list[Raw]:
    if any(found.are_binary):
        return list(map(data_of, found.payloads, found.are_binary))
    return list(map(Raw, found.payloads))


def _times(found: MessageColumns) -> list[str]:
    first_us = found.created_us[0]
    if found.created_us.count(first_us) == len(found):  # as it is for messages that were pushed together
        return [iso(first_us)] * len(found)
    return list(map(iso, found.created_us))


def _traces(found: MessageColumns) -> list[str | None]:
    return [trace_id or None for trace_id in found.trace_ids]


def _encodings(found: MessageColumns) -> list[str]:
    return ["base64" if is_binary else "json" for is_binary in found.are_binary]


def _autopilot(asked: PopRequest, is_autopilot: bool) -> Autopilot | None:
    return Autopilot(asked.batch, asked.partitions) if is_autopilot else None


_ANSWERS = {200: (PopAnswer, PopColumns), 204: None}

ROUTES = (
    Route(
        "GET",
        "/api/v1/pop/queue/{queue}",
        pop_queue,
        "Pop from a queue.",
        Scope.WRITE,
        answers=_ANSWERS,
        query=QUERY,
        problems=(503,),
        changes=True,
    ),
    Route(
        "GET",
        "/api/v1/pop/queue/{queue}/partition/{partition}",
        pop_partition,
        "Pop from one partition of a queue.",
        Scope.WRITE,
        answers=_ANSWERS,
        query=QUERY,
        problems=(503,),
        changes=True,
    ),
    Route(
        "GET",
        "/api/v1/pop",
        pop_selected,
        "Pop from all queues of a namespace and task.",
        Scope.WRITE,
        answers=_ANSWERS,
        query=(NAMESPACE, TASK, *QUERY),
        problems=(503,),
        changes=True,
    ),
)
