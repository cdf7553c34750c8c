"""What retention is to remove of a queue, found beside the store's thread: it may take a look at every partition.

The plan is a suggestion. A group may be set back while it is made, so the thread looks again before it removes what
was planned because every group had finished it.
"""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

from forebay.broker.queue_rules import cutoffs
from forebay.broker.retention import Spared, removable_seq, tell_spared
from forebay.broker.stores.embedded import lease_rows
from forebay.broker.stores.embedded.data_directory import read_only
from forebay.broker.stores.embedded.fetching import seq_before
from forebay.broker.stores.embedded.queries import query
from forebay.broker.stores.embedded.reading import ReadableQueue
from forebay.model.queue import QueueOptions

_FRONTS = query("retention_fronts")


class Span(NamedTuple):
    """What is to be removed of a partition: its messages from one seq to another."""

    number: int
    first_seq: int
    last_seq: int


class Plan(NamedTuple):
    queue_id: int
    spans: dict[str, Span]
    """By the name of the partition."""
    old_seq: int
    """Messages up to here go in any case; others only if every group has finished them."""
    end_seq: int
    """The last one of all."""
    spares_parcels: bool
    """Whether what an unfinished parcel needs is left."""


def _plan(queue: ReadableQueue, spans: dict[str, Span], old_seq: int, *, spares_parcels: bool) -> Plan:
    end_seq = max((span.last_seq for span in spans.values()), default=0)
    return Plan(queue.queue_id, spans, old_seq, end_seq, spares_parcels)


class Planner:
    """For one thread at a time: reads the database and the logs."""

    def __init__(self, database: Path, now_us: int) -> None:
        self._path = database
        self._now_us = now_us

    def _execute(self, statement: str, **values: object) -> list[Any]:
        with closing(read_only(self._path)) as connection:
            return connection.execute(statement, values).fetchall()

    def expired(self, queue: ReadableQueue, options: QueueOptions) -> Plan:
        """What the queue's options do not keep any longer."""
        old_seq = done_seq = 0
        # Of the queue as a whole: a message that is young keeps those that came behind it, whatever their clock said.
        [(held_seq,)] = self._execute(query("held_by_parcels"), queue_id=queue.queue_id)
        limits = cutoffs(options, self._now_us)
        if limits.any_us is not None:
            due_seq = seq_before(queue.log, limits.any_us)
            old_seq = removable_seq(due_seq, held_seq)
            if old_seq < due_seq:
                tell_spared(Spared(queue.name, max(held_seq, queue.log.first_seq), due_seq))
        values = {
            "queue_id": queue.queue_id,
            "partition": None,
            "is_done_wanted": limits.finished_us is not None,
            "now_us": self._now_us,
        }
        if limits.finished_us is not None:
            # Only where something is finished: in front of it there may be a backlog that need not be read.
            [(first, last)] = self._execute(query("retention_ends"), **values)
            if first is not None:
                done_seq = removable_seq(seq_before(queue.log, limits.finished_us, first, last), held_seq)
        rows = self._execute(query("retention_due"), **values, old_seq=old_seq, done_seq=done_seq)
        spans = {name: Span(number, first, max(old_seq, min(done, done_seq))) for number, name, first, done in rows}
        return _plan(queue, spans, old_seq, spares_parcels=True)

    def everything(self, queue: ReadableQueue, partition: str | None) -> Plan:
        """All that the queue, or one partition of it, holds now."""
        rows = self._execute(
            _FRONTS, queue_id=queue.queue_id, partition=partition, is_done_wanted=False, now_us=self._now_us
        )
        last_seq = queue.next_seq - 1
        spans = {name: Span(number, first, last_seq) for number, name, first, _ in rows if first <= last_seq}
        return _plan(queue, spans, last_seq, spares_parcels=False)

    def first_needed(self, queue: ReadableQueue) -> int:
        """The first seq of all records that hold something that is kept."""
        [(seq,)] = self._execute(
            query("record_first_needed"),
            queue_id=queue.queue_id,
        )
        return queue.next_seq if seq is None else int(seq)

    def idle_groups(self, before_us: int) -> list[tuple[int, str]]:
        """Queue and name of groups that have not popped since a time and hold no lease."""
        found = self._execute(query("groups_idle"), before_us=before_us)
        return [(queue_id, name) for group_id, queue_id, name in found if not self._has_lease(group_id)]

    def _has_lease(self, group_id: int) -> bool:
        rows = self._execute(query("states_with_lease"), group_id=group_id)
        return any(lease_rows.is_leased(state, self._now_us) for (state,) in rows)

    def empty_partitions(self, before_us: int) -> dict[int, list[int]]:
        """Numbers of partitions that hold no message and got none since a time, by queue."""
        found: dict[int, list[int]] = {}
        for number, queue_id, *_ in self._execute(query("empty_partitions"), before_us=before_us):
            found.setdefault(queue_id, []).append(number)
        return found

    def with_removed_partitions(self) -> list[int]:
        """Queues of which removed partitions are remembered."""
        return [queue_id for (queue_id,) in self._execute(query("removed_partitions_queues"))]
