"""What a person sees of queues: their partitions, and messages as they are kept."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from forebay.broker.messages import Message
from forebay.broker.overview import PartitionStatus
from forebay.broker.stores.embedded.database import Database
from forebay.broker.stores.embedded.fetching import BLOCKS_AT_ONCE, message_of
from forebay.broker.stores.embedded.index import MessageIndex, Partition
from forebay.broker.stores.embedded.queries import query
from forebay.broker.stores.embedded.queues import OpenQueue, Queues
from forebay.broker.stores.embedded.records import StoredRecord
from forebay.broker.stores.embedded.states import States


class Browsing:
    def __init__(self, database: Database, queues: Queues, index: MessageIndex, states: States) -> None:
        self._database = database
        self._queues = queues
        self._index = index
        self._states = states

    def partitions(self, queue: OpenQueue, limit: int, offset: int) -> list[PartitionStatus]:
        rows = self._database.all(
            query("partitions_list"),
            (queue.queue_id, limit, offset),
        )
        return [PartitionStatus(name, queue.wire_id(number), *rest) for name, number, *rest in rows]

    def read(self, queue: OpenQueue, from_seq: int, limit: int, partition: str | None, bytes_max: int) -> list[Message]:
        if partition is None:
            walk = self._walk(queue, from_seq)
        elif partition in queue.partitions:
            walk = self._walk_partition(queue, self._states.partition(queue.partitions[partition]), from_seq)
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
                query("deleted_of_queue_from"),
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
                    floors[number] = self._states.partition(number).floor_seq
                if seq > max(from_seq - 1, floors[number]) and seq not in deleted:
                    yield message_of(queue, number, stored, place)

    def _walk_partition(self, queue: OpenQueue, partition: Partition, from_seq: int) -> Iterator[Message]:
        seq = max(from_seq - 1, partition.floor_seq)
        deleted = self._states.deleted(partition, seq)
        while blocks := self._index.blocks_after(partition.partition_id, seq, BLOCKS_AT_ONCE):
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
        partition = self._states.partition(number)
        for seq in self._index.ids.seqs({number: [transaction_id]}).values():
            found_message = next(self._walk_partition(queue, partition, seq), None)
            return found_message if found_message is not None and found_message.seq == seq else None
        # A minted id is in no index: a request for one waits for the partition to be read.
        return self._searched(queue, partition, transaction_id)

    def _searched(self, queue: OpenQueue, partition: Partition, transaction_id: str) -> Message | None:
        """The ids of a record are looked through as a whole: a message is made of the one that is wanted alone."""
        seq = partition.floor_seq
        deleted = self._states.deleted(partition, seq)
        while blocks := self._index.blocks_after(partition.partition_id, seq, BLOCKS_AT_ONCE):
            for block in blocks:
                record = self._index.record(queue, block)
                if record is not None and transaction_id in record.ids:
                    for place in record.places(partition.name, block.first_seq, block.last_seq, block.messages):
                        found = record.first_seq + place
                        if record.ids[place] == transaction_id and found > partition.floor_seq and found not in deleted:
                            return message_of(queue, partition.partition_id, record, place)
                seq = block.last_seq
        return None
