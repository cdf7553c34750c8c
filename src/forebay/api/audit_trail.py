"""Admin actions, as they are done: a row in the store's audit log, and a line in the server's own, action `admin`.

What was refused for its key (401, 403, 429) is in the server's log only: a caller without the right must not be able to
push others' actions out of a log that is bounded. For the same reason a seek with `follow`, as a stream of Spark sends
it with every batch, is noted once in ten minutes for each key and group; every other seek is noted, with its target.
"""

from __future__ import annotations

import logging
from functools import partial

from forebay.access import audit
from forebay.access.values import AuditEntry
from forebay.api.exchange import Request
from forebay.api.routing import Route
from forebay.api.service import Service
from forebay.errors import ForebayError

REFUSALS = (401, 403, 429)

_log = logging.getLogger("forebay.api")


async def note_admin_action(service: Service, request: Request, route: Route, status: int) -> None:
    if status in REFUSALS:
        return
    caller = request.caller
    subject = request.subject or "/".join(request.path)
    if request.is_routine and not service.frequent_actions.is_due((caller.id, route.path, subject, status)):
        return
    entry = AuditEntry(caller.id, caller.name, request.method, route.path, subject, request.address, status)
    _log.info(
        "%s %s of %r: %d, by %s (%s) from %s",
        entry.method,
        entry.route,
        subject,
        status,
        caller.name,
        caller.id or "-",
        request.address,
        extra={"action": "admin"},
    )
    if not service.is_serving:
        _log.warning("an admin action is in this log alone: the store is away", extra={"action": "admin"})
        return
    try:
        await service.store.together(partial(audit.note, entry))
    except ForebayError as error:
        _log.warning("an admin action is in this log alone: %s", error, extra={"action": "admin"})
