"""What a flow is: the same words in YAML and in Python.

In Python, fields are written with underscores (`starting_offsets`); in YAML, the options that Spark knows keep Spark's
spelling (`startingOffsets`), everything else is as here. A default is what holds when a key is left out.

    Flow(
        name="clicks",
        mode="stream",
        source=Source(queue="clicks", payload_as="json", schema="user STRING, ms INT"),
        actions=(SqlAction(name="slow", sql="SELECT * FROM input WHERE ms > 1000"),),
        sink=QueueSink(queue="slow-clicks"),
    )
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Annotated, Any, ClassVar, Literal

import msgspec
from msgspec import Meta

from forebay.model.internal_queues import outbox_of
from forebay.model.queue import NAME_CHARACTERS_MAX

Size = Annotated[int, "bytes"]
"""Bytes; written `16Mi` in YAML."""

Name = Annotated[str, Meta(min_length=1, max_length=NAME_CHARACTERS_MAX)]
Text = Annotated[str, Meta(min_length=1)]
Count = Annotated[int, Meta(ge=1)]

PARCELS = "parcels"
ERROR_QUEUE_SUFFIX = ".errors"

MAX_OFFSETS_PER_TRIGGER = 500_000
TIME_LIMIT = timedelta(minutes=10)
TRIGGER = timedelta(milliseconds=500)

OnError = Literal["fail", "skip", "queue"]
"""What becomes of a record on which an action raises: it stops the flow, is left out, or goes to the error queue."""


class Part(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What all parts of a flow share: they do not change, and know no key that is not theirs."""

    marker: ClassVar[str] = ""
    """Where a key may hold one of several parts: the key inside that tells which."""


class ErrorFilter(Part, frozen=True, kw_only=True):
    """Which errors of other flows become parcels of this one. Everything that is given has to fit."""

    text: str = ""
    """A part of the error's text."""
    flows: tuple[Name, ...] = ()
    actions: tuple[Name, ...] = ()


class Source(Part, frozen=True, kw_only=True, rename="camel"):
    """The queue that is read, and how. Options of the source of the same name mean the same.

    A flow on parcels may have a timer (`cron`) or the errors of other flows (`errors`) in its place.
    """

    queue: Annotated[str, Meta(max_length=NAME_CHARACTERS_MAX)] = ""
    cron: Text | None = None
    """A parcel without messages at these times: minute, hour, day of month, month, day of week."""
    errors: ErrorFilter | None = None
    group: Name | None = None
    """Whose cursor follows the flow, so that its lag is seen. Without one: the flow's name."""
    starting_offsets: str | dict[str, int] = "earliest"
    starting_timestamp: Text | None = None
    partition: Text | None = None
    max_offsets_per_trigger: Count | None = None
    """Of a stream: how many messages a batch has at the most. If left out: 500,000."""
    max_bytes_per_trigger: Size | None = None
    min_partitions: Count | None = None
    max_records_per_partition: Count | None = None
    fail_on_data_loss: bool = True
    retry_timeout: Text | None = None
    payload_as: Literal["binary", "string", "json"] = "binary"
    """`string`: text that is not UTF-8 is a bad record. `json`: so is what does not fit `schema`."""
    schema: Text | None = None
    max_payload: Size | None = None
    """A larger payload is a bad record."""
    parcel_messages: Annotated[int, Meta(ge=1, le=10_000_000)] = msgspec.field(default=10_000, name="parcel_messages")
    """A parcel is cut when so many messages wait,"""
    parcel_wait: timedelta = msgspec.field(default=timedelta(milliseconds=200), name="parcel_wait")
    """or when the first of them has waited so long."""

    @property
    def begins_with_what_comes(self) -> bool:
        """Whether a new flow's first message depends on when it is started."""
        return self.starting_timestamp is None and self.starting_offsets == "latest"


class Watermark(Part, frozen=True, kw_only=True):
    """How late a row may come, by one of its columns; set where that column first appears."""

    column: Text
    delay: timedelta


class StaticTable(Part, frozen=True, kw_only=True):
    """A table to join with. A table of files has the files that are there when the flow starts."""

    format: Text
    path: Text | None = None
    schema: Text | None = None
    options: dict[str, str] = {}


class Retry(Part, frozen=True, kw_only=True):
    """How often a record that fails alone is tried, and how long to wait in between."""

    max_attempts: Annotated[int, Meta(ge=1, le=20)] = 3
    delay: timedelta = timedelta(seconds=1)
    """Before the second attempt."""
    multiplier: Annotated[float, Meta(ge=1.0, le=10.0)] = 2.0
    """Each delay is this many times the one before."""

    def __post_init__(self) -> None:
        if self.delay < timedelta(0):
            raise ValueError("delay is below zero")

    def delays_seconds(self) -> list[float]:
        """The pauses before the second attempt and those after it."""
        return [self.delay.total_seconds() * self.multiplier**n for n in range(self.max_attempts - 1)]


class Join(Part, frozen=True, kw_only=True):
    """Parcels wait in front of an action until there are enough of one key, or the oldest has waited long enough."""

    max_age: timedelta
    min: Count = 1
    """With fewer than these when the time is up, all of them go into ERROR."""
    max: Count = 1000
    key: str = ""
    """The annotation by whose value parcels are distinguished; empty: all of the flow together."""


class SqlAction(Part, frozen=True, kw_only=True):
    """SQL over the view `input` and the flow's tables."""

    marker: ClassVar[str] = "sql"

    name: Name
    sql: Text
    on_error: OnError | None = None
    retry: Retry | None = None
    """Without one of the two: the flow's."""
    isolate: bool = False
    """Whether parcels wait for this action in a queue of its own, and what stands before it is done without it."""
    join: Join | None = None
    time_limit: timedelta | None = None
    """How long the job of a chain may take for this action; a chain may take as long as its actions together."""


class ClassAction(Part, frozen=True, kw_only=True):
    """A class: one of the built-in short names, or the dotted path of a `DataFrameAction` or `RecordAction`."""

    marker: ClassVar[str] = "class"

    name: Name
    class_name: Text = msgspec.field(name="class")
    params: dict[str, Any] = {}
    on_error: OnError | None = None
    retry: Retry | None = None
    isolate: bool = False
    """Whether parcels wait for this action in a queue of its own, and what stands before it is done without it."""
    join: Join | None = None
    time_limit: timedelta | None = None
    """How long the job of a chain may take for this action; a chain may take as long as its actions together."""


class QueueSink(Part, frozen=True, kw_only=True, rename="camel"):
    """Rows become messages, exactly once."""

    marker: ClassVar[str] = "queue"

    queue: Name
    keep_transaction_ids: bool = False
    """Whether a column `transaction_id` counts. Rows that share one are duplicates of each other, and one stays."""
    where: Text | None = None
    """SQL: only rows for which it is true. So are the others'."""


class Table(Part, frozen=True, kw_only=True, rename="camel"):
    """A table of Spark: files in `path`, or `name` in its catalogue."""

    format: Text = "parquet"
    path: Text | None = None
    name: Text | None = None
    mode: Literal["append", "update", "complete"] = "append"
    partition_by: tuple[str, ...] = ()
    options: dict[str, str] = {}


class TableSink(Part, frozen=True, kw_only=True):
    """Rows go into a table, as exactly once as its format is."""

    marker: ClassVar[str] = "table"

    table: Table
    where: Text | None = None


class ExportSink(Part, frozen=True, kw_only=True):
    """Rows go to a destination of the servers' settings: once into its outbox, from there until it has taken them."""

    marker: ClassVar[str] = "export"

    export: Name
    where: Text | None = None

    @property
    def queue(self) -> str:
        """The outbox."""
        return outbox_of(self.export)


Action = SqlAction | ClassAction
Sink = QueueSink | TableSink | ExportSink


class Flow(Part, frozen=True, kw_only=True):
    """A source, actions in order, and a sink."""

    name: Name
    mode: Literal["parcels", "stream"] = "parcels"
    source: Source
    tables: dict[str, StaticTable] = {}
    actions: tuple[Action, ...] = ()
    sink: Sink | None = None
    sinks: tuple[Sink, ...] = ()
    """Several in the place of `sink`; a row goes to each whose `where` it fits."""
    trigger: timedelta | None = None
    """Of a stream: a batch begins this long after the last one began, at the earliest. If left out: 500 ms."""
    watermark: Watermark | None = None
    checkpoint: Text | None = None
    """Where Spark keeps how far the flow has come: a directory, or a URL that all of a cluster can write to."""
    error_queue: Name | None = None
    on_error: OnError = "queue"
    """For actions that do not say otherwise, and for results that the sink refuses."""
    retry: Retry = Retry()
    time_limit: timedelta = TIME_LIMIT
    """For actions on parcels that have none of their own."""
    max_errors: Annotated[int, Meta(ge=0, le=1_000_000)] = 0
    """The source is cut no more when so many parcels of the flow are in ERROR; 0: never."""

    @property
    def all_sinks(self) -> tuple[Sink, ...]:
        return self.sinks if self.sink is None else (self.sink, *self.sinks)

    @property
    def group(self) -> str:
        return self.source.group or self.name

    @property
    def errors_to(self) -> str:
        """The queue for bad records."""
        return self.error_queue or self.name + ERROR_QUEUE_SUFFIX

    def on_error_of(self, action: Action | None) -> OnError:
        """What holds for the action; None is the sink."""
        return (action.on_error if action is not None else None) or self.on_error

    def retry_of(self, action: Action | None) -> Retry:
        return (action.retry if action is not None else None) or self.retry

    @property
    def may_set_aside(self) -> bool:
        """Whether a record that fails may go anywhere but stop the flow."""
        return any(self.on_error_of(action) != "fail" for action in (*self.actions, None))

    @property
    def output_queues(self) -> tuple[str, ...]:
        return tuple(sink.queue for sink in self.all_sinks if not isinstance(sink, TableSink))


def source_options(flow: Flow) -> dict[str, str]:
    """The options for `format("forebay")`. Payloads are read as bytes: the flow judges them itself."""
    source = flow.source
    given: Mapping[str, object] = {
        "queue": source.queue,
        "group": flow.group,
        "holdRetention": "86400s",
        "startingTimestamp": source.starting_timestamp,
        "startingOffsets": None if source.starting_timestamp else _offsets(source.starting_offsets),
        "partition": source.partition,
        "maxOffsetsPerTrigger": source.max_offsets_per_trigger or MAX_OFFSETS_PER_TRIGGER,
        "maxBytesPerTrigger": source.max_bytes_per_trigger,
        "minPartitions": source.min_partitions,
        "maxRecordsPerPartition": source.max_records_per_partition,
        "failOnDataLoss": str(source.fail_on_data_loss).lower(),
        "retryTimeout": source.retry_timeout,
    }
    return {name: str(value) for name, value in given.items() if value is not None}


def _offsets(offsets: str | dict[str, int]) -> str:
    return offsets if isinstance(offsets, str) else msgspec.json.encode(offsets).decode()
