"""Removing what queues no longer keep: from the front, in pieces, each in a transaction of its own.

A piece locks its queue, so it is small: pushes to that queue wait for it. A queue that was deleted has no name; what
it held is removed by `purging`.
"""

from __future__ import annotations

from functools import partial
from typing import Any, cast

from forebay.broker import delivery
from forebay.broker.queue_rules import cutoffs, keeps_everything
from forebay.broker.retention import Spared, removable_seq, tell_spared
from forebay.broker.stores.postgres.connections import Connection, Database, rows, send
from forebay.broker.stores.postgres.deliveries import Delivery, read_state, save, without_removed
from forebay.broker.stores.postgres.limits import PostgresLimits
from forebay.broker.stores.postgres.names import stored_options
from forebay.broker.stores.postgres.purging import purge
from forebay.broker.stores.postgres.queries import query
from forebay.clock import SECOND_US

NEVER_US = (1 << 63) - 1
SEQ_MAX = (1 << 62) - 1


async def apply(database: Database, now_us: int | None, limits: PostgresLimits) -> int:
    """Remove what the queues' options no longer keep; returns how many messages."""
    removed = 0
    await database.ask(query("holds_expire"), {"now_us": now_us})
    for found in cast("list[tuple[Any, ...]]", await database.ask(query("retention_queues"), {"now_us": now_us})):
        queue_id, name, column, time_us = found
        if name is None:
            await purge(database, queue_id, limits)
            continue
        options = stored_options(column)
        if keeps_everything(options):
            continue
        ends = cutoffs(options, time_us)
        last_seq = await _last_removable(database, name, queue_id, ends.any_us or 0)
        values: dict[str, object] = {"queue_id": queue_id, "last_seq": last_seq}
        if ends.any_us is not None:
            old = {**values, "before_us": ends.any_us}
            removed += await _remove(database, "retention_remove_old", old, time_us, limits)
        if ends.finished_us is not None:
            removed += await _remove_finished(database, {**values, "before_us": ends.finished_us}, time_us, limits)
    return removed


async def _last_removable(database: Database, queue: str, queue_id: int, before_us: int) -> int:
    """The last seq that no unfinished parcel needs."""
    values: dict[str, object] = {"queue_id": queue_id, "before_us": before_us}
    [found] = await database.ask(query("retention_held"), values)
    held_seq, first_seq, due_seq = cast("tuple[int | None, int | None, int | None]", found)
    if held_seq is not None and due_seq is not None and held_seq <= due_seq:
        tell_spared(Spared(queue, max(held_seq, first_seq or held_seq), due_seq))
    return removable_seq(SEQ_MAX, held_seq)


async def _remove_finished(database: Database, values: dict[str, object], now_us: int, limits: PostgresLimits) -> int:
    """Go through the partitions once. The queue is locked only where there is something to remove."""
    removed, after = 0, ""
    while True:
        given = {**values, "after": after, "now_us": now_us}
        [found] = await database.ask_for_delivery(query("retention_find_finished"), given)
        last, partition_ids, seqs = cast("tuple[str | None, list[int] | None, list[int] | None]", found)
        if last is None:
            return removed
        if partition_ids:
            fronts = {**values, "partition_ids": partition_ids, "seqs": seqs}
            removed += await _remove(database, "retention_remove_finished", fronts, now_us, limits)
        after = last


async def clear(
    database: Database, queue_id: int, partition: str | None, now_us: int | None, limits: PostgresLimits
) -> int:
    """Remove all that a queue, or one partition of it, holds now; returns how many messages."""
    values: dict[str, object] = {"queue_id": queue_id, "partition": partition, "now_us": now_us}
    removed, after = 0, ""
    while True:
        given = {**values, "after": after}
        found = cast("list[tuple[str, int, int, int]]", await database.ask(query("clear_find_partitions"), given))
        if not found:
            return removed
        names, partition_ids, seqs, times = zip(*found, strict=True)
        fronts: dict[str, object] = {"queue_id": queue_id, "partition_ids": list(partition_ids), "seqs": list(seqs)}
        fronts |= {"before_us": NEVER_US}
        removed += await _remove(database, "retention_remove_finished", fronts, times[0], limits)
        after = names[-1]


async def expire_partitions(database: Database, seconds: float, now_us: int | None, limits: PostgresLimits) -> int:
    """Remove partitions that are empty and got no message for that long; returns how many."""
    removed = 0
    for found in cast("list[tuple[Any, ...]]", await database.ask(query("retention_queues"), {"now_us": now_us})):
        queue_id, name, _, time_us = found
        if name is not None:
            before_us = time_us - round(seconds * SECOND_US)
            removed += await _expire_partitions(database, queue_id, before_us, limits.removed_rows_max)
    return removed


async def _expire_partitions(database: Database, queue_id: int, before_us: int, rows_max: int) -> int:
    values: dict[str, object] = {"queue_id": queue_id, "before_us": before_us}
    removed, after = 0, ""
    while True:
        [found] = await database.ask_for_delivery(query("partitions_find_empty"), {**values, "after": after})
        last, partition_ids, groups = cast("tuple[str | None, list[int] | None, int]", found)
        if last is None:
            return removed
        piece = max(rows_max // (groups + 1), 1)
        for start in range(0, len(partition_ids or ()), piece):
            chosen = {**values, "partition_ids": (partition_ids or [])[start : start + piece]}
            removed += await database.run(partial(_remove_partitions, chosen))
        after = last


async def _remove_partitions(values: dict[str, object], connection: Connection) -> int:
    if not await rows(connection, query("retention_lock_queue"), {"queue_id": values["queue_id"]}):
        return 0
    partition_ids: dict[str, object] = {"partition_ids": values["partition_ids"]}
    await rows(connection, query("partitions_lock_deliveries"), partition_ids)
    return len(await rows(connection, query("partitions_remove_empty"), values))


async def _remove(database: Database, name: str, values: dict[str, object], now_us: int, limits: PostgresLimits) -> int:
    rows_max, bytes_max = limits.removed_rows_max, limits.removed_bytes_max
    limited = {**values, "limit": rows_max, "bytes_max": bytes_max}

    async def piece(connection: Connection) -> tuple[int, bool]:
        """How many were removed, and whether there may be more."""
        if not await rows(connection, query("retention_lock_queue"), {"queue_id": values["queue_id"]}):
            return 0, False
        gone = cast("list[tuple[int, int, int]]", await rows(connection, query(name), limited))
        if gone:
            partition_ids = [partition_id for partition_id, _, _ in gone]
            await send(connection, query("retention_forget_deleted"), {"partition_ids": partition_ids})
            await _forget_pending(connection, partition_ids, now_us)
        messages, size_bytes = sum(one[1] for one in gone), sum(one[2] for one in gone)
        return messages, messages == rows_max or size_bytes >= bytes_max

    total, is_going_on = 0, True
    while is_going_on:
        removed, is_going_on = await database.run(piece)
        total += removed
    return total


async def _forget_pending(connection: Connection, partition_ids: list[int], now_us: int) -> None:
    """What was delivered, not finished and is gone now is no group's lag any more."""
    found = await rows(connection, query("retention_lock_deliveries"), {"partition_ids": partition_ids})
    saved = []
    for group_id, partition_id, column, cursor_seq, removed_seq in cast("list[tuple[Any, ...]]", found):
        state = without_removed(read_state(column, cursor_seq), removed_seq)
        saved.append(Delivery(group_id, partition_id, state, delivery.review_us(state, now_us)))
    await save(connection, saved, now_us)
