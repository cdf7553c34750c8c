"""Deleting one message. Its row goes; a row of `deleted_messages` remembers its place, so that lags stay exact."""

from __future__ import annotations

from typing import Any, cast

from forebay.broker import delivery
from forebay.broker.stores.postgres.connections import Connection, rows
from forebay.broker.stores.postgres.deliveries import Delivery, read_state, save
from forebay.broker.stores.postgres.queries import query


async def delete(connection: Connection, queue_id: int, partition_id: int, seq: int, now_us: int | None) -> bool:
    """Delete a message that was found a moment ago. False when somebody else was faster."""
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
