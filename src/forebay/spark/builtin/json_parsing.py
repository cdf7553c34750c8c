"""JSON text to columns, with one judgement of what is bad for readers of the good ones and readers of the bad.

Spark's from_json does the parsing, for flows and for the option `payloadAs=json` alike. Where good rows are separated
from bad ones it is evaluated in a generator, because as a plain column the optimiser would copy it into the filter
behind it, and every payload would be parsed twice. Where all rows are kept it is a plain column, which is faster.

A record is bad if its text is not UTF-8, if from_json finds it malformed (a field of the wrong type is enough), if it
is no object at all (`null`, an empty text), or if it has a null where the schema says NOT NULL. from_json itself takes
every column as nullable, and so are the columns that come out of here.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f
from pyspark.sql.types import DataType, StringType, StructType

from forebay.errors import Permanent
from forebay.spark.builtin.not_null import as_nullable, columns_with_nulls

PARSED = "_forebay_parsed"
CAUSE = "cause"
CORRUPT = "_corrupt"
"""The column of `payloadAs=json` that has the text of a bad record."""
_CORRUPT = "_forebay_corrupt"
_NOT_UTF8 = "not UTF-8"
_NOT_JSON = "not a JSON object of the schema"
_NULL = "null in a column that is NOT NULL: "


def text_of(column: str) -> Column:
    """The column as text: bytes stay what they are, also where they are not UTF-8."""
    return f.col(column).cast("string")


def is_text(column: str) -> Column:
    return f.is_valid_utf8(text_of(column))


def not_text(frame: DataFrame, column: str) -> DataFrame:
    return frame.where(~is_text(column)).withColumn(CAUSE, f.lit(_NOT_UTF8))


def parsed(frame: DataFrame, column: str, schema: str) -> DataFrame:
    """The rows whose text is an object of the schema: its columns in the place of the text."""
    wanted = struct_of(schema)
    good = _judged(frame, column, wanted).where(~_is_bad(wanted))
    return good.select(*_others(frame, column), *_fields(wanted))


def unparsed(frame: DataFrame, column: str, schema: str) -> DataFrame:
    """The other rows as they came, with the cause."""
    wanted = struct_of(schema)
    bad = _judged(frame, column, wanted).where(_is_bad(wanted))
    return bad.withColumn(CAUSE, _cause(column, wanted)).drop(PARSED)


def with_cause(frame: DataFrame, column: str, schema: str) -> DataFrame:
    """All rows as they came, with the document and the cause, which is null for good ones: for plans that keep it.

    A cause that is there already stands.
    """
    wanted = struct_of(schema)
    cause = f.when(_is_bad(wanted), _cause(column, wanted))
    if CAUSE in frame.columns:
        cause = f.coalesce(f.col(CAUSE), cause)
    return _judged(frame, column, wanted).withColumn(CAUSE, cause)


def without_cause(judged: DataFrame, column: str, schema: str) -> DataFrame:
    """The good rows of `with_cause`: the columns of the schema in the place of the text."""
    others = [name for name in judged.columns if name not in (column, PARSED, CAUSE)]
    good = judged.where(f.col(CAUSE).isNull())
    return good.select(*[f.col(f"`{name}`") for name in others], *_fields(struct_of(schema)))


def json_columns(frame: DataFrame, schema: str | StructType, column: str = "payload") -> DataFrame:
    """All rows: the columns of the schema in the place of the text, and `_corrupt`, the text of a bad record.

    This is what `payloadAs=json` does, for frames that come from elsewhere:

        json_columns(spark.table("clicks"), "user STRING, ms INT NOT NULL")
    """
    wanted = schema if isinstance(schema, StructType) else struct_of(schema)
    _refuse_doubled([name for name in frame.columns if name != column], wanted)
    text = f.when(_is_bad(wanted), f.make_valid_utf8(text_of(column))).alias(CORRUPT)
    with_document = frame.select("*", _document(column, wanted).alias(PARSED))
    return with_document.select(*_others(frame, column), *_fields(wanted), text)


def struct_of(schema: str) -> StructType:
    """The columns that a schema in DDL names."""
    found = DataType.fromDDL(schema)
    if not isinstance(found, StructType):
        raise Permanent(f"{schema!r} names no columns", remedy="Write it as `user STRING, ms INT`")
    return found


def _judged(frame: DataFrame, column: str, schema: StructType) -> DataFrame:
    return frame.select("*", f.inline(f.array(f.struct(_document(column, schema).alias(PARSED)))))


def _document(column: str, schema: StructType) -> Column:
    # Options also keep the optimiser from leaving out fields that no query reads: both sides must judge all of them.
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT}
    target = StructType([*as_nullable(schema).fields]).add(_CORRUPT, StringType())
    return f.when(is_text(column), f.from_json(text_of(column), target, options))


def _is_malformed() -> Column:
    # What is not UTF-8 was not parsed, and has no document either.
    return f.col(PARSED).isNull() | f.col(f"{PARSED}.{_CORRUPT}").isNotNull()


def _is_bad(schema: StructType) -> Column:
    nulls = columns_with_nulls(f.col(PARSED), schema)
    return _is_malformed() if nulls is None else _is_malformed() | (nulls != "")


def _cause(column: str, schema: StructType) -> Column:
    """What is wrong with a bad row."""
    cause = f.when(~is_text(column), _NOT_UTF8).when(_is_malformed(), _NOT_JSON)
    nulls = columns_with_nulls(f.col(PARSED), schema)
    return cause if nulls is None else cause.otherwise(f.concat(f.lit(_NULL), nulls))


def _others(frame: DataFrame, column: str) -> list[Column]:
    return [f.col(f"`{name}`") for name in frame.columns if name != column]


def _fields(schema: StructType) -> list[Column]:
    return [f.col(PARSED).getField(name).alias(name) for name in schema.fieldNames()]


def _refuse_doubled(others: list[str], schema: StructType) -> None:
    names = [name.lower() for name in (*others, *schema.fieldNames(), CORRUPT)]
    doubled = [name for name in schema.fieldNames() if names.count(name.lower()) > 1]
    if doubled:
        raise Permanent(
            f"the schema names {', '.join(sorted(set(doubled)))}, which a message has already or twice",
            remedy="Leave the column out, or read the payload as a string and use from_json under another name",
        )
