"""Messages as they are kept: browsing without popping; deleting one, burying one, sending a dead one round again."""

from __future__ import annotations

from itertools import count

from msgspec import Struct

from forebay.api.bodies import BuryBody
from forebay.api.exchange import Request, Response
from forebay.api.large_bodies import read_body
from forebay.api.parameters import LIMIT, Name, Whole
from forebay.api.problems import Problem, not_found, unavailable, wrong
from forebay.api.reach import check_partitions
from forebay.api.response_sizes import room_for_page
from forebay.api.responses import BrowsedMessage, answered, browsed
from forebay.api.routes.resources import PARTITION
from forebay.api.routing import Queues, Route, Scope
from forebay.api.service import Service
from forebay.broker.overview import DeadLetterFilter
from forebay.model.queue import ERROR_CHARACTERS_MAX

QUEUE = Name("queue", None, "The queue to look into.")
TRANSACTION = Name("transactionId", None, "Only the messages with this id, one in a partition at most.")
FROM_SEQ = Whole("fromSeq", 1, "Messages with this seq or a higher one.")


PARTITIONS_SEARCHED_MAX = 1_000
"""For one transactionId, where no partition is named."""


class MessageList(Struct, rename="camel"):
    messages: list[BrowsedMessage]
    next_seq: int | None
    """Where to go on; null at the end."""


async def list_messages(service: Service, request: Request) -> Response:
    queue = QUEUE.read(request.query)
    if queue is None:
        raise wrong(QUEUE.name, "is missing")
    request.caller.check_queue(queue, QUEUE.name)
    wanted = TRANSACTION.read(request.query)
    if wanted is not None:
        return await _with_id(service, queue, PARTITION.read(request.query), wanted)
    return await browse(service, request, queue)


async def _with_id(service: Service, queue: str, partition: str | None, transaction_id: str) -> Response:
    """Each partition is read by itself, so that no other request waits for all of them."""
    found = []
    for partition_id in await _partition_ids(service, queue, partition):
        message = await service.store.message(partition_id, transaction_id)
        if message is not None:
            found.append(browsed(message))
    return answered(MessageList(found, None))


async def _partition_ids(service: Service, queue: str, partition: str | None) -> list[str]:
    found: list[str] = []
    for offset in count(0, PARTITIONS_SEARCHED_MAX):
        page = await service.store.partitions(queue, PARTITIONS_SEARCHED_MAX, offset)
        found += [each.partition_id for each in page if partition in (None, each.name)]
        if partition is None and len(found) > PARTITIONS_SEARCHED_MAX:
            raise wrong(PARTITION.name, f"is needed: the queue has more than {PARTITIONS_SEARCHED_MAX} partitions")
        if len(page) < PARTITIONS_SEARCHED_MAX or (partition is not None and found):
            break
    return found


async def browse(service: Service, request: Request, queue: str) -> Response:
    limit, from_seq = LIMIT.read(request.query), FROM_SEQ.read(request.query)
    partition = PARTITION.read(request.query)
    async with room_for_page(service.memory) as bytes_max:
        found = await service.store.read(queue, from_seq, limit, partition, bytes_max=bytes_max)
    # A page that ended early for its size has more behind it. Payloads that were sealed are smaller here than they were
    # where they were counted, so half of the limit is enough to suspect it.
    may_go_on = len(found) == limit or sum(len(message.payload) for message in found) >= bytes_max // 2
    following = found[-1].seq + 1 if may_go_on and found else None
    return answered(MessageList([browsed(message) for message in found], following))


async def show_message(service: Service, request: Request) -> Response:
    partition_id, transaction_id = request.path
    await check_partitions(service, request, [partition_id])
    message = await service.store.message(partition_id, transaction_id)
    if message is None:
        raise not_found(f"no message {transaction_id!r} in partition {partition_id!r}")
    return answered(browsed(message))


class MessageDeleted(Struct, rename="camel"):
    success: bool
    partition_id: str
    transaction_id: str
    message: str


async def delete_message(service: Service, request: Request) -> Response:
    """No consumer gets it any more. One that is not there is no error, as Queen's clients expect."""
    partition_id, transaction_id = request.path
    await check_partitions(service, request, [partition_id])
    was_there = await service.store.delete_message(partition_id, transaction_id)
    said = "Message deleted" if was_there else "Message not found"
    return answered(MessageDeleted(was_there, partition_id, transaction_id, said))


class MessageRetried(Struct, rename="camel"):
    success: bool
    partition_id: str
    transaction_id: str
    replayed: int


async def retry_message(service: Service, request: Request) -> Response:
    """Replay its dead letters, each for the group in which it died."""
    partition_id, transaction_id = request.path
    if service.is_push_paused:
        raise unavailable("push maintenance is on", "maintenance")
    await check_partitions(service, request, [partition_id])
    letters, _ = await service.store.dead_letters(DeadLetterFilter(transaction_id=transaction_id), 10_000, 0)
    own = next((letter.message for letter in letters if letter.message.partition_id == partition_id), None)
    if own is None:
        raise not_found(f"no dead letter of message {transaction_id!r} in partition {partition_id!r}")
    wanted = DeadLetterFilter(queue=own.queue, partition=own.partition, transaction_id=transaction_id)
    replayed = await service.store.replay_dead_letters(wanted)
    return answered(MessageRetried(True, partition_id, transaction_id, replayed))


class MessageBuried(Struct, rename="camel"):
    success: bool
    partition_id: str
    transaction_id: str
    dead_letters: int


async def bury_message(service: Service, request: Request) -> Response:
    """Each group that has not finished it gets a dead letter, and the message is gone from its queue."""
    partition_id, transaction_id = request.path
    reason = (await read_body(BuryBody, request, is_optional=True)).error or "moved by request"
    await check_partitions(service, request, [partition_id])
    message = await service.store.message(partition_id, transaction_id)
    queue = await service.store.queue(message.queue) if message else None
    if queue is not None and not queue.options.dead_letter_queue:
        raise Problem(409, f"queue {queue.name!r} keeps no dead letters (deadLetterQueue is false)", code="no_letters")
    letters = await service.store.bury_message(partition_id, transaction_id, reason[:ERROR_CHARACTERS_MAX])
    if letters is None:
        raise not_found(f"no message {transaction_id!r} in partition {partition_id!r}")
    if not letters:
        raise Problem(409, "every group has finished the message", code="finished")
    return answered(MessageBuried(True, partition_id, transaction_id, letters))


ROUTES = (
    Route(
        "GET",
        "/api/v1/messages",
        list_messages,
        "Read messages of a queue in order, without popping them. `nextSeq` says where to go on.",
        Scope.READ,
        answers={200: MessageList},
        query=(QUEUE, PARTITION, TRANSACTION, FROM_SEQ, LIMIT),
        problems=(404, 410, 503),
        queues=Queues.NAMED,
    ),
    Route(
        "GET",
        "/api/v1/messages/{partitionId}/{transactionId}",
        show_message,
        "Show one message.",
        Scope.READ,
        answers={200: BrowsedMessage},
        problems=(404, 503),
        queues=Queues.NAMED,
    ),
    Route(
        "DELETE",
        "/api/v1/messages/{partitionId}/{transactionId}",
        delete_message,
        "Delete one message, for every group and for the consumer that holds it. Its id may be used again.",
        Scope.OPERATE,
        answers={200: MessageDeleted},
        problems=(503,),
        queues=Queues.NAMED,
    ),
    Route(
        "POST",
        "/api/v1/messages/{partitionId}/{transactionId}/retry",
        retry_message,
        "Push a message again that is a dead letter.",
        Scope.CONSUME,
        answers={200: MessageRetried},
        problems=(404, 429, 503, 507),
        queues=Queues.NAMED,
    ),
    Route(
        "POST",
        "/api/v1/messages/{partitionId}/{transactionId}/dlq",
        bury_message,
        "Move a message to the dead letters.",
        Scope.OPERATE,
        answers={200: MessageBuried},
        body=BuryBody,
        is_body_optional=True,
        problems=(404, 409, 413, 415, 503, 507),
        queues=Queues.NAMED,
    ),
)
