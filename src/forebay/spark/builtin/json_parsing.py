"""JSON text to columns, with one judgement of what is bad for those who take the good and those who take the bad.

Spark's from_json does the parsing. It is evaluated in a generator, because as a plain column the optimiser would copy
it into the filter behind it, and every payload would be parsed twice.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

PARSED = "_forebay_parsed"
CAUSE = "cause"
_CORRUPT = "_forebay_corrupt"
_NOT_UTF8 = "not UTF-8"
_NOT_JSON = "not a JSON object of the schema"


def text_of(column: str) -> Column:
    """The column as text: bytes stay what they are, also where they are not UTF-8."""
    return f.col(column).cast("string")


def is_text(column: str) -> Column:
    return f.is_valid_utf8(text_of(column))


def not_text(frame: DataFrame, column: str) -> DataFrame:
    return frame.where(~is_text(column)).withColumn(CAUSE, f.lit(_NOT_UTF8))


def parsed(frame: DataFrame, column: str, schema: str) -> DataFrame:
    """The rows whose text is an object of the schema: its columns in the place of the text."""
    judged = _judged(frame, column, schema)
    good = judged.where(_is_good())
    others = [f.col(f"`{name}`") for name in frame.columns if name != column]
    return good.select(*others, f.col(f"{PARSED}.*")).drop(_CORRUPT)


def unparsed(frame: DataFrame, column: str, schema: str) -> DataFrame:
    """The other rows as they came, with the cause."""
    cause = f.when(is_text(column), f.lit(_NOT_JSON)).otherwise(f.lit(_NOT_UTF8))
    return _judged(frame, column, schema).where(~_is_good()).drop(PARSED).withColumn(CAUSE, cause)


def _judged(frame: DataFrame, column: str, schema: str) -> DataFrame:
    # Options also keep the optimiser from leaving out fields that nobody asks for: both sides must judge all of them.
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT}
    document = f.when(is_text(column), f.from_json(text_of(column), f"{schema}, {_CORRUPT} STRING", options))
    return frame.select("*", f.inline(f.array(f.struct(document.alias(PARSED)))))


def _is_good() -> Column:
    return f.col(PARSED).isNotNull() & f.col(f"{PARSED}.{_CORRUPT}").isNull()
