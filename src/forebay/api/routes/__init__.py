"""One file per resource. Each has its handlers and, below them, its part of the routing table."""

from __future__ import annotations

from forebay.api.routes import (
    acknowledge,
    analytics,
    arrow,
    buffers,
    configure,
    dead_letters,
    description,
    exports,
    flows,
    groups,
    health,
    messages,
    overview,
    pop,
    push,
    resources,
    status,
    system,
    traces,
    transaction,
)
from forebay.api.routing import Route

ALL_ROUTES: tuple[Route, ...] = (
    *configure.ROUTES,
    *push.ROUTES,
    *pop.ROUTES,
    *acknowledge.ROUTES,
    *transaction.ROUTES,
    *groups.ROUTES,
    *dead_letters.ROUTES,
    *resources.ROUTES,
    *overview.ROUTES,
    *messages.ROUTES,
    *arrow.ROUTES,
    *traces.ROUTES,
    *flows.ROUTES,
    *status.ROUTES,
    *buffers.ROUTES,
    *exports.ROUTES,
    *analytics.ROUTES,
    *system.ROUTES,
    *health.ROUTES,
    *description.ROUTES,
)
