"""Looking: queues, partitions and messages as they stand."""

from __future__ import annotations

from typing import Any, cast

from forebay.broker.messages import Message
from forebay.broker.overview import PartitionStatus, QueueStatus
from forebay.broker.stores.postgres.connections import Ask, Database
from forebay.broker.stores.postgres.names import partition_number, stored_options, wire_id
from forebay.broker.stores.postgres.queries import query
from forebay.errors import UnknownQueue
from forebay.model.queue import Queue

Found = list[tuple[Any, ...]]


def as_queue(name: str, namespace: str, task: str, options: object, created_us: int) -> Queue:
    return Queue(name, namespace, task, stored_options(options), created_us)


async def find_queue(database: Database, name: str) -> tuple[Queue, int] | None:
    """The queue and its number."""
    found = cast("Found", await database.ask(query("queue_find"), {"name": name}))
    return (as_queue(*found[0][:-1]), found[0][-1]) if found else None


async def queue_number(database: Database, name: str) -> int:
    found = await find_queue(database, name)
    if found is None:
        raise UnknownQueue(name)
    return found[1]


async def queues(ask: Ask, name: str | None) -> list[QueueStatus]:
    found = cast("Found", await ask(query("queues_list"), {"queue": name}))
    return [
        QueueStatus(
            queue=as_queue(*queue),
            partitions=partitions,
            first_seq=first_seq,
            next_seq=next_seq,
            messages=messages,
            pushed=next_seq - 1,
            size_bytes=size_bytes,
            dead_letters=dead_letters,
            oldest_us=oldest_us,
            newest_us=newest_us,
        )
        for *queue, partitions, first_seq, next_seq, messages, size_bytes, dead_letters, oldest_us, newest_us in found
    ]


async def partitions(database: Database, queue: str, limit: int, offset: int) -> list[PartitionStatus]:
    values: dict[str, object] = {
        "queue_id": await queue_number(database, queue),
        "limit": limit,
        "offset": offset,
    }
    return [
        PartitionStatus(name, wire_id(queue_id, partition_id), messages, last_seq, newest_us)
        for name, queue_id, partition_id, messages, last_seq, newest_us in cast(
            "Found", await database.ask(query("partitions_list"), values)
        )
    ]


async def read(
    database: Database, queue: str, from_seq: int, limit: int, partition: str | None, bytes_max: int
) -> list[Message]:
    queue_id = await queue_number(database, queue)
    values: dict[str, object] = {"queue_id": queue_id, "from_seq": from_seq, "limit": limit, "bytes_max": bytes_max}
    text = query("messages_read")
    if partition is not None:
        values["partition"] = partition
        text = query("messages_read_partition")
    found = cast("Found", await database.ask(text, values))
    return [_as_message(queue_id, queue, row) for row in found]


async def message(database: Database, partition_id: str, transaction_id: str) -> Message | None:
    number = partition_number(partition_id)
    if number is None:
        return None
    for is_minted in (False, True):
        values: dict[str, object] = {
            "partition_id": number,
            "transaction_id": transaction_id,
            "is_minted": is_minted,
        }
        if found := cast("Found", await database.ask(query("message_find"), values)):
            *row, queue_id, queue = found[0]
            return _as_message(queue_id, queue, row)
    return None


def _as_message(queue_id: int, queue: str, row: Any) -> Message:
    seq, partition, partition_id, transaction_id, trace_id, created_us, payload, headers, is_binary = row
    return Message(
        seq=seq,
        queue=queue,
        partition=partition,
        partition_id=wire_id(queue_id, partition_id),
        transaction_id=transaction_id,
        trace_id=trace_id,
        created_us=created_us,
        payload=payload,
        headers=headers,
        is_binary=is_binary,
    )
