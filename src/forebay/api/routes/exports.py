"""What leaves: destinations with their send queues, exports of queues, and dead letters of destinations."""

from __future__ import annotations

import asyncio

from msgspec import Struct

from forebay.api.exchange import Request, Response
from forebay.api.problems import not_found
from forebay.api.responses import answered, iso_or_none
from forebay.api.routing import Needs, Queues, Route, Scope
from forebay.api.service import Service
from forebay.export.dead_letters import DeadLetter, DeadLetters, UnknownDeadLetter
from forebay.export.exporter import Exporter


class ExportInfo(Struct, rename="camel"):
    """One way out. Of a destination that receivers feed, `queue` is its send queue; of an export, the broker's."""

    name: str
    kind: str
    """`destination` or `export`."""
    source: str
    destination: str
    paused: bool
    breaker: str
    waiting: int | None
    """Batches in the send queue; messages that the group has not finished; null if that is not known now."""
    waiting_bytes: int | None
    oldest_at: str | None
    sent: int
    sent_items: int
    retried: int
    dead: int
    dead_letters: int
    """Kept now, of the destination's own. Those of an export are its group's."""
    dropped: int
    last_error: str
    errors: dict[str, int]
    """Attempts that failed, by class of error."""
    backoff_seconds: float
    """The last pause between two attempts; 0 after a success."""
    retry_seconds: float
    """Until the destination is tried again; 0 when it may be tried now."""


class Exports(Struct):
    exports: list[ExportInfo]


class Paused(Struct):
    name: str
    paused: bool


class DeadBatch(Struct, rename="camel"):
    id: str
    error: str
    message: str
    attempts: int
    buried_at: str | None
    kind: str
    items: int
    size: int


class DeadBatches(Struct):
    letters: list[DeadBatch]


class Done(Struct):
    count: int


async def list_exports(service: Service, request: Request) -> Response:
    exports, caller = service.way_out.exports, request.caller
    # What receivers feed is of no queue: a key for some queues does not see it.
    outlets = [] if caller.patterns is not None else list(service.way_out.outlets)
    found = await asyncio.to_thread(lambda: [_outlet_info(service, name) for name in outlets])
    shown = [name for name, export in list(exports.items()) if caller.allows(export.feed.options.queue)]
    found += [await _export_info(service, name) for name in shown]
    return answered(Exports(found))


def _outlet_info(service: Service, name: str) -> ExportInfo:
    outlet = service.way_out.outlets[name]
    figures = outlet.feed.queue.figures()
    return _info(
        outlet.exporter,
        name=name,
        kind="destination",
        source=f"send queue ({outlet.kind})",
        destination=name,
        waiting=figures.batches,
        waiting_bytes=figures.bytes,
        oldest_at=iso_or_none(figures.oldest_us) if figures.oldest_us else None,
        dead_letters=len(outlet.feed.dead_letters.ids()),
        dropped=sum(outlet.feed.dropped.values()),
    )


async def _export_info(service: Service, name: str) -> ExportInfo:
    export = service.way_out.exports[name]
    options = export.feed.options
    lags = await service.store.groups(options.queue)
    lag = next((lag for lag in lags if lag.group == options.group), None)
    oldest_us = service.clock.now_us() - int(lag.lag_seconds * 1_000_000) if lag and lag.lag_messages else None
    return _info(
        export.exporter,
        name=name,
        kind="export",
        source=f"{options.queue}@{options.group}",
        destination=export.destination,
        waiting=lag.lag_messages if lag else None,
        waiting_bytes=None,
        oldest_at=iso_or_none(oldest_us) if oldest_us else None,
        dead_letters=0,
        dropped=0,
    )


def _info(exporter: Exporter, **known: object) -> ExportInfo:
    delivery = exporter.delivery
    return ExportInfo(
        paused=exporter.is_paused,
        breaker=delivery.breaker.state.value,
        sent=delivery.counts["sent"],
        sent_items=delivery.counts["sent_items"],
        retried=delivery.counts["retried"],
        dead=delivery.counts["buried"],
        last_error=delivery.last_error,
        errors={str(error): count for error, count in delivery.failures.items()},
        backoff_seconds=round(delivery.backoff_seconds, 3),
        retry_seconds=round(delivery.seconds_until_open(), 3),
        **known,  # type: ignore[arg-type]
    )


async def pause_export(service: Service, request: Request) -> Response:
    """Send no more until it is resumed, on all servers; what is under way is finished. Nothing is lost: it waits."""
    return await _set_paused(service, request, is_paused=True)


async def resume_export(service: Service, request: Request) -> Response:
    return await _set_paused(service, request, is_paused=False)


async def _set_paused(service: Service, request: Request, *, is_paused: bool) -> Response:
    name = request.path[0]
    export = service.way_out.exports.get(name)
    request.caller.check_queue(export.feed.options.queue if export is not None else "")
    try:
        await service.way_out.set_paused(name, is_paused)
    except KeyError:
        raise not_found(f"no export or destination {name!r}") from None
    return answered(Paused(name, is_paused))


def _letters(service: Service, request: Request) -> DeadLetters:
    name = request.path[0]
    outlet = service.way_out.outlets.get(name)
    if outlet is None:
        raise not_found(f"no destination {name!r} with a send queue; dead letters of exports are those of their group")
    return outlet.feed.dead_letters


async def list_dead(service: Service, request: Request) -> Response:
    letters = await asyncio.to_thread(_letters(service, request).letters)
    return answered(DeadBatches([_shown(letter) for letter in letters]))


async def show_dead(service: Service, request: Request) -> Response:
    letters = _letters(service, request)
    try:
        return answered(_shown(letters.letter(request.path[1])))
    except UnknownDeadLetter as error:
        raise not_found(str(error)) from None


def _shown(letter: DeadLetter) -> DeadBatch:
    return DeadBatch(
        letter.id,
        letter.error,
        letter.message,
        letter.attempts,
        iso_or_none(letter.buried_us) if letter.buried_us else None,
        letter.kind,
        letter.items,
        letter.size,
    )


async def replay_dead(service: Service, request: Request) -> Response:
    """Put all dead letters of the destination back into its send queue, the oldest first."""
    letters = _letters(service, request)
    feed = service.way_out.outlets[request.path[0]].feed
    count = 0
    for name in letters.ids():
        await feed.push(await asyncio.to_thread(letters.batch, name))
        await asyncio.to_thread(letters.remove, name)
        count += 1
    return answered(Done(count))


async def purge_dead(service: Service, request: Request) -> Response:
    """Delete all dead letters of the destination. What they held is lost."""
    letters = _letters(service, request)
    ids = letters.ids()
    for name in ids:
        await asyncio.to_thread(letters.remove, name)
    return answered(Done(len(ids)))


_DEAD = "/api/v1/exports/{name}/dead-letters"

ROUTES = (
    Route(
        "GET",
        "/api/v1/exports",
        list_exports,
        "Everything that leaves.",
        Scope.READ,
        answers={200: Exports},
        queues=Queues.SHOWN,
    ),
    Route(
        "POST",
        "/api/v1/exports/{name}/pause",
        pause_export,
        "Pause an export or a destination.",
        Scope.ADMIN,
        answers={200: Paused},
        problems=(404,),
        queues=Queues.NAMED,
    ),
    Route(
        "POST",
        "/api/v1/exports/{name}/resume",
        resume_export,
        "Resume it.",
        Scope.ADMIN,
        answers={200: Paused},
        problems=(404,),
        queues=Queues.NAMED,
    ),
    Route(
        "GET",
        _DEAD,
        list_dead,
        "Dead letters of a destination.",
        Scope.READ,
        answers={200: DeadBatches},
        problems=(404,),
        needs=Needs.RECOVERY,
    ),
    Route(
        "GET",
        _DEAD + "/{letter}",
        show_dead,
        "One of them.",
        Scope.READ,
        answers={200: DeadBatch},
        problems=(404,),
        needs=Needs.RECOVERY,
    ),
    Route(
        "POST",
        _DEAD + "/replay",
        replay_dead,
        "Send them again.",
        Scope.ADMIN,
        answers={200: Done},
        problems=(404, 429, 503),
        needs=Needs.RECOVERY,
    ),
    Route(
        "POST",
        _DEAD + "/purge",
        purge_dead,
        "Delete them.",
        Scope.ADMIN,
        answers={200: Done},
        problems=(404,),
        needs=Needs.RECOVERY,
    ),
)
