"""Data points become rows and requests again, and are the same points."""

from __future__ import annotations

import json
from typing import Any

import pytest
from google.protobuf import json_format
from hypothesis import given
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality

from fixtures.metrics_requests import points, requests, sdk_request
from forebay.otlp.point_requests import RequestBuilder
from forebay.otlp.points import COUNT_MAX, POINT_COLUMNS, metrics_request, points_of_request


def rows_of(body: bytes) -> list[dict[str, Any]]:
    found = points_of_request(metrics_request(body))
    return [dict(zip(POINT_COLUMNS, point, strict=True)) for point in found]


def request_of(rows: list[dict[str, Any]]) -> bytes:
    builder = RequestBuilder()
    for row in rows:
        builder.add(row)
    assert builder.points == len(rows)
    return builder.body()


@given(requests())
def test_points_are_the_same_behind_rows(request: ExportMetricsServiceRequest) -> None:
    body = bytes(request.SerializeToString())
    assert points(request_of(rows_of(body))) == points(request)


def test_zero_with_a_sign_is_kept() -> None:
    request = ExportMetricsServiceRequest()
    metric = request.resource_metrics.add().scope_metrics.add().metrics.add(name="m")
    metric.exponential_histogram.aggregation_temporality = AggregationTemporality.AGGREGATION_TEMPORALITY_DELTA
    point = metric.exponential_histogram.data_points.add(time_unix_nano=1000, zero_threshold=-0.0)
    point.positive.SetInParent()
    point.negative.SetInParent()
    body = bytes(request.SerializeToString())
    assert points(request_of(rows_of(body))) == points(request)


@pytest.mark.parametrize("is_delta", [False, True])
def test_what_the_sdk_sends_is_the_same_behind_rows(is_delta: bool) -> None:
    body = sdk_request(is_delta=is_delta)
    assert points(request_of(rows_of(body))) == points(body)


def test_rows_say_what_the_sdk_measured() -> None:
    rows = rows_of(sdk_request())
    found = {(row["metric"], row["labels"].get("region")): row for row in rows}
    orders = found["orders", "eu"]
    assert (orders["kind"], orders["unit"], orders["value"]) == ("sum", "1", 5.0)
    assert (orders["temporality"], orders["is_monotonic"]) == ("cumulative", True)
    assert orders["labels"] == {"region": "eu", "is_new": "true"}
    assert orders["resource"] == {"service.name": "shop", "service.instance.id": "shop-1", "replicas": "3"}
    assert orders["scope"] == "shop.meter"
    assert 0 < orders["start_time"] <= orders["time"]
    assert found["open.carts", None]["is_monotonic"] is False
    load = found["load", None]
    assert (load["kind"], load["value"], load["labels"], load["temporality"]) == ("gauge", 0.25, {"cpu": "0"}, None)
    latency = found["latency", None]
    assert (latency["kind"], latency["count"], latency["sum"], latency["value"]) == ("histogram", 3, 713.0, None)
    assert (latency["min"], latency["max"]) == (1.0, 700.0)
    assert sum(latency["buckets"]) == 3
    assert len(latency["buckets"]) == len(latency["bounds"]) + 1
    sizes = found["sizes", None]
    assert (sizes["kind"], sizes["count"], sizes["buckets"]) == ("exponential_histogram", 3, None)
    assert sum(sizes["exponential"]["positive"]) == 3


def test_json_is_read_as_protobuf_is() -> None:
    body = sdk_request()
    written = json_format.MessageToDict(metrics_request(body), use_integers_for_enums=True)
    for around in (b"", b" ", b"\n", b"\r\n\t"):
        assert rows_of(around + json.dumps(written).encode()) == rows_of(body)


def test_protobuf_that_begins_like_json_is_protobuf() -> None:
    request = ExportMetricsServiceRequest()
    metric = request.resource_metrics.add().scope_metrics.add().metrics.add(name="load")
    metric.gauge.data_points.add(time_unix_nano=1000, as_double=1.0)
    metric.description = "x" * (123 - request.resource_metrics[0].ByteSize() - 2)
    body = bytes(request.SerializeToString())
    assert body[:2] == b"\n{"
    assert [row["value"] for row in rows_of(body)] == [1.0]


def test_empty_request_has_no_points() -> None:
    assert rows_of(b"") == rows_of(b"{}") == []


@pytest.mark.parametrize(
    "body", [b"hello", b"\xff\xff", b"{", b"[1]", b'{"resourceMetrics": 1}', sdk_request()[:-3], b"\x10\x01"]
)
def test_bytes_that_are_no_request_are_refused(body: bytes) -> None:
    with pytest.raises(ValueError, match="metrics request"):
        rows_of(body)


def test_count_that_has_no_form_is_refused() -> None:
    request = ExportMetricsServiceRequest()
    metric = request.resource_metrics.add().scope_metrics.add().metrics.add(name="h")
    metric.histogram.data_points.add(time_unix_nano=1, count=2**64 - 1)
    with pytest.raises(ValueError, match=f"more than {COUNT_MAX}"):
        rows_of(request.SerializeToString())


def test_row_of_sql_needs_no_more_than_time_metric_and_value() -> None:
    [row] = rows_of(request_of([{"time": 5, "metric": "load", "value": 1}]))
    assert (row["time"], row["metric"], row["kind"], row["value"]) == (5, "load", "gauge", 1.0)
    [stale] = rows_of(request_of([{"time": 5, "metric": "load", "value": None, "labels": {"a": None, "b": "1"}}]))
    assert (stale["value"], stale["labels"]) == (None, {"b": "1"})
    [total] = rows_of(request_of([{"time": 5, "metric": "n", "kind": "sum", "value": 1}]))
    assert (total["temporality"], total["is_monotonic"]) == ("cumulative", False)


@pytest.mark.parametrize(
    ("row", "why"),
    [
        ({"time": None, "metric": "m"}, "time is null"),
        ({"time": -1, "metric": "m"}, "time is before 1970"),
        ({"time": 1, "metric": None}, "metric is null or empty"),
        ({"time": 1, "metric": "m", "kind": "meter"}, "kind is 'meter'; it may be gauge, sum, histogram"),
        ({"time": 1, "metric": "m", "kind": "sum", "value": 1, "temporality": "x"}, "temporality is 'x'"),
        ({"time": 1, "metric": "m", "value": "much"}, "could not convert"),
        (
            {"time": 1, "metric": "m", "kind": "histogram", "count": 1, "buckets": [1], "bounds": [1.0]},
            "1 buckets and 1",
        ),
        ({"time": 1, "metric": "m", "kind": "histogram", "count": -1}, "-1"),
        ({"time": 1, "metric": "m", "kind": "histogram", "count": 1.5}, "float"),
        ({"time": 1, "metric": "m", "kind": "exponential_histogram", "count": 1}, "exponential is null"),
    ],
)
def test_row_that_is_no_point_is_refused_and_the_request_stays_as_it_was(row: dict[str, Any], why: str) -> None:
    builder = RequestBuilder()
    builder.add({"time": 1, "metric": "good", "value": 1.0})
    before = builder.body()
    with pytest.raises(ValueError, match=why):
        builder.add(row)
    assert (builder.body(), builder.points) == (before, 1)
