"""OTLP metrics as Prometheus series: the table of `forebay.otlp.prometheus`, and an obvious conversion beside it."""

from __future__ import annotations

import math
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from forebay.otlp.prometheus import Converter, clean_labels, prometheus_name, without_form
from forebay.otlp.protobufs import WriteRequest

AT_MS = 1_700_000_000_000
Found = list[tuple[dict[str, str], float, int]]


def converted(request: Any, converter: Converter | None = None) -> Found:
    return series((converter or Converter()).convert(request.SerializeToString()).body)


def series(body: bytes) -> Found:
    found = []
    for one in WriteRequest.FromString(body).timeseries:
        names = [label.name for label in one.labels]
        assert names == sorted(set(names)), "labels are sorted, each name once"
        [sample] = one.samples
        found.append(({label.name: label.value for label in one.labels}, sample.value, sample.timestamp))
    return found


def request_with(**attributes: str) -> tuple[Any, Any]:
    """A request, and where its metrics are added."""
    request = ExportMetricsServiceRequest()
    group = request.resource_metrics.add()
    for key, value in attributes.items():
        group.resource.attributes.add(key=key.replace("__", ".")).value.string_value = value
    return request, group.scope_metrics.add().metrics


def add_point(points: Any, **fields: Any) -> Any:
    attributes = fields.pop("attributes", {})
    point = points.add(time_unix_nano=AT_MS * 1_000_000, **fields)
    for key, value in attributes.items():
        point.attributes.add(key=key).value.string_value = value
    return point


@pytest.mark.parametrize(
    ("name", "unit", "kind", "expected"),
    [
        ("http.server.duration", "ms", "histogram", "http_server_duration_milliseconds"),
        ("http.server.duration_seconds", "s", "histogram", "http_server_duration_seconds"),
        ("in_milliseconds_waited", "s", "gauge", "in_milliseconds_waited_seconds"),
        ("requests", "", "counter", "requests_total"),
        ("requests.total", "{request}", "counter", "requests_total"),
        ("total.requests", "1", "counter", "requests_total"),
        ("sent", "By", "counter", "sent_bytes_total"),
        ("utilization", "1", "gauge", "utilization_ratio"),
        ("speed", "m/s", "gauge", "speed_meters_per_second"),
        ("rate", "{packet}/s", "gauge", "rate_per_second"),
        ("odd", "foo~bar", "gauge", "odd_foo_bar"),
        ("2xx", "", "gauge", "_2xx"),
        ("__a..b--c__", "", "gauge", "a_b_c"),
        ("ns:rule", "", "gauge", "ns:rule"),
        ("temperature", "Cel", "gauge", "temperature_celsius"),
        ("größe", "", "gauge", "gr_e"),
    ],
)
def test_names(name: str, unit: str, kind: str, expected: str) -> None:
    assert prometheus_name(name, unit, is_counter=kind == "counter", is_gauge=kind == "gauge") == expected


def test_resource_is_job_instance_and_target_info() -> None:
    resource = {"service__name": "shop", "service__namespace": "eu", "service__instance__id": "i1", "host": "h"}
    request, metrics = request_with(**resource)
    add_point(metrics.add(name="up").gauge.data_points, as_int=1)
    identity = {"job": "eu/shop", "instance": "i1"}
    assert converted(request) == [
        ({"__name__": "up", **identity}, 1.0, AT_MS),
        ({"__name__": "target_info", "host": "h", **identity}, 1.0, AT_MS),
    ]


def test_histogram_has_cumulative_buckets_the_last_of_which_is_its_count() -> None:
    request, metrics = request_with()
    data = metrics.add(name="took", unit="s").histogram
    data.aggregation_temporality = 2
    add_point(data.data_points, count=6, sum=2.5, bucket_counts=[1, 2, 3], explicit_bounds=[0.5, 1])
    add_point(data.data_points, count=4, attributes={"x": "without buckets"})
    add_point(data.data_points, count=9, bucket_counts=[1], explicit_bounds=[1, 2], attributes={"x": "broken"})
    found = [(labels["__name__"], labels.get("le"), value) for labels, value, _ in converted(request)]
    assert found == [
        ("took_seconds_bucket", "0.5", 1),
        ("took_seconds_bucket", "1", 3),
        ("took_seconds_bucket", "+Inf", 6),
        ("took_seconds_sum", None, 2.5),
        ("took_seconds_count", None, 6),
        ("took_seconds_bucket", "+Inf", 4),
        ("took_seconds_count", None, 4),
        ("took_seconds_bucket", "1", 1),
        ("took_seconds_bucket", "+Inf", 9),
        ("took_seconds_count", None, 9),
    ]


def test_summary() -> None:
    request, metrics = request_with()
    point = add_point(metrics.add(name="took").summary.data_points, count=3, sum=6.0)
    point.quantile_values.add(quantile=0.99, value=4.0)
    found = [(labels["__name__"], labels.get("quantile"), value) for labels, value, _ in converted(request)]
    assert found == [("took", "0.99", 4.0), ("took_sum", None, 6.0), ("took_count", None, 3.0)]


def test_no_recorded_value_is_the_stale_marker_in_every_sample() -> None:
    request, metrics = request_with()
    add_point(metrics.add(name="up").gauge.data_points, flags=1)
    data = metrics.add(name="took").histogram
    data.aggregation_temporality = 2
    add_point(data.data_points, flags=1)
    bits = {struct.pack("<d", value) for _, value, _ in converted(request)}
    assert bits == {struct.pack("<Q", 0x7FF0000000000002)}


def test_what_has_no_form_is_rejected_with_its_reason_and_the_rest_is_converted() -> None:
    request, metrics = request_with()
    delta = metrics.add(name="delta").sum
    delta.aggregation_temporality = 1
    for _ in range(3):
        add_point(delta.data_points, as_int=1)
    add_point(metrics.add(name="exponential").exponential_histogram.data_points)
    add_point(metrics.add(name="").gauge.data_points, as_int=1)
    metrics.add(name="empty")
    add_point(metrics.add(name="fine").gauge.data_points, as_int=1)
    found = Converter().convert(request.SerializeToString())
    assert (found.samples, found.rejected) == (1, 5)
    assert found.reasons == {
        "sums have to be cumulative",
        "exponential histograms have no form in remote write 1.0",
        "a metric needs a name",
    }
    assert without_form(request) == (found.rejected, found.reasons)


def test_what_has_a_form_is_not_said_to_have_none() -> None:
    request, metrics = request_with()
    add_point(metrics.add(name="fine").gauge.data_points, as_int=1)
    metrics.add(name="empty").exponential_histogram.SetInParent()
    assert without_form(request) == (0, set())


def test_attributes_give_way_to_labels_of_our_own_and_join_when_their_names_become_the_same() -> None:
    request, metrics = request_with(service__name="shop")
    given = {"__name__": "evil", "job": "evil", "le": "evil", "a.b": "2", "a-b": "1", "1st": "x", "": "y", "none": ""}
    data = metrics.add(name="took").histogram
    data.aggregation_temporality = 2
    add_point(data.data_points, count=1, attributes=given)
    add_point(metrics.add(name="up").gauge.data_points, as_int=1, attributes=given)
    (bucket, *_), (count, *_), (gauge, *_) = converted(request)
    common = {"job": "shop", "a_b": "1;2", "key_1st": "x"}
    assert bucket == {"__name__": "took_bucket", "le": "+Inf", **common}
    assert count == {"__name__": "took_count", "le": "evil", **common}
    assert gauge == {"__name__": "up", "le": "evil", **common}


def test_cache_has_a_bound_and_what_it_forgets_is_made_again() -> None:
    converter = Converter(series_max=3)
    request, metrics = request_with()
    for number in range(10):
        add_point(metrics.add(name="up").gauge.data_points, as_int=1, attributes={"n": str(number)})
    first, second = converted(request, converter), converted(request, converter)
    assert first == second
    assert [labels["n"] for labels, *_ in first] == [str(number) for number in range(10)]
    assert len(converter._encoded) <= 3


TEXT = st.text(st.characters(codec="utf-8"), max_size=8)
ATTRIBUTES = st.dictionaries(
    st.sampled_from(["a", "a.b", "a_b", "le", "job", "__name__", "ä", "0"]) | TEXT, TEXT, max_size=4
)
POINT = st.tuples(ATTRIBUTES, st.floats(allow_nan=False), st.integers(0, 2**63 - 1))
METRIC = st.tuples(
    st.sampled_from(["up", "http.took", "ns:x"]), st.sampled_from(["", "s", "By"]), st.lists(POINT, max_size=4)
)
RESOURCE = st.tuples(ATTRIBUTES | st.just({"service.name": "shop", "host": "h"}), st.lists(METRIC, max_size=3))


@given(st.lists(RESOURCE, max_size=3))
def test_hand_written_bytes_are_what_an_obvious_conversion_makes(resources: Any) -> None:
    request = ExportMetricsServiceRequest()
    expected: Found = []
    for attributes, metrics in resources:
        group = request.resource_metrics.add()
        for key, value in attributes.items():
            group.resource.attributes.add(key=key).value.string_value = value
        identity = {"job": attributes["service.name"]} if attributes.get("service.name") else {}
        newest = 0
        scope = group.scope_metrics.add()
        for name, unit, points in metrics:
            metric = scope.metrics.add(name=name, unit=unit)
            for labels, value, at_ns in points:
                point = metric.gauge.data_points.add(time_unix_nano=at_ns, as_double=value)
                for key, text in labels.items():
                    point.attributes.add(key=key).value.string_value = text
                own = {"__name__": prometheus_name(name, unit, is_counter=False, is_gauge=True), **identity}
                expected.append((clean_labels(list(labels.items())) | own, value, at_ns // 1_000_000))
                newest = max(newest, at_ns // 1_000_000)
        rest = [(key, value) for key, value in attributes.items() if key != "service.name"]
        if rest and identity and newest:
            expected.append((clean_labels(rest) | {"__name__": "target_info"} | identity, 1.0, newest))
    assert converted(request) == expected
    assert all(not math.isnan(value) for _, value, _ in expected)
