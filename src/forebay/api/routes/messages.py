"""Messages as they are kept: browsing without popping, and deleting one."""

from __future__ import annotations

from msgspec import Struct

from forebay.api.answer_sizes import room_for_page
from forebay.api.answers import BrowsedMessage, answered, browsed
from forebay.api.exchange import Answer, Request
from forebay.api.parameters import LIMIT, Name, Whole
from forebay.api.problems import not_found, wrong
from forebay.api.routing import Route, Scope
from forebay.api.service import Service

QUEUE = Name("queue", None, "The queue to look into.")
PARTITION = Name("partition", None, "Only this partition.")
FROM_SEQ = Whole("fromSeq", 1, "Messages with this seq or a higher one.")


class MessageList(Struct, rename="camel"):
    messages: list[BrowsedMessage]
    next_seq: int | None
    """Where to go on; null at the end."""


async def list_messages(service: Service, request: Request) -> Answer:
    queue = QUEUE.read(request.query)
    if queue is None:
        raise wrong(QUEUE.name, "is missing")
    return await browse(service, request, queue)


async def browse(service: Service, request: Request, queue: str) -> Answer:
    limit, from_seq = LIMIT.read(request.query), FROM_SEQ.read(request.query)
    partition = PARTITION.read(request.query)
    async with room_for_page(service.memory) as bytes_max:
        found = await service.store.read(queue, from_seq, limit, partition, bytes_max=bytes_max)
    # A page that ended early for its size has more behind it. Payloads that were sealed are smaller here than they were
    # where they were counted, so half of the limit is enough to suspect it.
    may_go_on = len(found) == limit or sum(len(message.payload) for message in found) >= bytes_max // 2
    following = found[-1].seq + 1 if may_go_on and found else None
    return answered(MessageList([browsed(message) for message in found], following))


async def show_message(service: Service, request: Request) -> Answer:
    partition_id, transaction_id = request.path
    message = await service.store.message(partition_id, transaction_id)
    if message is None:
        raise not_found(f"no message {transaction_id!r} in partition {partition_id!r}")
    return answered(browsed(message))


class MessageDeleted(Struct, rename="camel"):
    success: bool
    partition_id: str
    transaction_id: str
    message: str


async def delete_message(service: Service, request: Request) -> Answer:
    """Nobody gets it any more. One that is not there is no error, as Queen's clients expect."""
    partition_id, transaction_id = request.path
    was_there = await service.store.delete_message(partition_id, transaction_id)
    said = "Message deleted" if was_there else "Message not found"
    return answered(MessageDeleted(was_there, partition_id, transaction_id, said))


ROUTES = (
    Route(
        "GET",
        "/api/v1/messages",
        list_messages,
        "Read messages of a queue in order, without popping them. `nextSeq` says where to go on.",
        Scope.READ,
        answers={200: MessageList},
        query=(QUEUE, PARTITION, FROM_SEQ, LIMIT),
        problems=(404, 410, 503),
    ),
    Route(
        "GET",
        "/api/v1/messages/{partitionId}/{transactionId}",
        show_message,
        "Show one message.",
        Scope.READ,
        answers={200: BrowsedMessage},
        problems=(404, 503),
    ),
    Route(
        "DELETE",
        "/api/v1/messages/{partitionId}/{transactionId}",
        delete_message,
        "Delete one message, for every group and for whoever holds it. Its id may be used again.",
        Scope.WRITE,
        answers={200: MessageDeleted},
        problems=(503,),
    ),
)
