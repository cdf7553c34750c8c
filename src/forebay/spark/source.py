"""`format("forebay")`: a queue as a table and as a stream, and as where both can be written to.

Spark makes these objects in short-lived processes, pickles them and sends them on: they hold what they were given, and
no connection. Planning (bounds, splitting, offsets) happens beside the driver, `read` in the executors.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import ClassVar, NamedTuple

from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamWriter,
    Filter,
)
from pyspark.sql.types import StructType

from forebay.errors import ForebayError, Permanent
from forebay.spark import columns
from forebay.spark.filters import push
from forebay.spark.option_table import BATCH_READ, BATCH_WRITE, EITHER_READ, FORMAT, STREAM_READ, STREAM_WRITE
from forebay.spark.options import ReadOptions, environment_defaults, is_for_a_stream, read_options, write_options
from forebay.spark.positions import SeqRange, resolve
from forebay.spark.queues import Queue
from forebay.spark.reader import RangePartition, Reader
from forebay.spark.server_calls import ServerCalls
from forebay.spark.sink import BatchWriter, StreamWriter
from forebay.spark.stream_reader import QueueStreamReader
from forebay.spark.worker_process import spare_the_collector

NOT_TAKEN_YET = "?"
"""The option `snapshot` of a frame whose schema tells what a snapshot would be now."""


class Snapshot(NamedTuple):
    """What a loaded frame shows, whenever a query is run on it."""

    identity: str | None
    span: SeqRange
    removed_up_to: int
    """What retention had removed when the frame was loaded is no loss."""

    @classmethod
    def read(cls, text: str) -> Snapshot:
        identity, span, removed_up_to = json.loads(text)
        return cls(identity, SeqRange(*span), removed_up_to)

    def as_text(self) -> str:
        return json.dumps(self)


def taken_now(options: ReadOptions) -> Snapshot:
    """The snapshot of a frame that is being loaded."""
    queue = Queue(ServerCalls(options.connection), options.queue)
    starting, ending = options.starting, options.ending
    bounds = queue.bounds(starting, options.partitions)
    start = resolve(starting, bounds)
    # A seq that the user names is taken at its word: what is gone behind it was wanted.
    removed_up_to = start - 1 if starting.seq is not None else bounds.removed_seq
    identity = bounds.identity
    if ending.time is not None:
        bounds = queue.bounds(ending)
    return Snapshot(identity, SeqRange(start, min(resolve(ending, bounds), bounds.next_seq)), removed_up_to)


class ForebaySource(DataSource):
    """What is registered with a session; `session.register` makes a child of it with the session's defaults."""

    defaults: ClassVar[Mapping[str, str]] = {}
    cores: ClassVar[int | None] = None
    """How many tasks run at once, where that is certain."""
    _snapshot: Snapshot | None = None
    _fault: str | None = None
    """Why no snapshot could be taken."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def _defaults(self) -> dict[str, str]:
        return {**environment_defaults(), **self.defaults}

    def schema(self) -> str:
        spare_the_collector()
        # Spark asks before it says whether it is for a stream: what only one of the two knows is judged later.
        options = read_options(self.options, EITHER_READ, self._defaults())
        if options.snapshot == NOT_TAKEN_YET:
            # In a comment, because a schema is all that a client of Connect can ask for without running a job.
            options = read_options(self.options, BATCH_READ, self._defaults())
            return f"seq BIGINT COMMENT '{taken_now(options).as_text()}'"
        if options.snapshot is not None:
            self._snapshot = Snapshot.read(options.snapshot)
        elif not is_for_a_stream(self.options):
            self._take_snapshot(read_options(self.options, BATCH_READ, self._defaults()))
        return columns.ddl(options)

    def _take_snapshot(self, options: ReadOptions) -> None:
        """Once, when the frame is loaded: Spark keeps this object, as it is after `schema`, for all queries on it.

        It may be for a stream, which needs no server yet: what is wrong is raised when a table is read.
        """
        try:
            self._snapshot = taken_now(options)
        except ForebayError as fault:
            self._fault = str(fault)

    def reader(self, schema: StructType) -> QueueReader:
        spare_the_collector()
        options = read_options(self.options, BATCH_READ, self._defaults())
        made = FilteringReader if options.is_filter_pushed else QueueReader
        return made(options, schema, self._snapshot, self._fault, self.cores)

    def streamReader(self, schema: StructType) -> QueueStreamReader:  # noqa: N802 - Spark's name
        return QueueStreamReader(read_options(self.options, STREAM_READ, self._defaults()), schema, self.cores)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        return BatchWriter(write_options(self.options, BATCH_WRITE, self._defaults()), schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        return StreamWriter(write_options(self.options, STREAM_WRITE, self._defaults()), schema, overwrite)


class QueueReader(Reader, DataSourceReader):
    """A queue as a table: what it held when the frame was loaded."""

    def __init__(
        self, options: ReadOptions, schema: StructType, snapshot: Snapshot | None, fault: str | None, cores: int | None
    ) -> None:
        super().__init__(options, schema, cores)
        if snapshot is None and fault is not None:
            raise Permanent(f"when the frame was loaded: {fault}", remedy="Load it again")
        if snapshot is None:
            raise Permanent(
                "a frame is loaded without .schema(…)", remedy="Leave it out: the queue's columns are known"
            )
        self._snapshot = snapshot

    def partitions(self) -> list[RangePartition]:
        return self._tasks(self._snapshot.span, self._snapshot.identity, self._snapshot.removed_up_to)


class FilteringReader(QueueReader):
    """The same, and filters are sent to the server. Only where the user asks for it.

    Spark 4.3 keeps one plan per loaded frame, and a query with pushed filters replaces it for all queries on that
    frame: `frame.where("seq < 10").count()` and then `frame.count()` gives 9. So a reader must not push by itself.
    """

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802
        self._narrowing, left = push(filters, self._narrowing)
        return left
