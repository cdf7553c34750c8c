"""A store in memory: the semantics of every store in the plainest form, and a fast double for tests.

Nothing here is durable and nothing is clever: it looks through everything it holds. Where a real store and this one
disagree, the contract suite says who is right.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from forebay.broker import delivery
from forebay.broker.delivery import Candidate, DeadLetter, DeliveryState
from forebay.broker.encryption import is_sealed
from forebay.broker.store import (
    Acknowledged,
    Acknowledgement,
    DeadLetterFilter,
    DeadMessage,
    GroupLag,
    Message,
    PartitionStatus,
    Popped,
    PopRequest,
    Pushed,
    PushItem,
    QueueStatus,
    SeekTarget,
    TraceEvent,
    TransactionOutcome,
    Waker,
)
from forebay.clock import Clock, SystemClock
from forebay.errors import PayloadInClear, QueueFull, UnknownQueue
from forebay.model.queue import Queue, QueueOptions, namespace_and_task_of

SECOND_US = 1_000_000


@dataclass(slots=True)
class _Partition:
    name: str
    partition_id: str
    messages: dict[int, Message] = field(default_factory=dict)
    ids: dict[str, int] = field(default_factory=dict)
    newest_us: int = 0
    last_seq: int = 0
    states: dict[str, DeliveryState] = field(default_factory=dict)


@dataclass(slots=True)
class _Group:
    start_seq: int
    mode: str
    from_us: int
    created_us: int
    last_active_us: int


@dataclass(slots=True)
class _Queue:
    info: Queue
    number: int
    next_seq: int = 1
    partitions: dict[str, _Partition] = field(default_factory=dict)
    groups: dict[str, _Group] = field(default_factory=dict)

    def partition(self, name: str) -> _Partition:
        if name not in self.partitions:
            self.partitions[name] = _Partition(name, f"{self.number}-{len(self.partitions) + 1}")
        return self.partitions[name]

    def messages(self) -> list[Message]:
        return sorted(m for partition in self.partitions.values() for m in partition.messages.values())

    def state(self, partition: _Partition, group: str) -> DeliveryState:
        return partition.states.get(group) or DeliveryState(self.groups[group].start_seq)

    def waiting(self, partition: _Partition, group: str) -> list[Message]:
        """Messages that the group has not finished."""
        state = self.state(partition, group)
        done = {pending.seq for pending in state.pending if pending.is_finished}
        return [m for m in partition.messages.values() if m.seq > state.cursor_seq and m.seq not in done]

    def size(self) -> int:
        """Messages that wait for the group that is furthest behind; all of them where there is no group."""
        if not self.groups:
            return sum(len(partition.messages) for partition in self.partitions.values())
        return max(sum(len(self.waiting(p, group)) for p in self.partitions.values()) for group in self.groups)


class MemoryStore:
    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._queues: dict[str, _Queue] = {}
        self._numbers = 0
        self._letters: dict[int, DeadMessage] = {}
        self._letter_number = 0
        self._traces: list[TraceEvent] = []
        self._flags: dict[str, bool] = {}
        self._wake: Waker = lambda queue, count: None
        self.dropped: Counter[str] = Counter()

    async def open(self, on_available: Waker) -> None:
        self._wake = on_available

    async def close(self) -> None:
        pass

    async def is_healthy(self) -> bool:
        return True

    # --- queues ---

    async def configure(self, queue: str, options: QueueOptions, namespace: str, task: str) -> Queue:
        found = self._made(queue, namespace, task)
        info = found.info
        found.info = replace(info, options=options, namespace=namespace or info.namespace, task=task or info.task)
        return found.info

    async def queue(self, name: str) -> Queue | None:
        found = self._queues.get(name)
        return found.info if found else None

    async def queues(self) -> list[QueueStatus]:
        return [self._status(queue) for _, queue in sorted(self._queues.items())]

    def _status(self, queue: _Queue) -> QueueStatus:
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

    async def delete_queue(self, name: str) -> bool:
        queue = self._queues.pop(name, None)
        if queue is None:
            return False
        ids = {partition.partition_id for partition in queue.partitions.values()}
        self._letters = {n: x for n, x in self._letters.items() if x.message.partition_id not in ids}
        self._traces = [trace for trace in self._traces if trace.partition_id not in ids]
        return True

    # --- the way in ---

    async def push(self, items: Sequence[PushItem]) -> list[Pushed]:
        self._check_room(items)
        pushed = [self._push(item) for item in items]
        self._tell(pushed, items)
        return pushed

    def _check_room(self, items: Sequence[PushItem]) -> None:
        for item in items:
            queue = self._queues.get(item.queue)
            if queue and queue.info.options.encryption_enabled and not is_sealed(item.payload):
                raise PayloadInClear(item.queue)
        for name, count in Counter(item.queue for item in items).items():
            queue = self._queues.get(name)
            limit = queue.info.options.max_size if queue else 0
            if queue and limit and queue.size() + count > limit:
                raise QueueFull(name, queue.size(), limit)

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

    # --- the way out ---

    async def pop(self, request: PopRequest) -> Popped:
        lease_id = str(uuid.uuid4())
        messages: list[Message] = []
        claimed = 0
        for queue, partition in self._places(request):
            if claimed >= request.partitions or len(messages) >= request.batch:
                break
            found = self._claim(queue, partition, request, lease_id, request.batch - len(messages))
            messages += found
            claimed += bool(found)
        return Popped(lease_id if messages and not request.auto_ack else "", messages, claimed)

    def _places(self, request: PopRequest) -> Iterator[tuple[_Queue, _Partition]]:
        """Partitions that the pop may take from: queues by priority, partitions by their oldest waiting message."""
        if request.queue:
            chosen = [self._queues[request.queue]] if request.queue in self._queues else []
        else:
            chosen = [
                queue
                for queue in self._queues.values()
                if request.namespace in ("", queue.info.namespace) and request.task in ("", queue.info.task)
            ]
        for queue in sorted(chosen, key=lambda q: (-q.info.options.priority, q.info.name)):
            self._join(queue, request)
            waiting = [
                (left[0].seq, partition)
                for partition in queue.partitions.values()
                if request.partition in (None, partition.name) and (left := queue.waiting(partition, request.group))
            ]
            for _, partition in sorted(waiting, key=lambda found: found[0]):
                yield queue, partition

    def _join(self, queue: _Queue, request: PopRequest) -> None:
        """A group's first pop on a queue decides where it starts; later ones cannot change that."""
        now_us = self._clock.now_us()
        group = queue.groups.get(request.group)
        if group is not None:
            group.last_active_us = now_us
            return
        start_seq = 0
        if request.subscription_mode == "new":
            start_seq = queue.next_seq - 1
        elif request.subscription_mode == "from":
            start_seq = _seq_before(queue.messages(), request.subscription_from_us, queue.next_seq)
        queue.groups[request.group] = _Group(
            start_seq, request.subscription_mode, request.subscription_from_us, now_us, now_us
        )

    def _claim(
        self, queue: _Queue, partition: _Partition, request: PopRequest, lease_id: str, batch: int
    ) -> list[Message]:
        options, now_us = queue.info.options, self._clock.now_us()
        if not delivery.is_due(partition.newest_us, options.window_buffer_seconds, now_us=now_us):
            return []
        state = queue.state(partition, request.group)
        state = delivery.without_gone(state, partition.messages.__contains__)
        fresh = [
            Candidate(m.seq, m.transaction_id, m.created_us)
            for m in partition.messages.values()
            if m.seq > state.last_seen_seq()
            and delivery.is_due(m.created_us, options.delayed_processing_seconds, now_us=now_us)
        ]
        taken = delivery.claim(
            state,
            fresh,
            options,
            now_us=now_us,
            batch=batch,
            lease_id=lease_id,
            auto_ack=request.auto_ack,
        )
        if taken is None:
            return []
        partition.states[request.group] = taken.state
        self._bury(partition, request.group, taken.dead)
        return [partition.messages[seq]._replace(attempts=attempts) for seq, attempts in taken.delivered]

    def _bury(self, partition: _Partition, group: str, dead: Sequence[DeadLetter]) -> None:
        for letter in dead:
            message = partition.messages[letter.seq]._replace(attempts=letter.attempts)
            if letter.is_dropped:
                self.dropped[message.queue] += 1
                continue
            self._letter_number += 1
            self._letters[self._letter_number] = DeadMessage(
                self._letter_number, message, group, letter.reason, self._clock.now_us()
            )

    async def acknowledge(self, acknowledgements: Sequence[Acknowledgement]) -> list[Acknowledged]:
        return [self._acknowledge(acknowledgement) for acknowledgement in acknowledgements]

    def _acknowledge(self, acknowledgement: Acknowledgement) -> Acknowledged:
        found = self._partition_of(acknowledgement.partition_id)
        if found is None or acknowledgement.group not in found[0].groups:
            refused = delivery.Answered(acknowledgement.answer.transaction_id, False, delivery.NOT_IN_LEASE)
            return Acknowledged(refused, "", "")
        queue, partition = found
        answered, dead, state = delivery.acknowledge(
            queue.state(partition, acknowledgement.group),
            acknowledgement.lease_id,
            [acknowledgement.answer],
            queue.info.options,
            now_us=self._clock.now_us(),
        )
        partition.states[acknowledgement.group] = state
        self._bury(partition, acknowledgement.group, dead)
        return Acknowledged(answered[0], queue.info.name, partition.name)

    async def extend(self, lease_id: str, seconds: int) -> int | None:
        until = None
        now_us = self._clock.now_us()
        for queue in self._queues.values():
            for partition in queue.partitions.values():
                for group, state in partition.states.items():
                    if state.lease_id == lease_id and state.is_leased_at(now_us):
                        longer = delivery.extended(state, now_us=now_us, seconds=seconds)
                        partition.states[group] = longer
                        until = max(until or 0, longer.lease_until_us)
        return until

    async def transact(
        self, pushes: Sequence[PushItem], acknowledgements: Sequence[Acknowledgement]
    ) -> TransactionOutcome:
        self._check_room(pushes)
        before = self._kept()
        acknowledged = [self._acknowledge(acknowledgement) for acknowledgement in acknowledgements]
        refused = [found.answered.error for found in acknowledged if not found.answered.is_accepted]
        pushed = [] if refused else [self._push(item) for item in pushes]
        duplicates = [i.transaction_id for i, p in zip(pushes, pushed, strict=False) if p.status == "duplicate"]
        if refused or duplicates:
            self._put_back(before)
            return TransactionOutcome([], [], refused[0] if refused else f"duplicate transactionId {duplicates[0]}")
        self._tell(pushed, pushes)
        return TransactionOutcome(pushed, acknowledged)

    def _kept(self) -> tuple[dict[str, _Queue], dict[int, DeadMessage]]:
        queues = {
            name: replace(
                queue,
                groups=dict(queue.groups),
                partitions={
                    n: replace(p, messages=dict(p.messages), ids=dict(p.ids), states=dict(p.states))
                    for n, p in queue.partitions.items()
                },
            )
            for name, queue in self._queues.items()
        }
        return queues, dict(self._letters)

    def _put_back(self, kept: tuple[dict[str, _Queue], dict[int, DeadMessage]]) -> None:
        self._queues, self._letters = kept

    # --- groups ---

    async def groups(self) -> list[GroupLag]:
        return [
            self._lag(queue, name, group)
            for _, queue in sorted(self._queues.items())
            for name, group in sorted(queue.groups.items())
        ]

    def _lag(self, queue: _Queue, name: str, group: _Group) -> GroupLag:
        now_us = self._clock.now_us()
        waiting = [left for p in queue.partitions.values() if (left := queue.waiting(p, name))]
        oldest_us = min((left[0].created_us for left in waiting), default=now_us)
        states = [queue.state(partition, name) for partition in queue.partitions.values()]
        return GroupLag(
            group=name,
            queue=queue.info.name,
            subscription_mode=group.mode,
            subscription_from_us=group.from_us,
            created_us=group.created_us,
            partitions=len(queue.partitions),
            partitions_with_lag=len(waiting),
            lag_messages=sum(map(len, waiting)),
            lag_seconds=(now_us - oldest_us) / SECOND_US,
            leased=sum(p.is_leased for state in states if state.is_leased_at(now_us) for p in state.pending),
            last_active_us=group.last_active_us,
        )

    async def seek(self, group: str, queue: str, partition: str | None, target: SeekTarget) -> int:
        found = self._existing(queue)
        if group not in found.groups:
            now_us = self._clock.now_us()
            found.groups[group] = _Group(0, "all", 0, now_us, now_us)
        chosen = [p for name, p in found.partitions.items() if partition in (None, name)]
        for place in chosen:
            messages = list(place.messages.values())
            cursor = found.next_seq - 1
            if target.seq is not None:
                cursor = target.seq - 1
            elif target.time_us is not None:
                cursor = _seq_before(messages, target.time_us, found.next_seq)
            passed = sum(message.seq <= cursor for message in messages)
            place.states[group] = DeliveryState(cursor, finished=passed)
        return len(chosen)

    async def delete_group(self, group: str, queue: str | None) -> int:
        known = 0
        for found in self._queues.values():
            if queue in (None, found.info.name):
                found.groups.pop(group, None)
                known += len([p for p in found.partitions.values() if p.states.pop(group, None) is not None])
        return known

    # --- dead letters ---

    async def dead_letters(self, wanted: DeadLetterFilter, limit: int, offset: int) -> tuple[list[DeadMessage], int]:
        found = sorted(self._wanted(wanted), key=lambda letter: -letter.letter_id)
        return found[offset : offset + limit], len(found)

    async def replay_dead_letters(self, wanted: DeadLetterFilter) -> int:
        found = self._wanted(wanted)
        items = [
            PushItem(m.queue, m.partition, m.payload, str(uuid.uuid4()), True, m.trace_id, m.headers, m.is_binary)
            for m in (letter.message for letter in found)
        ]
        await self.push(items)
        return await self.purge_dead_letters(wanted) if found else 0

    async def purge_dead_letters(self, wanted: DeadLetterFilter) -> int:
        found = self._wanted(wanted)
        for letter in found:
            del self._letters[letter.letter_id]
        return len(found)

    def _wanted(self, wanted: DeadLetterFilter) -> list[DeadMessage]:
        return [
            letter
            for letter in self._letters.values()
            if wanted.queue in (None, letter.message.queue)
            and wanted.group in (None, letter.group)
            and wanted.partition in (None, letter.message.partition)
            and wanted.transaction_id in (None, letter.message.transaction_id)
            and (wanted.from_us is None or letter.failed_us >= wanted.from_us)
            and (wanted.to_us is None or letter.failed_us <= wanted.to_us)
        ]

    # --- messages and traces ---

    async def read(self, queue: str, from_seq: int, limit: int, partition: str | None = None) -> list[Message]:
        found = [m for m in self._existing(queue).messages() if m.seq >= from_seq]
        return [m for m in found if partition in (None, m.partition)][:limit]

    async def message(self, partition_id: str, transaction_id: str) -> Message | None:
        found = self._partition_of(partition_id)
        return found[1].messages.get(found[1].ids.get(transaction_id, 0)) if found else None

    async def add_trace(self, event: TraceEvent) -> None:
        self._traces.append(event)

    async def traces(self, partition_id: str, transaction_id: str) -> list[TraceEvent]:
        return [t for t in self._traces if (t.partition_id, t.transaction_id) == (partition_id, transaction_id)]

    async def traces_named(self, name: str, limit: int, offset: int) -> tuple[list[TraceEvent], int]:
        found = [trace for trace in reversed(self._traces) if name in trace.names]
        return found[offset : offset + limit], len(found)

    async def trace_names(self, limit: int, offset: int) -> tuple[list[tuple[str, int]], int]:
        found = sorted(Counter(name for trace in self._traces for name in trace.names).items())
        return found[offset : offset + limit], len(found)

    # --- the store as a whole ---

    async def flag(self, name: str) -> bool:
        return self._flags.get(name, False)

    async def set_flag(self, name: str, is_set: bool) -> None:
        self._flags[name] = is_set

    async def apply_retention(self) -> int:
        return sum(self._retain(queue) for queue in self._queues.values())

    def _retain(self, queue: _Queue) -> int:
        options, now_us = queue.info.options, self._clock.now_us()
        if not options.retention_enabled:
            return 0
        removed = 0
        for partition in queue.partitions.values():
            for message in list(partition.messages.values()):
                age_us = now_us - message.created_us
                is_old = 0 < options.retention_seconds * SECOND_US < age_us
                is_done = 0 < options.completed_retention_seconds * SECOND_US < age_us and self._is_done(
                    queue, partition, message.seq
                )
                if is_old or is_done:
                    del partition.messages[message.seq]
                    del partition.ids[message.transaction_id]
                    removed += 1
        return removed

    def _is_done(self, queue: _Queue, partition: _Partition, seq: int) -> bool:
        """Every group has finished it, and there is a group."""
        return bool(queue.groups) and all(queue.state(partition, g).cursor_seq >= seq for g in queue.groups)

    # --- looking up ---

    def _made(self, name: str, namespace: str, task: str) -> _Queue:
        if name not in self._queues:
            self._numbers += 1
            own_namespace, own_task = namespace_and_task_of(name)
            info = Queue(name, namespace or own_namespace, task or own_task, created_us=self._clock.now_us())
            self._queues[name] = _Queue(info, self._numbers)
        return self._queues[name]

    def _existing(self, name: str) -> _Queue:
        if name not in self._queues:
            raise UnknownQueue(name)
        return self._queues[name]

    def _partition_of(self, partition_id: str) -> tuple[_Queue, _Partition] | None:
        for queue in self._queues.values():
            for partition in queue.partitions.values():
                if partition.partition_id == partition_id:
                    return queue, partition
        return None


def _seq_before(messages: Sequence[Message], time_us: int, next_seq: int) -> int:
    """The seq behind which a reader from that time starts: everything up to it is older."""
    return next((message.seq - 1 for message in messages if message.created_us >= time_us), next_seq - 1)
