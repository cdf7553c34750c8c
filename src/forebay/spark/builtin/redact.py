"""`redact`: columns are hashed or masked."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from forebay.flows.action import ActionContext, ActionParams, DataFrameAction


class Redact(DataFrameAction):
    """`hash`: SHA-256 of salt and value, so that equal values stay equal. `mask`: letters become x, digits n.

    A column may be a field of a struct, `user.email`. The result is text; null stays null.
    """

    class Params(ActionParams, frozen=True, kw_only=True):
        columns: Annotated[tuple[str, ...], Meta(min_length=1)]
        by: Literal["hash", "mask"] = "hash"
        salt: str = ""

    params: Params

    def transform(self, frame: DataFrame, context: ActionContext) -> DataFrame:
        for path in self.params.columns:
            outer, _, inner = path.partition(".")
            hidden = self._hidden(f.col(path))
            frame = frame.withColumn(outer, f.col(outer).withField(inner, hidden) if inner else hidden)
        return frame

    def _hidden(self, column: Column) -> Column:
        text = column.cast("string")
        return f.mask(text) if self.params.by == "mask" else f.sha2(f.concat(f.lit(self.params.salt), text), 256)
