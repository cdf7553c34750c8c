"""The index of messages: which record holds which messages of which partition, and the ids that producers gave.

Derived from the logs. `catch_up` makes it whole after a crash. What was noted last (`unwritten_index`) is found only
when it is settled, except for ids (`given_ids`), which are found from the moment they are noted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from forebay.broker.stores.embedded.database import Database
from forebay.broker.stores.embedded.given_ids import GivenIds
from forebay.broker.stores.embedded.limits import EmbeddedLimits
from forebay.broker.stores.embedded.losses import Losses
from forebay.broker.stores.embedded.queries import query
from forebay.broker.stores.embedded.queues import OpenQueue, Queues
from forebay.broker.stores.embedded.records import RecordCache, StoredRecord
from forebay.broker.stores.embedded.tags import CommittedTags
from forebay.broker.stores.embedded.unwritten_index import Share, UnwrittenIndex, shares_of, spans_of
from forebay.commitlog.reader import OnDamage
from forebay.commitlog.scan import Record
from forebay.errors import DamagedRange, SegmentDamaged, SegmentMissing


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
    """Whether single messages above the floor were deleted, or are lost."""
    queue_id: int


class MessageIndex:
    def __init__(
        self, database: Database, queues: Queues, cache: RecordCache, losses: Losses, limits: EmbeddedLimits
    ) -> None:
        self._database = database
        self._queues = queues
        self._cache = cache
        self._losses = losses
        self._limits = limits
        self._tail = UnwrittenIndex(limits)
        self.ids = GivenIds(database)
        self.tags = CommittedTags(database, limits)

    # messages that are new

    def note(
        self, queue: OpenQueue, first_seq: int, position: int, shares: Mapping[int, Share], created_us: int
    ) -> None:
        """A record was written; this is each partition's share of it. To be looked up when it is settled."""
        self._tail.add(queue.queue_id, first_seq, position, shares, created_us)
        _tell_groups(queue, shares)

    @property
    def is_tail_long(self) -> bool:
        return self._tail.is_long

    def settle(self) -> None:
        """Put into the database what was noted."""
        tail, self._tail = self._tail, UnwrittenIndex(self._limits)
        if tail.blocks:
            self._write(tail)
        self.ids.settle()

    def forget_noted(self) -> None:
        """It will be read from the logs again."""
        self._tail = UnwrittenIndex(self._limits)
        self.ids.forget_noted()

    def add(
        self, queue: OpenQueue, first_seq: int, position: int, shares: Mapping[int, Share], created_us: int
    ) -> None:
        """What `note` does, now."""
        record = UnwrittenIndex(self._limits)
        record.add(queue.queue_id, first_seq, position, shares, created_us)
        self._write(record)
        _tell_groups(queue, shares)

    def _write(self, tail: UnwrittenIndex) -> None:
        self._database.many(
            query("block_add"),
            sorted(tail.blocks),
        )
        self._database.many(
            query("partition_grow"),
            [(*change, partition_id) for partition_id, change in sorted(tail.changes.items())],
        )
        for queue_id, seq in tail.indexed.items():
            self._mark_indexed(queue_id, seq)

    def _mark_indexed(self, queue_id: int, seq: int) -> None:
        self._database.do(query("queue_set_indexed"), (seq, queue_id))

    def blocks_after(self, partition_id: int, seq: int, limit: int) -> list[Block]:
        """The partition's records that hold messages behind `seq`, in order, without those that are lost."""
        rows = self._database.all(
            query("blocks_after"),
            {"partition_id": partition_id, "seq": seq + 1, "limit": limit + 1},
        )
        return [block for row in rows if (block := Block(*row)).last_seq > seq][:limit]

    def record(self, queue: OpenQueue, block: Block) -> StoredRecord | None:
        """The record that holds it; None when it cannot be read, which is noted then."""
        try:
            return self._cache.get(queue.queue_id, queue.log, block.record_seq, block.position)
        except (SegmentDamaged, SegmentMissing) as damaged:
            lost, last_seq = damaged.damage, damaged.damage.last_seq
            # Whatever the damage is taken to be, the record that was wanted is part of it.
            first_seq, last_seq = min(lost.first_seq, block.record_seq), max(last_seq or 0, block.last_seq)
            self._losses.note(queue, replace(lost, first_seq=first_seq, last_seq=last_seq))
            return None

    def on_damage(self, queue: OpenQueue) -> OnDamage:
        """For a reader of the queue's whole log: notes what cannot be read."""
        return partial(self._losses.note, queue)

    def lost_ranges(self, partition_id: int, seq: int) -> list[tuple[int, int]]:
        """First and last seq of the partition's records that are lost, of those that reach behind `seq`."""
        return self._database.all(
            query("lost_blocks_after"),
            (partition_id, seq),
        )

    def used_up(self, queue: OpenQueue, record: StoredRecord) -> None:
        """All messages of the record were fetched."""
        self._cache.retire(queue.queue_id, record)

    def catch_up(self) -> int:
        """Index what the logs hold and the index does not; returns how many messages that were."""
        return sum(self._catch_up(queue) for queue in self._queues.by_id.values())

    def _catch_up(self, queue: OpenQueue) -> int:
        (indexed_seq,) = self._database.one(query("queue_indexed"), (queue.queue_id,))
        expected, found = max(indexed_seq + 1, queue.log.first_seq), 0
        damage: list[DamagedRange] = []
        for record in queue.log.read_records(expected, on_damage=damage.append):
            header = record.header
            self._pass_lost(queue, expected, header.first_seq, damage)
            found += self._index_record(queue, record)
            expected = header.next_seq
        self._pass_lost(queue, expected, queue.log.next_seq, damage)
        return found

    def _index_record(self, queue: OpenQueue, record: Record) -> int:
        header = record.header
        stored = StoredRecord(record.plain())
        if not self.tags.counts(stored.tag):
            self._mark_indexed(queue.queue_id, header.next_seq - 1)
            return 0
        partition_ids = [self._queues.partition_id(queue, name) for name in stored.partitions]
        shares = shares_of(header.first_seq, spans_of(partition_ids, stored.payload_sizes()))
        self.add(queue, header.first_seq, header.position, shares, header.created_max_us)
        # Minted ids too: no client has a response that says these messages are stored, so they may come again,
        # buffered.
        self.ids.add(
            [
                (partition_id, stored.ids[place], header.first_seq + place)
                for place, partition_id in enumerate(partition_ids)
            ]
        )
        return stored.count

    def _pass_lost(self, queue: OpenQueue, expected: int, found: int, damage: list[DamagedRange]) -> None:
        """Note that no record holds the messages from `expected` to before `found`, and go on behind them."""
        if expected < found:
            reason = damage[-1].reason if damage else "no record holds them"
            self._losses.note_unindexed(queue, expected, found - 1, reason)
            self._mark_indexed(queue.queue_id, found - 1)
        damage.clear()


def _tell_groups(queue: OpenQueue, shares: Mapping[int, Share]) -> None:
    """Let groups that know which partitions have something for them know of these too, and count what waits."""
    for group in queue.groups.values():
        if group.ready is not None:
            for partition_id in shares:
                group.ready.add(partition_id)
    if queue.waiting is not None and not queue.waiting.pushed(shares):
        queue.waiting = None
