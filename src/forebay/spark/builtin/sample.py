"""`sample`: a fixed share of the rows."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from forebay.flows.action import ActionContext, ActionParams, DataFrameAction

_BUCKETS = 1_000_000


class Sample(DataFrameAction):
    """Chooses by a hash of `by`: a batch that is repeated keeps the same rows, and rows with one key stay together."""

    class Params(ActionParams, frozen=True, kw_only=True):
        fraction: Annotated[float, Meta(ge=0.0, le=1.0)]
        seed: int = 42
        by: Annotated[tuple[str, ...], Meta(min_length=1)] = ("seq",)

    params: Params

    def transform(self, frame: DataFrame, context: ActionContext) -> DataFrame:
        hashed = f.xxhash64(f.lit(self.params.seed), *[f.col(name) for name in self.params.by])
        return frame.where(f.pmod(hashed, f.lit(_BUCKETS)) < round(self.params.fraction * _BUCKETS))
