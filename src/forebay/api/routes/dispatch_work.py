"""Workers: lease parcels, keep them, say what became of them, or give them back.

A request for a lease may wait. A client that goes away meanwhile is waited for no longer, and what was leased for it in
the same moment is given back: no attempt is counted, and the next worker gets it at once.
"""

from __future__ import annotations

import asyncio
import contextlib

from msgspec import Struct

from forebay.api.dispatch_bodies import CompleteLeaseBody, LeaseBody, complete_request, lease_request
from forebay.api.dispatch_shapes import LeaseShape, lease_shape
from forebay.api.exchange import NO_CONTENT, ClientGone, Request, Response
from forebay.api.large_bodies import read_body
from forebay.api.reach import check_flow, check_parcel_lease, check_stages
from forebay.api.responses import answered, iso
from forebay.api.routing import Queues, Route, Scope
from forebay.api.service import Service
from forebay.dispatch.values import Lease, LeaseRequest
from forebay.dispatch.waiters import serves


class Prolonged(Struct, rename="camel"):
    lease_id: str
    until: str


class LeaseCompleted(Struct, rename="camel"):
    lease_id: str
    repeated: bool
    """It was completed with the same outcomes before: what was done then counts."""
    parcels: int
    messages: int
    """How many messages the stages became."""


class LeaseReleased(Struct, rename="camel"):
    lease_id: str
    parcels: int


async def lease(service: Service, request: Request) -> Response:
    """Up to `parcels` of the action classes that the patterns fit, the classes and their flows in turn, the oldest
    first. 204 when there are none within `wait` milliseconds."""
    wanted = lease_request(await read_body(LeaseBody, request), service.limits.poll_seconds_max)
    await _check_classes(service, request, wanted)
    found = await _leased(service, request, wanted)
    if found is None:
        return NO_CONTENT
    await _check_leased(service, request, found)
    if request.stream.is_gone:
        await service.dispatcher.release(found.lease_id)
        raise ClientGone
    now_us = await service.store.time_us()
    return answered(lease_shape(found, now_us, service.dispatcher.limits.heartbeat_seconds))


async def _check_classes(service: Service, request: Request, wanted: LeaseRequest) -> None:
    """Raise 403 if a flow of another queue than the key's has parcels of these classes: they could be among them."""
    if request.caller.patterns is not None:
        for status in await service.dispatcher.flows():
            if any(serves(wanted.classes, step.action_class) for step in status.definition.steps):
                check_flow(request, status)


async def _check_leased(service: Service, request: Request, found: Lease) -> None:
    """A flow may have been defined, or had another source, since: what was leased is given back."""
    queues = {each.queue for parcel in found.parcels for each in parcel.ranges}
    for queue in sorted(queues):
        if not request.caller.allows(queue):
            await service.dispatcher.release(found.lease_id)
            request.caller.check_queue(queue)


async def _leased(service: Service, request: Request, wanted: LeaseRequest) -> Lease | None:
    if not wanted.wait_seconds:
        return await service.dispatcher.lease(wanted)
    gone = request.disconnected()
    leasing = asyncio.create_task(service.dispatcher.lease(wanted))
    try:
        await asyncio.wait((leasing, gone), return_when=asyncio.FIRST_COMPLETED)
        if leasing.done():
            return leasing.result()
        return await _given_up(service, request, leasing)
    finally:
        gone.cancel()
        leasing.cancel()


async def _given_up(service: Service, request: Request, leasing: asyncio.Task[Lease | None]) -> Lease | None:
    """The client has gone, or its end could not be noticed any more: then it is answered as if its time were over."""
    leasing.cancel()
    found = None
    with contextlib.suppress(asyncio.CancelledError):
        found = await leasing
    if not request.stream.is_gone:
        return found
    if found is not None:
        await service.dispatcher.release(found.lease_id)
    raise ClientGone


async def heartbeat(service: Service, request: Request) -> Response:
    """409 when the lease has ended: its parcels are queued again, or another worker's."""
    (lease_id,) = request.path
    await check_parcel_lease(service, request, lease_id)
    return answered(Prolonged(lease_id, iso(await service.dispatcher.heartbeat(lease_id))))


async def complete(service: Service, request: Request) -> Response:
    """All or nothing: the parcels move on, their history is written, and staged rows become messages. Safe to repeat
    with the same outcomes. A parcel of the lease that has no outcome is queued again. 409 when the lease has ended;
    what was staged for it is dropped."""
    (lease_id,) = request.path
    body = await read_body(CompleteLeaseBody, request)
    await _check_completed(service, request, lease_id, body)
    done = await service.dispatcher.complete(complete_request(lease_id, body))
    return answered(LeaseCompleted(lease_id, done.is_repeated, done.parcels, done.messages))


async def _check_completed(service: Service, request: Request, lease_id: str, body: CompleteLeaseBody) -> None:
    """Rows that become messages need `write`, and every queue that is named has to be the key's."""
    if body.stages:
        request.caller.check_scope(Scope.WRITE)
    if request.caller.patterns is not None:
        await check_parcel_lease(service, request, lease_id)
        await check_stages(service, request, body.stages)
        outputs = [outcome.output.queue for outcome in body.outcomes if outcome.output is not None]
        children = [child for outcome in body.outcomes for child in outcome.children]
        request.caller.check_queues([*outputs, *[each.queue for child in children for each in child.ranges]])


async def release(service: Service, request: Request) -> Response:
    """The parcels are queued again at their old place, and the attempt does not count. A lease that has ended has
    nothing to give back."""
    (lease_id,) = request.path
    await check_parcel_lease(service, request, lease_id)
    return answered(LeaseReleased(lease_id, await service.dispatcher.release(lease_id)))


_LEASE = "/api/v1/dispatch/leases/{lease}"

ROUTES = (
    Route(
        "POST",
        "/api/v1/dispatch/lease",
        lease,
        "Lease parcels.",
        Scope.CONSUME,
        answers={200: LeaseShape, 204: None},
        body=LeaseBody,
        problems=(413, 415, 503, 507),
        queues=Queues.NAMED,
    ),
    Route(
        "POST",
        f"{_LEASE}/heartbeat",
        heartbeat,
        "Prolong a lease.",
        Scope.CONSUME,
        answers={200: Prolonged},
        problems=(409, 503, 507),
        queues=Queues.NAMED,
    ),
    Route(
        "POST",
        f"{_LEASE}/complete",
        complete,
        "Say what became of the parcels of a lease.",
        Scope.CONSUME,
        answers={200: LeaseCompleted},
        body=CompleteLeaseBody,
        problems=(409, 413, 415, 503, 507),
        queues=Queues.NAMED,
    ),
    Route(
        "POST",
        f"{_LEASE}/release",
        release,
        "Give the parcels of a lease back.",
        Scope.CONSUME,
        answers={200: LeaseReleased},
        problems=(503, 507),
        queues=Queues.NAMED,
    ),
)
