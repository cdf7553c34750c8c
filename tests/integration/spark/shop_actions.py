"""An action as users write them, with a function for Spark at the top of its module."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql.functions import udf

from forebay.flows import ActionContext, DataFrameAction


@udf("bigint")
def square(number: int) -> int:
    return _times(number, number)


def _times(one: int, other: int) -> int:
    return one * other


class Square(DataFrameAction):
    """Words and the squares of their numbers, without every third."""

    def transform(self, frame: DataFrame, context: ActionContext) -> DataFrame:
        return frame.where("n % 3 <> 0").select("word", square("n").alias("square"))
