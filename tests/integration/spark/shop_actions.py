"""An action as users write them, with a function for Spark at the top of its module."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql.functions import udf

from forebay.flows import ActionContext, DataFrameAction, Filter, Record, RecordAction, RecordContext, Result


@udf("bigint")
def square(number: int) -> int:
    return _times(number, number)


def _times(one: int, other: int) -> int:
    if one < 0:
        raise ValueError(f"{one} is below zero")
    return one * other


class Square(DataFrameAction):
    """Words and the squares of their numbers, without every third."""

    def transform(self, frame: DataFrame, context: ActionContext) -> DataFrame:
        return frame.where("n % 3 <> 0").select("word", square("n").alias("square"))


class ParcelSquare(DataFrameAction):
    """The same, with what says whose a row is."""

    def transform(self, frame: DataFrame, context: ActionContext) -> DataFrame:
        return frame.where("n % 3 <> 0").select("did", "seq", "word", square("n").alias("square"))


class Small(RecordAction):
    """Squares below 900."""

    schema = "word STRING, square BIGINT"

    def transform(self, record: Record, context: RecordContext) -> Result | Filter:
        return Result(dict(record)) if record["square"] < 900 else Filter("large")
