"""Consumer groups: how far each has come, and moving it."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from forebay.api.answers import answered, iso, iso_or_none
from forebay.api.bodies import SeekBody, SubscriptionBody
from forebay.api.exchange import Answer, Request
from forebay.api.large_bodies import read_body
from forebay.api.parameters import Name, Switch, Whole, time_us
from forebay.api.problems import not_found, wrong
from forebay.api.routing import Route, Scope
from forebay.api.service import Service
from forebay.broker.messages import PopRequest
from forebay.broker.overview import GroupLag, SeekTarget

LAGGING_SECONDS = 60
"""A group that is this far behind is Lagging."""
DEAD_SECONDS = 600
"""One that is behind, and has not asked for anything for this long, is Dead."""

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


class Sought(Struct, rename="camel"):
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


async def _infos(service: Service) -> list[GroupInfo]:
    now_us = service.clock.now_us()
    return [info_of_group(lag, now_us) for lag in await service.store.groups()]


async def list_groups(service: Service, request: Request) -> Answer:
    return answered(await _infos(service))


async def list_lagging(service: Service, request: Request) -> Answer:
    least = MIN_LAG.read(request.query)
    return answered([info for info in await _infos(service) if info.total_lag and info.max_time_lag >= least])


async def show_group(service: Service, request: Request) -> Answer:
    (name,) = request.path
    own = [info for info in await _infos(service) if info.name == name]
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


async def show_waiting(service: Service, request: Request) -> Answer:
    """For a consumer that got nothing and wants to know why."""
    name, queue = request.path
    if await service.store.queue(queue) is None:
        raise not_found(f"no queue {queue!r}")
    asked = PopRequest(queue=queue, partition=PARTITION.read(request.query), group=name)
    seconds = await service.store.seconds_until_due(asked)
    lags = await service.store.groups()
    own = next((lag for lag in lags if (lag.queue, lag.group) == (queue, name)), None)
    due_at = None if seconds is None else iso(service.clock.now_us() + int(seconds * 1_000_000))
    waiting, leased = (own.lag_messages, own.leased) if own else (0, 0)
    return answered(GroupWaiting(queue, name, waiting, leased, seconds, due_at))


async def delete_group(service: Service, request: Request) -> Answer:
    METADATA.read(request.query)
    (name,) = request.path
    return answered(GroupDeleted(True, name, await service.store.delete_group(name, None)))


async def delete_group_on_queue(service: Service, request: Request) -> Answer:
    METADATA.read(request.query)
    name, queue = request.path
    return answered(GroupDeleted(True, name, await service.store.delete_group(name, queue)))


async def set_subscription(service: Service, request: Request) -> Answer:
    """Read again, or skip, from a time on; on every queue that the group knows."""
    (name,) = request.path
    body = await read_body(SubscriptionBody, request)
    target = SeekTarget(time_us=time_us(body.subscription_timestamp, "subscriptionTimestamp"))
    queues = sorted({lag.queue for lag in await service.store.groups() if lag.group == name})
    if not queues:
        raise not_found(f"no group {name!r}")
    return await _sought(service, name, [(queue, None) for queue in queues], target)


async def seek(service: Service, request: Request) -> Answer:
    name, queue = request.path
    return await _sought(service, name, [(queue, None)], _target(await read_body(SeekBody, request, is_optional=True)))


async def seek_partition(service: Service, request: Request) -> Answer:
    name, queue, partition = request.path
    body = await read_body(SeekBody, request, is_optional=True)
    # Queen knows only the end here, and sends nothing to say so.
    target = SeekTarget(to_end=True) if body == SeekBody() else _target(body)
    return await _sought(service, name, [(queue, partition)], target)


def _target(body: SeekBody) -> SeekTarget:
    given = [bool(body.to_end), body.timestamp is not None, body.seq is not None]
    if sum(given) != 1:
        raise wrong("toEnd", "give exactly one of toEnd, timestamp and seq")
    if body.timestamp is not None:
        return SeekTarget(time_us=time_us(body.timestamp, "timestamp"))
    return SeekTarget(seq=body.seq) if body.seq is not None else SeekTarget(to_end=True)


async def _sought(service: Service, group: str, places: list[tuple[str, str | None]], target: SeekTarget) -> Answer:
    moved = 0
    for queue, partition in places:
        moved += await service.store.seek(group, queue, partition, target)
        service.waiting.announce(queue, 1)
    return answered(Sought(True, group, moved))


_GROUPS = "/api/v1/consumer-groups"
_ON_QUEUE = f"{_GROUPS}/{{group}}/queues/{{queue}}"

ROUTES = (
    Route("GET", _GROUPS, list_groups, "List groups.", Scope.READ, answers={200: list[GroupInfo]}, problems=(503,)),
    Route(
        "GET",
        f"{_GROUPS}/lagging",
        list_lagging,
        "List groups that are behind.",
        Scope.READ,
        answers={200: list[GroupInfo]},
        query=(MIN_LAG,),
        problems=(503,),
    ),
    Route(
        "GET",
        f"{_GROUPS}/{{group}}",
        show_group,
        "Show a group on all its queues.",
        Scope.READ,
        answers={200: GroupDetail},
        problems=(404, 503),
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
    ),
    Route(
        "DELETE",
        f"{_GROUPS}/{{group}}",
        delete_group,
        "Forget a group.",
        Scope.ADMIN,
        answers={200: GroupDeleted},
        query=(METADATA,),
        problems=(503,),
    ),
    Route(
        "DELETE",
        _ON_QUEUE,
        delete_group_on_queue,
        "Forget a group on one queue.",
        Scope.ADMIN,
        answers={200: GroupDeleted},
        query=(METADATA,),
        problems=(404, 503),
    ),
    Route(
        "POST",
        f"{_GROUPS}/{{group}}/subscription",
        set_subscription,
        "Let a group go on from a time.",
        Scope.WRITE,
        answers={200: Sought},
        body=SubscriptionBody,
        problems=(404, 413, 415, 503),
    ),
    Route(
        "POST",
        f"{_ON_QUEUE}/seek",
        seek,
        "Move a group on a queue: to the end, to a time, or to a seq.",
        Scope.WRITE,
        answers={200: Sought},
        body=SeekBody,
        problems=(404, 413, 415, 503),
    ),
    Route(
        "POST",
        f"{_ON_QUEUE}/partitions/{{partition}}/seek",
        seek_partition,
        "Move a group on one partition; without a body, to the end.",
        Scope.WRITE,
        answers={200: Sought},
        body=SeekBody,
        is_body_optional=True,
        problems=(404, 413, 415, 503),
    ),
)
