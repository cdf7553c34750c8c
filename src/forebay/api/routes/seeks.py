"""Moving a group: to the end, to a time, to a seq; and what that would skip and repeat, before it is done."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from forebay.api.bodies import SeekBody, SubscriptionBody
from forebay.api.exchange import Request, Response
from forebay.api.large_bodies import read_body
from forebay.api.parameters import Moment, Switch, Whole, time_us
from forebay.api.problems import not_found, wrong
from forebay.api.responses import answered
from forebay.api.routes.groups import GROUPS, ON_QUEUE
from forebay.api.routing import Queues, Route, Scope
from forebay.api.service import Service
from forebay.broker.overview import SeekTarget

ONE_TARGET = "give exactly one of toEnd, timestamp and seq"
TO_END = Switch("toEnd", False, "To the end. Give exactly one of toEnd, timestamp and seq.")
TIMESTAMP = Moment("timestamp", None, "To the first message of that time.")
SEQ = Whole("seq", 0, "To the first message with that seq or a higher one.", lowest=0, highest=1 << 53)


class Sought(Struct, rename="camel"):
    success: bool
    consumer_group: str
    partitions: int


class SeekPreviewed(Struct, rename="camel"):
    """What a seek would do at this moment, in messages; nothing was changed."""

    queue: str
    consumer_group: str
    partition: str | None
    """Null: on all partitions."""
    from_seq: int
    """What the target stands for now. A seek to this seq does what is said here, whatever is pushed meanwhile."""
    partitions: int
    is_new: bool
    """There is no such group: the seek would make it. Until then all messages count as waiting for it."""
    waiting: int
    """Not finished by the group, leased ones included."""
    waiting_after: int
    skipped: int
    """Those that wait and would not be delivered any more."""
    repeated: int
    """Those that the group has passed and would get: again, if it had them."""
    leased: int
    """Those that a consumer holds now. Its answers would be refused."""


async def set_subscription(service: Service, request: Request) -> Response:
    """Read again, or skip, from a time on; on every queue that the group knows."""
    (name,) = request.path
    body = await read_body(SubscriptionBody, request)
    target = SeekTarget(time_us=time_us(body.subscription_timestamp, "subscriptionTimestamp"))
    queues = sorted({lag.queue for lag in await service.store.groups() if lag.group == name})
    if not queues:
        raise not_found(f"no group {name!r}")
    request.caller.check_queues(queues)
    request.subject = f"{name} to {body.subscription_timestamp}"
    return await _sought(service, name, [(queue, None) for queue in queues], target)


async def seek(service: Service, request: Request) -> Response:
    name, queue = request.path
    body = await read_body(SeekBody, request, is_optional=True)
    target = _target(body)
    _describe(request, body, target)
    return await _sought(service, name, [(queue, None)], target)


async def seek_partition(service: Service, request: Request) -> Response:
    name, queue, partition = request.path
    body = await read_body(SeekBody, request, is_optional=True)
    # Queen knows only the end here, and sends nothing to say so.
    target = SeekTarget(to_end=True) if body == SeekBody() else _target(body)
    _describe(request, body, target)
    return await _sought(service, name, [(queue, partition)], target)


def _describe(request: Request, body: SeekBody, target: SeekTarget) -> None:
    """For the audit log: where to. A reader that follows moves on and on; its group is enough."""
    request.subject, request.is_routine = "/".join(request.path), body.follow
    if not body.follow:
        wanted = body.timestamp or (f"seq {target.seq}" if target.seq is not None else "the end")
        request.subject += f" to {wanted}"


async def preview_seek(service: Service, request: Request) -> Response:
    name, queue = request.path
    return await _previewed(service, name, queue, None, request.query)


async def preview_partition_seek(service: Service, request: Request) -> Response:
    name, queue, partition = request.path
    return await _previewed(service, name, queue, partition, request.query)


async def _previewed(
    service: Service, group: str, queue: str, partition: str | None, query: Mapping[str, str]
) -> Response:
    found = await service.store.preview_seek(group, queue, partition, _preview_target(query))
    return answered(
        SeekPreviewed(
            queue,
            group,
            partition,
            found.from_seq,
            found.partitions,
            found.is_new,
            found.waiting,
            found.waiting_after,
            found.skipped,
            found.repeated,
            found.leased,
        )
    )


def _preview_target(query: Mapping[str, str]) -> SeekTarget:
    seq = SEQ.read(query) if "seq" in query else None
    target = SeekTarget(seq, TIMESTAMP.read(query), TO_END.read(query))
    if [target.seq is not None, target.time_us is not None, target.to_end].count(True) != 1:
        raise wrong("toEnd", ONE_TARGET)
    return target


def _target(body: SeekBody) -> SeekTarget:
    given = [bool(body.to_end), body.timestamp is not None, body.seq is not None]
    if sum(given) != 1:
        raise wrong("toEnd", ONE_TARGET)
    if body.timestamp is not None:
        return SeekTarget(time_us=time_us(body.timestamp, "timestamp"))
    return SeekTarget(seq=body.seq) if body.seq is not None else SeekTarget(to_end=True)


async def _sought(service: Service, group: str, places: list[tuple[str, str | None]], target: SeekTarget) -> Response:
    moved = 0
    for queue, partition in places:
        moved += await service.store.seek(group, queue, partition, target)
        service.waiting.announce(queue, 1)
    return answered(Sought(True, group, moved))


_ON_PARTITION = f"{ON_QUEUE}/partitions/{{partition}}"

ROUTES = (
    Route(
        "POST",
        f"{GROUPS}/{{group}}/subscription",
        set_subscription,
        "Let a group go on from a time.",
        Scope.OPERATE,
        answers={200: Sought},
        body=SubscriptionBody,
        problems=(404, 413, 415, 503),
        queues=Queues.NAMED,
    ),
    Route(
        "POST",
        f"{ON_QUEUE}/seek",
        seek,
        "Move a group on a queue: to the end, to a time, or to a seq.",
        Scope.OPERATE,
        answers={200: Sought},
        body=SeekBody,
        problems=(404, 413, 415, 503),
        queues=Queues.NAMED,
    ),
    *(
        Route(
            "GET",
            f"{place}/seek",
            handler,
            f"What a seek {reach} would skip and repeat. Nothing changes.",
            Scope.READ,
            answers={200: SeekPreviewed},
            query=(TO_END, TIMESTAMP, SEQ),
            problems=(404, 503),
            or_scope=Scope.OPERATE,
            queues=Queues.NAMED,
        )
        for place, reach, handler in (
            (ON_QUEUE, "on a queue", preview_seek),
            (_ON_PARTITION, "on one partition", preview_partition_seek),
        )
    ),
    Route(
        "POST",
        f"{_ON_PARTITION}/seek",
        seek_partition,
        "Move a group on one partition; without a body, to the end.",
        Scope.OPERATE,
        answers={200: Sought},
        body=SeekBody,
        is_body_optional=True,
        problems=(404, 413, 415, 503),
        queues=Queues.NAMED,
    ),
)
