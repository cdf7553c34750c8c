"""The way in: the pushes of a cycle become one record per queue, a transaction one tagged record per queue.

The store's thread is the only one that appends to a queue's log, so the seq of every message is known before its record
is written: the log's next seq, plus its place. If the append fails, so do the requests that were given those seqs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from forebay.broker.encryption import is_sealed
from forebay.broker.store import Pushed, PushItem
from forebay.broker.stores.embedded.index import MessageIndex
from forebay.broker.stores.embedded.queues import OpenQueue, Queues
from forebay.clock import Clock
from forebay.commitlog.block import NO_TAG
from forebay.errors import AppendFailed, PayloadInClear, QueueFull
from forebay.model.message import PAYLOAD_IS_BINARY, TRANSACTION_ID_IS_MINTED, MessageBatch


class DuplicateInTransaction(Exception):
    """A push whose id is taken: the transaction leaves nothing behind."""


RECORD_BYTES_MAX = 16 << 20
"""What a queue gets in one cycle is cut into records of about this size."""
RECORD_MESSAGES_MAX = 100_000
_ITEM_OVERHEAD_BYTES = 256


@dataclass(slots=True)
class Request:
    """One push as it came, and what came of it."""

    items: Sequence[PushItem]
    answers: list[Pushed] = field(default_factory=list)
    error: Exception | None = None


@dataclass(slots=True)
class _Columns:
    """Messages of one queue that are to be stored, as columns."""

    first_seq: int
    payloads: list[bytes] = field(default_factory=list)
    partitions: list[bytes] = field(default_factory=list)
    ids: list[bytes] = field(default_factory=list)
    traces: list[bytes] = field(default_factory=list)
    headers: list[bytes] = field(default_factory=list)
    flags: list[int] = field(default_factory=list)
    partition_ids: list[int] = field(default_factory=list)
    given_ids: dict[tuple[int, str], int] = field(default_factory=dict)
    """Ids that producers gave, with the seq of their message: those that are taken already, and the new ones."""

    def add(self, item: PushItem, partition_id: int) -> int:
        seq = self.first_seq + len(self.payloads)
        self.payloads.append(item.payload)
        self.partitions.append(item.partition.encode())
        self.ids.append(item.transaction_id.encode())
        self.traces.append(item.trace_id.encode())
        self.headers.append(item.headers)
        self.flags.append(PAYLOAD_IS_BINARY * item.is_binary | TRANSACTION_ID_IS_MINTED * item.is_minted)
        self.partition_ids.append(partition_id)
        if not item.is_minted:
            self.given_ids[partition_id, item.transaction_id] = seq
        return seq

    def cut(self) -> list[range]:
        """The places that go into each record."""
        cuts, start, size = [], 0, 0
        for place, payload in enumerate(self.payloads):
            size += len(payload) + _ITEM_OVERHEAD_BYTES
            if place > start and (size > RECORD_BYTES_MAX or place - start >= RECORD_MESSAGES_MAX):
                cuts.append(range(start, place))
                start, size = place, len(payload) + _ITEM_OVERHEAD_BYTES
        return [*cuts, range(start, len(self.payloads))]

    def batch(self, places: range, created_us: int) -> MessageBatch:
        part = slice(places.start, places.stop)
        return MessageBatch(
            payloads=self.payloads[part],
            created_us=[created_us] * len(places),
            partitions=self.partitions[part],
            transaction_ids=self.ids[part],
            trace_ids=self.traces[part] if any(self.traces) else None,
            headers=self.headers[part] if any(self.headers) else None,
            flags=self.flags[part],
        )


class Pusher:
    def __init__(self, queues: Queues, index: MessageIndex, clock: Clock, waiting: Callable[[OpenQueue], int]) -> None:
        self._queues = queues
        self._index = index
        self._clock = clock
        self._waiting = waiting

    def push(self, requests: Sequence[Request]) -> Counter[str]:
        """Store requests of one queue each; what failed stands in them. Returns how many messages each queue got."""
        stored: Counter[str] = Counter()
        by_queue: dict[str, list[Request]] = {}
        for request in requests:
            by_queue.setdefault(request.items[0].queue, []).append(request)
        for name, same in by_queue.items():
            first = same[0].items[0]
            queue = self._queues.made(name, first.namespace, first.task)
            columns = _Columns(queue.log.next_seq)
            columns.given_ids = self._taken(queue, [item for request in same for item in request.items])
            for request in same:
                try:
                    self._check_room(queue, len(columns.payloads) + len(request.items))
                    self._check_sealed(queue, request.items)
                    request.answers = [self._accept(queue, item, columns) for item in request.items]
                except (QueueFull, PayloadInClear) as refused:
                    request.error = refused
            try:
                self._store(queue, columns, NO_TAG)
                stored[name] = len(columns.payloads)
            except AppendFailed as failed:
                for request in same:
                    request.error = request.error or failed
        return stored

    def push_tagged(self, items: Sequence[PushItem], tag: bytes) -> list[Pushed]:
        """Store messages of any queues; they count only if the tag is committed with the database's transaction."""
        columns: dict[int, _Columns] = {}
        answers = []
        for name, count in Counter(item.queue for item in items).items():
            first = next(item for item in items if item.queue == name)
            queue = self._queues.made(name, first.namespace, first.task)
            self._check_room(queue, count)
            self._check_sealed(queue, [item for item in items if item.queue == name])
            columns[queue.queue_id] = _Columns(queue.log.next_seq)
            columns[queue.queue_id].given_ids = self._taken(queue, [item for item in items if item.queue == name])
        for item in items:
            queue = self._queues.existing(item.queue)
            answers.append(self._accept(queue, item, columns[queue.queue_id]))
        for queue_id, messages in columns.items():
            self._store(self._queues.by_id[queue_id], messages, tag)
        return answers

    def refuse_duplicates(self, items: Sequence[PushItem]) -> None:
        """Raise for an id that its partition has already, or that comes twice."""
        seen: set[tuple[str, str, str]] = set()
        for item in items:
            queue = self._queues.by_name.get(item.queue)
            number = queue.partitions.get(item.partition) if queue else None
            key = item.queue, item.partition, item.transaction_id
            is_stored = number is not None and self._index.seqs_of_ids({number: [item.transaction_id]})
            if not item.is_minted and (key in seen or is_stored):
                raise DuplicateInTransaction(f"duplicate transactionId {item.transaction_id}")
            seen.add(key)

    def _taken(self, queue: OpenQueue, items: Sequence[PushItem]) -> dict[tuple[int, str], int]:
        """Which of the producers' ids their partitions have already; one look for all of them."""
        wanted: dict[int, set[str]] = {}
        for item in items:
            if not item.is_minted and item.partition in queue.partitions:
                wanted.setdefault(queue.partitions[item.partition], set()).add(item.transaction_id)
        return self._index.seqs_of_ids(wanted)

    def _check_room(self, queue: OpenQueue, count: int) -> None:
        limit = queue.info.options.max_size
        if limit and self._waiting(queue) + count > limit:
            raise QueueFull(queue.info.name, self._waiting(queue), limit)

    def _check_sealed(self, queue: OpenQueue, items: Sequence[PushItem]) -> None:
        if queue.info.options.encryption_enabled and not all(is_sealed(item.payload) for item in items):
            raise PayloadInClear(queue.info.name)

    def _accept(self, queue: OpenQueue, item: PushItem, columns: _Columns) -> Pushed:
        partition_id = self._queues.partition_id(queue, item.partition)
        if not item.is_minted:
            earlier = columns.given_ids.get((partition_id, item.transaction_id))
            if earlier is not None:
                return Pushed("duplicate", earlier, queue.wire_id(partition_id), "log")
        return Pushed("queued", columns.add(item, partition_id), queue.wire_id(partition_id), "log")

    def _store(self, queue: OpenQueue, columns: _Columns, tag: bytes) -> None:
        if not columns.payloads:
            return
        now_us = self._clock.now_us()
        for places in columns.cut():
            place = queue.log.append_record(columns.batch(places, now_us), tag=tag)
            partition_ids = columns.partition_ids[places.start : places.stop]
            sizes = map(len, columns.payloads[places.start : places.stop])
            self._index.add(queue, place.first_seq, place.position, partition_ids, sizes, now_us)
        new_ids = [(*key, seq) for key, seq in columns.given_ids.items() if seq >= columns.first_seq]
        self._index.add_ids(new_ids)
