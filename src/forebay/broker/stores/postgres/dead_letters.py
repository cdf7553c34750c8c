"""Dead letters: looking at them, removing them, and pushing them again."""

from __future__ import annotations

import uuid
from typing import Any, cast

from forebay.broker.messages import Message, PushItem
from forebay.broker.overview import DeadLetterFilter, DeadMessage
from forebay.broker.stores.postgres.connections import Connection, Database, rows
from forebay.broker.stores.postgres.names import wire_id
from forebay.broker.stores.postgres.queries import query

PIECE_LETTERS_MAX = 500
"""Removed or pushed again in one transaction."""


async def page(database: Database, wanted: DeadLetterFilter, limit: int, offset: int) -> tuple[list[DeadMessage], int]:
    """Newest first, and how many there are in all."""
    chosen = wanted._asdict()
    [[total]] = await database.ask(query("dead_letters_count"), chosen)
    found = await database.ask(query("dead_letters_list"), {**chosen, "limit": limit, "offset": offset})
    return [_as_letter(*row) for row in cast("list[tuple[Any, ...]]", found)], cast("int", total)


async def take(connection: Connection, wanted: DeadLetterFilter) -> list[PushItem]:
    """Remove some of them, and return them as messages that can be pushed: under new ids, or they were duplicates."""
    found = await rows(connection, query("dead_letters_take"), {**wanted._asdict(), "limit": PIECE_LETTERS_MAX})
    return [
        PushItem(
            queue=queue,
            partition=partition,
            payload=payload,
            transaction_id=str(uuid.uuid4()),
            is_minted=True,
            trace_id=trace_id,
            headers=headers,
            is_binary=is_binary,
        )
        for queue, partition, payload, trace_id, headers, is_binary in cast("list[tuple[Any, ...]]", found)
    ]


async def purge(database: Database, wanted: DeadLetterFilter) -> int:
    """Remove all of them, in pieces; returns how many."""

    async def work(connection: Connection) -> int:
        return len(await take(connection, wanted))

    total = 0
    while count := await database.run(work, is_durable=True):
        total += count
    return total


def _as_letter(
    letter_id: int,
    seq: int,
    queue: str,
    partition: str,
    queue_id: int,
    partition_id: int,
    transaction_id: str,
    trace_id: str,
    created_us: int,
    payload: bytes,
    headers: bytes,
    is_binary: bool,
    attempts: int,
    group: str,
    reason: str,
    failed_us: int,
) -> DeadMessage:
    message = Message(
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
        attempts=attempts,
    )
    return DeadMessage(letter_id, message, group, reason, failed_us)
