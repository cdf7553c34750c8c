"""Traces: what consumers wrote down about messages, found by message and by name.

What is too old is removed from the front, in pieces. A trace that is young keeps those that were written behind it,
whatever their clock said: so a run that finds nothing old has looked at one of them, however many there are.
"""

from __future__ import annotations

from typing import Any

from forebay.broker.overview import TraceEvent
from forebay.broker.stores.embedded.database import Database
from forebay.broker.stores.embedded.limits import EmbeddedLimits
from forebay.broker.stores.embedded.queries import query
from forebay.broker.stores.embedded.queues import Queues
from forebay.clock import SECOND_US, Clock


class Traces:
    def __init__(self, database: Database, queues: Queues, clock: Clock, limits: EmbeddedLimits) -> None:
        self._database = database
        self._queues = queues
        self._clock = clock
        self._limits = limits

    def add(self, event: TraceEvent) -> None:
        found = self._queues.of_wire_id(event.partition_id)
        if found is None:
            return
        trace_id = self._database.insert(
            query("trace_add"),
            (found[1], event.transaction_id, event.group, event.event_type, event.data, event.created_us),
        )
        names = [(name, trace_id) for name in dict.fromkeys(event.names)]
        self._database.many(query("trace_name_add"), names)

    def of_message(self, wire_id: str, transaction_id: str) -> list[TraceEvent]:
        found = self._queues.of_wire_id(wire_id)
        if found is None:
            return []
        rows = self._database.all(
            query("traces_of_message"),
            (found[1], transaction_id),
        )
        return [self._event(row) for row in rows]

    def named(self, name: str, limit: int, offset: int) -> tuple[list[TraceEvent], int]:
        rows = self._database.all(
            query("traces_named"),
            (name, limit, offset),
        )
        (total,) = self._database.one(query("traces_count_named"), (name,))
        return [self._event(row) for row in rows], total

    def names(self, limit: int, offset: int) -> tuple[list[tuple[str, int]], int]:
        rows = self._database.all(query("trace_names_list"), (limit, offset))
        (total,) = self._database.one(query("trace_names_count"))
        return [(name, count) for name, count in rows], total

    def expire(self, seconds: float) -> int:
        """Remove the oldest ones that are older than this; returns how many. There may be more."""
        (first_id,) = self._database.one(query("traces_first"))
        if first_id is None:
            return 0
        stop_id = first_id + self._limits.removed_traces_max
        young = self._database.one(
            query("traces_first_kept"),
            (stop_id, self._clock.now_us() - round(seconds * SECOND_US)),
        )
        if young is not None:
            stop_id = young[0]
        self._database.do(query("trace_names_expire"), (stop_id,))
        return self._database.do(query("traces_expire"), (stop_id,))

    def _event(self, row: tuple[Any, ...]) -> TraceEvent:
        trace_id, partition_id, transaction_id, group, event_type, data, created_us = row
        names = self._database.all(query("trace_names_of"), (trace_id,))
        queue_id = self._database.one(query("partition_queue"), (partition_id,))
        wire_id = f"{queue_id[0]}-{partition_id}" if queue_id else ""
        found = tuple(name for (name,) in names)
        return TraceEvent(wire_id, transaction_id, group, event_type, found, data, created_us)
