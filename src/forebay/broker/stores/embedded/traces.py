"""Traces: what consumers wrote down about messages, found by message and by name.

What is too old is removed from the front, in pieces. A trace that is young keeps those that were written behind it,
whatever their clock said: so whoever finds nothing old has looked at one of them, however many there are.
"""

from __future__ import annotations

from typing import Any

from forebay.broker.overview import TraceEvent
from forebay.broker.stores.embedded.database import Database
from forebay.broker.stores.embedded.queues import Queues
from forebay.clock import Clock

_SECOND_US = 1_000_000
PIECE_TRACES_MAX = 200
"""Removed before others get their turn."""
_COLUMNS = "t.id, t.partition_id, t.transaction_id, t.group_name, t.event_type, t.data, t.created_us"


class Traces:
    def __init__(self, database: Database, queues: Queues, clock: Clock) -> None:
        self._database = database
        self._queues = queues
        self._clock = clock

    def add(self, event: TraceEvent) -> None:
        found = self._queues.of_wire_id(event.partition_id)
        if found is None:
            return
        trace_id = self._database.insert(
            "INSERT INTO traces (partition_id, transaction_id, group_name, event_type, data, created_us) "
            "VALUES (?, ?, ?, ?, ?, ?)",
            (found[1], event.transaction_id, event.group, event.event_type, event.data, event.created_us),
        )
        names = [(name, trace_id) for name in dict.fromkeys(event.names)]
        self._database.many("INSERT INTO trace_names (name, trace_id) VALUES (?, ?)", names)

    def of_message(self, wire_id: str, transaction_id: str) -> list[TraceEvent]:
        found = self._queues.of_wire_id(wire_id)
        if found is None:
            return []
        rows = self._database.all(
            f"SELECT {_COLUMNS} FROM traces t WHERE t.partition_id = ? AND t.transaction_id = ? ORDER BY t.id",
            (found[1], transaction_id),
        )
        return [self._event(row) for row in rows]

    def named(self, name: str, limit: int, offset: int) -> tuple[list[TraceEvent], int]:
        rows = self._database.all(
            f"SELECT {_COLUMNS} FROM traces t JOIN trace_names n ON n.trace_id = t.id WHERE n.name = ? "
            "ORDER BY t.id DESC LIMIT ? OFFSET ?",
            (name, limit, offset),
        )
        (total,) = self._database.one("SELECT count(*) FROM trace_names WHERE name = ?", (name,))
        return [self._event(row) for row in rows], total

    def names(self, limit: int, offset: int) -> tuple[list[tuple[str, int]], int]:
        rows = self._database.all(
            "SELECT name, count(*) FROM trace_names GROUP BY name ORDER BY name LIMIT ? OFFSET ?", (limit, offset)
        )
        (total,) = self._database.one("SELECT count(DISTINCT name) FROM trace_names")
        return [(name, count) for name, count in rows], total

    def expire(self, seconds: float) -> int:
        """Remove the oldest ones that are older than this; returns how many. There may be more."""
        (first_id,) = self._database.one("SELECT min(id) FROM traces")
        if first_id is None:
            return 0
        stop_id = first_id + PIECE_TRACES_MAX
        young = self._database.one(
            "SELECT id FROM traces WHERE id < ? AND created_us >= ? ORDER BY id LIMIT 1",
            (stop_id, self._clock.now_us() - round(seconds * _SECOND_US)),
        )
        if young is not None:
            stop_id = young[0]
        self._database.do("DELETE FROM trace_names WHERE trace_id < ?", (stop_id,))
        return self._database.do("DELETE FROM traces WHERE id < ?", (stop_id,))

    def _event(self, row: tuple[Any, ...]) -> TraceEvent:
        trace_id, partition_id, transaction_id, group, event_type, data, created_us = row
        names = self._database.all("SELECT name FROM trace_names WHERE trace_id = ? ORDER BY name", (trace_id,))
        queue_id = self._database.one("SELECT queue_id FROM partitions WHERE id = ?", (partition_id,))
        wire_id = f"{queue_id[0]}-{partition_id}" if queue_id else ""
        found = tuple(name for (name,) in names)
        return TraceEvent(wire_id, transaction_id, group, event_type, found, data, created_us)
