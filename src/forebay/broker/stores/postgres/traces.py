"""Traces: what consumers noted about messages, found by message and by name, and kept for a time."""

from __future__ import annotations

from typing import Any, cast

from forebay.broker.overview import TraceEvent
from forebay.broker.stores.postgres.connections import Database
from forebay.broker.stores.postgres.names import partition_number, wire_id
from forebay.broker.stores.postgres.queries import query
from forebay.clock import SECOND_US

Found = list[tuple[Any, ...]]


async def add(database: Database, event: TraceEvent) -> None:
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


async def of_message(database: Database, partition_id: str, transaction_id: str) -> list[TraceEvent]:
    number = partition_number(partition_id)
    values: dict[str, object] = {"partition_id": number or 0, "transaction_id": transaction_id}
    return [_as_trace(*row) for row in cast("Found", await database.ask(query("traces_of_message"), values))]


async def named(database: Database, name: str, limit: int, offset: int) -> tuple[list[TraceEvent], int]:
    values: dict[str, object] = {"name": name, "limit": limit, "offset": offset}
    found = cast("Found", await database.ask(query("traces_named"), values))
    total = found[0][-1] if found else await _total_before(database, "traces_named", values)
    return [_as_trace(*row[:-1]) for row in found], total


async def names(database: Database, limit: int, offset: int) -> tuple[list[tuple[str, int]], int]:
    values: dict[str, object] = {"limit": limit, "offset": offset}
    found = cast("Found", await database.ask(query("trace_names"), values))
    total = found[0][-1] if found else await _total_before(database, "trace_names", values)
    return [(name, count) for name, count, _ in found], total


async def expire(database: Database, seconds: float, now_us: int | None) -> int:
    """Remove what is older, in pieces that are committed one by one; returns how many events.

    Servers that do so at the same time pass over what another one is removing: each event is counted by one of them.
    """
    values: dict[str, object] = {"now_us": now_us, "kept_us": round(seconds * SECOND_US)}
    total = 0
    while removed := len(await database.ask_for_delivery(query("traces_expire"), values)):
        total += removed
    return total


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
