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
class _Intake:
    """Messages of one queue that are to be stored."""

    first_seq: int
    taken_ids: dict[tuple[int, str], int]
    """Ids that producers gave, with the seq of their message: those that were there before, and the new ones."""
    items: list[PushItem] = field(default_factory=list)
    partition_ids: list[int] = field(default_factory=list)
    has_claimed_ids: bool = False
    """Whether the ids of all messages are in the index already."""

    def cut(self) -> list[range]:
        """The places that go into each record."""
        sizes = [len(item.payload) for item in self.items]
        count = len(sizes)
        if count <= RECORD_MESSAGES_MAX and sum(sizes) + _ITEM_OVERHEAD_BYTES * count <= RECORD_BYTES_MAX:
            return [range(count)]
        cuts, start, total = [], 0, 0
        for place, size in enumerate(sizes):
            total += size + _ITEM_OVERHEAD_BYTES
            if place > start and (total > RECORD_BYTES_MAX or place - start >= RECORD_MESSAGES_MAX):
                cuts.append(range(start, place))
                start, total = place, size + _ITEM_OVERHEAD_BYTES
        return [*cuts, range(start, count)]


def _as_columns(items: Sequence[PushItem], created_us: int) -> MessageBatch:
    """One pass per column, because that is several times as fast as one pass per message."""
    traces = [item.trace_id for item in items]
    headers = [item.headers for item in items]
    return MessageBatch(
        payloads=[item.payload for item in items],
        created_us=[created_us] * len(items),
        partitions=[item.partition.encode() for item in items],
        transaction_ids=[item.transaction_id.encode() for item in items],
        trace_ids=[trace.encode() for trace in traces] if any(traces) else None,
        headers=headers if any(headers) else None,
        flags=[PAYLOAD_IS_BINARY * i.is_binary | TRANSACTION_ID_IS_MINTED * i.is_minted for i in items],
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
            items = [item for request in same for item in request.items]
            intake = self._claimed(queue, items) or self._intake(queue, items)
            for request in same:
                try:
                    self._check_room(queue, intake, request.items)
                    self._check_sealed(queue, request.items)
                    request.answers = self._accept(queue, request.items, intake)
                except (QueueFull, PayloadInClear) as refused:
                    request.error = refused
            try:
                self._store(queue, intake, NO_TAG)
                stored[name] = len(intake.items)
            except AppendFailed as failed:
                for request in same:
                    request.error = request.error or failed
        return stored

    def push_tagged(self, items: Sequence[PushItem], tag: bytes) -> list[Pushed]:
        """Store messages of any queues; they count only if the tag is committed with the database's transaction."""
        by_queue: dict[str, list[int]] = {}
        for place, item in enumerate(items):
            by_queue.setdefault(item.queue, []).append(place)
        intakes: list[tuple[OpenQueue, _Intake]] = []
        answers: dict[int, Pushed] = {}
        for name, places in by_queue.items():
            own = [items[place] for place in places]
            queue = self._queues.made(name, own[0].namespace, own[0].task)
            intake = self._intake(queue, own)
            self._check_room(queue, intake, own)
            self._check_sealed(queue, own)
            answers.update(zip(places, self._accept(queue, own, intake), strict=True))
            intakes.append((queue, intake))
        for queue, intake in intakes:
            self._store(queue, intake, tag)
        return [answers[place] for place in range(len(items))]

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

    def _intake(self, queue: OpenQueue, items: Sequence[PushItem]) -> _Intake:
        """Where messages of the queue go next, and which of the producers' ids their partitions have already."""
        wanted: dict[int, set[str]] = {}
        for item in items:
            if not item.is_minted and item.partition in queue.partitions:
                wanted.setdefault(queue.partitions[item.partition], set()).add(item.transaction_id)
        return _Intake(queue.log.next_seq, self._index.seqs_of_ids(wanted))

    def _claimed(self, queue: OpenQueue, items: Sequence[PushItem]) -> _Intake | None:
        """An intake for messages whose ids are new, all of them: then there is nothing to look up.

        Only for queues that refuse nothing, because the ids go into the index with the seqs that the messages will get.
        """
        options = queue.info.options
        if options.max_size or options.encryption_enabled or any([item.is_minted for item in items]):  # noqa: C419
            return None
        names = [item.partition for item in items]
        numbers = {name: self._queues.partition_id(queue, name) for name in set(names)}
        ids = [item.transaction_id for item in items]
        first_seq = queue.log.next_seq
        if not self._index.claim_ids(first_seq, [numbers[name] for name in names], ids):
            return None
        return _Intake(first_seq, {}, has_claimed_ids=True)

    def _check_room(self, queue: OpenQueue, intake: _Intake, items: Sequence[PushItem]) -> None:
        """Duplicates need no room."""
        limit = queue.info.options.max_size
        if not limit:
            return
        new = {(item.partition, item.transaction_id) for item in items if not self._is_taken(queue, item, intake)}
        waiting = self._waiting(queue) + len(intake.items)
        if new and waiting + len(new) > limit:
            raise QueueFull(queue.info.name, waiting, limit)

    def _is_taken(self, queue: OpenQueue, item: PushItem, intake: _Intake) -> bool:
        key = queue.partitions.get(item.partition, 0), item.transaction_id
        return not item.is_minted and key in intake.taken_ids

    def _check_sealed(self, queue: OpenQueue, items: Sequence[PushItem]) -> None:
        if queue.info.options.encryption_enabled and not all(is_sealed(item.payload) for item in items):
            raise PayloadInClear(queue.info.name)

    def _accept(self, queue: OpenQueue, items: Sequence[PushItem], intake: _Intake) -> list[Pushed]:
        numbers = {name: self._queues.partition_id(queue, name) for name in {item.partition for item in items}}
        wire_ids = {name: queue.wire_id(number) for name, number in numbers.items()}
        taken_ids, new, partition_ids = intake.taken_ids, intake.items, intake.partition_ids
        seq = intake.first_seq + len(new)
        are_ids_new = intake.has_claimed_ids
        answers = []
        for item in items:
            name = item.partition
            if not (are_ids_new or item.is_minted):
                key = numbers[name], item.transaction_id
                earlier = taken_ids.setdefault(key, seq)
                if earlier != seq:
                    answers.append(Pushed("duplicate", earlier, wire_ids[name], "log"))
                    continue
            new.append(item)
            partition_ids.append(numbers[name])
            answers.append(Pushed("queued", seq, wire_ids[name], "log"))
            seq += 1
        return answers

    def _store(self, queue: OpenQueue, intake: _Intake, tag: bytes) -> None:
        if not intake.items:
            return
        try:
            self._append(queue, intake, tag)
        except AppendFailed:
            if intake.has_claimed_ids:
                ids = [item.transaction_id for item in intake.items]
                self._index.give_ids_back(queue.log.next_seq, intake.partition_ids, ids)
            raise
        if not intake.has_claimed_ids:
            new_ids = [(*key, seq) for key, seq in intake.taken_ids.items() if seq >= intake.first_seq]
            self._index.add_ids(new_ids)

    def _append(self, queue: OpenQueue, intake: _Intake, tag: bytes) -> None:
        now_us = self._clock.now_us()
        for places in intake.cut():
            part = slice(places.start, places.stop)
            batch = _as_columns(intake.items[part], now_us)
            place = queue.log.append_record(batch, tag=tag)
            sizes = map(len, batch.payloads)
            self._index.add(queue, place.first_seq, place.position, intake.partition_ids[part], sizes, now_us)
