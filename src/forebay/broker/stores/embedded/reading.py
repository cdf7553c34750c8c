"""Ranges of a queue as Arrow batches, read beside the store's thread.

The store's thread is called once: which log, and the seq up to which it is settled. All else is read by the reader of
the batches: records from the log, and from the database, through a connection that can only read, what does not count
(records of transactions that were not committed, messages below their partition's floor, deleted ones).
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from forebay.broker.arrow import outgoing
from forebay.broker.bulk import LostSpan, QueueBounds, RangeRequest, identity_of
from forebay.broker.stores.embedded.queries import query
from forebay.commitlog import CommitLog
from forebay.commitlog.block import NO_TAG
from forebay.errors import DamagedRange, RangeGone, RangeIncomplete, UnknownQueue
from forebay.model.message import CREATED_US_MAX


class ReadableQueue(NamedTuple):
    """A queue as the store's thread saw it last: everything below `next_seq` is settled."""

    name: str
    queue_id: int
    log: CommitLog
    next_seq: int


class RangeReader:
    """One reader of one queue, for one thread at a time."""

    def __init__(self, database: sqlite3.Connection, queue: ReadableQueue) -> None:
        """`database`: a connection that can only read."""
        self.queue = queue
        self._database = database
        self._committed: dict[bytes, bool] = {NO_TAG: True}
        self.damage: list[DamagedRange] = []
        """What could not be read, for the store's thread to note."""

    def _floors(self) -> dict[str, int]:
        """Of partitions, also of those that were removed, up to where their messages do not count."""
        return dict(self._all(query("floors")))

    def close(self) -> None:
        self._database.close()

    def __enter__(self) -> RangeReader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _all(self, statement: str, **values: object) -> list[Any]:
        return self._database.execute(statement, {"queue_id": self.queue.queue_id, **values}).fetchall()

    def bounds(self, time_us: int | None, partitions: Sequence[str] = ()) -> QueueBounds:
        [(size,)] = self._all(query("queue_size"))
        first, end = self.first_seq(), self.queue.next_seq
        at_time = None
        if time_us is not None:
            later = self.queue.log.read_created_between(time_us, CREATED_US_MAX + 1, on_damage=self.damage.append)
            found = next((batch.column("seq")[0].as_py() for batch in later if batch.num_rows), end)
            at_time = min(max(found, first), end)
        gone = self._removed_seq(partitions), self._lost(partitions)
        return QueueBounds(first, end, size, at_time, self._identity(), *gone)

    def _identity(self) -> str:
        rows = self._all(query("queue_created"))
        if not rows:
            raise UnknownQueue(self.queue.name)
        return identity_of(self.queue.queue_id, rows[0][0])

    def _removed_seq(self, partitions: Sequence[str]) -> int:
        """The last message that retention removed; of partitions that are gone it is not known which they were."""
        [(seq,)] = self._all(
            query("removed_seq"),
            partitions=json.dumps(list(partitions)),
        ) or [(0,)]
        return int(seq)

    def _lost(self, partitions: Sequence[str]) -> tuple[LostSpan, ...]:
        """What is known to be lost; where the partition is not known, it may be of any."""
        rows = self._all(
            query("losses_of_queue"),
            partitions=json.dumps(list(partitions)),
        )
        return tuple(LostSpan(*row) for row in rows)

    def first_seq(self) -> int:
        """The oldest message kept.

        The index knows the first message of each record and partition. Where that one was removed, only the record
        says which of the others is next, and it may be large: it is read then, and not before.
        """
        rows = self._all(query("first_seq"))
        if not rows:
            return self.queue.next_seq
        [(lowest, is_kept)] = rows
        if is_kept:
            return min(int(lowest), self.queue.next_seq)
        kept = self._kept(lowest, self.queue.next_seq - 1)
        return next((batch.column("seq")[0].as_py() for batch in kept if batch.num_rows), self.queue.next_seq)

    def batches(self, wanted: RangeRequest) -> Iterator[pa.RecordBatch]:
        """What can be wrong with the request is raised by the call."""
        outgoing.check_identity(wanted, self._identity())
        removed_seq = self._removed_seq(wanted.partitions)
        if not wanted.partitions:
            # What the log does not hold any more is gone, be it of partitions that an older Forebay has forgotten.
            removed_seq = max(removed_seq, self.queue.log.first_seq - 1)
        first = outgoing.checked_start(wanted, self.first_seq(), removed_seq)
        self._check_complete(wanted)
        last = self.queue.next_seq - 1
        last = last if wanted.to_seq is None else min(wanted.to_seq, last)
        narrowed = (outgoing.narrowed(batch, wanted) for batch in self._kept(first, last, wanted))
        together = outgoing.put_together(batch for batch in narrowed if batch.num_rows)
        return outgoing.limited(map(outgoing.on_the_wire, together), wanted.bytes_max)

    def _check_complete(self, wanted: RangeRequest) -> None:
        if wanted.removed_up_to is not None:
            outgoing.check_complete(wanted, self._removed_seq(wanted.partitions), self._lost(wanted.partitions))

    def _kept(self, first: int, last: int, wanted: RangeRequest | None = None) -> Iterator[pa.RecordBatch]:
        """The messages between those seqs that count."""
        if first > last:
            return
        deleted = self._deleted(first, last)
        floors = self._floors()  # after that: what was deleted of a partition that is removed is below its floor
        if wanted is not None:
            # Once more, now that it is known what is passed over: retention may have been quicker.
            self._check_complete(wanted)
        for batch in outgoing.put_together(self._stored(first, last, wanted)):
            if floors:
                batch = _above_floors(batch, floors)
            if deleted is not None:
                batch = batch.filter(pc.invert(pc.is_in(batch.column("seq"), deleted)))
            yield batch

    def _stored(self, first: int, last: int, wanted: RangeRequest | None = None) -> Iterator[pa.RecordBatch]:
        """The messages of committed records. A damage within what is wanted raises before what is behind it."""

        def on_damage(damage: DamagedRange) -> None:
            self.damage.append(damage)
            if wanted is None or wanted.removed_up_to is None:
                return
            if self._is_loss(damage, wanted):
                end = last if damage.last_seq is None else damage.last_seq
                raise RangeIncomplete(wanted.queue, damage.first_seq, end, "damage")
            # Another reader may have met the same since this one began, and then it is noted by now.
            self._check_complete(wanted)

        found = self.queue.log.read_records(first, last, on_damage=on_damage)
        with contextlib.closing(found) as records:  # type: ignore[type-var]
            for record in records:
                tag, batch = record.tag_and_batch()
                if tag not in self._committed:
                    found = self._database.execute(query("tag_is_committed"), (tag,)).fetchone()
                    self._committed[tag] = found is not None
                if not self._committed[tag]:
                    self._check_kept(record.header.first_seq)
                else:
                    start = max(first - record.header.first_seq, 0)
                    yield batch.slice(start, last - record.header.first_seq + 1 - start)

    def _is_loss(self, damage: DamagedRange, wanted: RangeRequest) -> bool:
        """Whether messages of the partitions go with it that count until now. Noted, they are found by `_lost`."""
        end = self.queue.next_seq - 1 if damage.last_seq is None else damage.last_seq
        rows = self._all(
            query("blocks_any_between"),
            first_seq=damage.first_seq,
            last_seq=end,
            partitions=json.dumps(list(wanted.partitions)),
        )
        return bool(rows)

    def _check_kept(self, seq: int) -> None:
        """A tag is unknown when it was never committed, or when it went because its records had gone (`tags`)."""
        if not self._all(query("queue_is_there")):
            raise UnknownQueue(self.queue.name)
        if seq < self.queue.log.first_seq:
            raise RangeGone(f"queue {self.queue.name!r}", seq, self.queue.log.first_seq)

    def _deleted(self, first: int, last: int) -> pa.Array | None:
        rows = self._all(
            query("deleted_of_queue_between"),
            first_seq=first,
            last_seq=last,
        )
        return pa.array([seq for (seq,) in rows], pa.int64()) if rows else None


def _above_floors(batch: pa.RecordBatch, floors: dict[str, int]) -> pa.RecordBatch:
    """Without what retention has removed of each partition."""
    if batch.column("seq")[0].as_py() > max(floors.values()):
        return batch
    places = pc.index_in(batch.column("partition"), pa.array(floors, pa.string()))
    removed = pc.fill_null(pc.take(pa.array(floors.values(), pa.int64()), places), 0)
    return batch.filter(pc.greater(batch.column("seq"), removed))
