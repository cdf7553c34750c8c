"""What leaves: destinations with their send queues, exports of queues, and dead letters of destinations."""

from __future__ import annotations

import asyncio

from msgspec import Struct

from forebay.api.answers import answered, iso_or_none
from forebay.api.exchange import Answer, Request
from forebay.api.problems import not_found
from forebay.api.routing import Needs, Route, Scope
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
    dropped: int
    last_error: str


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


async def list_exports(service: Service, request: Request) -> Answer:
    found = [_outlet_info(service, name) for name in service.way_out.outlets]
    found += [await _export_info(service, name) for name in service.way_out.exports]
    return answered(Exports(found))


def _outlet_info(service: Service, name: str) -> ExportInfo:
    outlet = service.way_out.outlets[name]
    figures = outlet.feed.queue.figures()
    return _info(
        outlet.exporter,
        name=name,
        kind="destination",
        source=f"send queue ({outlet.mode})",
        destination=name,
        waiting=figures.batches,
        waiting_bytes=figures.bytes,
        oldest_at=iso_or_none(figures.oldest_us) if figures.oldest_us else None,
        dropped=sum(outlet.feed.dropped.values()),
    )


async def _export_info(service: Service, name: str) -> ExportInfo:
    export = service.way_out.exports[name]
    options = export.feed.options
    lags = await service.store.groups(options.queue)
    lag = next((lag.lag_messages for lag in lags if lag.group == options.group), None)
    return _info(
        export.exporter,
        name=name,
        kind="export",
        source=f"{options.queue}@{options.group}",
        destination=export.destination,
        waiting=lag,
        waiting_bytes=None,
        oldest_at=None,
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
        **known,  # type: ignore[arg-type]
    )


async def pause_export(service: Service, request: Request) -> Answer:
    """Send no more until it is resumed, on all servers; what is under way is finished. Nothing is lost: it waits."""
    return await _set_paused(service, request, is_paused=True)


async def resume_export(service: Service, request: Request) -> Answer:
    return await _set_paused(service, request, is_paused=False)


async def _set_paused(service: Service, request: Request, *, is_paused: bool) -> Answer:
    name = request.path[0]
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


async def list_dead(service: Service, request: Request) -> Answer:
    letters = await asyncio.to_thread(_letters(service, request).letters)
    return answered(DeadBatches([_shown(letter) for letter in letters]))


async def show_dead(service: Service, request: Request) -> Answer:
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


async def replay_dead(service: Service, request: Request) -> Answer:
    """Put all dead letters of the destination back into its send queue, the oldest first."""
    letters = _letters(service, request)
    feed = service.way_out.outlets[request.path[0]].feed
    count = 0
    for name in letters.ids():
        await feed.push(await asyncio.to_thread(letters.batch, name))
        await asyncio.to_thread(letters.remove, name)
        count += 1
    return answered(Done(count))


async def purge_dead(service: Service, request: Request) -> Answer:
    """Delete all dead letters of the destination. What they held is lost."""
    letters = _letters(service, request)
    ids = letters.ids()
    for name in ids:
        await asyncio.to_thread(letters.remove, name)
    return answered(Done(len(ids)))


_DEAD = "/api/v1/exports/{name}/dead-letters"

ROUTES = (
    Route("GET", "/api/v1/exports", list_exports, "Everything that leaves.", Scope.READ, answers={200: Exports}),
    Route(
        "POST",
        "/api/v1/exports/{name}/pause",
        pause_export,
        "Pause an export or a destination.",
        Scope.ADMIN,
        answers={200: Paused},
        problems=(404,),
    ),
    Route(
        "POST",
        "/api/v1/exports/{name}/resume",
        resume_export,
        "Resume it.",
        Scope.ADMIN,
        answers={200: Paused},
        problems=(404,),
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
