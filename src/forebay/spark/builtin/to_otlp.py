"""`to_otlp`: rows of data points become messages, each an OTLP metrics request in protobuf.

`forebay.otlp.point_requests` says which columns count and what holds for those that are not there. The rows of a batch
are sorted by time and cut into requests of at most `max_points`; rows of different parcels are never in one request. A
row that is no data point is a bad record. Of the message's own columns only `did` is carried along, because a request
is made of many messages; `partition` is what a receiver would set.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, ClassVar

import pyarrow as pa
from msgspec import Meta

from forebay.errors import Permanent
from forebay.flows.action import ActionParams
from forebay.flows.record_action import Record
from forebay.otlp.kinds import Kind
from forebay.otlp.point_requests import RequestBuilder
from forebay.otlp.points import POINT_COLUMNS
from forebay.spark.arrow_action import ArrowAction, Converted
from forebay.spark.record_columns import Cells, python_values
from forebay.spark.record_sides import DID

_TIMES = ("time", "start_time")


class ToOtlp(ArrowAction):
    """An export with `format: metrics` sends what it makes, to an OTLP or a remote write destination."""

    class Params(ActionParams, frozen=True, kw_only=True):
        max_points: Annotated[int, Meta(ge=1, le=100_000)] = 500

    schema = "payload BINARY, partition STRING"
    needs = ("time", "metric")
    params: Params
    partition: ClassVar[str] = Kind.METRICS.value

    def check(self, schema: pa.Schema) -> None:
        for names, is_kind, wanted in (
            (_TIMES, pa.types.is_timestamp, "TIMESTAMP"),
            (("labels", "resource"), pa.types.is_map, "MAP<STRING, STRING>"),
        ):
            for name in names:
                if name in schema.names and not is_kind(schema.field(name).type):
                    raise Permanent(f"{name} is {schema.field(name).type}, and not {wanted}")

    def convert(self, batch: pa.RecordBatch) -> Converted:
        bad: dict[int, str] = {}
        payloads: list[bytes] = []
        sources: list[int] = []
        points = _point_columns(batch)
        for rows in _by_parcel(batch, points["time"]):
            for first, body in self._requests(points, rows, bad):
                sources.append(first)
                payloads.append(body)
        columns = {
            "payload": pa.array(payloads, pa.binary()),
            "partition": pa.array([self.partition] * len(payloads), pa.string()),
        }
        return Converted(columns, sources, bad, carried=frozenset({DID}))

    def refusal_of(self, row: Mapping[str, Any]) -> str | None:
        """Why a row cannot be sent on, beyond what makes it a data point; None if it can."""
        return None

    def encoded(self, body: bytes) -> bytes:
        """The payload that is made of an OTLP request."""
        return body

    def _requests(
        self, columns: Mapping[str, Sequence[Any]], rows: Sequence[int], bad: dict[int, str]
    ) -> Iterator[tuple[int, bytes]]:
        """The requests of these rows, each with its first row."""
        builder, first = RequestBuilder(), -1
        for row in rows:
            point = Record(columns, row)
            try:
                refusal = self.refusal_of(point)
                if refusal is not None:
                    bad[row] = refusal
                    continue
                builder.add(point)
            except ValueError as fault:
                bad[row] = str(fault)
                continue
            first = row if first < 0 else first
            if builder.points == self.params.max_points:
                yield first, self.encoded(builder.body())
                builder, first = RequestBuilder(), -1
        if builder.points:
            yield first, self.encoded(builder.body())


def _point_columns(batch: pa.RecordBatch) -> Mapping[str, Sequence[Any]]:
    """The columns of data points that there are; times as microseconds."""
    known = {name: batch.column(name) for name in POINT_COLUMNS if name in batch.schema.names}
    return {name: _microseconds(column) if name in _TIMES else python_values(column) for name, column in known.items()}


def _microseconds(column: pa.Array) -> list[int | None]:
    return column.view(pa.int64()).to_pylist()  # type: ignore[no-any-return]


def _by_parcel(batch: pa.RecordBatch, times: Sequence[int | None]) -> list[list[int]]:
    """The rows of each parcel, by time: a series has to reach its destination in order."""
    rows = sorted(range(batch.num_rows), key=lambda row: times[row] or 0)
    dids = Cells(batch).get(DID)
    if dids is None:
        return [rows]
    parcels: dict[str, list[int]] = defaultdict(list)
    for row in rows:
        parcels[dids[row]].append(row)
    return list(parcels.values())
