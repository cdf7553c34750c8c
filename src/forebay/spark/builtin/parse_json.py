"""`parse_json`: JSON text becomes columns."""

from __future__ import annotations

from typing import Annotated, ClassVar

from msgspec import Meta
from pyspark.sql import DataFrame

from forebay.flows.action import ActionContext, ActionParams, DataFrameAction
from forebay.spark.builtin.json_parsing import parsed, unparsed


class ParseJson(DataFrameAction):
    """Puts the columns of `schema` in the place of `column`. Rows that do not parse are bad records."""

    class Params(ActionParams, frozen=True, kw_only=True):
        schema: Annotated[str, Meta(min_length=1)]
        """The columns as DDL: `user STRING, ms INT`."""
        column: str = "payload"

    may_reject: ClassVar[bool] = True
    params: Params

    def transform(self, frame: DataFrame, context: ActionContext) -> DataFrame:
        return parsed(frame, self.params.column, self.params.schema)

    def rejected(self, frame: DataFrame, context: ActionContext) -> DataFrame:
        return unparsed(frame, self.params.column, self.params.schema)
