"""Record actions as frames of Spark: one `mapInArrow` around one action, or around several that follow each other.

    steps = [RecordStep(parse, "parse"), RecordStep(geocode, "geocode", on_error="skip")]
    found = record_frame(frame, steps, RecordFrameOptions("clicks"))
    good_rows(found)     # for the next action or the sink
    side_rows(found)     # bad, skipped and filtered records, annotations

The frame has the message's own columns that the input has (`did`, `seq`, `partition` …, in the input's order), the
columns of the last action's `schema`, and `_forebay_side`, which is null in good rows. All columns are nullable.

| field of `_forebay_side` | kind `bad` | `skipped` | `filtered` | `note` |
|---|---|---|---|---|
| `text STRING` | the cause | the cause | the reason | annotations as JSON |
| `payload BINARY` | what the step has read, if it is known; else the row: its payload, or JSON of its columns | | | |
| `count BIGINT` | 1 | 1 | records | results |
| `action STRING` | the action's name | the same | the same | the same |
| `traceback STRING` | of what `transform` raised, if it did | | | |
| `input_seq BIGINT` | of the message, where that is known (`message_marks`) | | | |
| `split BOOLEAN` | true: one of several rows that the record became | | | |

Side rows have null in the result columns. Rows about one record (`bad`, `skipped`) have all of the message's own
columns; `filtered` and `note` are added up per piece of a batch, parcel and text, and have `did` only.

**In a stream** (`is_stream`) there are no side rows: what is bad or fails raises in the task, and the flow's search
sets the record aside; what is filtered is dropped, and so are annotations.

Whichever part of the frame is read, the actions run over all of it: where both parts are wanted, write the frame
once and tell the rows apart, or persist it.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from pyspark.sql.pandas.types import from_arrow_type, to_arrow_schema
from pyspark.sql.types import ArrayType, DataType, MapType, StructField, StructType

from forebay.errors import Permanent
from forebay.flows.action import ActionParams
from forebay.flows.record_action import MESSAGE_COLUMNS, RecordAction
from forebay.spark.arrow_action import ArrowAction
from forebay.spark.builtin.json_parsing import struct_of
from forebay.spark.builtin.not_null import as_nullable
from forebay.spark.message_marks import HIDDEN, UNKNOWN, InputColumns
from forebay.spark.record_attempts import RecordStep
from forebay.spark.record_chain import ChainStep, RecordChain
from forebay.spark.record_sides import SIDE

SIDE_COLUMN = "_forebay_side"


@dataclass(frozen=True, slots=True)
class RecordFrameOptions:
    flow: str = ""
    """The flow's name, for contexts."""
    is_stream: bool = False
    attempts: Mapping[str, int] = field(default_factory=dict)
    """How often each parcel was tried, by its did, where that is known."""
    inputs: InputColumns = UNKNOWN
    """The columns of the frame that hold what the step has read."""


def record_frame(
    frame: DataFrame,
    actions: RecordAction | RecordStep | Sequence[RecordAction | RecordStep],
    options: RecordFrameOptions | None = None,
) -> DataFrame:
    """The frame behind these actions, with the column `_forebay_side`.

    An action without a step has the name of its class, is tried once, and its failures are bad records. Raises
    Permanent for an action without a schema, or one that needs columns which are not there.
    """
    options = options or RecordFrameOptions()
    given = [actions] if isinstance(actions, RecordAction | RecordStep) else list(actions)
    if not given:
        raise Permanent("a frame of record actions needs one action at least")
    schema = StructType([column for column in frame.schema if column.name not in HIDDEN])
    steps = []
    for one in given:
        step = one if isinstance(one, RecordStep) else RecordStep(one, type(one).__name__)
        declared = _declared(step, schema)
        schema = _behind(schema, declared)
        steps.append(ChainStep(_shipped(step), _arrow(declared), _arrow(schema)))
    output = StructType([*schema.fields, StructField(SIDE_COLUMN, from_arrow_type(SIDE))])
    chain = RecordChain(
        steps,
        frame.columns,
        _arrow(output),
        options.flow,
        options.is_stream,
        dict(options.attempts),
        options.inputs,
    )
    # A function and not the chain itself: Spark wants something with a name and a code.
    return _named(frame).mapInArrow(lambda batches: chain(batches), output)


def _named(frame: DataFrame) -> DataFrame:
    """The frame with names that stay: behind a GROUP BY, Spark calls every map `_groupingmapsort`, and then refuses to
    make Arrow of two of them. An alias with metadata is one that it does not take for needless."""
    named = [
        f.col(f"`{column.name}`").alias(column.name, metadata={**column.metadata, "forebay": "named"})
        if _has_map(column.dataType)
        else f.col(f"`{column.name}`")
        for column in frame.schema
    ]
    return frame.select(*named) if any(_has_map(column.dataType) for column in frame.schema) else frame


def _has_map(kind: DataType) -> bool:
    if isinstance(kind, StructType):
        return any(_has_map(column.dataType) for column in kind)
    return isinstance(kind, MapType) or (isinstance(kind, ArrayType) and _has_map(kind.elementType))


def good_rows(frame: DataFrame) -> DataFrame:
    """The results: what a frame of `record_frame` is without its side rows and its side column."""
    return frame.where(f.col(SIDE_COLUMN).isNull()).drop(SIDE_COLUMN)


def side_rows(frame: DataFrame) -> DataFrame:
    """The side rows: the message's own columns that there are, and the fields of the side column."""
    own = [f.col(name) for name in MESSAGE_COLUMNS if name in frame.columns]
    return frame.where(f.col(SIDE_COLUMN).isNotNull()).select(*own, f"{SIDE_COLUMN}.*")


def _declared(step: RecordStep, schema: StructType) -> StructType:
    action = step.action
    if not action.schema:
        raise Permanent(
            f"{type(action).__name__} has no schema", remedy='Give its class schema = "user STRING, ms INT"'
        )
    missing = [name for name in action.needs if name not in schema.names]
    if missing:
        raise Permanent(
            f"{step.name!r} needs {', '.join(missing)}, and the columns before it are {', '.join(schema.names)}"
        )
    if isinstance(action, ArrowAction):
        action.check(_arrow(schema))
    declared = struct_of(action.schema)
    names = [name.lower() for name in _behind(schema, declared).names]
    doubled = sorted({name for name in names if names.count(name) > 1} | ({SIDE_COLUMN} & set(names)))
    if doubled:
        raise Permanent(f"the schema of {step.name!r} names {', '.join(doubled)}, which is there already")
    return declared


def _behind(schema: StructType, declared: StructType) -> StructType:
    """The columns behind an action: the message's own that it has, and those that the action declares."""
    # With their metadata, in which Spark keeps a watermark.
    own = [column for column in schema if column.name in MESSAGE_COLUMNS and column.name not in declared.names]
    kept = as_nullable(StructType(own))
    return StructType([*kept.fields, *as_nullable(declared).fields])


def _arrow(schema: StructType) -> pa.Schema:
    plain = StructType([StructField(column.name, column.dataType, column.nullable) for column in schema])
    return to_arrow_schema(plain, timezone="UTC")


def _shipped(step: RecordStep) -> RecordStep:
    """The step with an action whose parameters survive the way to a process that cannot import their class."""
    params = step.action.params
    if not isinstance(params, ActionParams):
        return step
    action = copy.copy(step.action)
    action.params = _ShippedParams(type(params), params)
    return RecordStep(action, step.name, step.on_error, step.retry, step.time_limit_seconds)


class _ShippedParams:
    """Stands for parameters until it is unpickled, and is them from then on.

    A class that travels by value loses what makes it a struct of msgspec: its fields.
    """

    def __init__(self, kind: type[ActionParams], params: ActionParams) -> None:
        self._kind = kind
        self._values = {name: getattr(params, name) for name in params.__struct_fields__}

    def __reduce__(self) -> tuple[Any, ...]:
        return _revived, (self._kind, self._values)


def _revived(kind: type[ActionParams], values: dict[str, Any]) -> ActionParams:
    if set(values) <= set(kind.__struct_fields__):
        return kind(**values)
    whole = msgspec.defstruct(kind.__name__, [(name, Any) for name in values], bases=(kind,), frozen=True, kw_only=True)
    return whole(**values)  # type: ignore[return-value]
