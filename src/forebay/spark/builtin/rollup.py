"""`rollup`: one row per window and keys, when the window is over."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, ClassVar

from msgspec import Meta
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from forebay.flows.action import ActionContext, ActionParams, DataFrameAction
from forebay.spark.builtin.event_time import interval, with_watermark


class Rollup(DataFrameAction):
    """Gives `window_start`, `window_end`, the keys and the aggregates, which are SQL: `{clicks: count(*)}`.

    A window is over when a row has come that is later than its end by `late`; rows that come for it after that are
    dropped.
    """

    class Params(ActionParams, frozen=True, kw_only=True):
        window: timedelta
        aggregates: Annotated[dict[str, str], Meta(min_length=1)]
        keys: tuple[str, ...] = ()
        time: str = "created_at"
        late: timedelta = timedelta(seconds=10)
        slide: timedelta | None = None

    is_stateful: ClassVar[bool] = True
    params: Params

    def transform(self, frame: DataFrame, context: ActionContext) -> DataFrame:
        wanted = self.params
        timed = with_watermark(frame, wanted.time, wanted.late, context)
        slide = interval(wanted.slide) if wanted.slide is not None else None
        window = f.window(f.col(wanted.time), interval(wanted.window), slide)
        keys = [f.col(name) for name in wanted.keys]
        aggregates = [f.expr(sql).alias(name) for name, sql in wanted.aggregates.items()]
        counted = timed.groupBy(window, *keys).agg(*aggregates)
        bounds = [f.col("window.start").alias("window_start"), f.col("window.end").alias("window_end")]
        return counted.select(*bounds, *keys, *[f.col(name) for name in wanted.aggregates])
