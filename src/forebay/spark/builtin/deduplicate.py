"""`deduplicate`: of rows with the same keys, the first stays."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, ClassVar

from msgspec import Meta
from pyspark.sql import DataFrame

from forebay.flows.action import ActionContext, ActionParams, DataFrameAction
from forebay.spark.builtin.event_time import with_watermark


class Deduplicate(DataFrameAction):
    """Rows with the same keys whose times are less than `within` apart count as one; a later one may stay again."""

    class Params(ActionParams, frozen=True, kw_only=True):
        keys: Annotated[tuple[str, ...], Meta(min_length=1)]
        within: timedelta = timedelta(minutes=10)
        time: str = "created_at"

    is_stateful: ClassVar[bool] = True
    params: Params

    def transform(self, frame: DataFrame, context: ActionContext) -> DataFrame:
        timed = with_watermark(frame, self.params.time, self.params.within, context)
        return timed.dropDuplicatesWithinWatermark(list(self.params.keys))
