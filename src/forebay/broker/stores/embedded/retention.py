"""Removing what the queues' options no longer keep.

A partition's *floor* is the last seq that is gone from it: nothing up to it is delivered, read or counted any more.
Disk space comes back when a whole segment of the log is below all floors.

What goes is planned beside the store's thread (`retention_plan`), and found by walking through the log once, for all
partitions of the queue, in pieces: between two of them the store's thread serves other requests.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

from forebay.broker.queue_rules import keeps_everything
from forebay.broker.stores.embedded.database import Database
from forebay.broker.stores.embedded.index import MessageIndex
from forebay.broker.stores.embedded.limits import EmbeddedLimits
from forebay.broker.stores.embedded.popping import Popper
from forebay.broker.stores.embedded.queries import query
from forebay.broker.stores.embedded.queues import OpenQueue, Queues
from forebay.broker.stores.embedded.records import StoredRecord
from forebay.broker.stores.embedded.retention_plan import Plan, Span
from forebay.errors import ForebayError

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class _Share:
    """What was found of it."""

    last_seq: int = 0
    messages: int = 0
    size_bytes: int = 0


class _Walk:
    """Goes through a log once for all partitions, for as long as others can wait."""

    def __init__(self, plan: Plan, deleted: Collection[int], from_seq: int, limits: EmbeddedLimits) -> None:
        self._limits = limits
        self._spans = plan.spans
        self._end_seq = plan.end_seq
        self._deleted = deleted
        self.next_seq: int | None = from_seq
        """Where the next walk has to begin; None when this one came to the end."""
        self.found: dict[int, _Share] = {}
        self.messages = 0

    def through(self, records: Iterable[StoredRecord]) -> None:
        walked, start = 0, self.next_seq or 0
        for record in records:
            if record.first_seq > self._end_seq:
                break
            if walked >= self._limits.walked_messages_max and self.found:
                self.next_seq = record.first_seq
                return
            stopped = self._look_at(record, start)
            if stopped is not None:
                self.next_seq = stopped
                return
            walked += record.count
        self.next_seq = None

    def _look_at(self, record: StoredRecord, start: int) -> int | None:
        """Returns the seq before which it stopped, if it did."""
        sizes = record.payload_sizes()
        for place, name in enumerate(record.partitions):
            seq = record.first_seq + place
            span = self._spans.get(name, _NOTHING)
            if seq >= start and span.first_seq <= seq <= span.last_seq:
                number = span.number
                if number not in self.found and len(self.found) >= self._limits.removed_partitions_max:
                    return seq
                share = self.found.setdefault(number, _Share())
                share.last_seq = seq
                if seq not in self._deleted:
                    share.messages += 1
                    share.size_bytes += sizes[place]
                    self.messages += 1
        return None


_NOTHING = Span(0, 1, 0)


class Retention:
    def __init__(
        self,
        database: Database,
        queues: Queues,
        index: MessageIndex,
        popper: Popper,
        freed: set[str],
        limits: EmbeddedLimits,
    ) -> None:
        """`freed`: where queues are noted of which a partition may be claimed again."""
        self._database = database
        self._queues = queues
        self._index = index
        self._popper = popper
        self._freed = freed
        self._limits = limits
        self._to_truncate: dict[int, int] = {}
        """Queues by number, and the seq before which their logs are not needed once this is committed."""

    def queues(self) -> list[str]:
        """Those that do not keep everything."""
        return [name for name, queue in self._queues.by_name.items() if not keeps_everything(queue.info.options)]

    def prune_tags(self, queue_id: int) -> bool:
        """Remove some tags that the log does not hold any more; returns whether there may be others."""
        queue = self._queues.by_id.get(queue_id)
        return queue is not None and self._index.tags.prune(queue)

    def remove(self, plan: Plan, from_seq: int, now_us: int) -> tuple[int, int | None]:
        """Remove some of what is planned, from a seq on; returns how many messages, and where to go on, if anywhere."""
        queue = self._queues.by_id.get(plan.queue_id)
        if queue is None or not plan.spans:
            return 0, None
        walk = _Walk(plan, self._deleted(queue), from_seq, self._limits)
        walk.through(self._records(queue, from_seq))
        removed = 0
        statement = query("held_by_readers")
        (held_seq,) = self._database.one(statement, (queue.queue_id, now_us))
        needed_seq = self._needed_seq(queue) if plan.spares_parcels else None
        for number, share in walk.found.items():
            if needed_seq is not None and share.last_seq >= needed_seq:
                continue
            is_read = held_seq is None or share.last_seq <= held_seq
            if share.last_seq <= plan.old_seq or (is_read and share.last_seq <= self._done_seq(queue, number)):
                self._raise_floor(queue, number, share)
                removed += share.messages
        return removed, walk.next_seq

    def _needed_seq(self, queue: OpenQueue) -> int | None:
        """The first message that an unfinished parcel needs, as things stand now."""
        values = {"queue_id": queue.queue_id}
        found: int | None = self._database.execute(query("held_by_parcels"), values).fetchone()[0]
        return found

    def _done_seq(self, queue: OpenQueue, number: int) -> int:
        """The last message of the partition that every group has finished, as things stand now."""
        partition = self._popper.states.partition(number)
        cursors = [self._popper.states.cursor_seq(group, partition) for group in queue.groups.values()]
        return min(cursors, default=0)

    def _records(self, queue: OpenQueue, from_seq: int) -> Iterator[StoredRecord]:
        records = queue.log.read_records(max(from_seq, queue.log.first_seq), on_damage=self._index.on_damage(queue))
        for record in records:
            stored = StoredRecord(record.plain())
            if self._index.tags.counts(stored.tag):
                yield stored

    def _deleted(self, queue: OpenQueue) -> set[int]:
        rows = self._database.all(
            query("deleted_of_queue"),
            (queue.queue_id,),
        )
        return {seq for (seq,) in rows}

    def _raise_floor(self, queue: OpenQueue, number: int, share: _Share) -> None:
        floor = share.last_seq
        queue.waiting = None
        self._database.do(
            query("partition_remove_upto"),
            {"floor_seq": floor, "messages": share.messages, "size": share.size_bytes, "partition_id": number},
        )
        self._database.do(query("blocks_delete_upto"), (number, floor))
        self._database.do(query("ids_delete_upto"), (number, floor))
        self._database.do(query("deleted_forget_upto"), (number, floor))
        for group in queue.groups.values():
            # What it waits for may be gone: a lease on nothing is over.
            if group.ready is not None and group.ready.wakes_us(number) is not None:
                group.ready.wake(number)
                self._freed.add(queue.info.name)

    def truncate(self, queue_id: int, seq: int) -> None:
        """Note that no record before the seq is needed, by what is committed."""
        self._to_truncate[queue_id] = seq

    def truncate_logs(self) -> None:
        """Give the segments back, now that the disk says that they are not needed. What fails is left for later."""
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
