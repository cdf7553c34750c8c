"""Removing what the queues' options no longer keep.

A partition's *floor* is the last seq that is gone from it: nothing up to it is delivered, read or counted any more.
Disk space comes back when a whole segment of the log is below all floors.
"""

from __future__ import annotations

import logging

from forebay.broker.stores.embedded.database import Database
from forebay.broker.stores.embedded.index import MessageIndex, Partition
from forebay.broker.stores.embedded.popping import Popper
from forebay.broker.stores.embedded.queues import OpenQueue, Queues
from forebay.clock import Clock
from forebay.errors import ForebayError

logger = logging.getLogger(__name__)

_SECOND_US = 1_000_000


class Retention:
    def __init__(
        self,
        database: Database,
        queues: Queues,
        index: MessageIndex,
        popper: Popper,
        clock: Clock,
        freed: set[str],
    ) -> None:
        """`freed`: where queues are noted of which a partition may be claimed again."""
        self._database = database
        self._queues = queues
        self._index = index
        self._popper = popper
        self._clock = clock
        self._freed = freed
        self._to_truncate: dict[int, int] = {}
        """Queues by number, and the seq before which their logs are not needed once this is committed."""

    def apply(self) -> int:
        return sum(self._apply(queue) for queue in list(self._queues.by_id.values()))

    def _apply(self, queue: OpenQueue) -> int:
        options, now_us = queue.info.options, self._clock.now_us()
        if not options.retention_enabled or not (options.retention_seconds or options.completed_retention_seconds):
            return 0
        removed = 0
        for number in queue.partitions.values():
            partition = self._popper.states.partition(number)
            floor = partition.floor_seq
            if options.retention_seconds:
                cutoff_us = now_us - options.retention_seconds * _SECOND_US
                floor = max(floor, self._last_before(queue, partition, cutoff_us, partition.last_seq))
            if options.completed_retention_seconds and queue.groups:
                done = min(self._popper.states.cursor_seq(group, partition) for group in queue.groups.values())
                cutoff_us = now_us - options.completed_retention_seconds * _SECOND_US
                floor = max(floor, self._last_before(queue, partition, cutoff_us, done))
            if floor > partition.floor_seq:
                removed += self._raise_floor(queue, partition, floor)
        if removed:
            self._free(queue)
        return removed

    def _last_before(self, queue: OpenQueue, partition: Partition, cutoff_us: int, upto_seq: int) -> int:
        """The last message of the front that is older than the cutoff, not beyond `upto_seq`."""
        last = seq = partition.floor_seq
        while blocks := self._index.blocks_after(partition.partition_id, seq, 64):
            for block in blocks:
                record = self._index.record(queue, block)
                for place in record.places(partition.name, block.first_seq, block.last_seq, block.messages):
                    found = record.first_seq + place
                    if found <= last:
                        continue
                    if found > upto_seq or record.created_us[place] >= cutoff_us:
                        return last
                    last = found
                seq = block.last_seq
        return last

    def _raise_floor(self, queue: OpenQueue, partition: Partition, floor: int) -> int:
        number = partition.partition_id
        count, size = self._between(queue, partition, floor)
        self._database.do(
            "UPDATE partitions SET floor_seq = ?, removed = removed + ?, size = size - ? WHERE id = ?",
            (floor, count, size, number),
        )
        self._database.do("DELETE FROM blocks WHERE partition_id = ? AND last_seq <= ?", (number, floor))
        self._database.do("DELETE FROM transaction_ids WHERE partition_id = ? AND seq <= ?", (number, floor))
        self._database.do("DELETE FROM deleted_messages WHERE partition_id = ? AND seq <= ?", (number, floor))
        for group in queue.groups.values():
            # What it waits for may be gone: a lease on nothing is over.
            if group.ready is not None and group.ready.wakes_us(number) is not None:
                group.ready.wake(number)
                self._freed.add(queue.info.name)
        return count

    def _between(self, queue: OpenQueue, partition: Partition, floor: int) -> tuple[int, int]:
        """Messages that go when the floor rises, and the bytes of their payloads."""
        count = size = 0
        seq = partition.floor_seq
        deleted = self._popper.states.deleted(partition, seq)
        while seq < floor and (blocks := self._index.blocks_after(partition.partition_id, seq, 64)):
            for block in blocks:
                record = self._index.record(queue, block)
                sizes = record.payload_sizes()
                for place in record.places(partition.name, block.first_seq, block.last_seq, block.messages):
                    found = record.first_seq + place
                    if partition.floor_seq < found <= floor and found not in deleted:
                        count += 1
                        size += sizes[place]
                seq = block.last_seq
        return count, size

    def _free(self, queue: OpenQueue) -> None:
        """Note which segments hold nothing that any partition keeps."""
        row = self._database.one(
            "SELECT min(b.record_seq) FROM blocks b JOIN partitions p ON p.id = b.partition_id WHERE p.queue_id = ?",
            (queue.queue_id,),
        )
        self._to_truncate[queue.queue_id] = row[0] if row and row[0] is not None else queue.log.next_seq

    def truncate_logs(self) -> None:
        """Give the segments back, now that it is on the disk that nobody needs them. What fails is left for later."""
        while self._to_truncate:
            queue_id, seq = self._to_truncate.popitem()
            queue = self._queues.by_id.get(queue_id)
            try:
                if queue is not None:
                    queue.log.truncate_before(seq)
            except (OSError, ForebayError) as error:
                logger.warning("segments are not removed: %s", error, extra={"action": "store_truncate_failed"})

    def give_up_what_is_lost(self) -> None:
        """When opening: let floors rise over messages whose segments are gone, or what is behind is never reached."""
        for queue in self._queues.by_id.values():
            first_seq = queue.log.first_seq
            lost = self._database.all(
                "SELECT b.partition_id, max(b.last_seq) FROM blocks b JOIN partitions p ON p.id = b.partition_id "
                "WHERE p.queue_id = ? AND b.record_seq < ? GROUP BY b.partition_id",
                (queue.queue_id, first_seq),
            )
            for number, floor in lost:
                self._give_up(number, floor, first_seq)
            if lost:
                logger.warning(
                    "queue %r: messages before seq %d, of %d partitions, are not in its log any more, and given up",
                    queue.info.name,
                    first_seq,
                    len(lost),
                    extra={"action": "store_segments_lost"},
                )

    def _give_up(self, number: int, floor: int, first_seq: int) -> None:
        for table in ("transaction_ids", "deleted_messages"):
            self._database.do(f"DELETE FROM {table} WHERE partition_id = ? AND seq <= ?", (number, floor))
        self._database.do("DELETE FROM blocks WHERE partition_id = ? AND record_seq < ?", (number, first_seq))
        (kept,) = self._database.one("SELECT coalesce(sum(count), 0) FROM blocks WHERE partition_id = ?", (number,))
        (gone,) = self._database.one("SELECT count(*) FROM deleted_messages WHERE partition_id = ?", (number,))
        # The bytes of what is lost are known to nobody: what is left is taken for average.
        self._database.do(
            "UPDATE partitions SET floor_seq = max(floor_seq, ?), removed = pushed - ?, "
            "size = CASE WHEN pushed > removed THEN size * ? / (pushed - removed) ELSE 0 END WHERE id = ?",
            (floor, kept - gone, kept - gone, number),
        )

    def forget_truncations(self) -> None:
        """After a rollback."""
        self._to_truncate.clear()
