"""Delivery states as rows: how one is read, when it is to be looked at next, and how several are written at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from forebay.broker.delivery import DeadLetter, DeliveryState, decode_state, encode_state, without_gone
from forebay.broker.stores.postgres.connections import Connection, Cursor, send
from forebay.broker.stores.postgres.names import storable_text
from forebay.broker.stores.postgres.queries import query


class Delivery(NamedTuple):
    """A state on its way back into its row, which is locked."""

    group_id: int
    partition_id: int
    state: DeliveryState
    due_us: int | None
    """When to look again; None: at once if the partition holds more, else when it gets more."""
    dropped: int = 0


class Burial(NamedTuple):
    partition_id: int
    group: str
    letter: DeadLetter


def read_state(column: bytes, cursor_seq: int) -> DeliveryState:
    """An empty column is a group that has taken nothing from the partition yet."""
    return decode_state(column) if column else DeliveryState(cursor_seq)


def without_removed(state: DeliveryState, removed_seq: int) -> DeliveryState:
    """The state without what retention has removed."""
    state = without_gone(state, lambda seq: seq > removed_seq)
    if not state.pending and state.cursor_seq < removed_seq:
        return DeliveryState(removed_seq, finished=state.finished)
    return state


async def save(connection: Connection, deliveries: Sequence[Delivery], now_us: int) -> Cursor | None:
    """Write states. The result, for which there is no need to wait, says of each when it is due."""
    if not deliveries:
        return None
    values: dict[str, object] = {
        "now_us": now_us,
        "group_ids": [delivery.group_id for delivery in deliveries],
        "partition_ids": [delivery.partition_id for delivery in deliveries],
        "states": [encode_state(delivery.state) for delivery in deliveries],
        "cursor_seqs": [delivery.state.cursor_seq for delivery in deliveries],
        "seen_seqs": [delivery.state.last_seen_seq() for delivery in deliveries],
        "open_counts": [delivery.state.open_count() for delivery in deliveries],
        "lease_ids": [delivery.state.lease_id for delivery in deliveries],
        "dropped": [delivery.dropped for delivery in deliveries],
        "due_us": [delivery.due_us for delivery in deliveries],
    }
    return await send(connection, query("delivery_save"), values)


async def bury(connection: Connection, burials: Sequence[Burial], now_us: int) -> None:
    kept = [burial for burial in burials if not burial.letter.is_dropped]
    if not kept:
        return
    values: dict[str, object] = {
        "now_us": now_us,
        "partition_ids": [burial.partition_id for burial in kept],
        "groups": [burial.group for burial in kept],
        "seqs": [burial.letter.seq for burial in kept],
        "attempts": [burial.letter.attempts for burial in kept],
        "reasons": [storable_text(burial.letter.reason) for burial in kept],
    }
    await send(connection, query("dead_letters_add"), values)
