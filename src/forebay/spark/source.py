"""`format("forebay")`: a queue as a table and as a stream, and as where both can be written to.

Spark makes these objects in short-lived processes, pickles them and sends them on: they hold what they were told, and
no connection. Planning (bounds, splitting, offsets) happens beside the driver, `read` in the executors.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, ClassVar

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    Filter,
    InputPartition,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from forebay.errors import ForebayError, Permanent
from forebay.spark import columns
from forebay.spark.filters import Narrowing, push
from forebay.spark.option_table import BATCH_READ, BATCH_WRITE, EITHER_READ, STREAM_READ, STREAM_WRITE
from forebay.spark.options import ReadOptions, environment_defaults, read_options, write_options
from forebay.spark.positions import Bounds, SeqRange, batch_end, offset_of, resolve, rows_per_task, seq_of, split
from forebay.spark.queues import Queue
from forebay.spark.sink import BatchWriter, StreamWriter
from forebay.spark.wire import Wire
from forebay.spark.worker_process import spare_the_collector

_log = logging.getLogger(__name__)


class ForebaySource(DataSource):
    """What is registered with a session; `session.register` makes a child of it with the session's defaults."""

    defaults: ClassVar[Mapping[str, str]] = {}
    cores: ClassVar[int | None] = None
    """How many tasks run at once, where that is certain."""

    @classmethod
    def name(cls) -> str:
        return "forebay"

    def _defaults(self) -> dict[str, str]:
        return {**environment_defaults(), **self.defaults}

    def schema(self) -> str:
        spare_the_collector()
        # Spark asks before it says whether it is for a stream: what only one of the two knows is judged later.
        return columns.ddl(read_options(self.options, EITHER_READ, self._defaults()))

    def reader(self, schema: StructType) -> QueueReader:
        spare_the_collector()
        options = read_options(self.options, BATCH_READ, self._defaults())
        return (FilteringReader if options.is_filter_pushed else QueueReader)(options, schema, self.cores)

    def streamReader(self, schema: StructType) -> QueueStreamReader:  # noqa: N802 - Spark's name
        return QueueStreamReader(read_options(self.options, STREAM_READ, self._defaults()), schema, self.cores)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        return BatchWriter(write_options(self.options, BATCH_WRITE, self._defaults()), schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        return StreamWriter(write_options(self.options, STREAM_WRITE, self._defaults()), schema, overwrite)


class RangePartition(InputPartition):
    """One task: the messages from `start` up to, without, `end`."""

    def __init__(self, span: SeqRange, query: list[tuple[str, str]]) -> None:
        self.start, self.end = span
        self.query = query


class _Reader:
    """What both readers share."""

    def __init__(self, options: ReadOptions, schema: StructType, cores: int | None = None) -> None:
        columns.check_schema(schema, options)
        self._options = options
        self._schema = schema
        self._cores = cores
        self._narrowing = Narrowing(partitions=frozenset(options.partitions) if options.partitions else None)

    def _queue(self) -> Queue:
        return Queue(Wire(self._options.connection), self._options.queue)

    def _tasks(self, span: SeqRange) -> list[RangePartition]:
        left = self._narrowing.of(span)
        query = self._narrowing.query()
        rows_max = self._options.rows_per_task_max or rows_per_task(left.size, self._cores)
        ranges = split(left, self._options.tasks_min, rows_max)
        return [] if self._narrowing.is_nothing else [RangePartition(one, query) for one in ranges]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        spare_the_collector()
        # Spark hands in an empty partition of its own making when there is no task at all.
        if isinstance(partition, RangePartition):
            shaped = columns.shaping(self._schema, self._options)
            span = SeqRange(partition.start, partition.end)
            is_loss_fatal = self._options.is_loss_fatal
            for batch in self._queue().batches(span, partition.query, is_loss_fatal=is_loss_fatal):
                yield shaped(batch)


class QueueReader(_Reader, DataSourceReader):
    """A queue as a table: what it holds when the frame is planned first."""

    def partitions(self) -> list[RangePartition]:
        queue = self._queue()
        starting, ending = self._options.starting, self._options.ending
        bounds = queue.bounds(starting)
        start = resolve(starting, bounds)
        if ending.time is not None:
            bounds = queue.bounds(ending)
        return self._tasks(SeqRange(start, min(resolve(ending, bounds), bounds.next_seq)))


class FilteringReader(QueueReader):
    """The same, and filters are sent to the server. Only where the user asks for it.

    Spark 4.3 keeps one plan per loaded frame, and a query with pushed filters replaces it for all queries on that
    frame: `frame.where("seq < 10").count()` and then `frame.count()` gives 9. So a reader must not push by itself.
    """

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802
        self._narrowing, left = push(filters, self._narrowing)
        return left


class QueueStreamReader(_Reader, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A queue as a stream. Its offsets are `{"seq": next}`."""

    _target: int | None = None
    """Where a query with Trigger.AvailableNow ends."""
    _followed: int | None = None
    """Where the group's cursor stands."""
    _initial: int | None = None
    """Where a query without a checkpoint begins. Spark asks several times, and time goes on meanwhile."""
    _is_start_to_be_noted = False
    """Whether the query begins behind everything there is: only a checkpoint can say later where that was."""
    _is_begun_anew = False

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        if self._initial is None:
            bounds = self._queue().bounds(self._options.starting)
            self._initial = resolve(self._options.starting, bounds)
            self._is_start_to_be_noted = self._initial >= bounds.next_seq
        return offset_of(self._initial)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        if self._options.rows_max is not None:
            return ReadMaxRows(self._options.rows_max)
        return ReadAllAvailable() if self._options.bytes_max is None else ReadMaxBytes(self._options.bytes_max)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._target = self._queue().bounds().next_seq

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, int]:  # noqa: N802
        begin = seq_of(start)
        # Spark asks for a batch when everything before it is done, but says so (`commit`) only once there is one.
        self._follow(begin)
        if self._is_start_to_be_noted and begin == self._initial:
            # An empty first batch, whose end Spark writes down: a restart would not find the place again.
            self._is_start_to_be_noted = False
            return offset_of(begin)
        bounds = self._queue().bounds()
        if bounds.next_seq < begin:
            return self._begun_anew(begin, bounds)
        if self._target is not None:
            bounds = bounds._replace(next_seq=max(begin, min(bounds.next_seq, self._target)))
        if isinstance(limit, ReadAllAvailable):
            return offset_of(bounds.next_seq)
        return offset_of(batch_end(begin, bounds, self._options.rows_max, self._options.bytes_max))

    def reportLatestOffset(self) -> dict[str, int]:  # noqa: N802
        return offset_of(self._queue().bounds().next_seq)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[RangePartition]:
        begin, stop = seq_of(start), seq_of(end)
        if stop < begin:
            if begin == self._initial and not self._is_begun_anew:
                # The empty first batch of a run that was killed in it. This run found a later place to begin.
                return []
            begin = self._queue().bounds().first_seq
        return self._tasks(SeqRange(begin, stop))

    def _begun_anew(self, begin: int, bounds: Bounds) -> dict[str, int]:
        """The queue was deleted and made again: seqs that the checkpoint counts on do not exist."""
        name = self._options.queue
        told = f"queue {name!r} was to be read from seq {begin}, but its next message is {bounds.next_seq}"
        if self._options.is_loss_fatal:
            raise Permanent(
                f"{told}: it was deleted and made again",
                remedy="Start with a new checkpoint, or set failOnDataLoss=false to read it from its first message",
            )
        _log.warning("%s: it is read from its first message", told)
        self._is_begun_anew = True
        return offset_of(bounds.next_seq)

    def commit(self, end: dict[str, Any]) -> None:
        self._follow(seq_of(end))

    def _follow(self, seq: int) -> None:
        """Move the group's cursor. The query does not live by it, so that a failure here does not end it."""
        if self._options.group is not None and seq != self._followed:
            try:
                self._queue().seek(self._options.group, seq, self._options.partitions)
                self._followed = seq
            except ForebayError as fault:
                _log.warning("group %r of queue %r was not moved: %s", self._options.group, self._options.queue, fault)
