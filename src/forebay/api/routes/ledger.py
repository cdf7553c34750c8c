"""The ledger: what was accepted, and what became of it, at each stage."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from msgspec import Struct

from forebay.api.exchange import Request, Response
from forebay.api.ledger import ledger
from forebay.api.parameters import Switch
from forebay.api.responses import answered, iso
from forebay.api.routing import Queues, Route, Scope
from forebay.api.service import Service
from forebay.telemetry.ledger import FLOW, SEND_QUEUE, UNITS, Account, totals_of

ACCOUNTS = Switch("accounts", True, "Every account; else the totals alone.")


class AccountShape(Struct, rename="camel"):
    """`accepted` is the sum of the parts; `difference` is what is missing there, and 0 when all is well."""

    stage: str
    name: str
    group: str | None
    unit: str
    accepted: int
    parts: Mapping[str, int]
    difference: int


class StageTotals(Struct, rename="camel"):
    stage: str
    unit: str
    accounts: int
    accepted: int
    parts: Mapping[str, int]


class LedgerShape(Struct, rename="camel"):
    timestamp: str
    balanced: bool
    differences: Sequence[str]
    totals: list[StageTotals]
    accounts: list[AccountShape]


async def show_ledger(service: Service, request: Request) -> Response:
    """Of what the key may see: send queues are of no queue, so that a key for some queues does not see them."""
    found, caller = await ledger(service), request.caller

    def is_shown(account: Account) -> bool:
        if account.stage == SEND_QUEUE:
            return False
        return caller.allows(found.flow_queues[account.name] if account.stage == FLOW else account.name)

    accounts, totals, differences = found.accounts, found.totals, found.faults
    if caller.patterns is not None:
        accounts = tuple(filter(is_shown, found.accounts))
        totals, differences = totals_of(accounts), [fault for account in accounts for fault in account.faults()]
    return answered(
        LedgerShape(
            iso(found.at_us),
            not differences,
            differences,
            [StageTotals(t.stage, UNITS[t.stage], t.accounts, t.accepted, t.parts) for t in totals],
            list(map(_shape, accounts)) if ACCOUNTS.read(request.query) else [],
        )
    )


class SendQueueRecount(Struct, rename="camel"):
    """Batches in the send queue of a destination and its failover queue."""

    name: str
    kept: int
    counted: int
    exact: bool


class BuffersRecount(Struct, rename="camel"):
    """Events in buffer files, by queue."""

    kept: Mapping[str, int]
    counted: Mapping[str, int]
    exact: bool


class RecountShape(Struct, rename="camel"):
    """`kept` is what the server says, `counted` what is in memory and in its files; not `exact` while that moves."""

    buffers: BuffersRecount
    send_queues: list[SendQueueRecount]


async def recount(service: Service, request: Request) -> Response:
    """One at a time: it reads files that may be large."""
    caller = request.caller
    async with service.recounting:
        found = await service.intake.recount()
        feeds = [outlet.feed for outlet in service.way_out.outlets.values()] if caller.patterns is None else []
        counts = [(feed.name, await asyncio.to_thread(feed.recount)) for feed in feeds]
    kept, counted = (
        {name: count for name, count in of.items() if caller.allows(name)} for of in (found.kept, found.counted)
    )
    return answered(
        RecountShape(
            BuffersRecount(kept, counted, found.is_exact),
            [SendQueueRecount(name, one.kept, one.counted, one.is_exact) for name, one in counts],
        )
    )


def _shape(account: Account) -> AccountShape:
    return AccountShape(
        account.stage,
        account.name,
        account.group or None,
        UNITS[account.stage],
        account.accepted,
        account.parts,
        account.difference,
    )


ROUTES = (
    Route(
        "GET",
        "/api/v1/ledger",
        show_ledger,
        "What was accepted and what became of it, at each stage, from figures that are kept: `forebay audit` recounts.",
        Scope.READ,
        answers={200: LedgerShape},
        query=(ACCOUNTS,),
        problems=(503,),
        queues=Queues.SHOWN,
    ),
    Route(
        "GET",
        "/api/v1/ledger/recount",
        recount,
        "Buffer files and send queues, counted again from memory and files. Takes as long as reading them does.",
        Scope.READ,
        answers={200: RecountShape},
        queues=Queues.SHOWN,
    ),
)
