"""The way out: pop from a queue, from one partition, or from all queues of a namespace and task; at once or waiting.

A client may go away while it waits, or in the moment in which messages are claimed for it. Who waits is out of its line
at once. A claim that was made for nobody is given back (`release`): no attempt is counted, and the next consumer gets
it at once. With `autoAck` that holds for consumers that had to wait; for one that is served at its first look,
delivery is the acknowledgement, and what is on the way to a client that vanishes is gone: at most once.
Who closes its sending side has gone as far as a wait is concerned: nothing is popped for it. Without `wait` it is
answered, for it may still read. A wait behind which a client sends too much to be read ends with 204, as if its time
were over: nobody would notice that client's end.
What was sent to a client that vanishes before it reads it comes again when its lease ends.
"""

from __future__ import annotations

import asyncio

from forebay.api.answer_sizes import limited
from forebay.api.answers import PopAnswer, PopColumns
from forebay.api.exchange import NO_CONTENT, Answer, ClientGone, Request
from forebay.api.pop_query import NAMESPACE, QUERY, TASK, Question, question_of
from forebay.api.pop_shapes import PACKED_TYPE, shaped
from forebay.api.problems import wrong
from forebay.api.routing import Content, Route, Scope
from forebay.api.service import Service
from forebay.broker import delivery
from forebay.broker.delivery import COMPLETED
from forebay.broker.messages import Acknowledgement, Popped, PopRequest
from forebay.broker.waiting import Wanted

NOTHING = Popped("", [], 0)


async def pop_queue(service: Service, request: Request) -> Answer:
    """Claim messages of a queue."""
    question = question_of(request)
    return await _pop(service, request, question, question.asked)


async def pop_partition(service: Service, request: Request) -> Answer:
    """Claim messages of one partition."""
    question = question_of(request)
    return await _pop(service, request, question, question.asked)


async def pop_selected(service: Service, request: Request) -> Answer:
    """Claim messages of any queue of a namespace and task, the highest priority first."""
    namespace, task = NAMESPACE.read(request.query) or "", TASK.read(request.query) or ""
    if not namespace and not task:
        raise wrong("namespace", "give a namespace, a task or both, or pop from /pop/queue/{queue}")
    question = question_of(request)
    return await _pop(service, request, question, question.asked._replace(namespace=namespace, task=task))


async def _pop(service: Service, request: Request, question: Question, asked: PopRequest) -> Answer:
    if question.is_waiting:
        popped = await _waited(service, request, asked, question.timeout_ms / 1000)
    else:
        popped = await _looked(service, request, asked)
    if not popped.messages:
        return NO_CONTENT
    service.counts.popped += len(popped.messages)
    answer = shaped(question.shape, asked, popped, question.is_autopilot)
    size = len(answer.body) + sum(map(len, answer.more_body)) if answer.more_body else len(answer.body)
    service.answer_sizes.learn(asked, len(popped.messages), size)
    return answer


async def _looked(service: Service, request: Request, asked: PopRequest, *, is_careful: bool = False) -> Popped:
    """Ask the store once. What it claims for a client that has gone meanwhile is given back at once.

    What is acknowledged on delivery is finished with the claim and cannot be given back. Who is careful leases it
    first and finishes it when the client is still there: one more step, for consumers that have waited anyway.
    """
    if service.is_pop_paused:
        return NOTHING
    memory = service.memory
    taken_bytes, least = service.answer_sizes.expected(asked)
    if not memory.takes_at_once(taken_bytes):
        taken_bytes = await memory.take_for_answer(taken_bytes, least)
    try:
        asked = limited(asked, taken_bytes)
        is_finished_here = asked.auto_ack and is_careful
        popped = await service.store.pop(asked._replace(auto_ack=False) if is_finished_here else asked)
        if not popped.messages:
            return popped
        if request.stream.is_gone:
            await service.store.release(popped.lease_id)
            raise ClientGone
        return await _finished(service, asked, popped) if is_finished_here else popped
    finally:
        # From here on the answer is made and sent in one go; what the client does not take at once is counted there.
        memory.give_back(taken_bytes)


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


async def _waited(service: Service, request: Request, asked: PopRequest, seconds: float) -> Popped:
    """Look, wait, look again, until there is something, or the time is over, or the client has gone."""
    deadline = asyncio.get_running_loop().time() + min(seconds, service.limits.poll_seconds_max)
    watch = request.disconnected()
    if request.stream.is_gone:
        raise ClientGone
    visit = service.waiting.enter(Wanted(asked.group, asked.queue, asked.partition, asked.namespace, asked.task))
    watch.add_done_callback(lambda _: visit.abandon())
    has_waited = False
    try:
        while True:
            popped = await _looked(service, request, asked, is_careful=has_waited)
            visit.looked(len(popped.messages), asked.batch)
            if popped.messages:
                return popped
            if not service.is_pop_paused:
                visit.look_again_in(await service.store.seconds_until_due(asked))
            if not await visit.until_woken(deadline) or visit.is_abandoned:
                break
            has_waited = True
        if request.stream.is_gone:
            raise ClientGone
        return popped
    finally:
        visit.leave()
        watch.cancel()


_ANSWERS = {200: (PopAnswer, PopColumns, Content(PACKED_TYPE)), 204: None}

ROUTES = (
    Route(
        "GET",
        "/api/v1/pop/queue/{queue}",
        pop_queue,
        "Pop from a queue.",
        Scope.WRITE,
        answers=_ANSWERS,
        query=QUERY,
        problems=(501, 503),
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
        problems=(501, 503),
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
        problems=(501, 503),
        changes=True,
    ),
)
