"""Actions on one record at a time: a function from a record to what becomes of it.

    class Geocode(RecordAction):
        schema = "user STRING, city STRING"

        class Params(ActionParams):
            url: str

        params: Params

        def open(self):
            self.places = connect(self.params.url)

        def transform(self, record, context):
            if record["user"] is None:
                return Error("no user")
            if record.get("is_test"):
                return Filter("test")
            return Result({"user": record["user"], "city": self.places.city_of(record["ip"])})

| `transform` gives | what becomes of the record |
|---|---|
| `Result(values, annotations)`, or a mapping of values | one row; a column of `schema` that is left out is null |
| `Results([…])` | as many rows; if one of them does not fit, none of them goes on and the record is bad |
| `Filter(reason)` | dropped, counted by reason |
| `Error(cause)` | a bad record: it goes to the error queue as it came, with the cause; the rest goes on |
| anything else, `None` too | a fault of the action, as if it had raised TypeError |

**Columns.** Each row has the columns of `schema`. What a message has by itself (`MESSAGE_COLUMNS`) is carried along
where the input has it, unless `values` gives it. All other columns of the input end here. A value that does not fit its
column (text for a number, a number that is too large, null for NOT NULL, an unknown column) makes the record bad. Times
without a zone are in UTC.

**What `transform` raises** is judged as for any function of an action (`forebay.spark.record_faults`). What is the
world's fault (`ConnectionError`, `TimeoutError`, `forebay.errors.Transient`) fails the job, which is tried again. What
is the record's own is tried again in place as `retry` says, then `on_error` decides: `queue`, `skip` or `fail`. A call
that takes longer than `time_limit_seconds` counts as a failure on its record.

**At least once.** After a crash a record is seen again. Give side effects an idempotency key: `context.did` and
`record["seq"]`.

`transform` runs in Spark's Python processes, in many of them at once; one object sees many records of a partition, one
after the other. This room knows no Spark and no Arrow.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from forebay.flows.action import PythonAction

MESSAGE_COLUMNS = ("did", "seq", "partition", "transaction_id", "trace_id", "headers", "created_at")
"""What a message has by itself, beside its payload."""


@dataclass(frozen=True, slots=True)
class Result:
    """A row for the next action or the sink: values by column, and notes about the record, which are kept apart."""

    values: Mapping[str, Any]
    annotations: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Results:
    """Several rows that one record becomes."""

    results: Sequence[Result | Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Filter:
    """The record is not wanted. Records are counted by their reason: let there be few different ones."""

    reason: str


@dataclass(frozen=True, slots=True)
class Error:
    """The record is bad; the cause says why, to a reader of the error queue."""

    cause: str


Outcome = Result | Results | Filter | Error | Mapping[str, Any]


class Record(Mapping[str, Any]):
    """One record: its columns by name. It is read only."""

    __slots__ = ("_columns", "_row")

    def __init__(self, columns: Mapping[str, Sequence[Any]], row: int) -> None:
        self._columns = columns
        self._row = row

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Record:
        """A record that stands alone, as a unit test of `transform` needs it: `Record.of({"user": "ann"})`."""
        return cls({name: [value] for name, value in values.items()}, 0)

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(self._columns)

    def __getitem__(self, name: str) -> Any:
        try:
            return self._columns[name][self._row]
        except KeyError:
            raise KeyError(f"no column {name!r}; the columns are {', '.join(self._columns)}") from None

    def __contains__(self, name: object) -> bool:
        return name in self._columns

    def get(self, name: str, default: Any = None) -> Any:
        return self[name] if name in self._columns else default

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        return len(self._columns)

    def __repr__(self) -> str:
        return f"Record({dict(self)!r})"


@dataclass(frozen=True, slots=True)
class RecordContext:
    """Where a record is on its way."""

    action: str = ""
    flow: str = ""
    did: str | None = None
    """The parcel that the record belongs to; None outside `mode: parcels`."""
    attempt: int | None = None
    """How often that parcel was tried, from 1 on; None where it is not known."""


class RecordAction(PythonAction):
    """The base of actions that look at one record at a time."""

    schema: str = ""
    """The columns that a `Result` gives, as DDL: `user STRING, city STRING`."""
    needs: tuple[str, ...] = ()
    """Columns without which the flow is refused when it is compiled."""
    time_limit_seconds: ClassVar[float | None] = None
    """How long one call of `transform` may take. One that takes longer has failed on its record."""

    def open(self) -> None:
        """Called once per partition, in the process that `transform` runs in: connections are made here."""

    def close(self) -> None:
        """Called when the partition has been read, or has failed."""

    def transform(self, record: Record, context: RecordContext) -> Outcome:
        raise NotImplementedError


class BadRecord(Exception):
    """An action called a record bad, or gave a value that does not fit. The message is the cause."""


class RecordTooSlow(Exception):
    """`transform` took longer than `time_limit_seconds` on one record."""


def as_results(returned: object) -> list[Result] | Filter | Error:
    """What `transform` gave, in one form. Raises TypeError for what it must not give."""
    if isinstance(returned, Result):
        return [returned]
    if isinstance(returned, Filter | Error):
        return returned
    if isinstance(returned, Results):
        return [_as_result(one) for one in returned.results] or Filter("no results")
    return [_as_result(returned)]


def _as_result(returned: object) -> Result:
    if isinstance(returned, Result):
        return returned
    if isinstance(returned, Mapping):
        return Result(returned)
    kind = "None" if returned is None else type(returned).__name__
    raise TypeError(f"transform gave {kind}, and not a Result, Results, Filter, Error or a mapping of values")
