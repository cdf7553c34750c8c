"""Record actions that take a whole batch of Arrow at once, where a call for each record would cost too much.

They stand in a chain like any `RecordAction`, with the same columns and the same bad records. The built-in actions for
metrics are such: one message holds thousands of data points.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from forebay.flows.record_action import Outcome, Record, RecordAction, RecordContext


@dataclass(frozen=True, slots=True)
class Converted:
    """What became of a batch."""

    columns: Mapping[str, pa.Array]
    """By name; a column of the schema that is left out is null."""
    sources: Sequence[int]
    """For each row of the columns, the row of the batch that it comes from."""
    bad: Mapping[int, str] = field(default_factory=dict)
    """The causes of the rows of the batch that are bad records."""
    carried: frozenset[str] | None = None
    """The message's own columns that are carried along; None: all of them."""

    def is_carried(self, name: str) -> bool:
        return self.carried is None or name in self.carried


class ArrowAction(RecordAction):
    """The base of such actions. `open` and `close` are called as for every record action; `retry`, `on_error` and the
    time limit are for calls of `transform`, and do not hold here."""

    def check(self, schema: pa.Schema) -> None:
        """Called when the flow is compiled, with the columns before this action. Raises Permanent if they do not do."""

    def convert(self, batch: pa.RecordBatch) -> Converted:
        """What becomes of a batch. What it raises fails the job: faults of records belong into `bad`."""
        raise NotImplementedError

    def transform(self, record: Record, context: RecordContext) -> Outcome:
        raise NotImplementedError("it takes whole batches: call convert")
