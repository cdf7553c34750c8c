"""`otlp_metrics`: OTLP metrics requests become rows, one per data point. `forebay.otlp.points` describes the columns.

A message is what a receiver stores, an ExportMetricsServiceRequest in protobuf, or one in OTLP's JSON that was pushed
by hand. A payload that is neither is a bad record. A request without points gives no row.
"""

from __future__ import annotations

import pyarrow as pa

from forebay.errors import Permanent
from forebay.flows.action import ActionParams
from forebay.otlp.points import POINT_COLUMNS, Point, metrics_request, points_of_request
from forebay.spark.arrow_action import ArrowAction, Converted
from forebay.spark.record_columns import as_nullable

_TIME = pa.timestamp("us", tz="UTC")
_TEXTS = pa.map_(pa.string(), pa.string())
_COUNTS = pa.list_(pa.int64())
_TYPES = {
    "time": _TIME,
    "start_time": _TIME,
    "is_monotonic": pa.bool_(),
    "value": pa.float64(),
    "labels": _TEXTS,
    "resource": _TEXTS,
    "count": pa.int64(),
    "sum": pa.float64(),
    "min": pa.float64(),
    "max": pa.float64(),
    "buckets": _COUNTS,
    "bounds": pa.list_(pa.float64()),
    "quantiles": pa.list_(pa.struct([("quantile", pa.float64()), ("value", pa.float64())])),
    "exponential": pa.struct(
        [
            ("scale", pa.int32()),
            ("zero_count", pa.int64()),
            ("zero_threshold", pa.float64()),
            ("positive_offset", pa.int32()),
            ("positive", _COUNTS),
            ("negative_offset", pa.int32()),
            ("negative", _COUNTS),
        ]
    ),
}
POINT_TYPES = {name: as_nullable(_TYPES.get(name, pa.string())) for name in POINT_COLUMNS}


class OtlpMetrics(ArrowAction):
    """Takes `column`, which is bytes or text."""

    class Params(ActionParams, frozen=True, kw_only=True):
        column: str = "payload"

    schema = (
        "time TIMESTAMP, start_time TIMESTAMP, metric STRING, kind STRING, unit STRING, temporality STRING, "
        "is_monotonic BOOLEAN, value DOUBLE, labels MAP<STRING, STRING>, resource MAP<STRING, STRING>, scope STRING, "
        "count BIGINT, sum DOUBLE, min DOUBLE, max DOUBLE, buckets ARRAY<BIGINT>, bounds ARRAY<DOUBLE>, "
        "quantiles ARRAY<STRUCT<quantile: DOUBLE, value: DOUBLE>>, exponential STRUCT<scale: INT, zero_count: BIGINT, "
        "zero_threshold: DOUBLE, positive_offset: INT, positive: ARRAY<BIGINT>, negative_offset: INT, "
        "negative: ARRAY<BIGINT>>"
    )
    params: Params

    def __init__(self, params: Params) -> None:
        super().__init__(params)
        self.needs = (params.column,)

    def check(self, schema: pa.Schema) -> None:
        kind = schema.field(self.params.column).type
        if not (pa.types.is_binary(kind) or pa.types.is_string(kind)):
            raise Permanent(f"{self.params.column} is {kind}, and not BINARY or STRING")

    def convert(self, batch: pa.RecordBatch) -> Converted:
        points: list[Point] = []
        sources: list[int] = []
        bad: dict[int, str] = {}
        for row, payload in enumerate(batch.column(self.params.column).to_pylist()):
            try:
                found = list(points_of_request(metrics_request(_as_bytes(payload))))
            except ValueError as fault:
                bad[row] = str(fault)
                continue
            points += found
            sources += [row] * len(found)
        return Converted(_columns(points), sources, bad)


def _as_bytes(payload: bytes | str | None) -> bytes:
    if payload is None:
        raise ValueError("no metrics request: null")
    return payload.encode() if isinstance(payload, str) else payload


def _columns(points: list[Point]) -> dict[str, pa.Array]:
    values = zip(*points, strict=True) if points else ((),) * len(POINT_COLUMNS)
    return {name: _column(name, list(column)) for name, column in zip(POINT_COLUMNS, values, strict=True)}


def _column(name: str, values: list[object]) -> pa.Array:
    kind = POINT_TYPES[name]
    return pa.array(values, pa.int64()).view(kind) if pa.types.is_timestamp(kind) else pa.array(values, kind)
