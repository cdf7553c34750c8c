"""Transactions: pushes and answers, several of each, over several queues, all or nothing."""

from __future__ import annotations

from msgspec import UNSET

from forebay.api.bodies import ITEMS_MAX, PushOperation, TransactionBody, push_runs
from forebay.api.exchange import Request, Response
from forebay.api.large_bodies import read_body
from forebay.api.problems import not_here, unavailable, wrong
from forebay.api.reach import check_partitions
from forebay.api.responses import TransactionAckResult, TransactionPushResult, TransactionResponse, answered, message_id
from forebay.api.routes.acknowledge import acknowledgement, note
from forebay.api.routing import Queues, Route, Scope
from forebay.api.service import Service
from forebay.broker.messages import Acknowledgement, TransactionOutcome
from forebay.broker.numbering import each_message
from forebay.model.ids import minted_id
from forebay.model.push_run import PushRun, message_count, places_of

QUEUES_MAX = 64
"""In one transaction: the disk syncs each for itself, and it cannot be stored in turns."""


async def transact(service: Service, request: Request) -> Response:
    """Do all of it or nothing. What was refused is HTTP 200 with `success: false` and the reason."""
    body = await read_body(TransactionBody, request)
    _refuse_what_is_not_there(body)
    pushes, acknowledgements = _operations(body)
    await _check_allowed(service, request, pushes, acknowledgements)
    if pushes and service.is_push_paused:
        raise unavailable("push maintenance is on", "maintenance")
    if pushes:
        await service.wait_until_free(places_of(pushes))
    outcome = await service.store.transact(pushes, acknowledgements)
    if outcome.error:
        return answered(TransactionResponse(minted_id(), False, [], outcome.error))
    service.counts.pushed += message_count(pushes)
    note(service, acknowledgements, outcome.acknowledged)
    service.waiting.announce_runs(pushes)
    return answered(TransactionResponse(minted_id(), True, _results(body, pushes, outcome)))


async def _check_allowed(
    service: Service, request: Request, pushes: list[PushRun], acknowledgements: list[Acknowledgement]
) -> None:
    """Pushes need `write`, acks need `consume`."""
    if pushes:
        request.caller.check_scope(Scope.WRITE)
        request.caller.check_queues(run.queue for run in pushes)
    if acknowledgements:
        request.caller.check_scope(Scope.CONSUME)
        await check_partitions(service, request, [one.partition_id for one in acknowledgements])


def _refuse_what_is_not_there(body: TransactionBody) -> None:
    """A condition or a timer that was left out in silence would break the promise of all or nothing."""
    for name in ("kv", "timers"):
        value = getattr(body, name)
        if value is not UNSET and bytes(value) not in (b"null", b"[]"):
            raise not_here("is not known here; a transaction has pushes and acks", name)


def _operations(body: TransactionBody) -> tuple[list[PushRun], list[Acknowledgement]]:
    pushes: list[PushRun] = []
    acknowledgements: list[Acknowledgement] = []
    # Queen's clients name the leases of all acks in one list: an ack without a lease of its own is under one of those.
    leases = frozenset(body.required_leases or ()) or ""
    for index, operation in enumerate(body.operations):
        if isinstance(operation, PushOperation):
            pushes += push_runs(operation.items, f"operations[{index}].items")
        else:
            acknowledgements.append(acknowledgement(operation, None, leases))
    if message_count(pushes) + len(acknowledgements) > ITEMS_MAX:
        raise wrong("operations", f"more than {ITEMS_MAX} pushes and acks together")
    if len({run.queue for run in pushes}) > QUEUES_MAX:
        raise wrong("operations", f"pushes to more than {QUEUES_MAX} queues")
    return pushes, acknowledgements


def _results(
    body: TransactionBody, pushes: list[PushRun], outcome: TransactionOutcome
) -> list[TransactionPushResult | TransactionAckResult]:
    """In the order of the operations, each pushed message with its own place."""
    named = ((run.queue, own_id) for run in pushes for own_id in run.transaction_ids)
    pushed = iter(zip(named, each_message(outcome.pushed), strict=True))
    acknowledged = iter(outcome.acknowledged)
    results: list[TransactionPushResult | TransactionAckResult] = []
    for operation in body.operations:
        if isinstance(operation, PushOperation):
            for _ in operation.items:
                (queue, transaction_id), one = next(pushed)
                results.append(
                    TransactionPushResult(
                        len(results),
                        True,
                        one.status,
                        transaction_id,
                        message_id(queue, one.seq),
                        one.partition_id,
                        one.seq,
                    )
                )
        else:
            answer = next(acknowledged).answered
            results.append(TransactionAckResult(len(results), True, answer.transaction_id, answer.is_dead))
    return results


ROUTES = (
    Route(
        "POST",
        "/api/v1/transaction",
        transact,
        "Push and acknowledge, all or nothing. It pushes to 64 queues at the most.",
        Scope.WRITE,
        answers={200: TransactionResponse},
        body=TransactionBody,
        problems=(413, 415, 429, 501, 503, 507),
        or_scope=Scope.CONSUME,
        queues=Queues.NAMED,
    ),
)
