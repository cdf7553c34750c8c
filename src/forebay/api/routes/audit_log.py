"""The log of admin actions. Not to be confused with `forebay audit`, which counts messages."""

from __future__ import annotations

from functools import partial

from msgspec import Struct

from forebay.access import audit
from forebay.api.exchange import Request, Response
from forebay.api.parameters import Text, Whole
from forebay.api.responses import answered, iso
from forebay.api.routing import Route, Scope
from forebay.api.service import Service

LIMIT = Whole("limit", 100, "How many to answer with.", lowest=1, highest=1_000)
BEFORE = Whole("before", 1 << 53, "Only those before this number: the `next` of the page before.")
KEY = Text("key", "", "Only those of the key with this id.")


class AdminAction(Struct, rename="camel"):
    number: int
    at: str
    key_id: str | None
    """Null where no keys were in force. Keys of a keys file are called `file:NAME`."""
    key_name: str
    method: str
    route: str
    subject: str
    """What it was done to."""
    address: str
    """Of the client; behind a proxy, the proxy's."""
    status: int
    """Of the answer."""


class AdminActions(Struct):
    actions: list[AdminAction]
    next: int | None
    """What to give as `before` for the next page; null at the end."""


async def list_admin_actions(service: Service, request: Request) -> Response:
    """The newest first. Actions that were refused for their key are in the server's log alone."""
    query = request.query
    limit = LIMIT.read(query)
    found = await service.store.look(partial(audit.entries, limit, BEFORE.read(query), KEY.read(query)))
    actions = [
        AdminAction(
            entry.number,
            iso(entry.at_us),
            entry.key_id or None,
            entry.key_name,
            entry.method,
            entry.route,
            entry.subject,
            entry.address,
            entry.status,
        )
        for entry in found
    ]
    return answered(AdminActions(actions, actions[-1].number if len(actions) == limit else None))


ROUTES = (
    Route(
        "GET",
        "/api/v1/audit-log",
        list_admin_actions,
        "List admin actions.",
        Scope.ADMIN,
        answers={200: AdminActions},
        query=(LIMIT, BEFORE, KEY),
        problems=(503,),
    ),
)
