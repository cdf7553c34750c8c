"""The messages of a lease's parcels as one frame, with the column `did`: which parcel a message is of.

The driver divides the ranges between tasks, in the order of the parcels; each task fetches its own as Arrow. Ranges
that follow each other in a queue, as those of parcels which were cut one after the other do, are one request. Rows
keep the order of parcels and seqs, over tasks too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StringType, StructType

from forebay.spark.columns import OWN_COLUMNS, message_schema
from forebay.spark.masters import is_connect
from forebay.spark.message_marks import marked_schema
from forebay.spark.options import Connection, ReadOptions
from forebay.spark.positions import EARLIEST, SeqRange
from forebay.spark.queues import REMOVED_UP_TO, Queue
from forebay.spark.record_sides import DID
from forebay.spark.server_calls import ServerCalls
from forebay.spark.worker_process import spare_the_collector

if TYPE_CHECKING:
    # Not in the tasks, which import this module: an executor has PySpark and PyArrow, and need have nothing else.
    from forebay.flows.definition import Source
    from forebay.spark.parcels.lease import Parcel

TASK_MESSAGES_MIN = 5_000
"""A task costs some milliseconds: fewer messages than these are not divided."""
TASK_MESSAGES_MAX = 100_000
TASK_MESSAGES_MAX_LOCAL = 500_000


class Piece(NamedTuple):
    """A part of a parcel that one task reads; both ends included."""

    did: str
    queue: str
    first_seq: int
    last_seq: int
    identity: str = ""
    removed_up_to: int | None = None

    @property
    def messages(self) -> int:
        return self.last_seq - self.first_seq + 1


def message_columns() -> StructType:
    """The columns of a parcel's messages, with marks: letters may say of them what they are."""
    own = message_schema(ReadOptions(Connection(()), "", EARLIEST))
    return marked_schema(StructType([*StructType().add(DID, StringType()).fields, *own.fields]))


def pieces_of(parcels: Sequence[Parcel]) -> list[Piece]:
    return [
        Piece(parcel.did, one.queue, one.first_seq, one.last_seq, one.identity, one.removed_up_to)
        for parcel in parcels
        for one in parcel.ranges
        if one.last_seq >= one.first_seq
    ]


def divided(pieces: Sequence[Piece], tasks: int) -> list[list[Piece]]:
    """The pieces dealt to so many tasks, about the same number of messages each; order stays, long ones are cut."""
    total = sum(piece.messages for piece in pieces)
    share = max(1, -(-total // max(1, tasks)))
    found: list[list[Piece]] = [[]]
    room = share
    for piece in pieces:
        rest = piece
        while rest.messages > room:
            if room:
                found[-1].append(rest._replace(last_seq=rest.first_seq + room - 1))
            rest = rest._replace(first_seq=rest.first_seq + room)
            found.append([])
            room = share
        found[-1].append(rest)
        room -= rest.messages
    return [task for task in found if task]


def tasks_for(messages: int, cores: int, *, is_local: bool, at_least: int = 1, per_task_max: int | None = None) -> int:
    """How many tasks are worth their cost: one per core, unless there is too little for that, or too much."""
    most = per_task_max or (TASK_MESSAGES_MAX_LOCAL if is_local else TASK_MESSAGES_MAX)
    worth = min(cores, -(-messages // TASK_MESSAGES_MIN))
    return max(1, at_least, worth, -(-messages // most))


def merged(pieces: Sequence[Piece]) -> Iterator[list[Piece]]:
    """Runs of pieces that follow each other in one queue."""
    run: list[Piece] = []
    for piece in pieces:
        if run and (piece[4:] != run[-1][4:] or not _follows(piece, run[-1])):
            yield run
            run = []
        run.append(piece)
    if run:
        yield run


def _follows(piece: Piece, before: Piece) -> bool:
    return piece.queue == before.queue and piece.first_seq == before.last_seq + 1


def parcel_messages(
    spark: SparkSession, parcels: Sequence[Parcel], connection: Connection, source: Source
) -> DataFrame:
    """A frame of the parcels' messages. `source` says what else holds: a partition, what becomes of gaps."""
    if source.cron is not None:
        return _ticks(spark, parcels)
    pieces = pieces_of(parcels)
    cores, is_local = parallelism(spark)
    count = tasks_for(
        sum(piece.messages for piece in pieces),
        cores,
        is_local=is_local,
        at_least=source.min_partitions or 1,
        per_task_max=source.max_records_per_partition,
    )
    tasks = divided(pieces, count)
    schema = message_columns()
    fetch = fetching(tasks, connection, schema, source.partition, is_loss_fatal=source.fail_on_data_loss)
    return spark.range(0, max(1, len(tasks)), 1, max(1, len(tasks))).mapInArrow(fetch, schema)


def _ticks(spark: SparkSession, parcels: Sequence[Parcel]) -> DataFrame:
    """A timer's parcels have no messages: each is one row, with the time at which it is worked on."""
    schema = message_columns()
    now = datetime.now(UTC)
    values = {DID: None, "created_at": now}
    rows = [tuple({**values, DID: parcel.did}.get(name) for name in schema.fieldNames()) for parcel in parcels]
    return spark.createDataFrame(rows, schema)


def parallelism(spark: SparkSession) -> tuple[int, bool]:
    """How many tasks run at once as far as that is known, and whether all run on this machine."""
    if is_connect(spark):
        return 8, False
    context = spark.sparkContext
    return context.defaultParallelism, str(spark.conf.get("spark.master", "")).startswith("local")


def fetching(
    tasks: Sequence[Sequence[Piece]],
    connection: Connection,
    schema: StructType,
    partition: str | None,
    *,
    is_loss_fatal: bool,
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """What each task does: it gets its own number, and gives the messages of its pieces.

    `is_loss_fatal`: messages that are gone end the job. If not, the rest is read, and `losses` finds out what it lacks.
    No message of another queue that has the name by now is read in any case.
    """
    query = [("partition", name.strip()) for name in partition.split(",")] if partition else []

    def fetch(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        spare_the_collector()
        arrow_schema = to_arrow_schema(schema, timezone="UTC")
        calls = ServerCalls(connection)
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                for run in merged(tasks[number]) if number < len(tasks) else ():
                    queue = Queue(calls, run[0].queue)
                    span = SeqRange(run[0].first_seq, run[-1].last_seq + 1)
                    meant = _meant(run[0], is_loss_fatal=is_loss_fatal)
                    for rows in queue.batches(span, [*query, *meant], is_loss_fatal=is_loss_fatal):
                        yield _with_dids(rows, run, arrow_schema)

    return fetch


def _meant(piece: Piece, *, is_loss_fatal: bool) -> list[tuple[str, str]]:
    """Which queue is meant, and which messages of it have to be there. An older Forebay has cut without knowing it."""
    found = [("identity", piece.identity)] if piece.identity else []
    if is_loss_fatal and piece.removed_up_to is not None:
        found.append((REMOVED_UP_TO, str(piece.removed_up_to)))
    return found


def _with_dids(rows: pa.RecordBatch, run: Sequence[Piece], schema: pa.Schema) -> pa.RecordBatch:
    if len(run) == 1:
        dids = pa.repeat(pa.scalar(run[0].did), rows.num_rows)
    else:
        begins = np.array([piece.first_seq for piece in run], dtype=np.int64)
        seqs = rows.column("seq").to_numpy(zero_copy_only=False)
        numbers = np.searchsorted(begins, seqs, side="right") - 1
        dids = pa.array([piece.did for piece in run], pa.string()).take(pa.array(numbers))
    own = [rows.column(name) for name in OWN_COLUMNS]
    return pa.RecordBatch.from_arrays([dids, *own, rows.column("payload")], schema=schema)
