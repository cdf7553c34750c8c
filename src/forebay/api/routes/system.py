"""Switches that all servers of a store share: maintenance of push and of pop."""

from __future__ import annotations

from msgspec import Struct

from forebay.api.bodies import MaintenanceBody
from forebay.api.exchange import Request, Response
from forebay.api.large_bodies import read_body
from forebay.api.responses import answered
from forebay.api.routes.buffers import buffer_figures
from forebay.api.routing import Queues, Route, Scope
from forebay.api.service import Service
from forebay.broker.store import POP_MAINTENANCE, PUSH_MAINTENANCE


class Maintenance(Struct, rename="camel"):
    maintenance_mode: bool
    pop_maintenance_mode: bool
    buffered_messages: int
    buffer_healthy: bool
    buffer_stats: dict[str, int]


class SharedState(Struct, rename="camel"):
    is_shared: bool
    store: str
    flags: dict[str, bool]


async def _state(service: Service) -> Response:
    figures = await buffer_figures(service)
    counts = {"pending": figures.pending, "failed": figures.failed}
    is_healthy = not figures.failed
    waiting = figures.pending + figures.failed
    return answered(Maintenance(service.is_push_paused, service.is_pop_paused, waiting, is_healthy, counts))


async def show_maintenance(service: Service, request: Request) -> Response:
    await service.look_at_flags()
    return await _state(service)


async def set_push_maintenance(service: Service, request: Request) -> Response:
    """While it is on, pushes are buffered, and stored when it ends. Other servers follow within a second."""
    body = await read_body(MaintenanceBody, request)
    request.subject = f"push maintenance {'on' if body.enabled else 'off'}"
    await service.store.set_flag(PUSH_MAINTENANCE, body.enabled)
    service.pause_pushes(body.enabled)
    return await _state(service)


async def set_pop_maintenance(service: Service, request: Request) -> Response:
    """While it is on, pops find nothing. Other servers of the store follow within a second."""
    body = await read_body(MaintenanceBody, request)
    request.subject = f"pop maintenance {'on' if body.enabled else 'off'}"
    await service.store.set_flag(POP_MAINTENANCE, body.enabled)
    service.is_pop_paused = body.enabled
    return await _state(service)


async def show_shared_state(service: Service, request: Request) -> Response:
    await service.look_at_flags()
    flags = {PUSH_MAINTENANCE: service.is_push_paused, POP_MAINTENANCE: service.is_pop_paused}
    return answered(SharedState(service.store_name.startswith("postgres"), service.store_name, flags))


_BASE = "/api/v1/system"

ROUTES = (
    Route(
        "GET",
        f"{_BASE}/maintenance",
        show_maintenance,
        "Which maintenance is on.",
        Scope.READ,
        answers={200: Maintenance},
        problems=(503,),
        queues=Queues.SHOWN,
    ),
    Route(
        "POST",
        f"{_BASE}/maintenance",
        set_push_maintenance,
        "Turn push maintenance on or off.",
        Scope.ADMIN,
        answers={200: Maintenance},
        body=MaintenanceBody,
        problems=(413, 415, 503),
    ),
    Route(
        "GET",
        f"{_BASE}/maintenance/pop",
        show_maintenance,
        "Which maintenance is on.",
        Scope.READ,
        answers={200: Maintenance},
        problems=(503,),
        queues=Queues.SHOWN,
    ),
    Route(
        "POST",
        f"{_BASE}/maintenance/pop",
        set_pop_maintenance,
        "Turn pop maintenance on or off.",
        Scope.ADMIN,
        answers={200: Maintenance},
        body=MaintenanceBody,
        problems=(413, 415, 503),
    ),
    Route(
        "GET",
        f"{_BASE}/shared-state",
        show_shared_state,
        "What servers of one store share.",
        Scope.READ,
        answers={200: SharedState},
        problems=(503,),
        queues=Queues.SHOWN,
    ),
)
