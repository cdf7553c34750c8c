"""The way out: pop from a queue, from one partition, or from all queues of a namespace and task; at once or waiting.

A client may go away while it waits, or in the moment in which messages are claimed for it. A client that waits is out
of its waiting list at once. A claim whose client is gone is given back (`release`): no attempt is counted, and the next
consumer gets it at once. With `autoAck` that holds for consumers that had to wait; for one that is served at its first
look, delivery is the acknowledgement, and what is on the way to a client that vanishes is gone: at most once.
A client that closes its sending side has gone as far as a wait is concerned: nothing is popped for it. Without `wait`
it is answered, for it may still read. A wait behind which a client sends too much to be read ends with 204, as if its
time were over: that client's end would go unnoticed.
What was sent to a client that vanishes before it reads it comes again when its lease ends.
"""

from __future__ import annotations

import asyncio
from time import perf_counter

from forebay.api.exchange import NO_CONTENT, ClientGone, Request, Response
from forebay.api.pop_query import NAMESPACE, QUERY, TASK, Question, question_of
from forebay.api.pop_shapes import PACKED_TYPE, shaped
from forebay.api.pop_traces import note_delivery
from forebay.api.problems import wrong
from forebay.api.response_sizes import limited
from forebay.api.responses import PopColumns, PopResponse
from forebay.api.routing import Content, Queues, Route, Scope
from forebay.api.service import Service
from forebay.broker import delivery
from forebay.broker.delivery import COMPLETED
from forebay.broker.message_columns import MessageColumns
from forebay.broker.messages import Acknowledgement, Popped, PopRequest
from forebay.broker.waiting import Wanted

NOTHING = Popped("", [], 0)


async def pop_queue(service: Service, request: Request) -> Response:
    """Claim messages of a queue."""
    question = question_of(request)
    return await _pop(service, request, question, question.wanted)


async def pop_partition(service: Service, request: Request) -> Response:
    """Claim messages of one partition."""
    question = question_of(request)
    return await _pop(service, request, question, question.wanted)


async def pop_selected(service: Service, request: Request) -> Response:
    """Claim messages of any queue of a namespace and task, the highest priority first."""
    namespace, task = NAMESPACE.read(request.query) or "", TASK.read(request.query) or ""
    if not namespace and not task:
        raise wrong("namespace", "give a namespace, a task or both, or pop from /pop/queue/{queue}")
    question = question_of(request)
    wanted = question.wanted._replace(namespace=namespace, task=task)
    if request.caller.patterns is not None:
        await _check_selected(service, request, wanted)
    return await _pop(service, request, question, wanted)


async def _check_selected(service: Service, request: Request, wanted: PopRequest) -> None:
    """Raise 403 if a queue of the namespace and task is none of the key's: what comes of it could be any of them."""
    for status in await service.store.queues():
        queue = status.queue
        if wanted.namespace in ("", queue.namespace) and wanted.task in ("", queue.task):
            request.caller.check_queue(queue.name)


async def _pop(service: Service, request: Request, question: Question, wanted: PopRequest) -> Response:
    if question.is_waiting:
        popped = await _waited(service, request, wanted, question.timeout_ms / 1000)
    else:
        popped = await _looked(service, request, wanted)
    if not popped.messages:
        return NO_CONTENT
    service.counts.popped += len(popped.messages)
    if service.tracer.is_on:
        note_delivery(service.tracer, popped, wanted.group)
    service.latencies.queue.note((service.clock.now_us() - _oldest_us(popped)) / 1e6)
    answer = shaped(question.shape, wanted, popped, question.is_autopilot)
    size = len(answer.body) + sum(map(len, answer.more_body)) if answer.more_body else len(answer.body)
    service.answer_sizes.learn(wanted, len(popped.messages), size)
    return answer


def _oldest_us(popped: Popped) -> int:
    """When the first message was accepted. Of columns it is read there, so that no message is made."""
    messages = popped.messages
    return messages.created_us[0] if type(messages) is MessageColumns else messages[0].created_us


async def _looked(service: Service, request: Request, wanted: PopRequest, *, is_careful: bool = False) -> Popped:
    """Ask the store once. What it claims for a client that has gone meanwhile is given back at once.

    What is acknowledged on delivery is finished with the claim and cannot be given back. A careful client leases it
    first and finishes it when the client is still there: one more step, for consumers that have waited anyway.
    """
    if service.is_pop_paused:
        return NOTHING
    memory = service.memory
    taken_bytes, least = service.answer_sizes.expected(wanted)
    if not memory.takes_at_once(taken_bytes):
        taken_bytes = await memory.take_for_answer(taken_bytes, least)
    try:
        wanted = limited(wanted, taken_bytes)
        is_restricted = request.caller.patterns is not None and not wanted.queue
        is_finished_here = wanted.auto_ack and (is_careful or is_restricted)
        began = perf_counter()
        popped = await service.store.pop(wanted._replace(auto_ack=False) if is_finished_here else wanted)
        service.latencies.pop.note(perf_counter() - began)
        if not popped.messages:
            return popped
        if request.stream.is_gone:
            await service.store.release(popped.lease_id)
            raise ClientGone
        if is_restricted:
            await _check_popped(service, request, popped)
        return await _finished(service, wanted, popped) if is_finished_here else popped
    finally:
        # From here on the answer is made and sent in one go; what the client does not take at once is counted there.
        memory.give_back(taken_bytes)


async def _check_popped(service: Service, request: Request, popped: Popped) -> None:
    """A queue may have joined the namespace since it was looked at: what was claimed of it is given back."""
    for queue in {message.queue for message in popped.messages}:
        if not request.caller.allows(queue):
            await service.store.release(popped.lease_id)
            request.caller.check_queue(queue)


async def _finished(service: Service, wanted: PopRequest, popped: Popped) -> Popped:
    """All of it acknowledged."""
    outcomes = await service.store.acknowledge(
        [
            Acknowledgement(
                m.partition_id, wanted.group, popped.lease_id, delivery.Verdict(m.transaction_id, COMPLETED)
            )
            for m in popped.messages
        ]
    )
    kept = [m for m, outcome in zip(popped.messages, outcomes, strict=True) if outcome.answered.is_accepted]
    return popped._replace(lease_id="", messages=kept)


async def _waited(service: Service, request: Request, wanted: PopRequest, seconds: float) -> Popped:
    """Look, wait, look again, until there is something, or the time is over, or the client has gone."""
    deadline = asyncio.get_running_loop().time() + min(seconds, service.limits.poll_seconds_max)
    watch = request.disconnected()
    if request.stream.is_gone:
        raise ClientGone
    visit = service.waiting.enter(Wanted(wanted.group, wanted.queue, wanted.partition, wanted.namespace, wanted.task))
    watch.add_done_callback(lambda _: visit.abandon())
    has_waited = False
    try:
        while True:
            popped = await _looked(service, request, wanted, is_careful=has_waited)
            visit.looked(len(popped.messages), wanted.batch)
            if popped.messages:
                return popped
            if not service.is_pop_paused:
                visit.look_again_in(await service.store.seconds_until_due(wanted))
            if not await visit.until_woken(deadline) or visit.is_abandoned:
                break
            has_waited = True
        if request.stream.is_gone:
            raise ClientGone
        return popped
    finally:
        visit.leave()
        watch.cancel()


_ANSWERS = {200: (PopResponse, PopColumns, Content(PACKED_TYPE)), 204: None}

ROUTES = (
    Route(
        "GET",
        "/api/v1/pop/queue/{queue}",
        pop_queue,
        "Pop from a queue.",
        Scope.CONSUME,
        answers=_ANSWERS,
        query=QUERY,
        problems=(501, 503),
        changes=True,
        queues=Queues.NAMED,
    ),
    Route(
        "GET",
        "/api/v1/pop/queue/{queue}/partition/{partition}",
        pop_partition,
        "Pop from one partition of a queue.",
        Scope.CONSUME,
        answers=_ANSWERS,
        query=QUERY,
        problems=(501, 503),
        changes=True,
        queues=Queues.NAMED,
    ),
    Route(
        "GET",
        "/api/v1/pop",
        pop_selected,
        "Pop from all queues of a namespace and task.",
        Scope.CONSUME,
        answers=_ANSWERS,
        query=(NAMESPACE, TASK, *QUERY),
        problems=(501, 503),
        changes=True,
        queues=Queues.NAMED,
    ),
)
