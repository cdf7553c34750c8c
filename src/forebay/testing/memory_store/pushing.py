"""The way in."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from forebay.broker.messages import DUPLICATE, QUEUED, Message, Pushed
from forebay.broker.numbering import by_run, count_of
from forebay.broker.queue_rules import refused_for_room, refused_in_clear
from forebay.model.push_run import PushRun, Row
from forebay.testing.memory_store.contents import Contents


class Pushing(Contents):
    async def push(self, runs: Sequence[PushRun]) -> list[Pushed]:
        self._check_room(runs)
        pushed = self._push(runs)
        self._tell(pushed, runs)
        return pushed

    def _check_room(self, runs: Sequence[PushRun]) -> None:
        for run in runs:
            queue = self._queues.get(run.queue)
            if (
                queue
                and queue.info.options.encryption_enabled
                and (refused := refused_in_clear(run.queue, run.payloads))
            ):
                raise refused
        for name, count in self._fresh(runs).items():
            queue = self._queues.get(name)
            if queue and (full := refused_for_room(name, queue.info.options.max_size, queue.size(), count)):
                raise full

    def _fresh(self, runs: Sequence[PushRun]) -> Counter[str]:
        """How many messages each queue would get: duplicates need no room."""
        seen: set[tuple[str, str, str]] = set()
        for run in runs:
            queue = self._queues.get(run.queue)
            for name, transaction_id in zip(run.partitions, run.transaction_ids, strict=True):
                partition = queue.partitions.get(name) if queue else None
                if partition is None or transaction_id not in partition.ids:
                    seen.add((run.queue, name, transaction_id))
        return Counter(queue for queue, _, _ in seen)

    def _push(self, runs: Sequence[PushRun]) -> list[Pushed]:
        """One answer per message."""
        return [self._push_one(run, row) for run in runs for row in run.rows()]

    def _push_one(self, run: PushRun, row: Row) -> Pushed:
        queue = self._made(run.queue, run.namespace, run.task)
        partition = queue.partition(row.partition)
        earlier = partition.ids.get(row.transaction_id)
        if earlier is not None:
            return Pushed(DUPLICATE, earlier, partition.partition_id, "memory")
        seq, queue.next_seq = queue.next_seq, queue.next_seq + 1
        now_us = self._clock.now_us()
        partition.messages[seq] = Message(
            seq=seq,
            queue=run.queue,
            partition=row.partition,
            partition_id=partition.partition_id,
            transaction_id=row.transaction_id,
            trace_id=row.trace_id,
            created_us=now_us,
            payload=row.payload,
            headers=row.headers,
            is_binary=run.is_binary,
        )
        partition.ids[row.transaction_id] = seq
        partition.newest_us, partition.last_seq = max(partition.newest_us, now_us), seq
        return Pushed(QUEUED, seq, partition.partition_id, "memory")

    def _tell(self, pushed: Sequence[Pushed], runs: Sequence[PushRun]) -> None:
        fresh: Counter[str] = Counter()
        for run, answers in zip(runs, by_run(runs, pushed), strict=True):
            fresh[run.queue] += count_of(QUEUED, answers)
        for queue, count in fresh.items():
            if count:
                self._wake(queue, count)
