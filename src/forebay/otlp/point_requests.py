"""Rows of data points to OTLP requests again; `points` describes the columns.

Only `time` and `metric` have to be there, and what the kind of a point is made of. So SQL may compute rows of its own:

    SELECT max(time) AS time, metric, labels, sum(value) AS value FROM input GROUP BY metric, labels

| a column that is null or not there | counts as |
|---|---|
| `kind` | `gauge` |
| `temporality` of a sum or a histogram | `cumulative` |
| `is_monotonic` | false |
| `labels`, `resource`, `scope`, `unit`, `start_time` | none |
| `value` of a gauge or a sum, `count` of the others | nothing was recorded: a stale series |

A label whose value is null is left out. Points of a request share resource, scope and metric where these are equal.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from opentelemetry.proto.metrics.v1.metrics_pb2 import (
    ExponentialHistogramDataPoint,
    HistogramDataPoint,
    NumberDataPoint,
    SummaryDataPoint,
)

from forebay.otlp.kinds import Kind
from forebay.otlp.points import KINDS, TEMPORALITIES
from forebay.otlp.prometheus import NO_RECORDED_VALUE
from forebay.otlp.protobufs import REQUESTS

CUMULATIVE = TEMPORALITIES.index("cumulative")
Row = Mapping[str, Any]
Attributes = tuple[tuple[str, str], ...]


class RequestBuilder:
    """Collects points for one request."""

    def __init__(self) -> None:
        self.points = 0
        self._request = REQUESTS[Kind.METRICS]()
        self._resources: dict[Attributes, Any] = {}
        self._scopes: dict[tuple[Attributes, str], Any] = {}
        self._metrics: dict[tuple[Any, ...], Any] = {}

    def add(self, row: Row) -> None:
        """Add a point. Raises ValueError for a row that is none; the request is as before then."""
        kind = row.get("kind") or "gauge"
        if kind not in KINDS:
            raise ValueError(f"kind is {kind!r}; it may be {', '.join(KINDS)}")
        name = row.get("metric")
        if not name:
            raise ValueError("metric is null or empty")
        try:
            point = _point(kind, row)
            data = self._data(kind, str(name), row)
        except (TypeError, OverflowError) as misfit:
            raise ValueError(str(misfit)) from misfit
        data.data_points.append(point)
        self.points += 1

    def body(self) -> bytes:
        return bytes(self._request.SerializeToString())

    def _data(self, kind: str, name: str, row: Row) -> Any:
        """The list of points of the metric, made with what is around it if it is new."""
        resource, scope, unit = row.get("resource") or {}, row.get("scope") or "", row.get("unit") or ""
        temporality = _temporality(row) if kind not in ("gauge", "summary") else None
        is_monotonic = bool(row.get("is_monotonic")) if kind == "sum" else None
        place = (tuple(sorted((key, str(value)) for key, value in resource.items() if value is not None)), scope)
        key = (place, name, unit, kind, temporality, is_monotonic)
        data = self._metrics.get(key)
        if data is None:
            metric = self._scope(place).metrics.add(name=name, unit=unit)
            data = getattr(metric, kind)
            data.SetInParent()
            if temporality is not None:
                data.aggregation_temporality = temporality
            if is_monotonic is not None:
                data.is_monotonic = is_monotonic
            self._metrics[key] = data
        return data

    def _scope(self, place: tuple[Attributes, str]) -> Any:
        attributes, scope = place
        found = self._scopes.get(place)
        if found is None:
            resource = self._resources.get(attributes)
            if resource is None:
                resource = self._resources[attributes] = self._request.resource_metrics.add()
                resource.resource.SetInParent()
                _set_attributes(resource.resource, dict(attributes))
            found = self._scopes[place] = resource.scope_metrics.add()
            found.scope.name = scope
        return found


def _temporality(row: Row) -> int:
    name = row.get("temporality")
    if name is None:
        return CUMULATIVE
    if name not in TEMPORALITIES:
        raise ValueError(f"temporality is {name!r}; it may be {', '.join(TEMPORALITIES)}")
    return TEMPORALITIES.index(name)


def _point(kind: str, row: Row) -> Any:
    point = _POINTS[kind]()
    point.time_unix_nano = _nanoseconds(row, "time")
    if row.get("start_time") is not None:
        point.start_time_unix_nano = _nanoseconds(row, "start_time")
    _set_attributes(point, row.get("labels") or {})
    if row.get("value" if kind in ("gauge", "sum") else "count") is None:
        point.flags = NO_RECORDED_VALUE
        return point
    if kind in ("gauge", "sum"):
        point.as_double = float(row["value"])
        return point
    point.count = row["count"]
    for name in ("sum",) if kind == "summary" else ("sum", "min", "max"):
        if row.get(name) is not None:
            setattr(point, name, row[name])
    if kind == "histogram":
        _set_buckets(point, row)
    elif kind == "summary":
        for entry in row.get("quantiles") or ():
            point.quantile_values.add(quantile=entry["quantile"], value=entry["value"])
    else:
        _set_exponential(point, row)
    return point


def _nanoseconds(row: Row, name: str) -> int:
    microseconds = row.get(name)
    if microseconds is None or microseconds < 0:
        raise ValueError(f"{name} is {'null' if microseconds is None else 'before 1970'}")
    return int(microseconds) * 1000


def _set_buckets(point: Any, row: Row) -> None:
    buckets, bounds = row.get("buckets") or (), row.get("bounds") or ()
    if len(buckets) != len(bounds) + 1 and (buckets or bounds):
        raise ValueError(f"{len(buckets)} buckets and {len(bounds)} bounds; there has to be a bucket more than bounds")
    point.bucket_counts.extend(buckets)
    point.explicit_bounds.extend(bounds)


def _set_exponential(point: Any, row: Row) -> None:
    sides = row.get("exponential")
    if sides is None:
        raise ValueError("exponential is null")
    point.scale = sides["scale"]
    point.zero_count = sides["zero_count"] or 0
    if sides["zero_threshold"] is not None:  # -0.0 is another number than 0.0 on the wire
        point.zero_threshold = sides["zero_threshold"]
    for name in ("positive", "negative"):
        side = getattr(point, name)
        side.offset = sides[f"{name}_offset"] or 0
        side.bucket_counts.extend(sides[name] or ())


def _set_attributes(target: Any, texts: Mapping[str, Any]) -> None:
    for key, text in texts.items():
        if text is not None:
            target.attributes.add(key=key).value.string_value = str(text)


_POINTS: dict[str, Any] = {
    "gauge": NumberDataPoint,
    "sum": NumberDataPoint,
    "histogram": HistogramDataPoint,
    "exponential_histogram": ExponentialHistogramDataPoint,
    "summary": SummaryDataPoint,
}
