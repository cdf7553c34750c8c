"""Removing what the queues' options no longer keep.

A partition's *floor* is the last seq that is gone from it: nothing up to it is delivered, read or counted any more.
Disk space comes back when a whole segment of the log is below all floors.

What goes is found by walking through the log once, for all partitions of the queue, in pieces: between two of them the
store's thread does what others have asked for.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from forebay.broker.stores.embedded.database import Database
from forebay.broker.stores.embedded.fetching import seq_before
from forebay.broker.stores.embedded.index import MessageIndex
from forebay.broker.stores.embedded.popping import Popper
from forebay.broker.stores.embedded.queues import OpenQueue, Queues
from forebay.broker.stores.embedded.records import StoredRecord
from forebay.clock import Clock
from forebay.errors import ForebayError
from forebay.model.queue import QueueOptions

logger = logging.getLogger(__name__)

_SECOND_US = 1_000_000
PIECE_MESSAGES_MAX = 20_000
"""How many messages are looked at before others get their turn."""


class _Front(NamedTuple):
    """Where a partition begins: the first message that is kept, and the last that every group has finished."""

    number: int
    partition: str
    first_seq: int
    done_seq: int


class _Span(NamedTuple):
    """What is to be removed of a partition: its messages from one seq to another."""

    partition: str
    first_seq: int
    last_seq: int


@dataclass(slots=True)
class _Share:
    """What was found of it."""

    last_seq: int = 0
    messages: int = 0
    size_bytes: int = 0


class _Walk:
    """Goes through a log once for all partitions, for as long as others can wait."""

    def __init__(self, spans: Mapping[int, _Span], deleted: Collection[int]) -> None:
        self._by_name = {span.partition: (number, span) for number, span in spans.items()}
        self._end_seq = max(span.last_seq for span in spans.values())
        self._deleted = deleted
        self.found: dict[int, _Share] = {}
        self.messages = 0

    def through(self, records: Iterable[StoredRecord]) -> bool:
        """False when it stopped before the end."""
        walked = 0
        for record in records:
            if record.first_seq > self._end_seq:
                return True
            if walked >= PIECE_MESSAGES_MAX and self.found:
                return False
            self._look_at(record)
            walked += record.count
        return True

    def _look_at(self, record: StoredRecord) -> None:
        sizes = record.payload_sizes()
        for place, name in enumerate(record.partitions):
            seq = record.first_seq + place
            number, span = self._by_name.get(name, _NOTHING)
            if span.first_seq <= seq <= span.last_seq:
                share = self.found.setdefault(number, _Share())
                share.last_seq = seq
                if seq not in self._deleted:
                    share.messages += 1
                    share.size_bytes += sizes[place]
                    self.messages += 1


_NOTHING = 0, _Span("", 1, 0)


def _is_limited(options: QueueOptions) -> bool:
    return bool(options.kept_seconds or options.completed_kept_seconds)


class Retention:
    def __init__(
        self,
        database: Database,
        queues: Queues,
        index: MessageIndex,
        popper: Popper,
        clock: Clock,
        freed: set[str],
    ) -> None:
        """`freed`: where queues are noted of which a partition may be claimed again."""
        self._database = database
        self._queues = queues
        self._index = index
        self._popper = popper
        self._clock = clock
        self._freed = freed
        self._to_truncate: dict[int, int] = {}
        """Queues by number, and the seq before which their logs are not needed once this is committed."""

    def queues(self) -> list[int]:
        """Those that do not keep everything."""
        return [queue.queue_id for queue in self._queues.by_id.values() if _is_limited(queue.info.options)]

    def apply(self, queue_id: int) -> tuple[int, bool]:
        """Remove some of what the queue does not keep any more; returns how many messages, and whether that is all."""
        queue = self._queues.by_id.get(queue_id)
        if queue is None or not _is_limited(queue.info.options):
            return 0, True
        if self._index.tags.prune(queue):
            return 0, False
        return self._removed(queue, self._spans(queue))

    def clear(self, queue_id: int, partition: str | None, last_seq: int) -> tuple[int, bool]:
        """Remove some of all that the queue, or one partition, holds up to a seq; returns as `apply` does."""
        queue = self._queues.by_id.get(queue_id)
        if queue is None:
            return 0, True
        chosen = [front for front in self._fronts(queue) if partition in (None, front.partition)]
        spans = {
            front.number: _Span(front.partition, front.first_seq, last_seq)
            for front in chosen
            if front.first_seq <= last_seq
        }
        return self._removed(queue, spans)

    def _removed(self, queue: OpenQueue, spans: Mapping[int, _Span]) -> tuple[int, bool]:
        if not spans:
            return 0, True
        walk = _Walk(spans, self._deleted(queue))
        is_all = walk.through(self._records(queue, min(span.first_seq for span in spans.values())))
        for number, share in walk.found.items():
            self._raise_floor(queue, number, share)
        self._free(queue)
        return walk.messages, is_all

    def _spans(self, queue: OpenQueue) -> dict[int, _Span]:
        """Of each partition that has something to remove: where that begins and ends."""
        options, now_us = queue.info.options, self._clock.now_us()
        fronts = list(self._fronts(queue))
        old_seq = done_seq = 0
        # Of the queue as a whole: a message that is young keeps those that came behind it, whatever their clock said.
        if options.kept_seconds:
            old_seq = seq_before(queue, now_us - options.kept_seconds * _SECOND_US)
        done = [front for front in fronts if front.first_seq <= front.done_seq]
        if done:
            # Only where something is finished: in front of it there may be a backlog that nobody has to read.
            cutoff_us = now_us - options.completed_kept_seconds * _SECOND_US
            ends = min(front.first_seq for front in done), max(front.done_seq for front in done)
            done_seq = seq_before(queue, cutoff_us, *ends)
        spans = {}
        for front in fronts:
            last_seq = max(old_seq, min(front.done_seq, done_seq))
            if front.first_seq <= last_seq:
                spans[front.number] = _Span(front.partition, front.first_seq, last_seq)
        return spans

    def _fronts(self, queue: OpenQueue) -> Iterator[_Front]:
        rows = self._database.all(
            "SELECT id FROM partitions WHERE queue_id = ? AND floor_seq < last_seq", (queue.queue_id,)
        )
        groups = queue.groups.values() if queue.info.options.completed_kept_seconds else ()
        for (number,) in rows:
            partition = self._popper.states.partition(number)
            cursors = [self._popper.states.cursor_seq(group, partition) for group in groups]
            done_seq = min([partition.last_seq, *cursors]) if cursors else 0
            for block in self._index.blocks_after(number, partition.floor_seq, 1):
                yield _Front(number, partition.name, max(block.first_seq, partition.floor_seq + 1), done_seq)

    def _records(self, queue: OpenQueue, from_seq: int) -> Iterator[StoredRecord]:
        records = queue.log.read_records(max(from_seq, queue.log.first_seq), on_damage=self._index.on_damage(queue))
        for record in records:
            stored = StoredRecord(record.plain())
            if self._index.tags.counts(stored.tag):
                yield stored

    def _deleted(self, queue: OpenQueue) -> set[int]:
        rows = self._database.all(
            "SELECT d.seq FROM deleted_messages d JOIN partitions p ON p.id = d.partition_id WHERE p.queue_id = ?",
            (queue.queue_id,),
        )
        return {seq for (seq,) in rows}

    def _raise_floor(self, queue: OpenQueue, number: int, share: _Share) -> None:
        floor = share.last_seq
        queue.waiting = None
        self._database.do(
            "UPDATE partitions SET floor_seq = ?1, removed = removed + ?2, "
            "size = CASE WHEN pushed > removed + ?2 THEN max(size - ?3, 0) ELSE 0 END WHERE id = ?4",
            (floor, share.messages, share.size_bytes, number),
        )
        self._database.do("DELETE FROM blocks WHERE partition_id = ? AND last_seq <= ?", (number, floor))
        self._database.do("DELETE FROM transaction_ids WHERE partition_id = ? AND seq <= ?", (number, floor))
        self._database.do("DELETE FROM deleted_messages WHERE partition_id = ? AND seq <= ?", (number, floor))
        for group in queue.groups.values():
            # What it waits for may be gone: a lease on nothing is over.
            if group.ready is not None and group.ready.wakes_us(number) is not None:
                group.ready.wake(number)
                self._freed.add(queue.info.name)

    def _free(self, queue: OpenQueue) -> None:
        """Note which segments hold nothing that any partition keeps."""
        row = self._database.one(
            "SELECT min(b.record_seq) FROM blocks b JOIN partitions p ON p.id = b.partition_id "
            "WHERE p.queue_id = ? AND b.position >= 0",
            (queue.queue_id,),
        )
        self._to_truncate[queue.queue_id] = row[0] if row and row[0] is not None else queue.log.next_seq

    def truncate_logs(self) -> None:
        """Give the segments back, now that it is on the disk that nobody needs them. What fails is left for later."""
        while self._to_truncate:
            queue_id, seq = self._to_truncate.popitem()
            queue = self._queues.by_id.get(queue_id)
            try:
                if queue is not None:
                    queue.log.truncate_before(seq)
            except (OSError, ForebayError) as error:
                logger.warning("segments are not removed: %s", error, extra={"action": "store_truncate_failed"})

    def forget_truncations(self) -> None:
        """After a rollback."""
        self._to_truncate.clear()
