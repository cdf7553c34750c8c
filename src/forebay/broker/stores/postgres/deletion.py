"""Deleting one message, or turning it into dead letters.

Its row goes; a row of `deleted_messages` remembers its place, so that lags stay exact.
"""

from __future__ import annotations

from typing import Any, cast

from forebay.broker import delivery
from forebay.broker.delivery import DeadLetter
from forebay.broker.stores.postgres.connections import Connection, rows
from forebay.broker.stores.postgres.deliveries import Burial, Delivery, bury, read_state, save
from forebay.broker.stores.postgres.queries import query
from forebay.model.queue import DEFAULT_GROUP


async def delete(connection: Connection, queue_id: int, partition_id: int, seq: int, now_us: int | None) -> bool:
    """Delete a message that was found a moment ago. False when another request was faster."""
    if not await rows(connection, query("retention_lock_queue"), {"queue_id": queue_id}):
        return False
    if not await rows(connection, query("delete_message"), {"queue_id": queue_id, "seq": seq}):
        return False
    values: dict[str, object] = {"partition_id": partition_id, "now_us": now_us}
    saved: list[Delivery] = []
    time_us = 0
    for found in await rows(connection, query("delete_message_lock_deliveries"), values):
        group_id, column, cursor_seq, time_us = cast("tuple[Any, ...]", found)
        before = read_state(column, cursor_seq)
        state = delivery.without_gone(before, lambda kept: kept != seq)
        if state is not before:
            saved.append(Delivery(group_id, partition_id, state, delivery.review_us(state, time_us)))
    await save(connection, saved, time_us)
    return True


async def move_to_dead_letters(
    connection: Connection, queue_id: int, partition_id: int, seq: int, reason: str, now_us: int | None
) -> int | None:
    """Turn a message that was found a moment ago into dead letters, one for each group that has not finished it."""
    if not await rows(connection, query("retention_lock_queue"), {"queue_id": queue_id}):
        return None
    values: dict[str, object] = {"queue_id": queue_id, "partition_id": partition_id, "now_us": now_us}
    # Locked first: what a group has finished must not change between the look at it and the letter.
    await rows(connection, query("delete_message_lock_deliveries"), values)
    found = cast("list[tuple[Any, ...]]", await rows(connection, query("bury_find_groups"), values))
    groups = {
        group: delivery.open_attempts(read_state(column, cursor_seq), seq) for group, column, cursor_seq, _ in found
    }
    burials = [
        Burial(partition_id, group, DeadLetter(seq, attempts, reason))
        for group, attempts in (groups if found[0][0] is not None else {DEFAULT_GROUP: 0}).items()
        if attempts is not None
    ]
    if burials:
        await bury(connection, burials, found[0][-1])
        if not await delete(connection, queue_id, partition_id, seq, now_us):
            return None
    return len(burials)
