"""Dead letters: look at them, send them round again, or throw them away."""

from __future__ import annotations

from msgspec import Raw, Struct

from forebay.api.bodies import DeadLetterBody, ReplayBody
from forebay.api.exchange import Request, Response
from forebay.api.large_bodies import read_body
from forebay.api.parameters import LIMIT, OFFSET, Moment, Name, Switch, time_us
from forebay.api.problems import unavailable, wrong
from forebay.api.response_sizes import room_for_page
from forebay.api.responses import Pagination, answered, data_of, iso, message_id
from forebay.api.routes.groups import PARTITION
from forebay.api.routes.status import QUEUE
from forebay.api.routing import Queues, Route, Scope
from forebay.api.service import Service
from forebay.broker.overview import DeadLetterFilter, DeadMessage

GROUP = Name("consumerGroup", None, "Only of this group.")
TRANSACTION = Name("transactionId", None, "Only this message.")
FROM = Moment("from", None, "Only those that failed at this time or later.")
TO = Moment("to", None, "Only those that failed at this time or earlier.")
ALL = Switch("all", False, "Needed to purge without any other choice.")

FILTERS = (QUEUE, GROUP, PARTITION, TRANSACTION, FROM, TO)


class DeadLetterInfo(Struct, rename="camel"):
    id: str
    transaction_id: str
    partition_id: str
    queue: str
    partition: str
    consumer_group: str
    error_message: str
    retry_count: int
    data: Raw
    created_at: str
    failed_at: str
    seq: int
    letter_id: int
    encoding: str = "json"


class DeadLetterList(Struct):
    messages: list[DeadLetterInfo]
    total: int
    pagination: Pagination


class Replayed(Struct):
    success: bool
    replayed: int


class Purged(Struct):
    success: bool
    purged: int


def _info(letter: DeadMessage) -> DeadLetterInfo:
    message = letter.message
    return DeadLetterInfo(
        message_id(message.queue, message.seq),
        message.transaction_id,
        message.partition_id,
        message.queue,
        message.partition,
        letter.group,
        letter.reason,
        # Attempts are counted, the first one is no retry.
        max(message.attempts - 1, 0),
        data_of(message.payload, message.is_binary),
        iso(message.created_us),
        iso(letter.failed_us),
        message.seq,
        letter.letter_id,
        "base64" if message.is_binary else "json",
    )


def _by_query(request: Request) -> DeadLetterFilter:
    query = request.query
    wanted = DeadLetterFilter(
        queue=QUEUE.read(query),
        group=GROUP.read(query),
        partition=PARTITION.read(query),
        from_us=FROM.read(query),
        to_us=TO.read(query),
        transaction_id=TRANSACTION.read(query),
    )
    _check_queue(request, wanted.queue)
    return wanted


def _check_queue(request: Request, queue: str | None) -> None:
    """A key for some queues has to name one of them."""
    if queue is None:
        request.caller.check_unrestricted("name the queue whose dead letters are meant")
    else:
        request.caller.check_queue(queue, "queue")


def _by_body(request: Request, body: DeadLetterBody) -> DeadLetterFilter:
    _check_queue(request, body.queue)
    request.subject = body.queue or "all queues"
    wanted = DeadLetterFilter(
        queue=body.queue,
        group=body.consumer_group,
        partition=body.partition,
        from_us=None if body.from_ is None else time_us(body.from_, "from"),
        to_us=None if body.to is None else time_us(body.to, "to"),
        transaction_id=body.transaction_id,
    )
    return _deliberate(wanted, is_all=body.all)


def _deliberate(wanted: DeadLetterFilter, *, is_all: bool) -> DeadLetterFilter:
    """A forgotten filter must not mean everything."""
    if wanted == DeadLetterFilter() and not is_all:
        raise wrong("queue", "say which dead letters, or that all are meant with all=true")
    return wanted


async def list_dead_letters(service: Service, request: Request) -> Response:
    limit, offset = LIMIT.read(request.query), OFFSET.read(request.query)
    wanted = _by_query(request)
    async with room_for_page(service.memory) as bytes_max:
        found, total = await service.store.dead_letters(wanted, limit, offset, bytes_max=bytes_max)
    return answered(DeadLetterList([_info(letter) for letter in found], total, Pagination(limit, offset, total)))


async def replay(service: Service, request: Request) -> Response:
    """Push them again as new messages at the end of their partitions, each for the group in which it died."""
    body = await read_body(ReplayBody, request)
    wanted = _by_body(request, body)
    if body.to_all_groups:
        # For groups that never had them they are new messages.
        request.caller.check_scope(Scope.WRITE)
    if service.is_push_paused:
        raise unavailable("push maintenance is on", "maintenance")
    replayed = await service.store.replay_dead_letters(wanted, to_all_groups=body.to_all_groups)
    return answered(Replayed(True, replayed))


async def purge(service: Service, request: Request) -> Response:
    wanted = _by_body(request, await read_body(DeadLetterBody, request))
    return answered(Purged(True, await service.store.purge_dead_letters(wanted)))


async def delete_dead_letters(service: Service, request: Request) -> Response:
    wanted = _deliberate(_by_query(request), is_all=ALL.read(request.query))
    request.subject = wanted.queue or "all queues"
    return answered(Purged(True, await service.store.purge_dead_letters(wanted)))


ROUTES = (
    Route(
        "GET",
        "/api/v1/dlq",
        list_dead_letters,
        "List dead letters, the newest first. A page ends early with the letter that brings its payloads to 64 MiB.",
        Scope.READ,
        answers={200: DeadLetterList},
        query=(*FILTERS, LIMIT, OFFSET),
        problems=(503,),
        queues=Queues.NAMED,
    ),
    Route(
        "DELETE",
        "/api/v1/dlq",
        delete_dead_letters,
        "Throw dead letters away.",
        Scope.ADMIN,
        answers={200: Purged},
        query=(*FILTERS, ALL),
        problems=(503,),
        queues=Queues.NAMED,
    ),
    Route(
        "POST",
        "/api/v1/dlq/replay",
        replay,
        "Push dead letters again as new messages, each for the group in which it died, or with `toAllGroups` for every "
        "group. Piece by piece: if one is refused, those before it stay pushed.",
        Scope.CONSUME,
        answers={200: Replayed},
        body=ReplayBody,
        problems=(413, 415, 429, 503, 507),
        queues=Queues.NAMED,
    ),
    Route(
        "POST",
        "/api/v1/dlq/purge",
        purge,
        "Throw dead letters away.",
        Scope.ADMIN,
        answers={200: Purged},
        body=DeadLetterBody,
        problems=(413, 415, 503),
        queues=Queues.NAMED,
    ),
)
