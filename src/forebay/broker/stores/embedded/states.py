"""Where groups stand: the rows of `states` and `partitions`, read and written."""

from __future__ import annotations

from forebay.broker import delivery
from forebay.broker.delivery import DeliveryState
from forebay.broker.stores.embedded import lease_rows
from forebay.broker.stores.embedded.database import Database
from forebay.broker.stores.embedded.fetching import Fetcher
from forebay.broker.stores.embedded.index import MessageIndex, Partition
from forebay.broker.stores.embedded.lease_rows import FreshLease
from forebay.broker.stores.embedded.queries import query
from forebay.broker.stores.embedded.queues import Group, OpenQueue, Queues
from forebay.errors import InvariantBroken


class States:
    def __init__(self, database: Database, queues: Queues, index: MessageIndex, fetcher: Fetcher) -> None:
        self._database = database
        self._queues = queues
        self._index = index
        self._fetcher = fetcher

    def partition(self, partition_id: int) -> Partition:
        return Partition(*self._database.one(query("partition_find"), (partition_id,)))

    def partition_and_state(self, group: Group, partition_id: int) -> tuple[Partition, DeliveryState] | None:
        """Both in one step, as every claim and every answer needs them; None when there is no such partition."""
        row = self._database.one(query("partition_and_state"), (group.group_id, partition_id))
        if row is None:
            return None
        partition = Partition(*row[:-1])
        return partition, self.decoded(group, partition, row[-1])

    def state(self, group: Group, partition: Partition) -> DeliveryState:
        row = self._database.one(query("state_find"), (group.group_id, partition.partition_id))
        return self.decoded(group, partition, row[0] if row else None)

    def cursor_seq(self, group: Group, partition: Partition) -> int:
        """Up to there everything is finished for the group; a little behind, where messages were deleted since."""
        row = self._database.one(
            query("state_cursor"),
            (group.group_id, partition.partition_id),
        )
        return int(row[0]) if row else max(group.start_seq, partition.floor_seq)

    def decoded(self, group: Group, partition: Partition, encoded: bytes | None) -> DeliveryState:
        """A state as its row has it, without what was removed since."""
        if encoded is None:
            return DeliveryState(max(group.start_seq, partition.floor_seq))
        found = lease_rows.decode(encoded)
        has_lost = partition.has_deleted
        if isinstance(found, DeliveryState):
            state = found
        else:
            state = found.in_full(self._ids(partition, found))
            # Reading the ids may have found out that some are lost.
            has_lost = has_lost or bool(self._index.lost_ranges(partition.partition_id, found.cursor_seq))
        if not has_lost and partition.floor_seq <= state.cursor_seq:
            return state
        lost = self._index.lost_ranges(partition.partition_id, state.cursor_seq)
        state = delivery.without_lost(state, lambda seq: any(first <= seq <= last for first, last in lost))
        deleted = self.deleted(partition, state.cursor_seq)
        return delivery.without_gone(state, lambda seq: seq > partition.floor_seq and seq not in deleted)

    def _ids(self, partition: Partition, lease: FreshLease) -> list[str]:
        """Of the messages under a lease; empty for those that are lost or that retention has removed since."""
        start = max(lease.first_seq, partition.floor_seq + 1)
        if start > lease.last_seq:
            return [""] * lease.count
        queue, count = self._queues.by_id[partition.queue_id], lease.last_seq - start + 1
        found, _ = self._fetcher.fresh(queue, partition, start - 1, (), batch=count)
        if len(found) == count and found.seqs[-1] == lease.last_seq:
            return [""] * (lease.count - count) + found.transaction_ids
        ids = dict(zip(found.seqs, found.transaction_ids, strict=True))
        lost = self._index.lost_ranges(partition.partition_id, start - 1)
        for seq in range(start, lease.last_seq + 1):
            if seq not in ids and not any(first <= seq <= last for first, last in lost):
                raise InvariantBroken(f"message {seq} under a lease on {partition.name!r} is neither kept nor lost")
        return [ids.get(seq, "") for seq in range(lease.first_seq, lease.last_seq + 1)]

    def deleted(self, partition: Partition, after_seq: int) -> frozenset[int]:
        """The messages behind `after_seq` that were deleted one by one."""
        if not partition.has_deleted:
            return frozenset()
        rows = self._database.all(query("deleted_after"), (partition.partition_id, after_seq))
        return frozenset(seq for (seq,) in rows)

    def save(self, group: Group, partition_id: int, state: DeliveryState) -> None:
        self.save_encoded(group, partition_id, state, delivery.encode_state(state))

    def save_all(
        self, group: Group, queue: OpenQueue, partition: str | None, numbers: tuple[int, int], state: DeliveryState
    ) -> None:
        """The same state for all partitions of the queue between those numbers, or for one of them."""
        self._database.do(
            query("states_save_all"),
            {
                "group_id": group.group_id,
                "cursor_seq": state.cursor_seq,
                "state": delivery.encode_state(state),
                "queue_id": queue.queue_id,
                "name": partition,
                "first_id": numbers[0],
                "last_id": numbers[1],
            },
        )

    def save_encoded(self, group: Group, partition_id: int, state: DeliveryState | FreshLease, encoded: bytes) -> None:
        self._database.do(
            query("state_save"),
            (group.group_id, partition_id, state.cursor_seq, state.lease_id, encoded, _has_pending(state)),
        )


def _has_pending(state: DeliveryState | FreshLease) -> bool:
    return bool(state.pending) if isinstance(state, DeliveryState) else True
