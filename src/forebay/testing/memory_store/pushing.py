"""The way in."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from forebay.broker.messages import Message, Pushed, PushItem
from forebay.broker.queue_rules import refused_for_room, refused_in_clear
from forebay.testing.memory_store.contents import Contents


class Pushing(Contents):
    async def push(self, items: Sequence[PushItem]) -> list[Pushed]:
        self._check_room(items)
        pushed = [self._push(item) for item in items]
        self._tell(pushed, items)
        return pushed

    def _check_room(self, items: Sequence[PushItem]) -> None:
        for item in items:
            queue = self._queues.get(item.queue)
            if (
                queue
                and queue.info.options.encryption_enabled
                and (refused := refused_in_clear(item.queue, [item.payload]))
            ):
                raise refused
        for name, count in self._fresh(items).items():
            queue = self._queues.get(name)
            if queue and (full := refused_for_room(name, queue.info.options.max_size, queue.size(), count)):
                raise full

    def _fresh(self, items: Sequence[PushItem]) -> Counter[str]:
        """How many messages each queue would get: duplicates need no room."""
        seen: set[tuple[str, str, str]] = set()
        for item in items:
            queue = self._queues.get(item.queue)
            partition = queue.partitions.get(item.partition) if queue else None
            if partition is None or item.transaction_id not in partition.ids:
                seen.add((item.queue, item.partition, item.transaction_id))
        return Counter(queue for queue, _, _ in seen)

    def _push(self, item: PushItem) -> Pushed:
        queue = self._made(item.queue, item.namespace, item.task)
        partition = queue.partition(item.partition)
        earlier = partition.ids.get(item.transaction_id)
        if earlier is not None:
            return Pushed("duplicate", earlier, partition.partition_id, "memory")
        seq, queue.next_seq = queue.next_seq, queue.next_seq + 1
        now_us = self._clock.now_us()
        partition.messages[seq] = Message(
            seq=seq,
            queue=item.queue,
            partition=item.partition,
            partition_id=partition.partition_id,
            transaction_id=item.transaction_id,
            trace_id=item.trace_id,
            created_us=now_us,
            payload=item.payload,
            headers=item.headers,
            is_binary=item.is_binary,
        )
        partition.ids[item.transaction_id] = seq
        partition.newest_us, partition.last_seq = max(partition.newest_us, now_us), seq
        return Pushed("queued", seq, partition.partition_id, "memory")

    def _tell(self, pushed: Sequence[Pushed], items: Sequence[PushItem]) -> None:
        fresh = Counter(item.queue for item, found in zip(items, pushed, strict=True) if found.status == "queued")
        for queue, count in fresh.items():
            self._wake(queue, count)
