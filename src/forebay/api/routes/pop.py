"""The way out: pop from a queue, from one partition, or from all queues of a namespace and task; at once or waiting.

A client may go away while it waits, or in the moment in which messages are claimed for it. Who waits is out of its line
at once. A claim that was made for nobody is given back (`release`): no attempt is counted, and the next consumer gets
it at once. With `autoAck` that holds for consumers that had to wait; for one that is served at its first look,
delivery is the acknowledgement, and what is on the way to a client that vanishes is gone: at most once.
What was sent to a client that vanishes before it reads it comes again when its lease ends.
"""

from __future__ import annotations

import asyncio

from forebay.api.answers import Autopilot, PopAnswer, PoppedMessage, answered, data_of, iso, message_id
from forebay.api.exchange import NO_CONTENT, Answer, ClientGone, Request
from forebay.api.parameters import Name, Switch, Text, Whole, time_us
from forebay.api.problems import wrong
from forebay.api.routing import Route, Scope
from forebay.api.service import Service
from forebay.broker import delivery
from forebay.broker.delivery import COMPLETED
from forebay.broker.store import Acknowledgement, Popped, PopRequest
from forebay.broker.waiting import Wanted
from forebay.model.queue import DEFAULT_GROUP

NOTHING = Popped("", [], 0)
AUTOPILOT_BATCH = 200
"""What a pop gets whose client leaves the size to the server."""

BATCH = Whole("batch", 1, "Messages at the most, over all partitions together.", lowest=1, highest=10_000)
WAIT = Switch("wait", False, "Wait for a message when there is none.")
TIMEOUT = Whole("timeout", 30_000, "How long to wait, in milliseconds.", highest=3_600_000)
GROUP = Name("consumerGroup", None, "The group to pop for; without it, the queue's own.")
AUTO_ACK = Switch("autoAck", False, "Acknowledge on delivery: at most once, nothing to answer.")
PARTITIONS = Whole("partitions", 1, "Claim up to this many partitions under one lease.", lowest=1, highest=10_000)
AUTOPILOT = Switch("autopilot", False, "Let the server choose what is not given of batch and partitions.")
MODE = Text(
    "subscriptionMode",
    "",
    "Where a group that is new to the queue starts. Other than `all`, it makes a queue that is not there yet.",
    words=("", "all", "new", "new-only", "from", "timestamp"),
)
FROM = Text("subscriptionFrom", "", "`now`, or the time from which a new group starts.")
NAMESPACE = Name("namespace", None, "Of the queues to pop from.")
TASK = Name("task", None, "Of the queues to pop from.")

QUERY = (BATCH, WAIT, TIMEOUT, GROUP, AUTO_ACK, PARTITIONS, AUTOPILOT, MODE, FROM)


async def pop_queue(service: Service, request: Request) -> Answer:
    """Claim messages of a queue."""
    return await _pop(service, request, _asked(request)._replace(queue=request.path[0]))


async def pop_partition(service: Service, request: Request) -> Answer:
    """Claim messages of one partition."""
    queue, partition = request.path
    return await _pop(service, request, _asked(request)._replace(queue=queue, partition=partition))


async def pop_selected(service: Service, request: Request) -> Answer:
    """Claim messages of any queue of a namespace and task, the highest priority first."""
    namespace, task = NAMESPACE.read(request.query) or "", TASK.read(request.query) or ""
    if not namespace and not task:
        raise wrong("namespace", "give a namespace, a task or both, or pop from /pop/queue/{queue}")
    return await _pop(service, request, _asked(request)._replace(namespace=namespace, task=task))


def _asked(request: Request) -> PopRequest:
    query = request.query
    mode, from_us = _subscription(MODE.read(query), FROM.read(query))
    batch, is_autopilot = BATCH.read(query), AUTOPILOT.read(query)
    return PopRequest(
        group=GROUP.read(query) or DEFAULT_GROUP,
        batch=AUTOPILOT_BATCH if is_autopilot and BATCH.name not in query else batch,
        partitions=PARTITIONS.read(query),
        auto_ack=AUTO_ACK.read(query),
        subscription_mode=mode,
        subscription_from_us=from_us,
    )


def _subscription(mode: str, start: str) -> tuple[str, int]:
    if start == "now" or (mode in ("new", "new-only") and not start):
        return "new", 0
    if start:
        return "from", time_us(start, FROM.name)
    if mode in ("from", "timestamp"):
        raise wrong(FROM.name, f"is needed when subscriptionMode is {mode}")
    return "all", 0


async def _pop(service: Service, request: Request, asked: PopRequest) -> Answer:
    is_waiting, timeout_ms = WAIT.read(request.query), TIMEOUT.read(request.query)
    watch = asyncio.create_task(request.disconnected())
    try:
        if is_waiting:
            popped = await _waited(service, watch, asked, timeout_ms / 1000)
        else:
            popped = await _looked(service, watch, asked)
    finally:
        watch.cancel()
    if not popped.messages:
        return NO_CONTENT
    service.counts.popped += len(popped.messages)
    return answered(_answer(asked, popped, AUTOPILOT.read(request.query)))


async def _looked(
    service: Service, watch: asyncio.Task[None], asked: PopRequest, *, is_careful: bool = False
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


async def _waited(service: Service, watch: asyncio.Task[None], asked: PopRequest, seconds: float) -> Popped:
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


def _answer(asked: PopRequest, popped: Popped, is_autopilot: bool) -> PopAnswer:
    group, lease_id = asked.group, popped.lease_id
    first = popped.messages[0]
    return PopAnswer(
        True,
        first.queue,
        first.partition,
        first.partition_id,
        lease_id,
        group,
        popped.partitions_claimed,
        [
            PoppedMessage(
                message_id(message.queue, message.seq),
                message.transaction_id,
                message.trace_id or None,
                data_of(message),
                iso(message.created_us),
                message.queue,
                message.partition,
                message.partition_id,
                lease_id,
                group,
                message.seq,
                message.attempts,
                "base64" if message.is_binary else "json",
            )
            for message in popped.messages
        ],
        Autopilot(asked.batch, asked.partitions) if is_autopilot else None,
    )


_ANSWERS = {200: PopAnswer, 204: None}

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
