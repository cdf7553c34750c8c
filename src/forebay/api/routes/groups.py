"""Consumer groups: how far each has come, and forgetting it. Moving it: `seeks`."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from forebay.api.exchange import Request, Response
from forebay.api.figures import INTERNAL
from forebay.api.parameters import Name, Switch, Whole
from forebay.api.problems import not_found
from forebay.api.responses import answered, iso, iso_or_none
from forebay.api.routing import Queues, Route, Scope
from forebay.api.service import Service
from forebay.broker.messages import PopRequest
from forebay.broker.overview import GroupLag
from forebay.model.internal_queues import is_internal

LAGGING_SECONDS = 60
"""A group that is this far behind is Lagging."""
DEAD_SECONDS = 600
"""One that is behind, and has not requested anything for this long, is Dead."""

MIN_LAG = Whole("minLagSeconds", 3600, "Only groups that are at least this far behind.", highest=1 << 40)
PARTITION = Name("partition", None, "Only of this partition.")
METADATA = Switch("deleteMetadata", True, "Forget also where the group started. It is always forgotten.")


class GroupInfo(Struct, rename="camel"):
    name: str
    topics: list[str]
    queue_name: str
    members: int
    partitions: int
    partitions_with_lag: int
    total_lag: int
    max_time_lag: float
    leased: int
    state: str
    subscription_mode: str
    subscription_timestamp: str | None
    created_at: str | None
    last_active_at: str | None


class GroupDetail(Struct, rename="camel"):
    name: str
    state: str
    total_lag: int
    max_time_lag: float
    queues: list[GroupInfo]


class GroupDeleted(Struct, rename="camel"):
    success: bool
    consumer_group: str
    partitions: int


class GroupWaiting(Struct, rename="camel"):
    """What waits for a group in a queue, or in one partition, and when a pop may find some of it."""

    queue_name: str
    consumer_group: str
    waiting: int
    """In the queue as a whole, leased ones included."""
    leased: int
    due_in_seconds: float | None
    """Null: at once if anything waits, else when it is pushed."""
    due_at: str | None


def state_of(lag: GroupLag, now_us: int) -> str:
    if lag.lag_messages and now_us - lag.last_active_us > DEAD_SECONDS * 1_000_000:
        return "Dead"
    return "Lagging" if lag.lag_messages and lag.lag_seconds >= LAGGING_SECONDS else "Stable"


def info_of_group(lag: GroupLag, now_us: int) -> GroupInfo:
    return GroupInfo(
        lag.group,
        [lag.queue],
        lag.queue,
        int(lag.leased > 0),
        lag.partitions,
        lag.partitions_with_lag,
        lag.lag_messages,
        round(lag.lag_seconds, 3) if lag.lag_messages else 0.0,
        lag.leased,
        state_of(lag, now_us),
        lag.subscription_mode,
        iso_or_none(lag.subscription_from_us),
        iso_or_none(lag.created_us),
        iso_or_none(lag.last_active_us),
    )


async def _infos(service: Service, request: Request, *, is_internal_too: bool = True) -> list[GroupInfo]:
    """On the queues that the key may see."""
    now_us, caller = service.clock.now_us(), request.caller
    return [
        info_of_group(lag, now_us)
        for lag in await service.store.groups()
        if caller.allows(lag.queue) and (is_internal_too or not is_internal(lag.queue))
    ]


async def list_groups(service: Service, request: Request) -> Response:
    return answered(await _infos(service, request, is_internal_too=INTERNAL.read(request.query)))


async def list_lagging(service: Service, request: Request) -> Response:
    least = MIN_LAG.read(request.query)
    infos = await _infos(service, request, is_internal_too=INTERNAL.read(request.query))
    return answered([info for info in infos if info.total_lag and info.max_time_lag >= least])


async def show_group(service: Service, request: Request) -> Response:
    (name,) = request.path
    own = [info for info in await _infos(service, request) if info.name == name]
    if not own:
        raise not_found(f"no group {name!r}")
    return answered(
        GroupDetail(
            name,
            _worst(info.state for info in own),
            sum(info.total_lag for info in own),
            max(info.max_time_lag for info in own),
            own,
        )
    )


def _worst(states: Iterable[str]) -> str:
    return max(states, key=("Stable", "Lagging", "Dead").index)


async def show_waiting(service: Service, request: Request) -> Response:
    """For a consumer that got nothing and wants to know why."""
    name, queue = request.path
    if await service.store.queue(queue) is None:
        raise not_found(f"no queue {queue!r}")
    wanted = PopRequest(queue=queue, partition=PARTITION.read(request.query), group=name)
    seconds = await service.store.seconds_until_due(wanted)
    lags = await service.store.groups()
    own = next((lag for lag in lags if (lag.queue, lag.group) == (queue, name)), None)
    due_at = None if seconds is None else iso(service.clock.now_us() + int(seconds * 1_000_000))
    waiting, leased = (own.lag_messages, own.leased) if own else (0, 0)
    return answered(GroupWaiting(queue, name, waiting, leased, seconds, due_at))


async def delete_group(service: Service, request: Request) -> Response:
    METADATA.read(request.query)
    (name,) = request.path
    return answered(GroupDeleted(True, name, await service.store.delete_group(name, None)))


async def delete_group_on_queue(service: Service, request: Request) -> Response:
    METADATA.read(request.query)
    name, queue = request.path
    return answered(GroupDeleted(True, name, await service.store.delete_group(name, queue)))


GROUPS = "/api/v1/consumer-groups"
ON_QUEUE = f"{GROUPS}/{{group}}/queues/{{queue}}"

ROUTES = (
    Route(
        "GET",
        GROUPS,
        list_groups,
        "List groups.",
        Scope.READ,
        answers={200: list[GroupInfo]},
        query=(INTERNAL,),
        problems=(503,),
        queues=Queues.SHOWN,
    ),
    Route(
        "GET",
        f"{GROUPS}/lagging",
        list_lagging,
        "List groups that are behind.",
        Scope.READ,
        answers={200: list[GroupInfo]},
        query=(MIN_LAG, INTERNAL),
        problems=(503,),
        queues=Queues.SHOWN,
    ),
    Route(
        "GET",
        f"{GROUPS}/{{group}}",
        show_group,
        "Show a group on all its queues.",
        Scope.READ,
        answers={200: GroupDetail},
        problems=(404, 503),
        queues=Queues.NAMED,
    ),
    Route(
        "GET",
        "/api/v1/consumer-groups/{group}/queues/{queue}/waiting",
        show_waiting,
        "What waits for a group in a queue, and when a pop may find some of it.",
        Scope.READ,
        answers={200: GroupWaiting},
        query=(PARTITION,),
        problems=(404, 503),
        or_scope=Scope.CONSUME,
        queues=Queues.NAMED,
    ),
    Route(
        "DELETE",
        f"{GROUPS}/{{group}}",
        delete_group,
        "Forget a group.",
        Scope.ADMIN,
        answers={200: GroupDeleted},
        query=(METADATA,),
        problems=(503,),
    ),
    Route(
        "DELETE",
        ON_QUEUE,
        delete_group_on_queue,
        "Forget a group on one queue.",
        Scope.ADMIN,
        answers={200: GroupDeleted},
        query=(METADATA,),
        problems=(404, 503),
        queues=Queues.NAMED,
    ),
)
