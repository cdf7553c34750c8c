"""What the store holds, and how its parts find it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import msgspec

from forebay.broker import delivery
from forebay.broker.delivery import DeadLetter, DeliveryState
from forebay.broker.flow_rows import FlowRow
from forebay.broker.messages import Message, PopRequest
from forebay.broker.overview import DeadMessage, TraceEvent
from forebay.broker.queue_rules import pop_order
from forebay.broker.store import Waker
from forebay.clock import Clock, SystemClock
from forebay.errors import UnknownQueue
from forebay.model.queue import Queue, namespace_and_task_of


@dataclass(slots=True)
class StoredPartition:
    name: str
    partition_id: str
    messages: dict[int, Message] = field(default_factory=dict)
    ids: dict[str, int] = field(default_factory=dict)
    newest_us: int = 0
    last_seq: int = 0
    removed_seq: int = 0
    """The last seq that retention removed."""
    states: dict[str, DeliveryState] = field(default_factory=dict)

    def remove(self, message: Message) -> None:
        """The message is gone for every group, also for the consumer that holds it."""
        del self.messages[message.seq]
        del self.ids[message.transaction_id]
        for group, state in self.states.items():
            self.states[group] = delivery.without_gone(state, self.messages.__contains__)


@dataclass(slots=True)
class StoredGroup:
    start_seq: int
    mode: str
    from_us: int
    created_us: int
    last_active_us: int


@dataclass(slots=True)
class StoredQueue:
    info: Queue
    number: int
    next_seq: int = 1
    gone_seq: int = 0
    """The last seq that retention removed of partitions that are gone."""
    holds: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Readers that are not groups: the next seq of each, and until when that is spared."""
    partitions: dict[str, StoredPartition] = field(default_factory=dict)
    partition_number: int = 0
    """Of the last partition that was made; none is used twice."""
    groups: dict[str, StoredGroup] = field(default_factory=dict)

    def partition(self, name: str) -> StoredPartition:
        if name not in self.partitions:
            self.partition_number += 1
            self.partitions[name] = StoredPartition(name, f"{self.number}-{self.partition_number}")
        return self.partitions[name]

    def removed_seq(self, names: Sequence[str] = ()) -> int:
        """The last seq that retention removed, of these partitions or of all."""
        found = [p.removed_seq for p in self.partitions.values() if not names or p.name in names]
        return max([self.gone_seq, *found])

    def held_seq(self, now_us: int) -> int | None:
        """The first seq that a reader has not read."""
        return min((seq for seq, until_us in self.holds.values() if until_us > now_us), default=None)

    def messages(self) -> list[Message]:
        messages = [m for partition in self.partitions.values() for m in partition.messages.values()]
        return sorted(messages, key=lambda message: message.seq)

    def state(self, partition: StoredPartition, group: str) -> DeliveryState:
        return partition.states.get(group) or DeliveryState(self.groups[group].start_seq)

    def waiting(self, partition: StoredPartition, group: str) -> list[Message]:
        """Messages that the group has not finished."""
        state = self.state(partition, group)
        done = {pending.seq for pending in state.pending if pending.is_finished}
        return [m for m in partition.messages.values() if m.seq > state.cursor_seq and m.seq not in done]

    def size(self) -> int:
        """Messages that wait for the group that is furthest behind; all of them where there is no group."""
        if not self.groups:
            return sum(len(partition.messages) for partition in self.partitions.values())
        return max(sum(len(self.waiting(p, group)) for p in self.partitions.values()) for group in self.groups)


class Contents:
    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._queues: dict[str, StoredQueue] = {}
        self._numbers = 0
        self._letters: dict[int, DeadMessage] = {}
        self._letter_number = 0
        self._traces: list[TraceEvent] = []
        self._flags: dict[str, bool] = {}
        self._flows: dict[str, FlowRow] = {}
        self._wake: Waker = lambda queue, count: None
        self._dropped: Counter[str] = Counter()

    def _made(self, name: str, namespace: str, task: str) -> StoredQueue:
        if name not in self._queues:
            self._numbers += 1
            own_namespace, own_task = namespace_and_task_of(name)
            info = Queue(name, namespace or own_namespace, task or own_task, created_us=self._clock.now_us())
            self._queues[name] = StoredQueue(info, self._numbers)
        return self._queues[name]

    def _existing(self, name: str) -> StoredQueue:
        if name not in self._queues:
            raise UnknownQueue(name)
        return self._queues[name]

    def _partition_of(self, partition_id: str) -> tuple[StoredQueue, StoredPartition] | None:
        for queue in self._queues.values():
            for partition in queue.partitions.values():
                if partition.partition_id == partition_id:
                    return queue, partition
        return None

    def _chosen(self, request: PopRequest) -> list[StoredQueue]:
        """The queues that a pop covers, the important ones first."""
        if request.queue:
            return [self._queues[request.queue]] if request.queue in self._queues else []
        fitting = [
            queue
            for queue in self._queues.values()
            if request.namespace in ("", queue.info.namespace) and request.task in ("", queue.info.task)
        ]
        return sorted(fitting, key=lambda queue: pop_order(queue.info))

    def _leases(self, lease_id: str) -> Iterator[tuple[StoredQueue, StoredPartition, str]]:
        """What is held under the lease: queues, partitions and groups."""
        now_us = self._clock.now_us()
        for queue in self._queues.values():
            for partition in queue.partitions.values():
                for group, state in partition.states.items():
                    if lease_id and state.lease_id == lease_id and state.is_leased_at(now_us):
                        yield queue, partition, group

    def _bury(self, partition: StoredPartition, group: str, dead: Sequence[DeadLetter]) -> None:
        for letter in dead:
            message = msgspec.structs.replace(partition.messages[letter.seq], attempts=letter.attempts)
            if letter.is_dropped:
                self._dropped[letter.kind] += 1
                continue
            self._letter_number += 1
            self._letters[self._letter_number] = DeadMessage(
                self._letter_number, message, group, letter.reason, self._clock.now_us()
            )

    def _kept(self) -> tuple[dict[str, StoredQueue], dict[int, DeadMessage]]:
        queues = {
            name: replace(
                queue,
                groups=dict(queue.groups),
                holds=dict(queue.holds),
                partitions={
                    n: replace(p, messages=dict(p.messages), ids=dict(p.ids), states=dict(p.states))
                    for n, p in queue.partitions.items()
                },
            )
            for name, queue in self._queues.items()
        }
        return queues, dict(self._letters)

    def _put_back(self, kept: tuple[dict[str, StoredQueue], dict[int, DeadMessage]]) -> None:
        self._queues, self._letters = kept


def seq_before(messages: Sequence[Message], time_us: int, next_seq: int) -> int:
    """The seq behind which a reader from that time starts: everything up to it is older."""
    return next((message.seq - 1 for message in messages if message.created_us >= time_us), next_seq - 1)
