"""Looking: queues, partitions, messages and traces as they stand."""

from __future__ import annotations

from typing import Any, cast

from forebay.broker.messages import Message
from forebay.broker.overview import PartitionStatus, QueueStatus, TraceEvent
from forebay.broker.stores.postgres.connections import Database
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


async def queues(database: Database) -> list[QueueStatus]:
    found = cast("Found", await database.ask(query("queues_list")))
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


async def add_trace(database: Database, event: TraceEvent) -> None:
    number = partition_number(event.partition_id)
    if number is None:
        return
    values: dict[str, object] = {
        "partition_id": number,
        "transaction_id": event.transaction_id,
        "group": event.group,
        "event_type": event.event_type,
        "names": list(event.names),
        "data": event.data,
        "created_us": event.created_us,
    }
    await database.ask(query("trace_add"), values)


async def traces(database: Database, partition_id: str, transaction_id: str) -> list[TraceEvent]:
    number = partition_number(partition_id)
    values: dict[str, object] = {"partition_id": number or 0, "transaction_id": transaction_id}
    return [_as_trace(*row) for row in cast("Found", await database.ask(query("traces_of_message"), values))]


async def traces_named(database: Database, name: str, limit: int, offset: int) -> tuple[list[TraceEvent], int]:
    values: dict[str, object] = {"name": name, "limit": limit, "offset": offset}
    found = cast("Found", await database.ask(query("traces_named"), values))
    total = found[0][-1] if found else await _total_before(database, "traces_named", values)
    return [_as_trace(*row[:-1]) for row in found], total


async def trace_names(database: Database, limit: int, offset: int) -> tuple[list[tuple[str, int]], int]:
    values: dict[str, object] = {"limit": limit, "offset": offset}
    found = cast("Found", await database.ask(query("trace_names"), values))
    total = found[0][-1] if found else await _total_before(database, "trace_names", values)
    return [(name, count) for name, count, _ in found], total


async def _total_before(database: Database, name: str, values: dict[str, object]) -> int:
    """A page behind the last one is empty and says nothing of the total: look at the first."""
    found = await database.ask(query(name), {**values, "limit": 1, "offset": 0})
    return cast("int", found[0][-1]) if found else 0


def _as_trace(
    queue_id: int,
    partition_id: int,
    transaction_id: str,
    group: str,
    event_type: str,
    names: list[str],
    data: bytes,
    created_us: int,
) -> TraceEvent:
    shown_id = wire_id(queue_id, partition_id)
    return TraceEvent(shown_id, transaction_id, group, event_type, tuple(names), data, created_us)
