"""From a flow's definition to frames of Spark: what goes to the sink, and the bad records.

Nothing is started here and no row is read, so `forebay flows check` compiles a flow exactly as the worker does. The
same actions can be put over a table of messages (`on_table`), which is how records that fail are searched for.

**Bad records** are found by a plan of their own, over the same queue: a payload that is too large, that is not UTF-8,
that does not parse, or that an action rejects. The main plan leaves out what the other one takes, by the same
expression. A flow that asks for no such check has no second plan and reads its queue once.

**SQL** sees `input` and the flow's tables as common table expressions in front of it. The views behind them have names
of their own, so flows that run in one session do not see each other's.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import takewhile
from typing import ParamSpec, TypeVar

from py4j.protocol import Py4JNetworkError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from forebay.errors import ForebayError, Permanent
from forebay.flows.action import ActionContext, DataFrameAction
from forebay.flows.checks import params_of
from forebay.flows.definition import Action, ClassAction, Flow, QueueSink, Source, SqlAction, Table, source_options
from forebay.flows.registry import find_action
from forebay.spark.builtin.event_time import interval
from forebay.spark.builtin.json_parsing import CAUSE, is_text, not_text, parsed, text_of, unparsed
from forebay.spark.flow_causes import cause_of

PAYLOAD = "payload"
MESSAGE_COLUMNS = ("partition", "trace_id", "headers")
TRANSACTION_ID = "transaction_id"
GIVEN_ANEW = ("seq", "created_at")
"""What a message has from its queue; in another queue it gets others."""
_TOLD = ("seq", "partition", TRANSACTION_ID, "created_at")
_OF_THE_PLAN = ("'", "+-", ":-", "== SQL", "Project ", "Filter ")
_numbers = itertools.count(1)

P = ParamSpec("P")
T = TypeVar("T")


class DoesNotCompile(Permanent):
    """A flow that cannot become a plan: its SQL or one of its actions is wrong. `key` says which part."""

    def __init__(self, key: str, cause: BaseException | str) -> None:
        self.key = key
        self.cause = told(cause) if isinstance(cause, BaseException) else cause
        super().__init__(f"{key}: {self.cause}")


@dataclass(frozen=True, slots=True)
class FlowPlan:
    output: DataFrame
    bad: DataFrame | None


def flow_plan(spark: SparkSession, flow: Flow, url: str | None = None, without: Sequence[int] = ()) -> FlowPlan:
    """Compile a flow. Raises DoesNotCompile. Without `url` the session's own server is read.

    `without` are seqs that the flow leaves out: records on which an action fails.
    """
    options = source_options(flow) if url is None else {**source_options(flow), "url": url}

    def stream() -> DataFrame:
        read = spark.readStream.format("forebay").options(**options).load()
        return read.where(~f.col("seq").isin(list(without))) if without else read

    output, rejected = _Compiler(spark, flow, stream).compiled()
    if not rejected:
        return FlowPlan(output, None)
    # The group's cursor follows the main query alone, so the other one reads for no group.
    options.pop("group")
    _, rejected = _Compiler(spark, flow, stream).compiled()
    return FlowPlan(output, _all_letters(rejected, flow))


def compiled_on(spark: SparkSession, flow: Flow, read: Callable[[], DataFrame]) -> tuple[DataFrame, DataFrame | None]:
    """What goes to the sink, and the letters for the error queue, over messages from elsewhere."""
    output, rejected = _Compiler(spark, flow, read).compiled()
    return output, _all_letters(rejected, flow) if rejected else None


class FlowOnTable:
    """A flow's actions over a table of messages, or only the first of them. A context manager: it drops its views."""

    def __init__(self, spark: SparkSession, flow: Flow, messages: DataFrame, actions: int | None = None) -> None:
        self._compiler = _Compiler(spark, flow, lambda: messages, actions)
        self.output, rejected = self._compiler.compiled()
        """With all actions as the sink gets it."""
        self.bad = _all_letters(rejected, flow) if rejected else None

    def __enter__(self) -> FlowOnTable:
        return self

    def __exit__(self, *_: object) -> None:
        self._compiler.drop_views()


class _Compiler:
    def __init__(
        self, spark: SparkSession, flow: Flow, read: Callable[[], DataFrame], actions: int | None = None
    ) -> None:
        self._spark = spark
        self._flow = flow
        self._read = read
        self._actions = flow.actions if actions is None else flow.actions[:actions]
        self._is_whole = actions is None
        self._prefix = f"forebay_{re.sub(r'[^a-z0-9]', '_', flow.name.lower())}_{next(_numbers)}"
        self._views: list[str] = []
        self._tables: dict[str, DataFrame] = {}
        self._has_watermark = flow.watermark is None

    def compiled(self) -> tuple[DataFrame, list[DataFrame]]:
        """What goes to the sink, and the rows that source and actions reject."""
        flow = self._flow
        for name in flow.tables:
            self._tables[name] = self._checked(f"tables.{name}", self._table, name)
        raw = self._checked("source", self._read)
        is_streaming = raw.isStreaming
        frame, rejected = self._checked("source", _judged, raw, flow.source)
        frame = self._checked("watermark", self._watermarked, frame)
        for index, action in enumerate(self._actions):
            key = f"actions.{index} ({action.name})"
            frame = self._checked(key, self._act, frame, action, index, rejected)
            frame = self._checked("watermark", self._watermarked, frame)
            if is_streaming and not frame.isStreaming:
                raise DoesNotCompile(key, "its result does not depend on `input`")
        if not self._is_whole:
            return frame, rejected
        if not self._has_watermark and flow.watermark is not None:
            raise DoesNotCompile("watermark", f"no action gives a column {flow.watermark.column!r}")
        if isinstance(flow.sink, QueueSink):
            frame = self._checked("sink", _messages, frame, flow.sink)
        else:
            self._checked("sink.table.partitionBy", _check_partitions, frame, flow.sink.table)
        return frame, rejected

    def _checked(self, key: str, make: Callable[P, T], *given: P.args, **named: P.kwargs) -> T:
        """What `make` gives. Its frame's columns are asked for, because Spark may find faults only then."""
        try:
            made = make(*given, **named)
            if isinstance(made, DataFrame):
                _ = made.columns
        except (DoesNotCompile, Py4JNetworkError, ConnectionError):
            raise
        except Exception as fault:
            raise DoesNotCompile(key, fault) from fault
        return made

    def drop_views(self) -> None:
        """For plans that were run to their end: others may still look for their views."""
        for view in self._views:
            self._spark.catalog.dropTempView(view)

    def _table(self, name: str) -> DataFrame:
        table = self._flow.tables[name]
        reader = self._spark.read.format(table.format).options(**table.options)
        if table.schema is not None:
            reader = reader.schema(table.schema)
        return reader.load(table.path)

    def _watermarked(self, frame: DataFrame) -> DataFrame:
        watermark = self._flow.watermark
        if self._has_watermark or watermark is None or watermark.column not in frame.columns:
            return frame
        self._has_watermark = True
        return frame.withWatermark(watermark.column, interval(watermark.delay))

    def _act(self, frame: DataFrame, action: Action, index: int, rejected: list[DataFrame]) -> DataFrame:
        if isinstance(action, SqlAction):
            return self._sql(frame, action, index)
        made = made_action(action)
        context = ActionContext(self._flow, self._spark, self._tables)
        if made.may_reject:
            rejected.append(made.rejected(frame, context))
        result = made.transform(frame, context)
        if not isinstance(result, DataFrame):
            raise DoesNotCompile(action.name, f"transform gave {type(result).__name__}, not a DataFrame")
        return result

    def _sql(self, frame: DataFrame, action: SqlAction, index: int) -> DataFrame:
        views = {"input": frame, **self._tables}
        tables = []
        for name, below in views.items():
            view = f"{self._prefix}_{index}_{name}"
            below.createOrReplaceTempView(view)
            self._views.append(view)
            tables.append(f"`{name}` AS (TABLE `{view}`)")
        # In parentheses, so that the SQL may begin with a WITH of its own.
        try:
            return self._spark.sql(f"WITH {', '.join(tables)} (\n{action.sql.strip().rstrip(';')}\n)")
        except PySparkException as fault:
            raise Permanent(_line_before(told(fault))) from fault


def made_action(action: ClassAction) -> DataFrameAction:
    """The action's object, with its parameters."""
    found = find_action(action.class_name)
    faults: list[str] = []
    params = params_of(found, action, lambda _, key, message: faults.append(f"{key}: {message}"))
    if params is None or faults:
        raise Permanent(f"params: {'; '.join(faults)}")
    return found(params)


def _judged(raw: DataFrame, source: Source) -> tuple[DataFrame, list[DataFrame]]:
    """The rows whose payload is what the flow asks for, in that form, and frames of the others with their cause."""
    frame, rejected = raw, []
    if source.max_payload is not None:
        length = f.octet_length(PAYLOAD)
        cause = f.concat(length.cast("string"), f.lit(f" bytes, more than {source.max_payload}"))
        rejected.append(raw.where(length > source.max_payload).withColumn(CAUSE, cause))
        frame = raw.where(length <= source.max_payload)
    if source.payload_as == "string":
        rejected.append(not_text(frame, PAYLOAD))
        frame = frame.where(is_text(PAYLOAD)).withColumn(PAYLOAD, text_of(PAYLOAD))
    if source.payload_as == "json" and source.schema is not None:
        rejected.append(unparsed(frame, PAYLOAD, source.schema))
        frame = parsed(frame, PAYLOAD, source.schema)
    return frame, rejected


def _messages(frame: DataFrame, sink: QueueSink) -> DataFrame:
    """The columns of a message. Without a column `payload`, all columns that a message does not have become JSON."""
    kept = [*MESSAGE_COLUMNS, *([TRANSACTION_ID] if sink.keep_transaction_ids else [])]
    own = [_column(name) for name in kept if name in frame.columns]
    others = [name for name in frame.columns if name not in (PAYLOAD, TRANSACTION_ID, *MESSAGE_COLUMNS, *GIVEN_ANEW)]
    if PAYLOAD not in frame.columns:
        if not others:
            raise Permanent(f"no column is left for the payload: {', '.join(frame.columns)}")
        return frame.select(f.to_json(f.struct(*map(_column, others))).alias(PAYLOAD), *own)
    if others:
        raise Permanent(
            f"beside payload there are {', '.join(others)}, which have no place in a message",
            remedy="Leave payload out, and all columns become JSON; or leave these out",
        )
    return frame.select(_column(PAYLOAD), *own)


def _check_partitions(frame: DataFrame, table: Table) -> None:
    known = {name.lower() for name in frame.columns}
    missing = [name for name in table.partition_by if name.lower() not in known]
    if missing:
        raise Permanent(f"there is no column {', '.join(missing)}; the columns are {', '.join(frame.columns)}")
    if table.partition_by and len(table.partition_by) == len(frame.columns):
        raise Permanent("no column is left for the files: all of them are in partitionBy")


def _all_letters(rejected: Sequence[DataFrame], flow: Flow) -> DataFrame:
    return reduce(DataFrame.unionByName, [letters(frame, flow) for frame in rejected])


def letters(rejected: DataFrame, flow: Flow, *more: str, ids: Column | None = None) -> DataFrame:
    """Messages for the error queue: the payload as it came, and in the headers what is wrong with it.

    `more` names columns that are told in the headers too, `ids` gives the letters transaction ids of their own.
    """
    payload = _column(PAYLOAD) if PAYLOAD in rejected.columns else f.to_json(f.struct("*"))
    known = [_column(name) for name in (*more, *_TOLD) if name in rejected.columns]
    headers = f.to_json(
        f.struct(f.lit(flow.name).alias("flow"), f.lit(flow.source.queue).alias("queue"), CAUSE, *known)
    )
    partition = _column("partition") if "partition" in rejected.columns else f.lit(None).cast("string")
    own = [] if ids is None else [ids.alias(TRANSACTION_ID)]
    return rejected.select(
        payload.cast("binary").alias(PAYLOAD), partition.alias("partition"), headers.alias("headers"), *own
    )


def _column(name: str) -> Column:
    return f.col(f"`{name}`")


def told(cause: BaseException) -> str:
    """What went wrong, whole: without the plans and stacks that Spark adds."""
    if isinstance(cause, ForebayError):
        return str(cause)
    if not isinstance(cause, PySparkException):
        return f"{type(cause).__name__}: {cause}"
    text = cause_of(cause)
    lines = takewhile(lambda line: line.strip() and not line.startswith(_OF_THE_PLAN), text.splitlines())
    return "\n".join(lines).rstrip("; ") or text


def _line_before(text: str) -> str:
    """Spark counts a line more than the SQL has: the one that was put before it."""
    return re.sub(r"\bline (\d+)", lambda found: f"line {int(found[1]) - 1}", text)
