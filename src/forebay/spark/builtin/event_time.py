"""Watermarks: how late a row may come."""

from __future__ import annotations

from datetime import timedelta

from pyspark.sql import DataFrame

from forebay.flows.action import ActionContext


def interval(duration: timedelta) -> str:
    """A duration as Spark writes it."""
    return f"{duration // timedelta(microseconds=1)} microseconds"


def with_watermark(frame: DataFrame, column: str, delay: timedelta, context: ActionContext) -> DataFrame:
    """Set a watermark, unless the flow has set one on that column: the flow's word counts."""
    own = context.flow.watermark
    if own is not None and own.column == column:
        return frame
    return frame.withWatermark(column, interval(delay))
