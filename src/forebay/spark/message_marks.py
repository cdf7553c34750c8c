"""Which columns of a frame are still those of the message: what a letter may say of where its record is from.

A record that is set aside may be sent again only if its letter is true: its payload has to be what the step has read,
and its seq that of the message, beside the queue that the letter names. Actions may drop these columns, compute others
of the same names, or make several rows of one.

**Marks.** The columns of a message carry their name in their metadata. Spark keeps it while a column is passed on as it
is, through views, groups and joins, and drops it from everything that is computed.

**One to one.** Behind an action that makes several rows of a message, or one of several, a mark says where a row is
from, but not that the message stands for this row alone: then nothing is said (`row_wise`).

**Hidden columns.** Where the first action of a chain sets records aside and its rows are no messages any more (they
were parsed, or are from the chain before), the message's payload and seq stand beside them for the letters. Only
`rejected` gets to see these columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from pyspark.sql.types import StructField, StructType

from forebay.spark.row_wise import is_one_to_one

INPUT, INPUT_SEQ = "_forebay_input", "_forebay_input_seq"
HIDDEN = (INPUT, INPUT_SEQ)
_MARK = "forebay_message"
_PAYLOAD, _SEQ = "payload", "seq"
MARKED = frozenset((_PAYLOAD, _SEQ, "partition", "transaction_id", "created_at"))


class BadRows(NamedTuple):
    """Rows for the error queue."""

    frame: DataFrame
    own: frozenset[str]
    """Which of their columns are the message's; `payload` among them: it is what the step has read."""


class InputColumns(NamedTuple):
    """The columns of a frame that hold what the step has read; None: it has no such column."""

    payload: str | None = None
    seq: str | None = None
    others: frozenset[str] = frozenset()
    """Columns that say more of the message."""

    @property
    def own(self) -> frozenset[str]:
        """What a letter may say."""
        found = {_PAYLOAD: self.payload, _SEQ: self.seq}
        return self.others | {name for name, column in found.items() if column is not None}


UNKNOWN = InputColumns()


def marked_schema(schema: StructType) -> StructType:
    """The columns of a message with their marks."""
    return StructType([_marked(field) if field.name in MARKED else field for field in schema])


def unmarked_schema(schema: StructType) -> StructType:
    return StructType([_unmarked(field) for field in schema])


def marked(messages: DataFrame) -> DataFrame:
    """Messages with marks on their columns."""
    return _with_schema(messages, marked_schema(messages.schema))


def unmarked(frame: DataFrame) -> DataFrame:
    """The frame as its user knows it, for what keeps metadata."""
    return _with_schema(frame, unmarked_schema(frame.schema))


def marked_payload(messages: DataFrame) -> DataFrame:
    """Messages whose payload has another form, and the bytes that it had."""
    return messages.withMetadata(_PAYLOAD, {_MARK: _PAYLOAD})


def _with_schema(frame: DataFrame, schema: StructType) -> DataFrame:
    if frame.schema == schema:
        return frame
    return frame.select([f.col(f"`{field.name}`").alias(field.name, metadata=field.metadata) for field in schema])


def _marked(field: StructField) -> StructField:
    return StructField(field.name, field.dataType, field.nullable, {**field.metadata, _MARK: field.name})


def _unmarked(field: StructField) -> StructField:
    metadata = {name: value for name, value in field.metadata.items() if name != _MARK}
    return StructField(field.name, field.dataType, field.nullable, metadata)


def with_input(messages: DataFrame) -> DataFrame:
    """The hidden columns beside those of the messages."""
    return messages.withColumns({INPUT: f.col(_PAYLOAD), INPUT_SEQ: f.col(_SEQ)})


def without_input(frame: DataFrame) -> DataFrame:
    return frame.drop(*HIDDEN) if INPUT in frame.columns else frame


class Provenance:
    """What the rows of a chain's frames have of the messages that the chain has read."""

    def __init__(self, messages: DataFrame, tables: Callable[[], Iterable[DataFrame]]) -> None:
        """`tables`: what the flow's SQL may read beside its input."""
        self._messages = messages
        self._tables = tables

    def own(self, frame: DataFrame) -> frozenset[str]:
        """The columns that are the message's own, of a frame whose rows each stand for one message alone."""
        names = frozenset(field.name for field in frame.schema if field.metadata.get(_MARK) == field.name)
        if not names or frame is self._messages or is_one_to_one(self._messages, frame, self._tables()):
            return names
        return frozenset()

    def inputs(self, frame: DataFrame) -> InputColumns:
        """Where an action over this frame finds what the step has read."""
        own = self.own(frame)
        others = own - {_PAYLOAD, _SEQ}
        if INPUT in frame.columns:
            return InputColumns(INPUT, INPUT_SEQ, others)
        return InputColumns(_PAYLOAD if _PAYLOAD in own else None, _SEQ if _SEQ in own else None, others)

    def bad(self, rejected: DataFrame) -> BadRows:
        """Rows that an action rejects, with payload and seq of their messages where these are known."""
        own = self.own(rejected)
        if INPUT not in rejected.columns:
            return BadRows(rejected, own)
        restored = rejected.drop(_PAYLOAD, _SEQ).withColumnsRenamed({INPUT: _PAYLOAD, INPUT_SEQ: _SEQ})
        return BadRows(restored, own | {_PAYLOAD, _SEQ})
