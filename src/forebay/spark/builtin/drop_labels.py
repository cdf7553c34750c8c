"""`drop_labels`: labels that are not wanted are left out of a map.

Series that differ in nothing but those labels are the same then: SQL behind it adds them up.

    - {name: fewer, class: drop_labels, params: {labels: [pod, container_id]}}
    - name: sums
      sql: SELECT max(time) AS time, metric, labels, sum(value) AS value FROM input GROUP BY metric, labels
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from forebay.flows.action import ActionContext, ActionParams, DataFrameAction


class DropLabels(DataFrameAction):
    """`labels` are left out, or `keep` are the only ones that stay. A map that is null stays null."""

    class Params(ActionParams, frozen=True, kw_only=True):
        labels: tuple[str, ...] = ()
        keep: tuple[str, ...] = ()
        column: str = "labels"

        def __post_init__(self) -> None:
            if bool(self.labels) == bool(self.keep):
                raise ValueError("give either labels, which are left out, or keep, which alone stay")

    params: Params

    def transform(self, frame: DataFrame, context: ActionContext) -> DataFrame:
        wanted = self.params
        if wanted.keep:
            kept = f.map_filter(wanted.column, lambda name, _: name.isin(*wanted.keep))
        else:
            kept = f.map_filter(wanted.column, lambda name, _: ~name.isin(*wanted.labels))
        return frame.withColumn(wanted.column, kept)
