"""Removing what queues no longer keep: from the front, in pieces, each in a transaction of its own.

A piece locks its queue, so it is small: pushes to that queue wait for it. A queue that was deleted has no name and
nobody who waits; what it held is removed here too.
"""

from __future__ import annotations

from typing import Any, cast

from forebay.broker import delivery
from forebay.broker.stores.postgres.connections import Connection, Database, rows, send
from forebay.broker.stores.postgres.deliveries import Delivery, read_state, save, without_removed
from forebay.broker.stores.postgres.names import stored_options
from forebay.broker.stores.postgres.queries import query

SECOND_US = 1_000_000
PIECE_MESSAGES_MAX = 2_000


async def apply(database: Database, now_us: int | None) -> int:
    """Remove what the queues' options no longer keep; returns how many messages."""
    removed = 0
    for found in cast("list[tuple[Any, ...]]", await database.ask(query("retention_queues"), {"now_us": now_us})):
        queue_id, name, column, time_us = found
        if name is None:
            await purge(database, queue_id)
            continue
        options = stored_options(column)
        if options.retention_enabled and options.retention_seconds:
            before_us = time_us - options.retention_seconds * SECOND_US
            removed += await _remove(database, "retention_remove_old", queue_id, before_us, time_us)
        if options.retention_enabled and options.completed_retention_seconds:
            before_us = time_us - options.completed_retention_seconds * SECOND_US
            removed += await _remove(database, "retention_remove_finished", queue_id, before_us, time_us)
    return removed


async def _remove(database: Database, name: str, queue_id: int, before_us: int, now_us: int) -> int:
    values: dict[str, object] = {"queue_id": queue_id, "before_us": before_us, "limit": PIECE_MESSAGES_MAX}

    async def piece(connection: Connection) -> int:
        if not await rows(connection, query("retention_lock_queue"), {"queue_id": queue_id}):
            return 0
        gone = cast("list[tuple[int, int]]", await rows(connection, query(name), values))
        if gone:
            partition_ids = [partition_id for partition_id, _ in gone]
            await send(connection, query("retention_forget_deleted"), {"partition_ids": partition_ids})
            await _forget_pending(connection, partition_ids, now_us)
        return sum(count for _, count in gone)

    total = 0
    while removed := await database.run(piece):
        total += removed
    return total


async def _forget_pending(connection: Connection, partition_ids: list[int], now_us: int) -> None:
    """What was delivered, not finished and is gone now is nobody's lag any more."""
    found = await rows(connection, query("retention_lock_deliveries"), {"partition_ids": partition_ids})
    saved = []
    for group_id, partition_id, column, cursor_seq, removed_seq in cast("list[tuple[Any, ...]]", found):
        state = without_removed(read_state(column, cursor_seq), removed_seq)
        saved.append(Delivery(group_id, partition_id, state, delivery.due_us(state, now_us)))
    await save(connection, saved, now_us)


async def purge(database: Database, queue_id: int) -> None:
    """Remove all of a queue that was deleted."""
    values: dict[str, object] = {"queue_id": queue_id, "limit": PIECE_MESSAGES_MAX}

    async def piece(connection: Connection) -> int:
        return len(await rows(connection, query("purge_messages"), values))

    async def rest(connection: Connection) -> None:
        await send(connection, query("purge_queue"), {"queue_id": queue_id})

    while await database.run(piece):
        pass
    await database.run(rest)
