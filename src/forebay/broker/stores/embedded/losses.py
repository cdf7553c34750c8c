"""Messages that were accepted and cannot be read any more: noted once, reported, and passed by everything that reads.

A record of a log can rot, or go with its segment. Whatever meets that (a pop, a range, retention, the index as it
catches up) notes it here and goes on behind it:

- The index rows of the record stay, marked: `before` of later rows counts what they hold, and nothing reads them.
- Its messages count as removed from their partitions. Groups pass them: what was delivered of them and is not finished
  is taken out of a group's state when that is read next (`states`).
- Their ids are free again: a producer that still has the message can push it once more.
- A row of `lost_messages` per partition says for ever what was lost and why. The partition of messages that were never
  indexed is not known; some of them may belong to a transaction that was not committed.

Noting the same twice changes nothing. A note is synced with the next synced commit; if the power goes before, the
damage is met again.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from itertools import islice
from typing import NamedTuple

from forebay.broker.overview import LostMessages
from forebay.broker.stores.embedded.database import Database
from forebay.broker.stores.embedded.queries import query
from forebay.broker.stores.embedded.queues import OpenQueue, Queues
from forebay.broker.stores.embedded.records import RecordCache
from forebay.clock import Clock
from forebay.errors import DamagedRange, RangeGone, SegmentDamaged, SegmentMissing

logger = logging.getLogger(__name__)

LOST = -1
"""The position of a record, in the index, that cannot be read."""
_UNKNOWN = 0
"""In place of a partition's number."""
_NAMED_MAX = 10


class LostRange(NamedTuple):
    """What one partition has lost: seqs from the first to the last, and how many of them are its own."""

    first_seq: int
    last_seq: int
    messages: int


class _Share(NamedTuple):
    """What a record that cannot be read held of one partition."""

    partition_id: int
    first_seq: int
    last_seq: int
    messages: int
    floor_seq: int


class Losses:
    def __init__(self, database: Database, queues: Queues, cache: RecordCache, clock: Clock) -> None:
        self._database = database
        self._queues = queues
        self._cache = cache
        self._clock = clock
        self._logged: set[tuple[int, int, LostRange]] = set()

    def note(self, queue: OpenQueue, damage: DamagedRange) -> None:
        """Messages whose records are in the index cannot be read.

        A scan can only guess how far damage reaches; the index knows where each record stands. So one that can be read
        there is not lost, whatever was said of it.
        """
        last_seq = queue.log.next_seq - 1 if damage.last_seq is None else damage.last_seq
        found = self._database.all(
            query("blocks_between"),
            (damage.first_seq, last_seq, queue.queue_id),
        )
        if found:
            self._cache.forget([queue.queue_id])
            queue.waiting = None
        readable = {place: _is_readable(queue, *place) for place in {(row[0], row[1]) for row in found}}
        lost: dict[int, LostRange] = {}
        runs: list[tuple[int, int, int]] = []
        before = None
        for record_seq, position, *columns in found:
            if readable[record_seq, position]:
                before = None
                continue
            number, first_seq, last_seq, *_ = share = _Share(*columns)
            lost[number] = _joined(lost.get(number), self._lose(share))
            if number == before:
                runs[-1] = number, runs[-1][1], last_seq
            else:
                runs.append((number, first_seq, last_seq))
            before = number
        # Ids are not in the order of seqs: one look through those of a partition for records that follow each other.
        self._database.many(query("ids_delete_between"), runs)
        self._tell(queue, {number: each for number, each in lost.items() if each.messages}, damage.reason)

    def note_unindexed(self, queue: OpenQueue, first_seq: int, last_seq: int, reason: str) -> None:
        """Messages that the index did not come to cannot be read."""
        if first_seq <= last_seq:
            self._tell(queue, {_UNKNOWN: LostRange(first_seq, last_seq, last_seq - first_seq + 1)}, reason)

    def all(self) -> list[LostMessages]:
        rows = self._database.all(query("losses_list"))
        return [LostMessages(self._queues.by_id[queue_id].info.name, *rest) for queue_id, *rest in rows]

    def _lose(self, share: _Share) -> LostRange:
        """Take it out of its partition; returns what that was, of what retention and deletion had left."""
        number, first_seq, last_seq, _, floor_seq = share
        kept_before, kept = self._kept(number), self._kept_without(share)
        statement = query("block_move")
        self._database.do(statement, (LOST, number, first_seq))
        statement = query("deleted_forget_between")
        self._database.do(statement, (number, first_seq, last_seq))
        # The bytes of what is lost are not known: what is left is taken for average.
        self._database.do(
            query("partition_set_kept"),
            {"partition_id": number, "kept": kept, "kept_before": kept_before},
        )
        return LostRange(max(first_seq, floor_seq + 1), last_seq, kept_before - kept)

    def _kept(self, number: int) -> int:
        (kept,) = self._database.one(query("partition_kept"), (number,))
        return int(kept)

    def _kept_without(self, share: _Share) -> int:
        """How many messages the partition keeps without these; some of them may have been removed before."""
        number, first_seq, last_seq, count, floor_seq = share
        if floor_seq < first_seq:
            (deleted,) = self._database.one(
                query("deleted_count_between"),
                (number, first_seq, last_seq),
            )
            return self._kept(number) - count + int(deleted)
        # Which of them are behind the floor only the record said: all others that are kept are behind it.
        (others,) = self._database.one(
            query("blocks_count_after"),
            (number, last_seq),
        )
        (deleted,) = self._database.one(query("deleted_count_after"), (number, last_seq))
        return int(others) - int(deleted)

    def _tell(self, queue: OpenQueue, lost: Mapping[int, LostRange], reason: str) -> None:
        """Write down what each partition has lost, and say it once."""
        now_us = self._clock.now_us()
        self._database.many(
            query("loss_note"),
            [(queue.queue_id, number, *each, reason, now_us) for number, each in lost.items()],
        )
        new = {number: each for number, each in lost.items() if (queue.queue_id, number, each) not in self._logged}
        self._logged.update((queue.queue_id, number, each) for number, each in new.items())
        if new:
            logger.error(
                "queue %r: %d messages are lost, seqs %d-%d, of %s: %s",
                queue.info.name,
                sum(each.messages for each in new.values()),
                min(each.first_seq for each in new.values()),
                max(each.last_seq for each in new.values()),
                _named(queue, new),
                reason,
                extra={"action": "store_messages_lost"},
            )


def _joined(one: LostRange | None, other: LostRange) -> LostRange:
    if one is None or not one.messages:
        return other
    if not other.messages:
        return one
    first_seq, last_seq = min(one.first_seq, other.first_seq), max(one.last_seq, other.last_seq)
    return LostRange(first_seq, last_seq, one.messages + other.messages)


def _named(queue: OpenQueue, lost: Mapping[int, LostRange]) -> str:
    """The partitions, as many as a line of the log bears, each with how many messages it lost."""
    if _UNKNOWN in lost:
        return "partitions that are not known"
    names = {number: name for name, number in queue.partitions.items()}
    shown = [f"{names[number]!r} ({each.messages})" for number, each in islice(lost.items(), _NAMED_MAX)]
    more = f" and {len(lost) - _NAMED_MAX} more" if len(lost) > _NAMED_MAX else ""
    return f"partitions {', '.join(shown)}{more}"


def _is_readable(queue: OpenQueue, record_seq: int, position: int) -> bool:
    try:
        queue.log.read_record(record_seq, position)
    except (SegmentDamaged, SegmentMissing, RangeGone):
        return False
    return True
