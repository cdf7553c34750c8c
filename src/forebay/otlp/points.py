"""Data points as rows: what an OTLP metrics request says, one tuple per point.

| column | of | meaning |
|---|---|---|
| `time`, `start_time` | all | microseconds since 1970; None if the request has none |
| `metric`, `unit`, `scope` | all | the metric's name and unit, the name of the instrumentation scope |
| `kind` | all | `gauge`, `sum`, `histogram`, `exponential_histogram`, `summary` |
| `temporality` | sum, histograms | `cumulative`, `delta`, `unspecified` |
| `is_monotonic` | sum | whether it only grows |
| `value` | gauge, sum | None: nothing was recorded (a stale series) |
| `labels`, `resource` | all | attributes of the point and of the resource, as text |
| `count`, `sum`, `min`, `max` | histograms, summary | None where the point has none; count None: nothing was recorded |
| `buckets`, `bounds` | histogram | one bucket more than bounds, or none of either |
| `quantiles` | summary | pairs of quantile and value |
| `exponential` | exponential histogram | scale, zeros, and the buckets on both sides |

**What a row does not keep:** the nanoseconds below a microsecond, whether a value was an integer (beyond 2^53 its last
digits too), the types of attributes, exemplars, descriptions, a scope's version and attributes, schema URLs.
`point_requests` makes requests of rows again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from forebay.otlp.json_form import from_json
from forebay.otlp.kinds import Kind
from forebay.otlp.prometheus import NO_RECORDED_VALUE, attribute_text
from forebay.otlp.protobufs import parsed

POINT_COLUMNS = (
    "time", "start_time", "metric", "kind", "unit", "temporality", "is_monotonic", "value", "labels", "resource",
    "scope", "count", "sum", "min", "max", "buckets", "bounds", "quantiles", "exponential",
)  # fmt: skip
TEMPORALITIES = ("unspecified", "delta", "cumulative")
"""By their numbers in OTLP."""
COUNT_MAX = 2**63 - 1
Point = tuple[Any, ...]
_NOTHING = (None,) * 8


def metrics_request(body: bytes) -> Any:
    """The request in these bytes, protobuf or JSON. Raises ValueError if they are none."""
    # No protobuf request begins with a brace: it would be the start of a group, which OTLP does not have.
    if body[:1] == b"{":
        return from_json(Kind.METRICS, body)
    try:
        request = parsed(Kind.METRICS, body)
    except ValueError:
        # A line feed and a brace may be either: 123 bytes of protobuf begin like that too.
        if body.lstrip()[:1] == b"{":
            return from_json(Kind.METRICS, body)
        raise
    if body and not request.resource_metrics:
        raise ValueError(f"no metrics request: {len(body)} bytes without resource_metrics")
    return request


def points_of_request(request: Any) -> Iterator[Point]:
    """The points of a request as tuples in the order of `POINT_COLUMNS`. Raises ValueError for one that has no form."""
    for group in request.resource_metrics:
        resource = _texts(group.resource.attributes)
        for below in group.scope_metrics:
            scope = below.scope.name
            for metric in below.metrics:
                yield from _points_of_metric(metric, resource, scope)


def _points_of_metric(metric: Any, resource: dict[str, str], scope: str) -> Iterator[Point]:
    kind = metric.WhichOneof("data")
    if kind is None:
        return
    data = getattr(metric, kind)
    temporality = _temporality(data) if kind not in ("gauge", "summary") else None
    is_monotonic = data.is_monotonic if kind == "sum" else None
    values_of = _VALUES[kind]
    named = (metric.name, kind, metric.unit, temporality, is_monotonic)
    for point in data.data_points:
        value, *rest = (None, *_NOTHING) if point.flags & NO_RECORDED_VALUE else values_of(point)
        times = (point.time_unix_nano // 1000 or None, point.start_time_unix_nano // 1000 or None)
        yield (*times, *named, value, _texts(point.attributes), resource, scope, *rest)


def _temporality(data: Any) -> str:
    number = data.aggregation_temporality
    return TEMPORALITIES[number] if 0 <= number < len(TEMPORALITIES) else TEMPORALITIES[0]


def _texts(attributes: Any) -> dict[str, str]:
    # Nearly all are text that is not empty: asking which kind a value is costs more than reading it.
    return {pair.key: pair.value.string_value or attribute_text(pair.value) for pair in attributes}


def _number(point: Any) -> Point:
    which = point.WhichOneof("value")
    return (None if which is None else float(getattr(point, which)), *_NOTHING)


def _histogram(point: Any) -> Point:
    buckets = [_counted(count) for count in point.bucket_counts]
    return (None, *_sums(point), buckets, list(point.explicit_bounds), None, None)


def _exponential(point: Any) -> Point:
    sides = {
        "scale": point.scale,
        "zero_count": _counted(point.zero_count),
        "zero_threshold": point.zero_threshold,
        "positive_offset": point.positive.offset,
        "positive": [_counted(count) for count in point.positive.bucket_counts],
        "negative_offset": point.negative.offset,
        "negative": [_counted(count) for count in point.negative.bucket_counts],
    }
    return (None, *_sums(point), None, None, None, sides)


def _summary(point: Any) -> Point:
    quantiles = [{"quantile": entry.quantile, "value": entry.value} for entry in point.quantile_values]
    return (None, _counted(point.count), point.sum, None, None, None, None, quantiles, None)


def _sums(point: Any) -> Point:
    sums = (getattr(point, name) if point.HasField(name) else None for name in ("sum", "min", "max"))
    return (_counted(point.count), *sums)


def _counted(count: int) -> int:
    if count > COUNT_MAX:
        raise ValueError(f"a count of {count}, more than {COUNT_MAX}")
    return count


_VALUES: dict[str, Callable[[Any], Point]] = {
    "gauge": _number,
    "sum": _number,
    "histogram": _histogram,
    "exponential_histogram": _exponential,
    "summary": _summary,
}
KINDS = tuple(_VALUES)
