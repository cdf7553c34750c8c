"""How many messages of a queue wait for the group that is furthest behind: counted once, then kept as it changes.

A queue with `maxSize` needs the number for every push that may not fit. It is counted when it is first needed, some
partitions in each cycle of the store's thread (`count_some`), so that others get their turn in between; partitions that
are counted already are kept up to date meanwhile. What cannot be followed (a seek, retention, a deleted or lost
message) throws the count away, and the next push that needs it begins anew.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from forebay.broker.stores.embedded.database import Database
from forebay.broker.stores.embedded.partition_lag import Lag, PartitionLag
from forebay.broker.stores.embedded.queries import query
from forebay.broker.stores.embedded.special_lags import special_partitions
from forebay.broker.stores.embedded.turn import NotYet
from forebay.commitlog import CommitLog

_LAGS = query("figures_lags")


class StillCounting(NotYet):
    """The number is not known yet."""

    def __init__(self) -> None:
        super().__init__("what waits in the queue is being counted")


class WaitingCount:
    def __init__(self, places_max: int) -> None:
        """`places_max`: partitions, times groups, that are counted in one turn."""
        self._places_max = places_max
        self._upto = 0
        """Partitions up to this number are counted."""
        self.is_whole = False
        self._kept = 0
        self._pushed = 0
        self._passed: Counter[int] = Counter()
        """By group: messages that it does not wait for."""
        self._ahead_seq = 0
        """The highest seq that a group was set to: it does not wait for messages up to it, be they still to come."""

    def count_some(self, database: Database, log: CommitLog, queue_id: int, group_ids: Sequence[int]) -> None:
        """Count the next partitions. The index has to be settled."""
        if self.is_whole:
            return
        limit = max(self._places_max // max(len(group_ids), 1), 1)
        rows = database.all(
            query("partitions_counts"),
            (queue_id, self._upto, limit),
        )
        pushed = sum(row[1] for row in rows)
        if not self._upto and group_ids:
            (start_seq,) = database.one(query("groups_start_max"), (queue_id,))
            self._ahead_seq = start_seq or 0
        if rows and group_ids:
            lags = self._lags(database, log, queue_id, self._upto, rows[-1][0])
            for group_id in group_ids:
                self._passed[group_id] += pushed - lags[group_id]
                (cursor,) = database.one(
                    query("cursor_max"),
                    (group_id, self._upto + 1, rows[-1][0]),
                )
                self._ahead_seq = max(self._ahead_seq, cursor or 0)
        self._pushed += pushed
        self._kept += pushed - sum(row[2] for row in rows)
        self._upto = rows[-1][0] if rows else self._upto
        self.is_whole = len(rows) < limit

    def _lags(self, database: Database, log: CommitLog, queue_id: int, after: int, last: int) -> Counter[int]:
        lags: Counter[int] = Counter()
        single = PartitionLag(database.execute, now_us=0)
        values = {"queue_id": queue_id, "after_partition": after, "last_partition": last}
        for group_id, left, _, _, special in database.execute(_LAGS, values).fetchall():
            odd = Lag(0, 0, None)
            for place in special_partitions(special):
                odd = odd.joined(single.of(log, group_id, place.number))
            lags[group_id] = (left or 0) + odd.messages
        return lags

    def of(self, group_ids: Iterable[int]) -> int:
        """Messages that wait for the group that is furthest behind; without groups, all that are kept."""
        if not self.is_whole:
            raise StillCounting
        passed = [self._passed[group_id] for group_id in group_ids]
        return self._pushed - min(passed) if passed else self._kept

    def pushed(self, shares: Mapping[int, Sequence[int]]) -> bool:
        """Messages came: for each partition its first seq, last seq and how many. False: that cannot be followed."""
        if any(share[0] <= self._ahead_seq for share in shares.values()):
            return False
        count = sum(share[2] for number, share in shares.items() if number <= self._upto or self.is_whole)
        self._pushed += count
        self._kept += count
        return True

    def finished(self, group_id: int, partition_id: int, messages: int) -> None:
        """A group has finished some in a partition."""
        if partition_id <= self._upto or self.is_whole:
            self._passed[group_id] += messages
