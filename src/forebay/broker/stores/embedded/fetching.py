"""Messages out of the records that hold them: those that a group never had, and single ones by their seq."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Sequence
from math import inf

from forebay.broker.message_columns import MessageColumns, Run
from forebay.broker.messages import Message
from forebay.broker.queue_rules import visible_count, visible_us
from forebay.broker.stores.embedded.index import MessageIndex, Partition
from forebay.broker.stores.embedded.queues import OpenQueue
from forebay.broker.stores.embedded.records import StoredRecord
from forebay.clock import Clock
from forebay.commitlog import CommitLog
from forebay.model.queue import QueueOptions

_BLOCKS_AT_FIRST = 4
"""Enough where messages were pushed in batches that are about as large as those in which they are popped."""
BLOCKS_AT_ONCE = 64
_OF_ANY_AGE = QueueOptions()


class RecordLost(Exception):
    """A message that was delivered cannot be read any more. It is noted as lost: look at the state again."""


class Fetcher:
    def __init__(self, index: MessageIndex, clock: Clock) -> None:
        self._index = index
        self._clock = clock

    def fresh(
        self,
        queue: OpenQueue,
        partition: Partition,
        after_seq: int,
        gone: Collection[int],
        *,
        batch: int,
        bytes_max: float = inf,
        options: QueueOptions = _OF_ANY_AGE,
    ) -> tuple[MessageColumns, int]:
        """Messages behind `after_seq` as they are delivered for the first time, at most `batch`, without the gone.

        The one that reaches `bytes_max` is the last.

        With them, when the first one is due that is too young by the options; those behind it wait for it.
        """
        now_us, left = self._clock.now_us(), bytes_max
        wire_id = queue.wire_id(partition.partition_id)
        found = MessageColumns()
        seq, limit = after_seq, _BLOCKS_AT_FIRST
        while len(found) < batch and seq < partition.last_seq:
            blocks = self._index.blocks_after(partition.partition_id, seq, limit)
            if not blocks:
                break
            for block in blocks:
                record = self._index.record(queue, block)
                if record is None:
                    continue
                places = record.places(partition.name, block.first_seq, block.last_seq, block.messages)
                places = places[bisect_right(places, seq - record.first_seq) :]
                if gone:
                    places = [place for place in places if record.first_seq + place not in gone]
                places = record.first_within(places[: batch - len(found)], left)
                old = len(places)
                if options.delayed_processing_seconds:
                    old = visible_count((record.created_us[place] for place in places), options, now_us)
                run = Run(queue.info.name, partition.name, wire_id, old)
                left -= record.add_to(found, run, places[:old], attempts=1)
                record.left -= old
                if record.left <= 0:
                    self._index.used_up(queue, record)
                if old < len(places):
                    return found, visible_us(record.created_us[places[old]], options)
                if len(found) >= batch or left <= 0:
                    return found, 0
                seq = max(seq, block.last_seq)
            limit = BLOCKS_AT_ONCE
        return found, 0

    def by_seq(self, queue: OpenQueue, partition: Partition, seqs: Sequence[int]) -> dict[int, Message]:
        """Messages of the partition as they are kept. Raises `RecordLost` when one of them is not."""
        found = {}
        for seq in seqs:
            (block,) = self._index.blocks_after(partition.partition_id, seq - 1, 1)
            record = self._index.record(queue, block)
            if record is None:
                raise RecordLost
            found[seq] = message_of(queue, partition.partition_id, record, seq - record.first_seq)
        return found


def message_of(queue: OpenQueue, partition_id: int, record: StoredRecord, place: int) -> Message:
    """As it is kept: no attempt counted."""
    found = MessageColumns()
    run = Run(queue.info.name, record.partitions[place], queue.wire_id(partition_id), 1)
    record.add_to(found, run, [place], attempts=0)
    return found[0]


def seq_before(log: CommitLog, time_us: int, from_seq: int = 1, to_seq: int | None = None) -> int:
    """The last message that is older than everything created at `time_us` or later, of those between the two seqs."""
    # What is damaged has no time any more. It is noted by the call that wants its messages.
    for record in log.read_records(max(from_seq, log.first_seq), to_seq, on_damage=lambda damage: None):
        if record.header.created_max_us >= time_us:
            created = record.plain().created_us()
            place = next(place for place, created_us in enumerate(created) if created_us >= time_us)
            return record.header.first_seq + place - 1
    return log.next_seq - 1 if to_seq is None else to_seq
