"""A queue as a stream: offsets, what was missed, the group's cursor and the hold on retention.

The object lives beside the driver for as long as the query runs. What has to outlive it is in the offsets.
"""

from __future__ import annotations

import logging
import os
import sys
import time
import uuid
from collections.abc import Callable
from typing import Any

from pyspark.sql.datasource import DataSourceStreamReader
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from forebay.errors import ForebayError
from forebay.spark.positions import Bounds, Offset, SeqRange, batch_end, loss, resolve
from forebay.spark.queues import NEW_CHECKPOINT, MessagesGone, MessagesMissing, QueueIsAnother
from forebay.spark.reader import RangePartition, Reader

_log = logging.getLogger(__name__)
HOLD_EVERY_SECONDS = 10.0
"""What is held may be a little more than what is not read: one request per batch would be one too many."""
NEVER = 1 << 53
"""A seq that no message reaches: where a group stands in partitions that it does not read."""


class QueueStreamReader(Reader, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Its offsets are described in `positions`."""

    _target: int | None = None
    """Where a query with Trigger.AvailableNow ends."""
    _followed: int | None = None
    """Where the group's cursor stands."""
    _held_at = float("-inf")
    """When retention was held back last."""
    _initial: Offset | None = None
    """Where a query without a checkpoint begins. Spark asks several times, and time goes on meanwhile."""
    _is_start_to_be_noted = False
    """Whether the query begins behind everything there is: only a checkpoint can say later where that was."""
    _reported: SeqRange | None = None
    """The loss that was logged last: Spark looks for new messages many times a second."""

    def _bounds(self) -> Bounds:
        return self._queue().bounds(partitions=self._options.partitions)

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        if self._initial is None:
            starting = self._options.starting
            bounds = self._queue().bounds(starting, self._options.partitions)
            seq = resolve(starting, bounds)
            # A seq that the user names is taken at its word: what is gone behind it was wanted.
            removed = bounds.removed_seq if starting.seq is None and bounds.removed_seq >= seq else 0
            self._initial = Offset(seq, bounds.identity, uuid.uuid4().hex, removed)
            self._is_start_to_be_noted = seq >= bounds.next_seq
        return self._initial.as_json()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        if self._options.rows_max is not None:
            return ReadMaxRows(self._options.rows_max)
        return ReadAllAvailable() if self._options.bytes_max is None else ReadMaxBytes(self._options.bytes_max)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._target = self._queue().bounds().next_seq

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        begin = Offset.read(start)
        if begin.reader is None:
            begin = begin._replace(reader=uuid.uuid4().hex)
        # Spark asks for a batch when everything before it is done, but says so (`commit`) only once there is one.
        self._follow(begin.seq)
        if self._is_start_to_be_noted and begin == self._initial:
            # An empty first batch, whose end Spark writes down: a restart would not find the place again.
            self._is_start_to_be_noted = False
            self._hold(begin)
            return begin._replace(began=begin.seq).as_json()
        bounds = self._bounds()
        is_first = begin == self._initial
        if self._is_another_queue(begin, bounds):
            begin, is_first = self._begun_anew(begin, bounds), True
        self._hold(begin)
        self._tell_loss(begin, bounds)
        end = self._end(begin, bounds, limit)
        if not is_first and (end.seq, end.queue, end.reader) == Offset.read(start)[:3]:
            # To the letter: Spark takes any difference for something to read.
            return start
        return end._replace(began=begin.seq if is_first else None).as_json()

    def _end(self, begin: Offset, bounds: Bounds, limit: ReadLimit) -> Offset:
        """The end of a batch that begins there."""
        if self._target is not None:
            bounds = bounds._replace(next_seq=max(begin.seq, min(bounds.next_seq, self._target)))
        seq = bounds.next_seq
        if not isinstance(limit, ReadAllAvailable):
            seq = batch_end(begin.seq, bounds, self._options.rows_max, self._options.bytes_max)
        # What is gone and reported, or was gone when the query began, is no loss to the tasks of the batch either.
        removed = bounds.removed_seq if bounds.removed_seq >= begin.seq else 0
        return Offset(seq, bounds.identity, begin.reader, removed)

    def reportLatestOffset(self) -> dict[str, Any]:  # noqa: N802
        # Spark describes the source in its progress as an object of Java: here it stands by its queue's name.
        bounds = self._queue().bounds()
        return {**Offset(bounds.next_seq, bounds.identity).as_json(), "queueName": self._options.queue}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[RangePartition]:
        begin, stop = Offset.read(start), Offset.read(end)
        first = begin.seq if stop.began is None else stop.began
        if stop.seq < first:
            # Of a checkpoint that does not say where the batch begins.
            if begin == self._initial:
                # The empty first batch of a run that was killed in it. This run found a later place to begin.
                return []
            first = self._bounds().first_seq
        removed_up_to = max(begin.removed, stop.removed, first - 1)
        return self._tasks(SeqRange(first, stop.seq), stop.queue, removed_up_to)

    def stop(self) -> None:
        if isinstance(sys.exc_info()[1], EOFError):
            # Spark has closed its end, as it does when a query is paused. PySpark would write the EOFError back into
            # the closed connection, and the traceback of that failure would stand in the worker's lines.
            sys.stderr.flush()
            os._exit(0)

    # --- what can have happened to the queue meanwhile ---

    def _is_another_queue(self, begin: Offset, bounds: Bounds) -> bool:
        is_renamed = None not in (begin.queue, bounds.identity) and begin.queue != bounds.identity
        return is_renamed or bounds.next_seq < begin.seq

    def _begun_anew(self, begin: Offset, bounds: Bounds) -> Offset:
        """The seqs that the checkpoint counts on are not those of this queue: where to begin in it, if at all."""
        notice = (
            f"queue {self._options.queue!r} was to be read from seq {begin.seq} (identity {begin.queue or 'unknown'}), "
            f"but is another one: it has the seqs from {bounds.first_seq} to {bounds.next_seq - 1} (identity "
            f"{bounds.identity}). It was deleted and made again, or the option queue was changed"
        )
        if self._options.is_loss_fatal:
            raise QueueIsAnother(notice, remedy=NEW_CHECKPOINT)
        _log.warning("%s: it is read from its first message", notice, extra={"action": "stream_from_first"})
        return Offset(bounds.first_seq, bounds.identity, begin.reader, bounds.removed_seq)

    def _tell_loss(self, begin: Offset, bounds: Bounds) -> None:
        gone = loss(begin, bounds)
        if gone is None or gone == self._reported:
            return
        is_front = bounds.first_seq > begin.seq
        fault = (
            MessagesGone(self._options.queue, SeqRange(begin.seq, bounds.first_seq))
            if is_front
            else MessagesMissing(self._options.queue, gone)
        )
        if self._options.is_loss_fatal:
            raise fault
        self._reported = gone
        _log.warning("%s: the query goes on without them", fault.message, extra={"action": "stream_messages_gone"})

    # --- what goes to the server ---

    def commit(self, end: dict[str, Any]) -> None:
        self._follow(Offset.read(end).seq)

    def _follow(self, seq: int) -> None:
        """Move the group's cursor. The query does not live by it, so that a failure here does not end it."""
        if self._options.group is None or seq == self._followed:
            return
        group, partitions = self._options.group, self._options.partitions

        def follow() -> None:
            if partitions and self._followed is None:
                # What comes in partitions that the query does not read is not the group's lag.
                self._queue().seek(group, NEVER)
            self._queue().seek(group, seq, partitions)
            self._followed = seq

        self._try(follow, f"group {group!r} was not moved")

    def _hold(self, begin: Offset) -> None:
        """Keep retention from removing what other groups have finished and this query has not read."""
        seconds, now = self._options.hold_seconds, time.monotonic()
        reader = begin.reader
        if not seconds or reader is None or now < self._held_at + min(HOLD_EVERY_SECONDS, seconds / 3):
            return

        def hold() -> None:
            self._queue().hold(reader, begin.seq, seconds)
            self._held_at = now

        self._try(hold, "finished messages that are not read are not held")

    def _try(self, what: Callable[[], None], failure: str) -> None:
        try:
            what()
        except ForebayError as fault:
            _log.warning("queue %r: %s: %s", self._options.queue, failure, fault, extra={"action": "stream_failed"})
