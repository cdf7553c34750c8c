"""Flows of dispatch: define them, let them run, pause, stop; and the policies by which errors are resumed.

Paused: its parcels wait. Stopped: its source is cut no more, and the parcels that there are go on.
"""

from __future__ import annotations

from msgspec import Struct

from forebay.api.dispatch_bodies import (
    FlowBody,
    PolicyBody,
    RecordsBody,
    flow_definition,
    resume_policy,
    start_records,
)
from forebay.api.dispatch_shapes import DispatchFlow, flow_shape
from forebay.api.exchange import Request, Response
from forebay.api.large_bodies import read_body
from forebay.api.problems import not_found, unavailable
from forebay.api.reach import check_flow
from forebay.api.responses import answered
from forebay.api.routing import Queues, Route, Scope
from forebay.api.service import Service
from forebay.dispatch.definition import FlowState
from forebay.dispatch.faults import UnknownFlow
from forebay.dispatch.retries import ResumePolicy, by_priority, priority_of
from forebay.dispatch.views import FlowStatus
from forebay.model.internal_queues import step_queue


class DispatchFlows(Struct):
    flows: list[DispatchFlow]


class DispatchFlowForgotten(Struct):
    success: bool
    name: str


class FlowRecordsStarted(Struct):
    success: bool
    parcels: list[str]
    """The dids of the new parcels."""
    records: int
    """How many started."""
    repeated: int
    """How many had started before."""


class PolicyShape(Struct, rename="camel"):
    """A resume policy; `priority` is that which counts, given or computed."""

    name: str
    error_text: str
    flow: str
    action: str
    max_attempts: int
    priority: int
    is_priority_given: bool
    delay_seconds: float
    multiplier: float
    max_delay_seconds: float
    random: bool


class PolicyList(Struct):
    policies: list[PolicyShape]


class PolicyRemoved(Struct):
    success: bool
    name: str


async def define_flow(service: Service, request: Request) -> Response:
    """Defined again unchanged, it keeps its version. A changed one concerns the parcels that are cut from then on."""
    (name,) = request.path
    definition = flow_definition(name, await read_body(FlowBody, request))
    if request.caller.patterns is not None:
        # The errors of other flows, and a timer, are of no queue: such flows need a key for all.
        request.caller.check_queue(definition.source.queue if definition.source.kind == "queue" else "")
        await _check_known(service, request, name)
    return _shown(service, request, await service.dispatcher.define(definition))


async def list_flows(service: Service, request: Request) -> Response:
    allows = request.caller.allows
    found = [status for status in await service.dispatcher.flows() if allows(status.definition.source.queue)]
    return answered(DispatchFlows([_shape(service, request, status) for status in found]))


def _shape(service: Service, request: Request, status: FlowStatus) -> DispatchFlow:
    return flow_shape(status, request.caller, service.dispatcher.limits.finished_retention_seconds)


def _shown(service: Service, request: Request, status: FlowStatus) -> Response:
    return answered(_shape(service, request, status))


async def _check_known(service: Service, request: Request, name: str) -> None:
    """Raise 403 if the flow, as it is defined now, is of another queue than the key's."""
    if request.caller.patterns is not None:
        status = await service.dispatcher.flow(name)
        if status is not None:
            check_flow(request, status)


async def show_flow(service: Service, request: Request) -> Response:
    (name,) = request.path
    status = await service.dispatcher.flow(name)
    if status is None:
        raise not_found(str(UnknownFlow(name)))
    check_flow(request, status)
    return _shown(service, request, status)


async def pause_flow(service: Service, request: Request) -> Response:
    """Its parcels wait until it is resumed; what is leased is finished."""
    return await _set_state(service, request, "PAUSED")


async def resume_flow(service: Service, request: Request) -> Response:
    return await _set_state(service, request, "RUNNING")


async def stop_flow(service: Service, request: Request) -> Response:
    """Its source is cut no more until it is resumed; the parcels that there are go on."""
    return await _set_state(service, request, "STOPPED")


async def _set_state(service: Service, request: Request, state: FlowState) -> Response:
    (name,) = request.path
    await _check_known(service, request, name)
    return _shown(service, request, await service.dispatcher.set_state(name, state))


async def forget_flow(service: Service, request: Request) -> Response:
    """409 while parcels of it are unfinished."""
    (name,) = request.path
    await _check_known(service, request, name)
    if not await service.dispatcher.forget(name):
        raise not_found(str(UnknownFlow(name)))
    return answered(DispatchFlowForgotten(True, name))


async def start_flow_records(service: Service, request: Request) -> Response:
    """Send rows through a step again, and what follows it, without the parcels that they were in: such as a flow's
    error queue holds them (`holds: input`). They become messages of the queue in front of the step, and a new parcel
    of each parcel that they were in. A record is known by `did` and `key`: sent again, it does not start again for as
    long as its new parcel is kept. The flow's rate limit, a pause and the step's join hold for them too.
    """
    (name,) = request.path
    wanted = start_records(name, await read_body(RecordsBody, request))
    await _check_known(service, request, name)
    request.caller.check_queue(step_queue(name, wanted.step), "step")
    if service.is_push_paused:
        raise unavailable("push maintenance is on; nothing is accepted", "maintenance")
    started = await service.dispatcher.start_records(wanted)
    return answered(FlowRecordsStarted(True, list(started.dids), started.records, started.repeated), 201)


async def list_policies(service: Service, request: Request) -> Response:
    """In the order in which they are tried."""
    found = by_priority(await service.dispatcher.policies())
    return answered(PolicyList([_policy_shape(policy) for policy in found]))


async def set_policy(service: Service, request: Request) -> Response:
    """It concerns errors from now on."""
    (name,) = request.path
    policy = resume_policy(name, await read_body(PolicyBody, request))
    await service.dispatcher.set_policy(policy)
    return answered(_policy_shape(policy))


async def remove_policy(service: Service, request: Request) -> Response:
    (name,) = request.path
    if not await service.dispatcher.remove_policy(name):
        raise not_found(f"no policy {name!r}")
    return answered(PolicyRemoved(True, name))


def _policy_shape(policy: ResumePolicy) -> PolicyShape:
    return PolicyShape(
        policy.name,
        policy.error_text,
        policy.flow,
        policy.action,
        policy.max_attempts,
        priority_of(policy),
        policy.priority is not None,
        policy.delay_seconds,
        policy.multiplier,
        policy.max_delay_seconds,
        policy.random,
    )


_FLOWS = "/api/v1/dispatch/flows"
_FLOW = f"{_FLOWS}/{{name}}"
_POLICIES = "/api/v1/dispatch/policies"
_POLICY = f"{_POLICIES}/{{name}}"
_ONE = {200: DispatchFlow}

ROUTES = (
    Route(
        "GET",
        _FLOWS,
        list_flows,
        "How all flows of dispatch stand.",
        Scope.READ,
        answers={200: DispatchFlows},
        problems=(503,),
        queues=Queues.SHOWN,
    ),
    Route(
        "GET",
        _FLOW,
        show_flow,
        "How one flow of dispatch stands.",
        Scope.READ,
        answers=_ONE,
        problems=(404, 503),
        queues=Queues.NAMED,
    ),
    Route(
        "PUT",
        _FLOW,
        define_flow,
        "Define a flow of dispatch.",
        Scope.CONSUME,
        answers=_ONE,
        body=FlowBody,
        problems=(413, 415, 503, 507),
        queues=Queues.NAMED,
    ),
    Route(
        "DELETE",
        _FLOW,
        forget_flow,
        "Forget a flow of dispatch.",
        Scope.ADMIN,
        answers={200: DispatchFlowForgotten},
        problems=(404, 409, 503, 507),
        queues=Queues.NAMED,
    ),
    Route(
        "POST",
        f"{_FLOW}/pause",
        pause_flow,
        "Pause a flow.",
        Scope.OPERATE,
        answers=_ONE,
        problems=(404, 503, 507),
        queues=Queues.NAMED,
    ),
    Route(
        "POST",
        f"{_FLOW}/resume",
        resume_flow,
        "Let it run.",
        Scope.OPERATE,
        answers=_ONE,
        problems=(404, 503, 507),
        queues=Queues.NAMED,
    ),
    Route(
        "POST",
        f"{_FLOW}/stop",
        stop_flow,
        "Stop its source.",
        Scope.OPERATE,
        answers=_ONE,
        problems=(404, 503, 507),
        queues=Queues.NAMED,
    ),
    Route(
        "POST",
        f"{_FLOW}/records",
        start_flow_records,
        "Send records through a step of a flow again.",
        Scope.WRITE,
        answers={201: FlowRecordsStarted},
        body=RecordsBody,
        problems=(404, 413, 415, 429, 503, 507),
        queues=Queues.NAMED,
    ),
    Route(
        "GET",
        _POLICIES,
        list_policies,
        "List resume policies.",
        Scope.READ,
        answers={200: PolicyList},
        problems=(503,),
    ),
    Route(
        "PUT",
        _POLICY,
        set_policy,
        "Set a resume policy.",
        Scope.CONSUME,
        answers={200: PolicyShape},
        body=PolicyBody,
        problems=(413, 415, 503, 507),
    ),
    Route(
        "DELETE",
        _POLICY,
        remove_policy,
        "Remove a resume policy.",
        Scope.ADMIN,
        answers={200: PolicyRemoved},
        problems=(404, 503, 507),
    ),
)
