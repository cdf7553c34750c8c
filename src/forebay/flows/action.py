"""Actions written in Python: a class with typed parameters that turns one frame into another.

Actions that look at one record at a time are in `forebay.flows.record_action`; `PythonAction` is what both kinds share.

    class Enrich(DataFrameAction):
        class Params(ActionParams):
            region: str
            discount: float = 0.0

        params: Params

        def transform(self, frame, context):
            return frame.where(col("region") == self.params.region)

`transform` builds a plan once, in the driver, when the flow starts; Spark runs it for each batch. So it must not look
at rows. Frames are Spark's: this room does not import it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import msgspec

from forebay.flows.definition import Flow

Frame = Any
"""A `pyspark.sql.DataFrame`."""


class ActionParams(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The parameters of an action. Their types are checked before anything runs; a parameter more is a fault."""


@dataclass(frozen=True, slots=True)
class ActionContext:
    """What an action may want to know beside its parameters."""

    flow: Flow
    spark: Any
    tables: Mapping[str, Frame] = field(default_factory=dict)
    """The flow's static tables by name."""


class PythonAction:
    """What `DataFrameAction` and `RecordAction` share. A flow's class is derived from one of those two."""

    Params: ClassVar[type[ActionParams]] = ActionParams
    is_stateful: ClassVar[bool] = False
    """Whether rows of earlier batches count: windows, deduplication."""
    may_reject: ClassVar[bool] = False
    """Whether `rejected` of a `DataFrameAction` may find rows."""

    params: Any

    def __init__(self, params: Any) -> None:
        self.params = params


class DataFrameAction(PythonAction):
    """The base of actions that turn a whole frame into another."""

    def transform(self, frame: Frame, context: ActionContext) -> Frame:
        """What becomes of the rows. Rows that `rejected` returns must not be in it."""
        raise NotImplementedError

    def rejected(self, frame: Frame, context: ActionContext) -> Frame:
        """The rows that this action cannot take, with a column `cause` more. They go to the flow's error queue.

        Keep the columns that they have: some are hidden, and say of which message a row is.
        """
        raise NotImplementedError
