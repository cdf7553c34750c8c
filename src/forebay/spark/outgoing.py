"""What rows become on their way out: messages of a queue, rows of a table, letters for the error queue."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from forebay.errors import Permanent
from forebay.flows.definition import ExportSink, Flow, QueueSink, Table
from forebay.flows.letters import HOLDS, INPUT, QUEUE, ROW, STEP
from forebay.spark.builtin.json_parsing import CAUSE
from forebay.spark.message_marks import BadRows

PAYLOAD = "payload"
MESSAGE_COLUMNS = ("partition", "trace_id", "headers")
TRANSACTION_ID = "transaction_id"
GIVEN_ANEW = ("seq", "created_at")
"""What a message has from its queue; in another queue it gets others."""
_IN_HEADERS = ("seq", "partition", TRANSACTION_ID, "created_at")


def as_messages(
    frame: DataFrame, sink: QueueSink | ExportSink, flow: str, given_anew: Sequence[str], kept: Sequence[str] = ()
) -> DataFrame:
    """The columns of a message. Without a column `payload`, all columns that a message does not have become JSON.

    `kept` are columns that stand beside the message, as far as they are there. In a destination's outbox each flow has
    a partition of its own: that is what its parcels wait for.
    """
    is_export = isinstance(sink, ExportSink)
    taken = [*kept, *(name for name in MESSAGE_COLUMNS if not (is_export and name == "partition"))]
    if isinstance(sink, QueueSink) and sink.keep_transaction_ids:
        taken.append(TRANSACTION_ID)
    own = [column(name) for name in taken if name in frame.columns]
    if is_export:
        own.append(f.lit(flow).alias("partition"))
    no_payload = (PAYLOAD, TRANSACTION_ID, *MESSAGE_COLUMNS, *given_anew, *kept)
    others = [name for name in frame.columns if name not in no_payload]
    if PAYLOAD not in frame.columns:
        if not others:
            raise Permanent(f"no column is left for the payload: {', '.join(frame.columns)}")
        return frame.select(f.to_json(f.struct(*map(column, others))).alias(PAYLOAD), *own)
    if others:
        raise Permanent(
            f"beside payload there are {', '.join(others)}, which have no place in a message",
            remedy="Leave payload out, and all columns become JSON; or leave these out",
        )
    return frame.select(column(PAYLOAD), *own)


def check_partitions(frame: DataFrame, table: Table) -> None:
    known = {name.lower() for name in frame.columns}
    missing = [name for name in table.partition_by if name.lower() not in known]
    if missing:
        raise Permanent(f"there is no column {', '.join(missing)}; the columns are {', '.join(frame.columns)}")
    if table.partition_by and len(table.partition_by) == len(frame.columns):
        raise Permanent("no column is left for the files: all of them are in partitionBy")


def all_letters(rejected: Sequence[BadRows], flow: Flow) -> DataFrame:
    return reduce(DataFrame.unionByName, [letters(bad, flow) for bad in rejected])


def letters(
    bad: BadRows,
    flow: Flow,
    *more: str,
    ids: Column | None = None,
    kept: Sequence[str] = (),
    queue: str | None = None,
    step: str | None = None,
) -> DataFrame:
    """Messages for the error queue: the payload as it came, and in the headers what is wrong with it.

    `more` names columns that stand in the headers too, `ids` gives the letters transaction ids of their own, `kept`
    are columns that stand beside the message. `queue` is where the records are from, if not from the flow's source,
    and `step` what has read them there. Of the message itself the headers say only what is known.
    """
    rejected, own = bad
    payload = column(PAYLOAD) if PAYLOAD in rejected.columns else f.to_json(f.struct("*"))
    origin = [f.lit(flow.source.queue if queue is None else queue).alias(QUEUE)]
    if step is not None:
        origin.append(f.lit(step).alias(STEP))
    origin.append(f.lit(INPUT if PAYLOAD in own else ROW).alias(HOLDS))
    known = [column(name) for name in more if name in rejected.columns]
    known += [column(name) for name in _IN_HEADERS if name in own]
    headers = f.to_json(f.struct(f.lit(flow.name).alias("flow"), *origin, CAUSE, *known))
    partition = column("partition") if "partition" in own else f.lit(None).cast("string")
    beside = [*([] if ids is None else [ids.alias(TRANSACTION_ID)]), *map(column, kept)]
    return rejected.select(
        payload.cast("binary").alias(PAYLOAD), partition.alias("partition"), headers.alias("headers"), *beside
    )


def column(name: str) -> Column:
    return f.col(f"`{name}`")
