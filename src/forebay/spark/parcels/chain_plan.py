"""From a chain of actions to one frame of staged rows: results for all sinks, bad records and counts.

    messages ─▶ judged by the source ─▶ actions ─▶ sinks ──┐
                       │                   │               ├─▶ one frame (`staging.STAGED`), one job
                       └── bad ────────────┴── bad, counts ┘

A frame that two of these ways begin at is kept by Spark (`persist`) for the length of the job, so that nothing is read
or computed twice. A flow that checks nothing, with one sink, has one way and keeps nothing.

In front of a further chain the rows become messages of an internal queue: see `handing_on`. Letters say of the records
that are set aside what is certain: see `message_marks`.

After each action its rows are counted on the way (`observe`): by parcel, as long as the rows say whose they are and the
lease has few parcels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce

from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import StringType, StructType

from forebay.flows.chains import Chain
from forebay.flows.definition import Sink, Source, TableSink
from forebay.flows.letters import SPLIT
from forebay.spark.builtin.json_parsing import CAUSE, is_text, text_of, with_cause, without_cause
from forebay.spark.flow_plan import Compiler
from forebay.spark.message_marks import BadRows, marked_payload, unmarked, with_input
from forebay.spark.outgoing import GIVEN_ANEW, PAYLOAD, as_messages, check_partitions, letters
from forebay.spark.parcels.handing_on import handed_on, rows_of
from forebay.spark.parcels.record_runs import is_record_action, record_runs, record_step
from forebay.spark.parcels.staged_columns import as_counts, as_staged
from forebay.spark.parcels.staging import FILTERED, NOTE, SKIPPED, Target
from forebay.spark.record_frames import RecordFrameOptions, good_rows, record_frame, side_rows
from forebay.spark.record_sides import DID
from forebay.spark.row_wise import other_operator

COUNTED_PARCELS_MAX = 16
"""With more parcels in a lease, rows between its actions are not counted by parcel: each costs a look at every row."""


class ChainPlan:
    """A chain over the messages of a lease. A context manager: leaving it lets go of what Spark keeps for it."""

    def __init__(
        self,
        spark: SparkSession,
        chain: Chain,
        messages: DataFrame,
        *,
        row_schema: StructType | None = None,
        attempts: Mapping[str, int] | None = None,
        origin: str = "",
        actions: int | None = None,
    ) -> None:
        """`row_schema`: the columns that the chain before gave. `attempts`: how often each parcel was tried, by did.

        `origin`: the queue that the messages are in.
        `actions`: only so many of the chain's, and no sink, as a search for records that fail wants it.
        """
        self._chain = chain
        self._flow = chain.flow
        self._attempts = attempts or {}
        self._origin = origin
        self._dids = list(self._attempts) if len(self._attempts) <= COUNTED_PARCELS_MAX else []
        self._compiler = Compiler(spark, chain.flow, lambda: messages)
        self._kept: list[DataFrame] = []
        self.targets: list[Target] = []
        self.observations: dict[int, Observation] = {}
        """By the number of an action in the chain: how many rows came out of it."""
        self.tables: list[tuple[TableSink, DataFrame]] = []
        """What is written to tables before the rest is staged."""
        self._ways: list[DataFrame] = []
        self._bad: list[BadRows] = []
        self._provenance = self._compiler.begin_at(messages)
        try:
            self._compile(messages, row_schema, actions)
        except BaseException:
            self.close()
            raise

    @property
    def staged(self) -> DataFrame | None:
        """All rows for the staging; None if there is nothing but tables."""
        return reduce(DataFrame.unionAll, self._ways) if self._ways else None

    @property
    def error_target(self) -> int:
        """The number of the error queue among the targets; it is one of them even where nothing is checked."""
        target = Target(self._flow.errors_to, is_text=False)
        if target not in self.targets:
            self.targets.append(target)
        return self.targets.index(target)

    def __enter__(self) -> ChainPlan:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        for frame in self._kept:
            frame.unpersist()
        self._compiler.drop_views()

    # --- the way through ---

    def _compile(self, messages: DataFrame, row_schema: StructType | None, actions: int | None) -> None:
        compiler, chain = self._compiler, self._chain
        compiler.load_tables()
        if row_schema is not None:
            given = with_input(messages) if self._sets_aside_at_once() else messages
            frame = compiler.checked("source", rows_of, given, row_schema)
        else:
            frame = compiler.checked("source", self._judged, messages)
        for run in record_runs(chain.actions[:actions]):
            key = f"actions.{chain.first + run[0]} ({chain.actions[run[0]].name})"
            if is_record_action(chain.actions[run[0]]):
                frame = compiler.checked(key, self._act_on_records, frame, run)
            else:
                frame = compiler.checked(key, self._act, frame, run[0])
            if actions is None:
                frame = self._observed(frame, run[-1])
        self.output = frame
        """Behind the last action."""
        if actions is None:
            self._end(frame)

    def _sets_aside_at_once(self) -> bool:
        """Whether the first action sets records aside by itself, whose letters want what the step has read."""
        first = self._chain.actions[0] if self._chain.actions else None
        return first is not None and (is_record_action(first) or self._compiler.may_reject(first))

    def _act(self, frame: DataFrame, number: int) -> DataFrame:
        action = self._chain.actions[number]
        rejected: list[BadRows] = []
        if self._compiler.may_reject(action):
            frame = self._keep(frame)
        frame = self._compiler.act(frame, action, self._chain.first + number, rejected)
        self._bad += [bad._replace(frame=bad.frame.withColumn("action", f.lit(action.name))) for bad in rejected]
        return frame

    def _act_on_records(self, frame: DataFrame, run: Sequence[int]) -> DataFrame:
        """Record actions that follow each other, in one Python process."""
        steps = [record_step(self._flow, self._chain.actions[number]) for number in run]
        inputs = self._provenance.inputs(frame)
        options = RecordFrameOptions(self._flow.name, attempts=self._attempts, inputs=inputs)
        found = self._keep(record_frame(frame, steps, options))
        sides = side_rows(found)
        is_bad = f.col("kind") == "bad"
        bad = sides.where(is_bad).drop("seq", "kind", "count").withColumnsRenamed({"text": CAUSE, "input_seq": "seq"})
        self._bad.append(BadRows(bad, inputs.own))
        counted = f"CASE kind WHEN 'note' THEN {NOTE} WHEN 'skipped' THEN {SKIPPED} ELSE {FILTERED} END"
        self._ways.append(as_counts(sides.where(~is_bad), counted))
        return good_rows(found)

    def _judged(self, messages: DataFrame) -> DataFrame:
        source = self._flow.source
        if not _is_judged(source):
            return messages
        judged = self._keep(_with_cause(messages, source))
        bad = judged.where(f.col(CAUSE).isNotNull()).select(*messages.columns, CAUSE)
        self._bad.append(self._provenance.bad(bad))
        if source.payload_as == "json" and source.schema is not None:
            given = with_input(judged) if self._sets_aside_at_once() else judged
            return without_cause(given, PAYLOAD, source.schema)
        good = judged.where(f.col(CAUSE).isNull()).drop(CAUSE)
        return marked_payload(good.withColumn(PAYLOAD, text_of(PAYLOAD))) if source.payload_as == "string" else good

    def _keep(self, frame: DataFrame) -> DataFrame:
        kept = frame.persist()
        self._kept.append(kept)
        return kept

    def _observed(self, frame: DataFrame, number: int) -> DataFrame:
        observation = Observation(f"action_{number}")
        self.observations[number] = observation
        counts = [f.expr("count(1)").alias("all")]
        if DID in frame.columns:
            counts += [f.expr(f"count_if({DID} = '{did}')").alias(did) for did in self._dids]
        return frame.observe(observation, *counts)

    # --- the ends ---

    def _end(self, frame: DataFrame) -> None:
        if not self._chain.is_last:
            self._compiler.checked(f"actions.{self._chain.first + len(self._chain.actions) - 1}", self._hand_on, frame)
        else:
            sinks = self._flow.all_sinks
            if len(sinks) > 1 or any(isinstance(sink, TableSink) for sink in sinks):
                frame = self._keep(frame)
            for number, sink in enumerate(sinks):
                key = "sink" if self._flow.sink is not None else f"sinks.{number}"
                self._compiler.checked(key, self._to_sink, frame, sink)
        for bad in self._bad:
            kept = [DID] if DID in bad.frame.columns else []
            more = (DID, "action", "traceback", SPLIT)
            found = letters(bad, self._flow, *more, kept=kept, queue=self._origin, step=self._chain.name)
            self._add(found, "", False)

    def _to_sink(self, frame: DataFrame, sink: Sink) -> None:
        if sink.where is not None:
            frame = frame.where(sink.where)
        if isinstance(sink, TableSink):
            check_partitions(frame, sink.table)
            self.tables.append((sink, unmarked(frame)))
            return
        messages = as_messages(frame, sink, self._flow.name, GIVEN_ANEW, kept=[DID])
        self._add(messages, sink.queue, isinstance(messages.schema[PAYLOAD].dataType, StringType))

    def _hand_on(self, frame: DataFrame) -> None:
        """Rows for the next chain, in the order of their parcels: each parcel goes on as a range of them."""
        messages = handed_on(frame)
        if other_operator(frame) is not None:
            messages = messages.orderBy(DID)
        self._add(messages, self._chain.output_queue, is_text=True)

    def _add(self, messages: DataFrame, queue: str, is_text: bool) -> None:
        target = Target(queue or self._flow.errors_to, is_text)
        if target not in self.targets:
            self.targets.append(target)
        self._ways.append(as_staged(messages, self.targets.index(target), is_text))


def _is_judged(source: Source) -> bool:
    return source.payload_as != "binary" or source.max_payload is not None


def _with_cause(messages: DataFrame, source: Source) -> DataFrame:
    judged = messages
    if source.max_payload is not None:
        length = f.octet_length(PAYLOAD)
        text = f.concat(length.cast("string"), f.lit(f" bytes, more than {source.max_payload}"))
        judged = judged.withColumn(CAUSE, f.when(length > source.max_payload, text))
    if source.payload_as == "string":
        cause: Column = f.when(~is_text(PAYLOAD), "not UTF-8")
        judged = judged.withColumn(CAUSE, f.coalesce(f.col(CAUSE), cause) if CAUSE in judged.columns else cause)
    if source.payload_as == "json" and source.schema is not None:
        judged = with_cause(judged, PAYLOAD, source.schema)
    return judged
