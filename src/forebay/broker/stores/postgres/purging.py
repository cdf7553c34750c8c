"""Removing what a deleted queue held, in pieces, each in a transaction of its own.

The queue is gone for all servers since its name was taken from it. No request waits for the rest, and it may be
interrupted anywhere: retention goes on with every queue that has no name. Each piece locks the queue's row, so that of
several servers none takes what another one is just removing for all that was left.

A pop that began before the deletion may still write a delivery or a dead letter. The partition that it refers to is
then not removed by this attempt, but by the next one, or by the next retention.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import cast

from forebay.broker.stores.postgres.connections import Connection, Database, rows, send
from forebay.broker.stores.postgres.limits import PostgresLimits
from forebay.broker.stores.postgres.queries import query

Step = Callable[[Connection], Awaitable[list[int]]]


async def purge(database: Database, queue_id: int, limits: PostgresLimits) -> None:
    """Remove all of a queue that was deleted. It may be done again, and by several servers at the same time."""

    async def piece(step: Step) -> list[int]:
        async def work(connection: Connection) -> list[int]:
            is_there = await rows(connection, query("purge_lock_queue"), {"queue_id": queue_id})
            return await step(connection) if is_there else []

        return await database.run(work)

    for name in ("purge_messages", "purge_dead_letters"):
        after = 0
        while gone := await piece(partial(_remove_with_payloads, name, queue_id, after, limits)):
            after = max(gone)
    while await piece(partial(_remove_partitions, queue_id, limits.removed_rows_max)):
        pass
    await piece(partial(_remove_queue, queue_id))


async def _remove_with_payloads(
    name: str, queue_id: int, after: int, limits: PostgresLimits, connection: Connection
) -> list[int]:
    """Remove the next messages or dead letters; returns their numbers.

    Behind those of the last piece, because PostgreSQL may have to keep what it removed for a snapshot that another
    holds, and would come past all of it again and again.
    """
    values: dict[str, object] = {
        "queue_id": queue_id,
        "after": after,
        "limit": limits.removed_rows_max,
        "bytes_max": limits.removed_bytes_max,
    }
    return _numbers(await rows(connection, query(name), values))


async def _remove_partitions(queue_id: int, rows_max: int, connection: Connection) -> list[int]:
    """Remove some partitions, or as much as one piece may of what refers to them; returns their numbers."""
    partition_ids = _numbers(await rows(connection, query("purge_find_partitions"), {"queue_id": queue_id}))
    values: dict[str, object] = {"partition_ids": partition_ids}
    [[removed]] = await rows(connection, query("purge_of_partitions"), {**values, "limit": rows_max})
    if cast("int", removed) < rows_max:
        await send(connection, query("purge_partitions"), values)
    return partition_ids


async def _remove_queue(queue_id: int, connection: Connection) -> list[int]:
    return _numbers(await rows(connection, query("purge_queue"), {"queue_id": queue_id}))


def _numbers(found: list[tuple[object, ...]]) -> list[int]:
    return [cast("int", number) for [number] in found]
