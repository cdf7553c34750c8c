"""The partitions that the sums over all of them leave out, most of them counted without a look into the index or the
log.

A group has messages of such a partition under way, or stands in the middle of a record. The sums say all about it but
what its state says, and how many messages of the record stand in front of the cursor: that never changes, so that it is
read from the log once. What is left for `partition_lag` are partitions with deleted or lost messages, and those with
finished ones in front of others.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from forebay.broker.stores.embedded import lease_rows
from forebay.broker.stores.embedded.lease_rows import FreshLease
from forebay.broker.stores.embedded.partition_lag import Lag, PartitionLag
from forebay.commitlog import CommitLog

IS_CUT, IS_ODD = 1, 2


class SpecialPartition(NamedTuple):
    """As `figures_lags` tells it."""

    number: int
    seq: int
    """Up to here the group has finished."""
    pushed: int
    upto: int
    """Messages ever up to `seq`, or up to the end of its record."""
    next_seq: int
    look: int


def special_partitions(column: str | None) -> list[SpecialPartition]:
    return [SpecialPartition(*map(int, one.split())) for one in column.split(",")] if column else []


@dataclass(slots=True)
class KnownPlaces:
    """What was read from logs and never changes. Each count keeps what it has used, for the next one."""

    created_us: dict[tuple[int, int], int] = field(default_factory=dict)
    """When a message was accepted, by its queue and seq."""
    upto: dict[tuple[int, int], int] = field(default_factory=dict)
    """How many messages a partition ever had up to a seq."""


class SpecialLags:
    """For one snapshot of the database."""

    def __init__(self, single: PartitionLag, known: KnownPlaces, used: KnownPlaces, now_us: int) -> None:
        self._single = single
        self._known = known
        self._used = used
        self._now_us = now_us

    def of(self, log: CommitLog, group_id: int, place: SpecialPartition, state: bytes | None) -> Lag:
        """What the group has left in the partition; `state`: of the group in it, where messages are under way."""
        if place.look != IS_ODD:
            found = self._lag_of(log, place, state)
            if found is not None:
                return found
        return self._single.of(log, group_id, place.number)

    def _lag_of(self, log: CommitLog, place: SpecialPartition, state: bytes | None) -> Lag | None:
        finished, leased = self._under_way(place.seq, state)
        if finished:
            return None
        is_cut = place.look == IS_CUT
        left = place.pushed - (self._upto(log, place) if is_cut else place.upto)
        if left <= 0:
            return Lag(0, 0, None, leased)
        return Lag(left, 1, place.seq + 1 if is_cut else place.next_seq, leased)

    def _under_way(self, seq: int, state: bytes | None) -> tuple[int, int]:
        """How many messages behind `seq` are finished, and how many are leased."""
        if state is None:
            return 0, 0
        found = lease_rows.decode(state)
        if isinstance(found, FreshLease):
            is_alive = found.granted_us <= self._now_us < found.until_us
            return 0, max(found.last_seq - max(found.first_seq - 1, seq), 0) if is_alive else 0
        behind = [pending for pending in found.pending if pending.seq > seq]
        is_alive = found.is_leased_at(self._now_us) and not found.yielded_us
        return sum(p.is_finished for p in behind), sum(p.is_leased for p in behind) if is_alive else 0

    def _upto(self, log: CommitLog, place: SpecialPartition) -> int:
        key = (place.number, place.seq)
        upto = self._known.upto.get(key)
        if upto is None:
            upto = self._single.upto(log, place.number, place.seq)
        self._used.upto[key] = upto
        return upto
