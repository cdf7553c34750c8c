"""Answers of consumers: ack one, ack many, finish a lease as a whole, extend it.

A refused answer (an old or foreign lease, a message that is not in it) is HTTP 200 with `success: false`, as Queen's
clients expect; it changed nothing. An answer without a `leaseId` counts for the lease that is alive now, as with Queen:
it is fenced by that lease's time, and not by a token.
"""

from __future__ import annotations

from collections.abc import Sequence

from forebay.api.bodies import ANSWER_OF, AckBatchBody, AckBody, CompleteBody, ExtendBody
from forebay.api.exchange import Request, Response
from forebay.api.large_bodies import read_body
from forebay.api.reach import check_leases, check_partitions
from forebay.api.responses import AckResult, CompleteResult, ExtendResult, answered, iso
from forebay.api.routing import Queues, Route, Scope
from forebay.api.service import Service
from forebay.broker import delivery
from forebay.broker.messages import Acknowledged, Acknowledgement, Completed
from forebay.model.queue import DEFAULT_GROUP, ERROR_CHARACTERS_MAX

REFUSED = "refused"


async def ack(service: Service, request: Request) -> Response:
    """Answer one message."""
    body = await read_body(AckBody, request)
    await check_partitions(service, request, [body.partition_id])
    return await _acknowledged(service, [acknowledgement(body, None)])


async def ack_batch(service: Service, request: Request) -> Response:
    """Answer many messages; each is judged by itself."""
    body = await read_body(AckBatchBody, request)
    group = body.consumer_group
    await check_partitions(service, request, [one.partition_id for one in body.acknowledgments])
    return await _acknowledged(service, [acknowledgement(one, group) for one in body.acknowledgments])


def acknowledgement(body: AckBody, group: str | None, leases: delivery.Lease = "") -> Acknowledgement:
    """As the store takes it. `group` and `leases` are for an answer that does not name its own."""
    error = body.error
    return Acknowledgement(
        body.partition_id,
        body.consumer_group or group or DEFAULT_GROUP,
        body.lease_id or leases,
        delivery.Verdict(body.transaction_id, ANSWER_OF[body.status], error[:ERROR_CHARACTERS_MAX] if error else ""),
    )


async def _acknowledged(service: Service, given: list[Acknowledgement]) -> Response:
    outcomes = await service.store.acknowledge(given) if given else []
    note(service, given, outcomes)
    return answered(
        [
            AckResult(
                index,
                (answered_one := outcome.answered).transaction_id,
                answered_one.is_accepted,
                answered_one.error or None,
                outcome.queue or None,
                outcome.partition or None,
                answered_one.is_released,
                answered_one.is_dead,
            )
            for index, outcome in enumerate(outcomes)
        ]
    )


def note(service: Service, given: Sequence[Acknowledgement], outcomes: Sequence[Acknowledged]) -> None:
    """Count the answers, and wake what waits for one of their partitions."""
    statuses = [
        one.answer.status if found.answered.is_accepted else REFUSED for one, found in zip(given, outcomes, strict=True)
    ]
    service.counts.acknowledged.update(statuses)
    if not service.waiting.has_lists_for_partitions:
        return
    freed = {
        (found.queue, found.partition)
        for status, found in zip(statuses, outcomes, strict=True)
        if status != REFUSED and (found.answered.is_released or status in (delivery.FAILED, delivery.RETRY))
    }
    for queue, partition in freed:
        service.waiting.announce_partition(queue, partition)


async def complete_lease(service: Service, request: Request) -> Response:
    """Complete all that is held under a lease and was not answered yet."""
    (lease_id,) = request.path
    await check_leases(service, request, [lease_id])
    (completed,) = await service.store.complete([lease_id])
    return answered(_complete_result(service, lease_id, completed))


async def complete_leases(service: Service, request: Request) -> Response:
    """Complete all that is held under several leases; each is judged by itself."""
    lease_ids = (await read_body(CompleteBody, request)).lease_ids
    await check_leases(service, request, lease_ids)
    completed = await service.store.complete(lease_ids) if lease_ids else []
    return answered(
        [_complete_result(service, lease_id, one) for lease_id, one in zip(lease_ids, completed, strict=True)]
    )


def _complete_result(service: Service, lease_id: str, completed: Completed | None) -> CompleteResult:
    """Count it, wake what waits for one of its partitions, and say what is answered."""
    if completed is None:
        service.counts.acknowledged[REFUSED] += 1
        return CompleteResult(lease_id, False, 0, "Lease not found")
    service.counts.acknowledged[delivery.COMPLETED] += completed.messages
    if service.waiting.has_lists_for_partitions:
        for queue, partition in completed.partitions:
            service.waiting.announce_partition(queue, partition)
    return CompleteResult(lease_id, True, completed.messages)


async def extend_lease(service: Service, request: Request) -> Response:
    """Keep a lease longer: until `seconds` from now at least, on all its partitions."""
    (lease_id,) = request.path
    body = await read_body(ExtendBody, request, is_optional=True)
    await check_leases(service, request, [lease_id])
    until_us = await service.store.extend(lease_id, body.seconds)
    if until_us is None:
        return answered([ExtendResult(0, lease_id, False, "Lease not found", None, None)])
    until = iso(until_us)
    return answered([ExtendResult(0, lease_id, True, None, until, until)])


ROUTES = (
    Route(
        "POST",
        "/api/v1/ack",
        ack,
        "Answer one message.",
        Scope.CONSUME,
        answers={200: list[AckResult]},
        body=AckBody,
        problems=(413, 415, 503, 507),
        queues=Queues.NAMED,
    ),
    Route(
        "POST",
        "/api/v1/ack/batch",
        ack_batch,
        "Answer many messages.",
        Scope.CONSUME,
        answers={200: list[AckResult]},
        body=AckBatchBody,
        problems=(413, 415, 503, 507),
        queues=Queues.NAMED,
    ),
    Route(
        "POST",
        "/api/v1/lease/{leaseId}/complete",
        complete_lease,
        "Complete all messages of a lease.",
        Scope.CONSUME,
        answers={200: CompleteResult},
        problems=(503, 507),
        queues=Queues.NAMED,
    ),
    Route(
        "POST",
        "/api/v1/lease/complete",
        complete_leases,
        "Complete all messages of several leases.",
        Scope.CONSUME,
        answers={200: list[CompleteResult]},
        body=CompleteBody,
        problems=(413, 415, 503, 507),
        queues=Queues.NAMED,
    ),
    Route(
        "POST",
        "/api/v1/lease/{leaseId}/extend",
        extend_lease,
        "Extend a lease.",
        Scope.CONSUME,
        answers={200: list[ExtendResult]},
        body=ExtendBody,
        is_body_optional=True,
        problems=(413, 415, 503, 507),
        queues=Queues.NAMED,
    ),
)
