"""Keys that are for some queues: whether the ids of a request lead to those alone.

A partition, a lease, a stage and a parcel are named by ids that do not say their queue, so the store is looked at. Only
for keys with queue patterns: for all others each of these is a single comparison.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from forebay.access.parcel_leases import queues_of_lease
from forebay.api.exchange import Request
from forebay.api.problems import not_found
from forebay.api.service import Service
from forebay.dispatch.faults import UnknownParcel
from forebay.dispatch.views import FlowStatus, ParcelHistory
from forebay.errors import LeaseLost


async def check_partitions(service: Service, request: Request, partition_ids: Sequence[str]) -> None:
    if request.caller.patterns is not None:
        given = list(dict.fromkeys(partition_ids))
        request.caller.check_queues(sorted(await service.store.queues_of(partition_ids=given)))


async def check_leases(service: Service, request: Request, lease_ids: Sequence[str]) -> None:
    if request.caller.patterns is not None:
        given = list(dict.fromkeys(lease_ids))
        request.caller.check_queues(sorted(await service.store.queues_of(lease_ids=given)))


async def check_stages(service: Service, request: Request, stage_ids: Sequence[str]) -> None:
    if request.caller.patterns is not None:
        given = list(dict.fromkeys(stage_ids))
        request.caller.check_queues(sorted(await service.store.queues_of(stage_ids=given)))


async def check_parcel_lease(service: Service, request: Request, lease_id: str) -> None:
    """A lease that nothing is known of is refused as lost here: to refuse it further on would drop what was staged
    under names that the request gives, and those may be another's."""
    if request.caller.patterns is not None:
        queues = await service.store.look(partial(queues_of_lease, lease_id))
        if queues is None:
            raise LeaseLost(lease_id, "it is not known")
        request.caller.check_queues(sorted(queues))


async def check_parcels(service: Service, request: Request, dids: Sequence[str]) -> None:
    """Each named as a whole: the beginning of a did may fit others' parcels too."""
    if request.caller.patterns is not None:
        for did in dids:
            history = await service.dispatcher.parcel(did)
            if history is None:
                raise not_found(str(UnknownParcel(did)))
            check_parcel(request, history)


def check_parcel(request: Request, history: ParcelHistory) -> None:
    queues = {history.parcel.queue, *[each.queue for step in history.steps for each in step.ranges]}
    request.caller.check_queues(sorted(queues))


def check_flow(request: Request, status: FlowStatus) -> None:
    request.caller.check_queue(status.definition.source.queue)


async def shown_flows(service: Service, request: Request) -> set[str] | None:
    """The flows of dispatch that the key may see; None: all."""
    if request.caller.patterns is None:
        return None
    found = await service.dispatcher.flows()
    return {status.name for status in found if request.caller.allows(status.definition.source.queue)}
