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
from itertools import takewhile
from typing import ParamSpec, TypeVar

from py4j.protocol import Py4JNetworkError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from forebay.errors import ForebayError, Permanent
from forebay.flows.action import ActionContext, DataFrameAction, PythonAction
from forebay.flows.checks import params_of
from forebay.flows.definition import Action, ClassAction, Flow, Source, SqlAction, TableSink, source_options
from forebay.flows.record_action import RecordAction
from forebay.flows.registry import find_action
from forebay.spark.builtin.event_time import interval
from forebay.spark.builtin.json_parsing import CAUSE, is_text, not_text, parsed, text_of, unparsed
from forebay.spark.flow_causes import cause_of
from forebay.spark.message_marks import BadRows, Provenance, marked, marked_payload, unmarked, without_input
from forebay.spark.outgoing import GIVEN_ANEW, PAYLOAD, all_letters, as_messages, check_partitions
from forebay.spark.record_attempts import RecordStep
from forebay.spark.record_frames import RecordFrameOptions, good_rows, record_frame

_OF_THE_PLAN = ("'", "+-", ":-", "== SQL", "Project ", "Filter ")
_numbers = itertools.count(1)

P = ParamSpec("P")
T = TypeVar("T")


class DoesNotCompile(Permanent):
    """A flow that cannot become a plan: its SQL or one of its actions is wrong. `key` says which part."""

    def __init__(self, key: str, cause: BaseException | str) -> None:
        self.key = key
        self.cause = cause_text(cause) if isinstance(cause, BaseException) else cause
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

    output, rejected = Compiler(spark, flow, stream).compiled()
    if not rejected:
        return FlowPlan(output, None)
    # The group's cursor follows the main query alone, so the other one reads for no group.
    options.pop("group")
    _, rejected = Compiler(spark, flow, stream).compiled()
    return FlowPlan(output, all_letters(rejected, flow))


def compiled_on(spark: SparkSession, flow: Flow, read: Callable[[], DataFrame]) -> tuple[DataFrame, DataFrame | None]:
    """What goes to the sink, and the letters for the error queue, over messages from elsewhere."""
    output, rejected = Compiler(spark, flow, read).compiled()
    return output, all_letters(rejected, flow) if rejected else None


class FlowOnTable:
    """A flow's actions over a table of messages, or only the first of them. A context manager: it drops its views."""

    def __init__(self, spark: SparkSession, flow: Flow, messages: DataFrame, actions: int | None = None) -> None:
        self._compiler = Compiler(spark, flow, lambda: messages, actions)
        self.output, rejected = self._compiler.compiled()
        """With all actions as the sink gets it."""
        self.bad = all_letters(rejected, flow) if rejected else None

    def __enter__(self) -> FlowOnTable:
        return self

    def __exit__(self, *_: object) -> None:
        self._compiler.drop_views()


class Compiler:
    """Tables and actions of a flow over a frame of messages. Its views are there until `drop_views`."""

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
        self._provenance: Provenance | None = None
        self.tables: dict[str, DataFrame] = {}
        self._has_watermark = flow.watermark is None

    def compiled(self) -> tuple[DataFrame, list[BadRows]]:
        """What goes to the sink, and the rows that source and actions reject."""
        flow = self._flow
        self.load_tables()
        raw = marked(self.checked("source", self._read))
        is_streaming = raw.isStreaming
        provenance = self.begin_at(raw)
        frame, bad = self.checked("source", _judged, raw, flow.source)
        rejected = [provenance.bad(one) for one in bad]
        frame = self.checked("watermark", self._watermarked, frame)
        for index, action in enumerate(self._actions):
            key = f"actions.{index} ({action.name})"
            frame = self.checked(key, self.act, frame, action, index, rejected)
            frame = self.checked("watermark", self._watermarked, frame)
            if is_streaming and not frame.isStreaming:
                raise DoesNotCompile(key, "its result does not depend on `input`")
        if not self._is_whole:
            return frame, rejected
        if not self._has_watermark and flow.watermark is not None:
            raise DoesNotCompile("watermark", f"no action gives a column {flow.watermark.column!r}")
        [sink] = flow.all_sinks
        if sink.where is not None:
            frame = self.checked("sink.where", frame.where, sink.where)
        if isinstance(sink, TableSink):
            self.checked("sink.table.partitionBy", check_partitions, frame, sink.table)
            frame = unmarked(frame)
        else:
            frame = self.checked("sink", as_messages, frame, sink, flow.name, GIVEN_ANEW)
        return frame, rejected

    def load_tables(self) -> None:
        for name in self._flow.tables:
            self.tables[name] = self.checked(f"tables.{name}", self._table, name)

    def checked(self, key: str, make: Callable[P, T], *given: P.args, **named: P.kwargs) -> T:
        """What `make` gives. Its frame's columns are read, because Spark may find faults only then."""
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

    def may_reject(self, action: Action) -> bool:
        """Whether the action is a DataFrameAction that sets rows aside."""
        if not isinstance(action, ClassAction):
            return False
        found = find_action(action.class_name)
        return issubclass(found, DataFrameAction) and found.may_reject

    def begin_at(self, messages: DataFrame) -> Provenance:
        """Let letters say of `messages`, which have marks, where the rows behind them are from."""
        self._provenance = Provenance(messages, self.tables.values)
        return self._provenance

    def act(self, frame: DataFrame, action: Action, index: int, rejected: list[BadRows]) -> DataFrame:
        """The frame behind the action; what it sets aside is added to `rejected`."""
        if isinstance(action, SqlAction):
            return self._sql(frame, action, index)
        made = made_action(action)
        if isinstance(made, RecordAction):
            options = RecordFrameOptions(self._flow.name, is_stream=True)
            return good_rows(record_frame(frame, RecordStep(made, action.name), options))
        if not isinstance(made, DataFrameAction):
            raise DoesNotCompile(action.name, f"{action.class_name} is neither a DataFrameAction nor a RecordAction")
        context = ActionContext(self._flow, self._spark, self.tables)
        if made.may_reject:
            bad = made.rejected(frame, context)
            rejected.append(BadRows(bad, frozenset()) if self._provenance is None else self._provenance.bad(bad))
        result = made.transform(without_input(frame), context)
        if not isinstance(result, DataFrame):
            raise DoesNotCompile(action.name, f"transform gave {type(result).__name__}, not a DataFrame")
        return result

    def _sql(self, frame: DataFrame, action: SqlAction, index: int) -> DataFrame:
        views = {"input": frame, **self.tables}
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
            raise Permanent(_line_before(cause_text(fault))) from fault


def made_action(action: ClassAction) -> PythonAction:
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
        frame = marked_payload(frame.where(is_text(PAYLOAD)).withColumn(PAYLOAD, text_of(PAYLOAD)))
    if source.payload_as == "json" and source.schema is not None:
        rejected.append(unparsed(frame, PAYLOAD, source.schema))
        frame = parsed(frame, PAYLOAD, source.schema)
    return frame, rejected


def cause_text(cause: BaseException) -> str:
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
