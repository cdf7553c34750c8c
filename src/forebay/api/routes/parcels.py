"""Parcels: list them, show what happened to one, and resume, replay, cancel or annotate them."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from forebay.api.dispatch_bodies import Annotations
from forebay.api.dispatch_shapes import HistoryShape, ParcelShape, history_shape, parcel_shape
from forebay.api.dispatching import Mark
from forebay.api.exchange import Request, Response
from forebay.api.large_bodies import read_body
from forebay.api.parameters import Moment, Name, Text, Whole, checked_name, time_us
from forebay.api.problems import not_found, wrong
from forebay.api.reach import check_parcel, check_parcels
from forebay.api.responses import answered
from forebay.api.routing import Queues, Route, Scope
from forebay.api.service import Service
from forebay.dispatch.faults import UnknownParcel
from forebay.dispatch.limits import DispatchLimits
from forebay.dispatch.values import PARCEL_STATES
from forebay.dispatch.views import ParcelFilter, ParcelInfo

STEP_STATES = ("QUEUED", "COLD_QUEUED", "LEASED", "JOINING", "EXPORTING")
STATES = (*PARCEL_STATES, *STEP_STATES)
DIDS_MAX = 1_000
PAGE_MAX = DispatchLimits().parcels_page_max
PAGES_MAX = 10
"""How many pages are looked through for parcels that a key may see. One that finds none is answered with `next`."""

FLOW = Name("flow", None, "Only of this flow.")
STATE = Text("state", "", "Only those in this state: of the parcel or of its step.", ("", *STATES))
ACTION = Name("action", None, "Only those at this action.")
ACTION_CLASS = Name("actionClass", None, "Only those at a step of this action class.")
ERROR = Text("error", "", "Only those whose error holds this text.")
SINCE = Moment("since", None, "Only those that were cut at this time or later.")
BEFORE = Moment("before", None, "Only those that were cut before this time.")
DID = Name("did", None, "Only those whose did begins so.")
LIMIT = Whole("limit", 100, "How many to answer with.", lowest=1, highest=PAGE_MAX)
AFTER = Text("after", "", "Where the last page ended: its `next`.")
FILTERS = (FLOW, STATE, ACTION, ACTION_CLASS, ERROR, SINCE, BEFORE, DID)

_Name = Annotated[str, Meta(min_length=1, max_length=255)] | None
_Time = Annotated[str, Meta(max_length=64)] | None


class ParcelList(Struct):
    parcels: list[ParcelShape]
    next: str | None
    """What to give as `after` for the next page; null at the end."""


class ParcelsBody(Struct, rename="camel", forbid_unknown_fields=True):
    """Which parcels. At least one choice, or `all`."""

    dids: Annotated[list[Annotated[str, Meta(min_length=1, max_length=255)]], Meta(max_length=DIDS_MAX)] = []
    flow: _Name = None
    state: _Name = None
    action: _Name = None
    action_class: _Name = None
    error: _Name = None
    since: _Time = None
    before: _Time = None
    all: bool = False


class AnnotateBody(Struct, forbid_unknown_fields=True):
    annotations: Annotations
    overwrite: bool = False


class Resumed(Struct):
    success: bool
    resumed: int


class Cancelled(Struct):
    success: bool
    cancelled: int


class ParcelReplayed(Struct):
    success: bool
    did: str
    """Of the new parcel."""


async def list_parcels(service: Service, request: Request) -> Response:
    """The newest first. A parcel's state is IN_FLIGHT until it is finished; its step says more."""
    query = request.query
    limit = LIMIT.read(query)
    wanted = ParcelFilter(
        flow=FLOW.read(query) or "",
        state=STATE.read(query),
        action=ACTION.read(query) or "",
        action_class=ACTION_CLASS.read(query) or "",
        error=ERROR.read(query),
        since_us=SINCE.read(query),
        before_us=BEFORE.read(query),
        did=DID.read(query) or "",
    )
    after = _mark(AFTER.read(query))
    shown: list[ParcelInfo] = []
    for _ in range(PAGES_MAX):
        found = await service.dispatcher.parcels(wanted, limit, after)
        after = (found[-1].place, found[-1].did) if len(found) == limit else None
        shown += [info for info in found if request.caller.allows(info.queue)]
        if shown or after is None:
            break
    following = None if after is None else f"{after[0]}:{after[1]}"
    return answered(ParcelList([parcel_shape(info) for info in shown], following))


def _mark(text: str) -> Mark | None:
    if not text:
        return None
    place, colon, did = text.partition(":")
    if not colon or not did or not place.isascii() or not place.isdecimal() or len(place) > 18:
        raise wrong("after", f"{text[:100]!r} is not what a page gave as next")
    return int(place), checked_name(did, "after")


async def show_parcel(service: Service, request: Request) -> Response:
    """With its steps, and everything that happened to it: action, times, worker, attempt, rows, error."""
    (did,) = request.path
    history = await service.dispatcher.parcel(did)
    if history is None:
        raise not_found(str(UnknownParcel(did)))
    check_parcel(request, history)
    return answered(history_shape(history))


async def resume_parcels(service: Service, request: Request) -> Response:
    """Queue parcels again that are in ERROR, at their old place, with their attempts counted anew."""
    wanted = await _chosen_of(service, request)
    return answered(Resumed(True, sum([await service.dispatcher.resume(one) for one in wanted])))


async def cancel_parcels(service: Service, request: Request) -> Response:
    """End parcels that are not finished. What a worker does with one of them is refused when it completes."""
    wanted = await _chosen_of(service, request)
    return answered(Cancelled(True, sum([await service.dispatcher.cancel(one) for one in wanted])))


async def _chosen_of(service: Service, request: Request) -> list[ParcelFilter]:
    body = await read_body(ParcelsBody, request)
    wanted = _chosen(body)
    request.subject = ", ".join(body.dids) or body.flow or "parcels by filter"
    if not body.dids:
        request.caller.check_unrestricted("name the parcels by their dids")
    await check_parcels(service, request, list(dict.fromkeys(body.dids)))
    return wanted


async def replay_parcel(service: Service, request: Request) -> Response:
    """Send the messages of a parcel through its flow again, as a new parcel. 410 when they are not kept any more."""
    (did,) = request.path
    await check_parcels(service, request, [did])
    return answered(ParcelReplayed(True, await service.dispatcher.replay(did)), 201)


async def annotate_parcel(service: Service, request: Request) -> Response:
    """409 when one of them has another value, unless `overwrite` is set."""
    (did,) = request.path
    body = await read_body(AnnotateBody, request)
    await check_parcels(service, request, [did])
    info = await service.dispatcher.annotate(did, body.annotations, overwrite=body.overwrite)
    return answered(parcel_shape(info))


def _chosen(body: ParcelsBody) -> list[ParcelFilter]:
    """One filter, or one for each did. A forgotten filter must not mean everything."""
    if body.state is not None and body.state not in STATES:
        raise wrong("state", f"{body.state!r} is none of {', '.join(STATES)}")
    wanted = ParcelFilter(
        flow=body.flow or "",
        state=body.state or "",
        action=body.action or "",
        action_class=body.action_class or "",
        error=body.error or "",
        since_us=None if body.since is None else time_us(body.since, "since"),
        before_us=None if body.before is None else time_us(body.before, "before"),
    )
    if body.dids:
        dids = [checked_name(did, f"dids[{number}]") for number, did in enumerate(body.dids)]
        return [wanted._replace(did=did) for did in dict.fromkeys(dids)]
    if wanted == ParcelFilter() and not body.all:
        raise wrong("dids", "say which parcels, or that all are meant with all=true")
    return [wanted]


_PARCELS = "/api/v1/parcels"
_PARCEL = f"{_PARCELS}/{{did}}"

ROUTES = (
    Route(
        "GET",
        _PARCELS,
        list_parcels,
        "List parcels.",
        Scope.READ,
        answers={200: ParcelList},
        query=(*FILTERS, LIMIT, AFTER),
        problems=(503,),
        queues=Queues.SHOWN,
    ),
    Route(
        "GET",
        _PARCEL,
        show_parcel,
        "Show a parcel and its history.",
        Scope.READ,
        answers={200: HistoryShape},
        problems=(404, 503),
        queues=Queues.NAMED,
    ),
    Route(
        "POST",
        f"{_PARCELS}/resume",
        resume_parcels,
        "Resume parcels that are in ERROR.",
        Scope.CONSUME,
        answers={200: Resumed},
        body=ParcelsBody,
        problems=(413, 415, 503, 507),
        queues=Queues.NAMED,
    ),
    Route(
        "POST",
        f"{_PARCELS}/cancel",
        cancel_parcels,
        "Cancel parcels.",
        Scope.OPERATE,
        answers={200: Cancelled},
        body=ParcelsBody,
        problems=(413, 415, 503, 507),
        queues=Queues.NAMED,
    ),
    Route(
        "POST",
        f"{_PARCEL}/replay",
        replay_parcel,
        "Replay a parcel.",
        Scope.CONSUME,
        answers={201: ParcelReplayed},
        problems=(404, 409, 410, 503, 507),
        queues=Queues.NAMED,
    ),
    Route(
        "POST",
        f"{_PARCEL}/annotate",
        annotate_parcel,
        "Annotate a parcel.",
        Scope.CONSUME,
        answers={200: ParcelShape},
        body=AnnotateBody,
        problems=(404, 409, 413, 415, 503, 507),
        queues=Queues.NAMED,
    ),
)
