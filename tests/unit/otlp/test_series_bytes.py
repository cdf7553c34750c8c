"""Series are written by hand, byte by byte: protobuf's own objects read from them what was put in."""

from __future__ import annotations

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from forebay.otlp.prometheus import Converter
from forebay.otlp.protobufs import WriteRequest

POINTS: list[tuple[int, float, dict[str, str | int | bool]]] = [
    (0, 1.0, {}),
    (1_767_225_600_000, 2.5, {"route": "/orders"}),
    (1_767_225_600_000, 3.5, {"route": "/other"}),
    (1_767_225_600_001, -1.0, {"count": 7, "is": True}),
    (1, 4.0, {"long": "x" * 2000}),
    (2, 5.0, {"long": "y" * 200}),
]


def test_every_time_value_and_label_is_read_again() -> None:
    request = ExportMetricsServiceRequest()
    metric = request.resource_metrics.add().scope_metrics.add().metrics.add(name="load")
    for at_ms, value, attributes in POINTS:
        point = metric.gauge.data_points.add(time_unix_nano=at_ms * 1_000_000, as_double=value)
        for name, text in attributes.items():
            kind = {str: "string_value", int: "int_value", bool: "bool_value"}[type(text)]
            setattr(point.attributes.add(key=name).value, kind, text)
    converter = Converter()
    body = converter.convert(request.SerializeToString()).body
    assert converter.convert(request.SerializeToString()).body == body, "remembered labels are the same"
    found = WriteRequest()
    found.ParseFromString(body)
    read = [
        (one.samples[0].timestamp, one.samples[0].value, {pair.name: pair.value for pair in one.labels})
        for one in found.timeseries
    ]
    expected = [
        (at_ms, value, {"__name__": "load"} | {name: _text(text) for name, text in attributes.items()})
        for at_ms, value, attributes in POINTS
    ]
    assert read == expected


def test_an_attribute_of_empty_text_is_as_one_that_is_not_there() -> None:
    request = ExportMetricsServiceRequest()
    metric = request.resource_metrics.add().scope_metrics.add().metrics.add(name="load")
    point = metric.gauge.data_points.add(time_unix_nano=1_000_000, as_double=1.0)
    point.attributes.add(key="empty").value.string_value = ""
    found = WriteRequest()
    found.ParseFromString(Converter().convert(request.SerializeToString()).body)
    assert {pair.name: pair.value for pair in found.timeseries[0].labels}.get("empty", "") == ""


def _text(value: str | int | bool) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
