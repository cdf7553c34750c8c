"""`MemoryStore`: all parts together, and what concerns the store as a whole."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain

from forebay.broker.messages import DUPLICATE, Acknowledgement, TransactionOutcome
from forebay.broker.overview import StoreFigures, StoreTimes
from forebay.broker.queue_rules import cutoffs
from forebay.broker.store import Waker
from forebay.model.histogram import Histogram
from forebay.model.push_run import PushRun
from forebay.model.queue import Queue, QueueOptions
from forebay.testing.memory_store.browsing import Browsing
from forebay.testing.memory_store.contents import StoredPartition, StoredQueue
from forebay.testing.memory_store.dead_letters import DeadLetters
from forebay.testing.memory_store.delivering import Delivering
from forebay.testing.memory_store.flows import Flows
from forebay.testing.memory_store.groups import Groups
from forebay.testing.memory_store.rooms import Rooms


class MemoryStore(Delivering, Groups, DeadLetters, Browsing, Rooms, Flows):
    async def open(self, on_available: Waker) -> None:
        self._wake = on_available

    async def close(self) -> None:
        pass

    async def is_healthy(self) -> bool:
        return True

    async def configure(self, queue: str, options: QueueOptions, namespace: str, task: str) -> Queue:
        found = self._made(queue, namespace, task)
        info = found.info
        found.info = replace(info, options=options, namespace=namespace or info.namespace, task=task or info.task)
        return found.info

    async def delete_queue(self, name: str) -> bool:
        queue = self._queues.pop(name, None)
        if queue is None:
            return False
        ids = {partition.partition_id for partition in queue.partitions.values()}
        self._letters = {n: x for n, x in self._letters.items() if x.message.partition_id not in ids}
        self._traces = [trace for trace in self._traces if trace.partition_id not in ids]
        self._commits = {key: found for key, found in self._commits.items() if key[-1] != name}
        self.forget_parcel_holds(queue.number)
        return True

    def times(self) -> StoreTimes:
        return StoreTimes(Histogram())

    def dropped(self) -> Mapping[str, int]:
        return dict(self._dropped)

    async def figures(self) -> StoreFigures:
        return StoreFigures(await self.queues(), await self.groups(), self._clock.now_us())

    async def transact(
        self, pushes: Sequence[PushRun], acknowledgements: Sequence[Acknowledgement]
    ) -> TransactionOutcome:
        self._check_room(pushes)
        before = self._kept()
        acknowledged = self._acknowledge(acknowledgements)
        refused = [found.answered.error for found in acknowledged if not found.answered.is_accepted]
        pushed = [] if refused else self._push(pushes)
        ids = chain.from_iterable(run.transaction_ids for run in pushes)
        duplicates = [own_id for own_id, one in zip(ids, pushed, strict=False) if one.status == DUPLICATE]
        if refused or duplicates:
            self._put_back(before)
            return TransactionOutcome([], [], refused[0] if refused else f"duplicate transactionId {duplicates[0]}")
        self._tell(pushed, pushes)
        self._tell_freed(acknowledged)
        return TransactionOutcome(pushed, acknowledged)

    async def queues_of(
        self, *, partition_ids: Sequence[str] = (), lease_ids: Sequence[str] = (), stage_ids: Sequence[str] = ()
    ) -> set[str]:
        places = [found for one in partition_ids if (found := self._partition_of(one)) is not None]
        queues = {queue.info.name for queue, _ in places}
        queues |= {queue.info.name for one in lease_ids for queue, _, _ in self._leases(one)}
        return queues | {self._stages[one].queue for one in stage_ids if one in self._stages}

    async def flag(self, name: str) -> bool:
        return self._flags.get(name, False)

    async def set_flag(self, name: str, is_set: bool) -> None:
        self._flags[name] = is_set

    async def time_us(self) -> int:
        return self._clock.now_us()

    async def apply_retention(self) -> int:
        return sum(self._retain(queue) for queue in self._queues.values())

    def _retain(self, queue: StoredQueue) -> int:
        options, now_us = queue.info.options, self._clock.now_us()
        limits = cutoffs(options, now_us)
        held_seq = self.held_by_parcels(queue.number)
        removed = 0
        for partition in queue.partitions.values():
            for message in list(partition.messages.values()):
                is_old = limits.any_us is not None and message.created_us < limits.any_us
                is_done = (
                    limits.finished_us is not None
                    and message.created_us < limits.finished_us
                    and self._is_done(queue, partition, message.seq)
                )
                if (is_old or is_done) and (held_seq is None or message.seq < held_seq):
                    partition.remove(message)
                    partition.removed_seq = max(partition.removed_seq, message.seq)
                    removed += 1
        return removed

    def _is_done(self, queue: StoredQueue, partition: StoredPartition, seq: int) -> bool:
        """Every group has finished it, and there is a group; and no reader has it before it."""
        held_seq = queue.held_seq(self._clock.now_us())
        if held_seq is not None and seq >= held_seq:
            return False
        return bool(queue.groups) and all(queue.state(partition, g).cursor_seq >= seq for g in queue.groups)
