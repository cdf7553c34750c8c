"""The index of messages: which record holds which messages of which partition, and the ids that producers gave.

Derived from the logs. `catch_up` makes it whole after a crash. What was noted last (`index_tail`) is found only when it
is settled, except for ids (`given_ids`), which are found from the moment they are noted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from forebay.broker.stores.embedded.database import Database
from forebay.broker.stores.embedded.given_ids import GivenIds
from forebay.broker.stores.embedded.index_tail import IndexTail, Share, shares_of, spans_of
from forebay.broker.stores.embedded.queues import OpenQueue, Queues
from forebay.broker.stores.embedded.records import RecordCache, StoredRecord
from forebay.broker.stores.embedded.tags import CommittedTags


class Block(NamedTuple):
    """A partition's share of one record."""

    first_seq: int
    last_seq: int
    messages: int
    before: int
    record_seq: int
    position: int


class Partition(NamedTuple):
    """A partition's row."""

    partition_id: int
    name: str
    last_seq: int
    newest_us: int
    floor_seq: int
    pushed: int
    has_deleted: bool
    """Whether single messages above the floor were deleted."""
    queue_id: int


PARTITION_COLUMNS = (
    "p.id, p.name, p.last_seq, p.newest_us, p.floor_seq, p.pushed, "
    "EXISTS (SELECT 1 FROM deleted_messages WHERE partition_id = p.id), p.queue_id"
)
"""A `Partition`, column by column; `p` is the row of `partitions`."""


class MessageIndex:
    def __init__(self, database: Database, queues: Queues, cache: RecordCache) -> None:
        self._database = database
        self._queues = queues
        self._cache = cache
        self._tail = IndexTail()
        self.ids = GivenIds(database)
        self.tags = CommittedTags(database)

    # messages that are new

    def note(
        self, queue: OpenQueue, first_seq: int, position: int, shares: Mapping[int, Share], created_us: int
    ) -> None:
        """A record was written; this is each partition's share of it. To be looked up when it is settled."""
        self._tail.add(queue.queue_id, first_seq, position, shares, created_us)
        _make_ready(queue, shares)

    @property
    def is_tail_long(self) -> bool:
        return self._tail.is_long

    def settle(self) -> None:
        """Put into the database what was noted."""
        tail, self._tail = self._tail, IndexTail()
        if tail.blocks:
            self._write(tail)
        self.ids.settle()

    def forget_noted(self) -> None:
        """It will be read from the logs again."""
        self._tail = IndexTail()
        self.ids.forget_noted()

    def add(
        self, queue: OpenQueue, first_seq: int, position: int, shares: Mapping[int, Share], created_us: int
    ) -> None:
        """What `note` does, now."""
        record = IndexTail()
        record.add(queue.queue_id, first_seq, position, shares, created_us)
        self._write(record)
        _make_ready(queue, shares)

    def _write(self, tail: IndexTail) -> None:
        self._database.many(
            "INSERT INTO blocks (partition_id, first_seq, last_seq, count, before, record_seq, position) "
            "VALUES (?1, ?2, ?3, ?4, ?5 + (SELECT pushed FROM partitions WHERE id = ?1), ?6, ?7)",
            sorted(tail.blocks),
        )
        self._database.many(
            "UPDATE partitions SET last_seq = ?, newest_us = max(newest_us, ?), pushed = pushed + ?, size = size + ? "
            "WHERE id = ?",
            [(*change, partition_id) for partition_id, change in sorted(tail.changes.items())],
        )
        for queue_id, seq in tail.indexed.items():
            self._mark_indexed(queue_id, seq)

    def _mark_indexed(self, queue_id: int, seq: int) -> None:
        self._database.do("UPDATE queues SET indexed_seq = ? WHERE id = ?", (seq, queue_id))

    def blocks_after(self, partition_id: int, seq: int, limit: int) -> list[Block]:
        """The partition's records that hold messages behind `seq`, in order."""
        rows = self._database.all(
            "SELECT first_seq, last_seq, count, before, record_seq, position FROM blocks "
            "WHERE partition_id = ?1 AND first_seq >= coalesce((SELECT max(first_seq) FROM blocks "
            "WHERE partition_id = ?1 AND first_seq <= ?2), 0) ORDER BY first_seq LIMIT ?3",
            (partition_id, seq + 1, limit + 1),
        )
        return [block for row in rows if (block := Block(*row)).last_seq > seq][:limit]

    def record(self, queue: OpenQueue, block: Block) -> StoredRecord:
        return self._cache.get(queue.queue_id, queue.log, block.record_seq, block.position)

    def used_up(self, queue: OpenQueue, record: StoredRecord) -> None:
        """All messages of the record were fetched."""
        self._cache.retire(queue.queue_id, record)

    def count_upto(self, queue: OpenQueue, partition_id: int, name: str, seq: int) -> int:
        """How many messages the partition ever had up to `seq`."""
        row = self._database.one(
            "SELECT first_seq, last_seq, count, before, record_seq, position FROM blocks "
            "WHERE partition_id = ? AND first_seq <= ? ORDER BY first_seq DESC LIMIT 1",
            (partition_id, seq),
        )
        if row is None:
            found = self._database.one(
                "SELECT before FROM blocks WHERE partition_id = ? ORDER BY first_seq LIMIT 1", (partition_id,)
            )
            return found[0] if found else 0
        block = Block(*row)
        if block.last_seq <= seq:
            return block.before + block.messages
        places = self.record(queue, block).places(name, block.first_seq, block.last_seq, block.messages)
        return block.before + sum(block.record_seq + place <= seq for place in places)

    def catch_up(self) -> int:
        """Index what the logs hold and the index does not; returns how many messages that were."""
        return sum(self._catch_up(queue) for queue in self._queues.by_id.values())

    def _catch_up(self, queue: OpenQueue) -> int:
        row = self._database.one("SELECT indexed_seq FROM queues WHERE id = ?", (queue.queue_id,))
        start = max(row[0] + 1, queue.log.first_seq)
        found = 0
        for record in queue.log.read_records(start):
            header = record.header
            stored = StoredRecord(record.plain())
            if not self.tags.counts(stored.tag):
                self._mark_indexed(queue.queue_id, header.next_seq - 1)
                continue
            partition_ids = [self._queues.partition_id(queue, name) for name in stored.partitions]
            shares = shares_of(header.first_seq, spans_of(partition_ids, stored.payload_sizes()))
            self.add(queue, header.first_seq, header.position, shares, header.created_max_us)
            # Minted ids too: nobody was told that these messages are stored, so they may come again, buffered.
            self.ids.add(
                [
                    (partition_id, stored.ids[place], header.first_seq + place)
                    for place, partition_id in enumerate(partition_ids)
                ]
            )
            found += stored.count
        return found


def _make_ready(queue: OpenQueue, partition_ids: Iterable[int]) -> None:
    """Let groups that know which partitions have something for them know of these too."""
    for group in queue.groups.values():
        if group.ready is not None:
            for partition_id in partition_ids:
                group.ready.add(partition_id)
