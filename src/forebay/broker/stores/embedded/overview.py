"""What is asked about queues and groups rather than of them: figures, browsing, seeking, removing."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from forebay.broker.delivery import DeliveryState
from forebay.broker.messages import Message
from forebay.broker.overview import PartitionStatus
from forebay.broker.stores.embedded.database import Database
from forebay.broker.stores.embedded.fetching import message_of
from forebay.broker.stores.embedded.index import MessageIndex, Partition
from forebay.broker.stores.embedded.popping import Popper
from forebay.broker.stores.embedded.queues import OpenQueue, Queues
from forebay.broker.stores.embedded.records import StoredRecord
from forebay.clock import Clock

_SECOND_US = 1_000_000
_BLOCKS_AT_ONCE = 64
SEEK_PARTITIONS_MAX = 10_000
"""Set to another seq before others get their turn."""


class Overview:
    def __init__(self, database: Database, queues: Queues, index: MessageIndex, popper: Popper, clock: Clock) -> None:
        self._database = database
        self._queues = queues
        self._index = index
        self._popper = popper
        self._clock = clock

    # --- queues ---

    def partitions(self, queue: OpenQueue, limit: int, offset: int) -> list[PartitionStatus]:
        rows = self._database.all(
            "SELECT name, id, pushed - removed, last_seq, newest_us FROM partitions WHERE queue_id = ? "
            "ORDER BY name LIMIT ? OFFSET ?",
            (queue.queue_id, limit, offset),
        )
        return [PartitionStatus(name, queue.wire_id(number), *rest) for name, number, *rest in rows]

    def delete(self, name: str) -> int | None:
        """Take the queue out of the database; its log is removed when that is committed. None when there is none.

        Returns its number: what belonged to it is waste from now on (`purging`).
        """
        queue = self._queues.by_name.get(name)
        if queue is None:
            return None
        self._database.do("DELETE FROM groups WHERE queue_id = ?", (queue.queue_id,))
        self._database.do("DELETE FROM queues WHERE id = ?", (queue.queue_id,))
        self._queues.forget(name)
        return queue.queue_id

    # --- messages ---

    def read(self, queue: OpenQueue, from_seq: int, limit: int, partition: str | None, bytes_max: int) -> list[Message]:
        if partition is None:
            walk = self._walk(queue, from_seq)
        elif partition in queue.partitions:
            walk = self._walk_partition(queue, self._popper.states.partition(queue.partitions[partition]), from_seq)
        else:
            return []
        found, left = list[Message](), bytes_max
        for message in islice(walk, limit):
            found.append(message)
            left -= len(message.payload)
            if left <= 0:
                break
        return found

    def _walk(self, queue: OpenQueue, from_seq: int) -> Iterator[Message]:
        """Every message that counts, in the order of the log."""
        floors: dict[int, int] = {}
        deleted = {
            seq
            for (seq,) in self._database.all(
                "SELECT d.seq FROM deleted_messages d JOIN partitions p ON p.id = d.partition_id "
                "WHERE p.queue_id = ? AND d.seq >= ?",
                (queue.queue_id, from_seq),
            )
        }
        records = queue.log.read_records(max(from_seq, queue.log.first_seq), on_damage=self._index.on_damage(queue))
        for record in records:
            stored = StoredRecord(record.plain())
            if not self._index.tags.counts(stored.tag):
                continue
            for place, name in enumerate(stored.partitions):
                number, seq = queue.partitions.get(name), stored.first_seq + place
                if number is None:
                    continue  # it was removed, being empty
                if number not in floors:
                    floors[number] = self._popper.states.partition(number).floor_seq
                if seq > max(from_seq - 1, floors[number]) and seq not in deleted:
                    yield message_of(queue, number, stored, place)

    def _walk_partition(self, queue: OpenQueue, partition: Partition, from_seq: int) -> Iterator[Message]:
        seq = max(from_seq - 1, partition.floor_seq)
        deleted = self._popper.states.deleted(partition, seq)
        while blocks := self._index.blocks_after(partition.partition_id, seq, _BLOCKS_AT_ONCE):
            for block in blocks:
                record = self._index.record(queue, block)
                if record is None:
                    continue
                for place in record.places(partition.name, block.first_seq, block.last_seq, block.messages):
                    if record.first_seq + place > seq and record.first_seq + place not in deleted:
                        yield message_of(queue, partition.partition_id, record, place)
                seq = block.last_seq

    def message(self, wire_id: str, transaction_id: str) -> Message | None:
        found = self._queues.of_wire_id(wire_id)
        if found is None or found[1] not in found[0].partitions.values():
            return None
        queue, number = found
        partition = self._popper.states.partition(number)
        for seq in self._index.ids.seqs({number: [transaction_id]}).values():
            found_message = next(self._walk_partition(queue, partition, seq), None)
            return found_message if found_message is not None and found_message.seq == seq else None
        # A minted id is in no index: whoever asks for one by hand waits for the partition to be read.
        return self._searched(queue, partition, transaction_id)

    def _searched(self, queue: OpenQueue, partition: Partition, transaction_id: str) -> Message | None:
        """The ids of a record are looked through as a whole: a message is made of the one that is wanted alone."""
        seq = partition.floor_seq
        deleted = self._popper.states.deleted(partition, seq)
        while blocks := self._index.blocks_after(partition.partition_id, seq, _BLOCKS_AT_ONCE):
            for block in blocks:
                record = self._index.record(queue, block)
                if record is not None and transaction_id in record.ids:
                    for place in record.places(partition.name, block.first_seq, block.last_seq, block.messages):
                        found = record.first_seq + place
                        if record.ids[place] == transaction_id and found > partition.floor_seq and found not in deleted:
                            return message_of(queue, partition.partition_id, record, place)
                seq = block.last_seq
        return None

    def delete_message(self, wire_id: str, transaction_id: str) -> tuple[OpenQueue, int] | None:
        """Take a message out: a row says that it is gone. Its bytes leave the disk with their segment."""
        message, found = self.message(wire_id, transaction_id), self._queues.of_wire_id(wire_id)
        if message is None or found is None:
            return None
        number = found[1]
        self._database.do("INSERT INTO deleted_messages (partition_id, seq) VALUES (?, ?)", (number, message.seq))
        self._database.do(
            "DELETE FROM transaction_ids WHERE partition_id = ? AND transaction_id = ? AND seq = ?",
            (number, transaction_id, message.seq),
        )
        self._database.do(
            "UPDATE partitions SET removed = removed + 1, size = size - ? WHERE id = ?", (len(message.payload), number)
        )
        return found

    # --- groups ---

    def seek(self, name: str, queue: OpenQueue, partition: str | None, seq: int, after: int) -> tuple[int, int | None]:
        """Set the group's cursors before the seq, on some partitions with numbers above `after`.

        Returns on how many, and the number to go on from, if there may be others.
        """
        group = queue.groups.get(name) or self._popper.add_group(queue, name, "all", 0, 0)
        if partition is None and not after:
            # For partitions that are made later, where the seq is still to come.
            group.start_seq = max(seq - 1, 0)
            self._database.do("UPDATE groups SET start_seq = ? WHERE id = ?", (group.start_seq, group.group_id))
            group.ready = queue.waiting = None
        numbers = self._database.all(
            "SELECT id FROM partitions NOT INDEXED WHERE id > ?1 AND queue_id = ?2 AND (?3 IS NULL OR name = ?3) "
            "ORDER BY id LIMIT ?4",
            (after, queue.queue_id, partition, SEEK_PARTITIONS_MAX),
        )
        if numbers:
            state = DeliveryState(max(seq - 1, 0))
            self._popper.states.save_all(group, queue, partition, (after + 1, numbers[-1][0]), state)
            group.ready = queue.waiting = None
        return len(numbers), numbers[-1][0] if len(numbers) == SEEK_PARTITIONS_MAX else None

    def delete_group(self, name: str, queue: str | None) -> int:
        known = 0
        for found in self._queues.by_id.values():
            group = found.groups.get(name) if queue in (None, found.info.name) else None
            if group is not None:
                known += self._database.do("DELETE FROM states WHERE group_id = ?", (group.group_id,))
                self._database.do("DELETE FROM groups WHERE id = ?", (group.group_id,))
                del found.groups[name]
        return known
