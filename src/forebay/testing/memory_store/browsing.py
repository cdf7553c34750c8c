"""Looking: queues, partitions, messages and traces as they stand; and removing one message."""

from __future__ import annotations

from collections import Counter

from forebay.broker import delivery
from forebay.broker.delivery import DeadLetter
from forebay.broker.messages import ANSWER_BYTES_MAX, Message, count_within
from forebay.broker.overview import LostMessages, PartitionStatus, QueueStatus, TraceEvent
from forebay.clock import SECOND_US
from forebay.model.queue import DEFAULT_GROUP, Queue
from forebay.testing.memory_store.contents import Contents, StoredPartition, StoredQueue


class Browsing(Contents):
    async def queue(self, name: str) -> Queue | None:
        found = self._queues.get(name)
        return found.info if found else None

    async def lost_messages(self) -> list[LostMessages]:
        return []

    async def queues(self, name: str | None = None) -> list[QueueStatus]:
        return [self._status(queue) for own_name, queue in sorted(self._queues.items()) if name in (None, own_name)]

    def _status(self, queue: StoredQueue) -> QueueStatus:
        messages = queue.messages()
        return QueueStatus(
            queue=queue.info,
            partitions=len(queue.partitions),
            first_seq=messages[0].seq if messages else queue.next_seq,
            next_seq=queue.next_seq,
            messages=len(messages),
            pushed=queue.next_seq - 1,
            size_bytes=sum(len(message.payload) for message in messages),
            dead_letters=sum(letter.message.queue == queue.info.name for letter in self._letters.values()),
            oldest_us=messages[0].created_us if messages else 0,
            newest_us=messages[-1].created_us if messages else 0,
        )

    async def partitions(self, queue: str, limit: int, offset: int) -> list[PartitionStatus]:
        found = sorted(self._existing(queue).partitions.items())[offset : offset + limit]
        return [PartitionStatus(n, p.partition_id, len(p.messages), p.last_seq, p.newest_us) for n, p in found]

    async def read(
        self,
        queue: str,
        from_seq: int,
        limit: int,
        partition: str | None = None,
        *,
        bytes_max: int = ANSWER_BYTES_MAX,
    ) -> list[Message]:
        found = [m for m in self._existing(queue).messages() if m.seq >= from_seq]
        found = [m for m in found if partition in (None, m.partition)][:limit]
        return found[: count_within((len(m.payload) for m in found), bytes_max)]

    async def message(self, partition_id: str, transaction_id: str) -> Message | None:
        found = self._partition_of(partition_id)
        return found[1].messages.get(found[1].ids.get(transaction_id, 0)) if found else None

    async def delete_message(self, partition_id: str, transaction_id: str) -> bool:
        message = await self.message(partition_id, transaction_id)
        found = self._partition_of(partition_id)
        if message is None or found is None:
            return False
        queue, partition = found
        partition.remove(message)
        self._wake(queue.info.name, 1)
        return True

    async def bury_message(self, partition_id: str, transaction_id: str, reason: str) -> int | None:
        message = await self.message(partition_id, transaction_id)
        found = self._partition_of(partition_id)
        if message is None or found is None:
            return None
        queue, partition = found
        groups = {g: delivery.open_attempts(queue.state(partition, g), message.seq) for g in queue.groups}
        unfinished = {g: attempts for g, attempts in (groups or {DEFAULT_GROUP: 0}).items() if attempts is not None}
        for group, attempts in unfinished.items():
            self._bury(partition, group, [DeadLetter(message.seq, attempts, reason)])
        if unfinished:
            await self.delete_message(partition_id, transaction_id)
        return len(unfinished)

    async def clear_queue(self, name: str, partition: str | None = None) -> int:
        queue = self._existing(name)
        gone = [m for m in queue.messages() if partition in (None, m.partition)]
        for message in gone:
            found = queue.partitions[message.partition]
            found.remove(message)
            found.removed_seq = max(found.removed_seq, message.seq)
        self._wake(name, 1)
        return len(gone)

    async def expire_partitions(self, seconds: float) -> int:
        oldest_us = self._clock.now_us() - round(seconds * SECOND_US)
        removed = 0
        for queue in self._queues.values():
            for name, partition in list(queue.partitions.items()):
                # A group that stands at 2^53 is for other partitions only.
                cursors = [state.cursor_seq for state in partition.states.values()]
                is_ahead = any(queue.next_seq <= cursor_seq < (1 << 53) - 1 for cursor_seq in cursors)
                if partition.newest_us < oldest_us and not (
                    partition.messages or is_ahead or self._is_named(partition)
                ):
                    queue.gone_seq = max(queue.gone_seq, partition.removed_seq)
                    del queue.partitions[name]
                    removed += 1
        return removed

    def _is_named(self, partition: StoredPartition) -> bool:
        """Whether a dead letter or a trace is of the partition."""
        letters = (letter.message.partition_id for letter in self._letters.values())
        return partition.partition_id in {*letters, *(trace.partition_id for trace in self._traces)}

    async def add_trace(self, event: TraceEvent) -> None:
        self._traces.append(event)

    async def traces(self, partition_id: str, transaction_id: str) -> list[TraceEvent]:
        return [t for t in self._traces if (t.partition_id, t.transaction_id) == (partition_id, transaction_id)]

    async def expire_traces(self, seconds: float) -> int:
        oldest_us = self._clock.now_us() - int(seconds * SECOND_US)
        kept = [trace for trace in self._traces if trace.created_us >= oldest_us]
        removed = len(self._traces) - len(kept)
        self._traces = kept
        return removed

    async def traces_named(self, name: str, limit: int, offset: int) -> tuple[list[TraceEvent], int]:
        found = [trace for trace in reversed(self._traces) if name in trace.names]
        return found[offset : offset + limit], len(found)

    async def trace_names(self, limit: int, offset: int) -> tuple[list[tuple[str, int]], int]:
        found = sorted(Counter(name for trace in self._traces for name in trace.names).items())
        return found[offset : offset + limit], len(found)
