"""The journey of messages through all stages: for the web page, and for programs that ask how far behind things are."""

from __future__ import annotations

from operator import attrgetter

from msgspec import Struct

from forebay.api.exchange import Request, Response
from forebay.api.figures import INTERNAL, NAMESPACE, SEARCH
from forebay.api.journey.troubles import troubles_of
from forebay.api.latencies import latencies
from forebay.api.parameters import LIMIT, OFFSET, Text
from forebay.api.queue_figures import QueueNow, queue_figures
from forebay.api.responses import Pagination, answered, iso, iso_or_none
from forebay.api.routing import Needs, Queues, Route, Scope
from forebay.api.service import Service
from forebay.model.histogram import Distribution
from forebay.model.internal_queues import is_internal

SORTS = {
    "name": "name",
    "waiting": "waiting",
    "leased": "leased",
    "lag": "lag_seconds",
    "dead": "dead_letters",
    "lost": "lost",
    "kept": "kept",
    "size": "size_bytes",
    "groups": "groups",
    "partitions": "partitions",
    "namespace": "namespace",
    "created": "created_at",
}
SORT = Text("sort", "-waiting", "By what; with a `-` in front the greatest first.", (*SORTS, *[f"-{n}" for n in SORTS]))


class StageShape(Struct, rename="camel"):
    name: str
    in_per_second: float | None
    """Messages; null where there is no such figure (dispatch without flows on Spark gives nothing that is counted)."""
    out_per_second: float | None
    waiting: int
    oldest_seconds: float
    at_risk: int
    """In memory or in a buffer file only."""


class TroubleShape(Struct):
    severity: str
    text: str
    link: str
    """The page on which it is mended."""


class ActionClassNow(Struct, rename="camel"):
    action_class: str
    warm: int
    cold: int
    leased: int
    is_cold: bool
    is_served: bool


class Journey(Struct, rename="camel"):
    time: str
    store: str
    is_store_there: bool
    """False: figures of queues, dispatch and flows are the last ones known."""
    stages: list[StageShape]
    troubles: list[TroubleShape]
    """What is wrong now, the worst first."""
    classes: list[ActionClassNow]
    exporting: int
    """Parcels whose results wait for their destination."""


class JourneyHistory(Struct, rename="camel"):
    times: list[str]
    series: dict[str, list[float | None]]
    """By `stage.figure`, oldest first: `in` and `out` per second, `waiting`, `oldest` in seconds, `risk`; of dispatch
    also `warm` and `cold`."""


class QueueHistory(Struct, rename="camel"):
    times: list[str]
    waiting: list[float | None]
    pushed_per_second: list[float | None]


class QueueRow(Struct, rename="camel"):
    """A queue as lists show it."""

    name: str
    namespace: str
    task: str
    created_at: str | None
    partitions: int
    groups: int
    waiting: int
    """For the group that is furthest behind."""
    leased: int
    lag_seconds: float
    dead_letters: int
    lost: int
    kept: int
    accepted: int
    size_bytes: int


class QueueRows(Struct):
    time: str
    queues: list[QueueRow]
    pagination: Pagination


class Bucket(Struct):
    le: float | None
    """Seconds: its upper end; null for the last."""
    count: int


class LatencyShape(Struct):
    """How long something took, since the process began."""

    name: str
    count: int
    p50: float | None
    """Seconds; null where nothing was counted."""
    p99: float | None
    buckets: list[Bucket]
    """Those between the first and the last that hold anything."""


class LatencyList(Struct):
    histograms: list[LatencyShape]


async def show_journey(service: Service, request: Request) -> Response:
    """At most some seconds old."""
    moment, rates = await service.journey.moment(), await service.journey.rates()
    stages = [
        StageShape(
            name,
            rates.get(f"{name}.in"),
            rates.get(f"{name}.out"),
            stage.waiting,
            round(stage.oldest_seconds, 3),
            stage.at_risk,
        )
        for name, stage in moment.stages.items()
    ]
    look = moment.look
    classes = [
        ActionClassNow(each.action_class, each.queued, each.cold, each.leased, each.is_cold, each.is_served)
        for each in look.store.classes
    ]
    troubles = [TroubleShape(each.severity, each.text, each.link) for each in troubles_of(look)]
    return answered(
        Journey(
            iso(look.at_us),
            service.store_name.partition(",")[0],
            look.is_store_there,
            stages,
            troubles,
            classes,
            look.store.exporting,
        )
    )


async def show_history(service: Service, request: Request) -> Response:
    """The last hour of this server, a sample every ten seconds. It begins anew with the process."""
    times, series = service.journey.history()
    return answered(JourneyHistory([iso(time_us) for time_us in times], series))


async def show_queue_history(service: Service, request: Request) -> Response:
    """The last hour of a queue. Empty for one that is not followed: 500 are, those with the most waiting first."""
    times, waiting, rate = service.journey.history_of(request.path[0])
    return answered(QueueHistory([iso(time_us) for time_us in times], waiting, rate))


async def list_queues_now(service: Service, request: Request) -> Response:
    """From figures that are counted now and then for all requests: some seconds old, and cheap with many queues."""
    query, caller = request.query, request.caller
    limit, offset, order = LIMIT.read(query), OFFSET.read(query), SORT.read(query)
    search, namespace, is_internal_too = SEARCH.read(query), NAMESPACE.read(query), INTERNAL.read(query)
    found = await queue_figures(service)
    rows = [
        _row(queue)
        for queue in found.queues
        if caller.allows(queue.name)
        and search in queue.name
        and namespace in (None, queue.namespace)
        and (is_internal_too or not is_internal(queue.name))
    ]
    field = attrgetter(SORTS[order.removeprefix("-")])
    rows.sort(key=lambda row: (field(row) is not None, field(row), row.name), reverse=order.startswith("-"))
    page = rows[offset : offset + limit]
    return answered(QueueRows(iso(found.at_us), page, Pagination(limit, offset, len(rows))))


def _row(queue: QueueNow) -> QueueRow:
    return QueueRow(
        queue.name,
        queue.namespace,
        queue.task,
        iso_or_none(queue.created_us),
        queue.partitions,
        len(queue.groups),
        queue.depth,
        max([group.leased for group in queue.groups], default=0),
        round(max([group.lag_seconds for group in queue.groups], default=0.0), 3),
        queue.dead_letters,
        queue.lost,
        queue.messages,
        queue.accepted,
        queue.size_bytes,
    )


async def show_latency(service: Service, request: Request) -> Response:
    """Of this server: pushes, pops, time in the queue, commits, the log, actions, exports."""
    return answered(LatencyList([_latency(name, found) for name, found in latencies(service).items()]))


def _latency(name: str, found: Distribution) -> LatencyShape:
    filled = [number for number, count in enumerate(found.counts) if count]
    shown = range(filled[0], filled[-1] + 1) if filled else range(0)
    ends: list[float | None] = [*found.bounds, None]
    buckets = [Bucket(ends[number], found.counts[number]) for number in shown]
    return LatencyShape(name, found.count, found.quantile(0.5), found.quantile(0.99), buckets)


_JOURNEY = "/api/v1/journey"

ROUTES = (
    Route(
        "GET",
        _JOURNEY,
        show_journey,
        "All stages now: rates, depth, age, what is at risk, and what is wrong.",
        Scope.READ,
        answers={200: Journey},
        problems=(503,),
        needs=Needs.RECOVERY,
    ),
    Route(
        "GET",
        f"{_JOURNEY}/history",
        show_history,
        "All stages over the last hour.",
        Scope.READ,
        answers={200: JourneyHistory},
        problems=(503,),
        needs=Needs.RECOVERY,
    ),
    Route(
        "GET",
        f"{_JOURNEY}/queues",
        list_queues_now,
        "Queues in numbers, some seconds old.",
        Scope.READ,
        answers={200: QueueRows},
        query=(SEARCH, NAMESPACE, INTERNAL, SORT, LIMIT, OFFSET),
        problems=(503,),
        queues=Queues.SHOWN,
    ),
    Route(
        "GET",
        f"{_JOURNEY}/latency",
        show_latency,
        "How long things take on this server.",
        Scope.READ,
        answers={200: LatencyList},
        problems=(503,),
        needs=Needs.RECOVERY,
    ),
    Route(
        "GET",
        f"{_JOURNEY}/queues/{{queue}}",
        show_queue_history,
        "A queue over the last hour.",
        Scope.READ,
        answers={200: QueueHistory},
        problems=(503,),
        needs=Needs.RECOVERY,
        queues=Queues.NAMED,
    ),
)
