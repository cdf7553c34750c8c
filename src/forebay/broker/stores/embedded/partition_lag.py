"""What one group has left in one partition, or would have behind a seq, where a count over all partitions cannot tell:
messages under way, messages that were deleted one by one, a cursor that stands in the middle of a record."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import Any, NamedTuple

from forebay.broker.stores.embedded import lease_rows
from forebay.broker.stores.embedded.lease_rows import FreshLease
from forebay.broker.stores.embedded.queries import query
from forebay.broker.stores.embedded.records import StoredRecord
from forebay.commitlog import CommitLog
from forebay.errors import ForebayError

_STATEMENT = query("partition_lag")


Execute = Callable[[str, Any], sqlite3.Cursor]
"""Runs a statement where the index is: in the store's own connection, or in one that only reads."""


class Lag(NamedTuple):
    messages: int
    partitions: int
    """Those that have some of the messages."""
    oldest_seq: int | None
    leased: int = 0

    def joined(self, other: Lag) -> Lag:
        oldest = [seq for seq in (self.oldest_seq, other.oldest_seq) if seq is not None]
        return Lag(
            self.messages + other.messages,
            self.partitions + other.partitions,
            min(oldest, default=None),
            self.leased + other.leased,
        )


class _UnderWay(NamedTuple):
    """What a state says of messages that the cursor has not passed."""

    finished: frozenset[int]
    leased: frozenset[int]


class _Lost(NamedTuple):
    """Messages behind the cursor whose records cannot be read any more."""

    ranges: list[tuple[int, int]]
    messages: int

    def holds(self, seq: int) -> bool:
        return any(first <= seq <= last for first, last in self.ranges)


class PartitionLag:
    def __init__(self, execute: Execute, *, now_us: int) -> None:
        self._execute = execute
        self._now_us = now_us
        self._read_last: tuple[CommitLog, StoredRecord] | None = None
        """One seq stands in the same record for all partitions that have messages around it."""

    def of(self, log: CommitLog, group_id: int | None, partition_id: int, *, beyond_seq: int = 0) -> Lag:
        """What is behind both: where the group stands, if one is given, and the seq."""
        values = {"group_id": group_id, "partition_id": partition_id, "beyond_seq": beyond_seq}
        name, pushed, floor_seq, seq, state, *block = self._execute(_STATEMENT, values).fetchone()
        rows = self._execute(query("deleted_after"), (partition_id, seq))
        deleted = frozenset(found for (found,) in rows)
        lost = self._lost(partition_id, seq)
        under_way = self._under_way(
            state, lambda found: found > floor_seq and found not in deleted and not lost.holds(found)
        )
        gone = {found for found in under_way.finished | deleted if found > seq and not lost.holds(found)}
        left = pushed - self._upto(log, name, partition_id, seq, *block) - lost.messages - len(gone)
        if left <= 0:
            return Lag(0, 0, None, len(under_way.leased))
        return Lag(left, 1, self._next_seq(partition_id, seq, gone), len(under_way.leased))

    def upto(self, log: CommitLog, partition_id: int, seq: int) -> int:
        """How many messages the partition ever had up to `seq`, which stands in a record that can be read."""
        name, *block = self._execute(
            query("block_at"),
            (partition_id, seq),
        ).fetchone()
        return self._upto(log, name, partition_id, seq, *block)

    def _lost(self, partition_id: int, seq: int) -> _Lost:
        rows = self._execute(
            query("lost_blocks_counted"),
            {"partition_id": partition_id, "seq": seq},
        ).fetchall()
        return _Lost([(first, last) for first, last, _ in rows], sum(count for _, _, count in rows))

    def _under_way(self, state: bytes | None, is_kept: Callable[[int], bool]) -> _UnderWay:
        if state is None:
            return _UnderWay(frozenset(), frozenset())
        found = lease_rows.decode(state)
        if isinstance(found, FreshLease):
            is_alive = found.granted_us <= self._now_us < found.until_us
            leased = range(found.first_seq, found.last_seq + 1) if is_alive else ()
            return _UnderWay(frozenset(), frozenset(filter(is_kept, leased)))
        finished = frozenset(pending.seq for pending in found.pending if pending.is_finished)
        held = [p.seq for p in found.pending if p.is_leased and is_kept(p.seq)]
        is_alive = found.is_leased_at(self._now_us) and not found.yielded_us
        return _UnderWay(finished, frozenset(held if is_alive else ()))

    def _upto(
        self,
        log: CommitLog,
        name: str,
        partition_id: int,
        seq: int,
        first_seq: int | None,
        last_seq: int,
        count: int,
        before: int,
        record_seq: int,
        position: int,
    ) -> int:
        """How many messages the partition ever had up to `seq`."""
        if first_seq is None:
            statement = query("block_first_before")
            row = self._execute(statement, (partition_id,)).fetchone()
            return int(row[0]) if row else 0
        if last_seq <= seq or position < 0:
            return before + count
        try:
            record = self._record(log, record_seq)
        except (ForebayError, StopIteration):
            return before + count  # it cannot be read, so nothing of it is left
        places = record.places(name, first_seq, last_seq, count)
        return before + sum(record_seq + place <= seq for place in places)

    def _record(self, log: CommitLog, record_seq: int) -> StoredRecord:
        if self._read_last is None or self._read_last[0] is not log or self._read_last[1].first_seq != record_seq:
            self._read_last = log, StoredRecord(next(iter(log.read_records(record_seq, record_seq))).plain())
        return self._read_last[1]

    def _next_seq(self, partition_id: int, seq: int, gone: set[int]) -> int:
        """About where the first message that is left stands: its record is the one that holds this seq."""
        while seq + 1 in gone:
            seq += 1
        row = self._execute(
            query("seq_next"),
            {"partition_id": partition_id, "seq": seq},
        ).fetchone()
        return int(row[0]) if row else seq + 1
