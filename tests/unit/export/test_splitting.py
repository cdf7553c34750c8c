"""Halves hold what the whole held, in order, down to one item."""

from __future__ import annotations

from typing import Any

import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from forebay.export.batch import ExportBatch, ExportMessage, MessageBatch
from forebay.export.splitting import halves
from forebay.otlp.kinds import Kind
from forebay.otlp.protobufs import WriteRequest, count_items, parsed, points_of


def metrics(resources: int, scopes: int, names: int, points: int) -> Any:
    request = ExportMetricsServiceRequest()
    number = 0
    for resource in range(resources):
        group = request.resource_metrics.add()
        group.resource.attributes.add(key="host").value.string_value = f"h{resource}"
        for scope in range(scopes):
            scoped = group.scope_metrics.add()
            scoped.scope.name = f"s{scope}"
            for name in range(names):
                metric = scoped.metrics.add(name=f"m{name}")
                for _ in range(points):
                    metric.gauge.data_points.add(as_int=number)
                    number += 1
    return request


def values(batch: ExportBatch) -> list[int]:
    request = parsed(batch.kind, batch.body)
    scopes = [scope for group in request.resource_metrics for scope in group.scope_metrics]
    return [point.as_int for scope in scopes for metric in scope.metrics for point in points_of(metric)]


def leaves(batch: ExportBatch) -> list[ExportBatch]:
    parts = halves(batch)
    return [leaf for part in parts for leaf in leaves(part)] if parts else [batch]


@pytest.mark.parametrize("shape", [(3, 2, 2, 2), (1, 3, 1, 1), (1, 1, 4, 3), (1, 1, 1, 9), (1, 1, 1, 1), (5, 1, 1, 1)])
def test_metrics_are_split_down_to_one_data_point(shape: tuple[int, int, int, int]) -> None:
    request = metrics(*shape)
    whole = ExportBatch(Kind.METRICS, request.SerializeToString(), count_items(Kind.METRICS, request), 1, "key")
    parts = leaves(whole)
    assert all(part.items == len(values(part)) == 1 for part in parts)
    assert [values(part)[0] for part in parts] == values(whole) == list(range(whole.items))
    assert len({part.key for part in parts}) == len(parts)
    assert all(part.key.startswith("key") and part.accepted_us == 1 for part in parts)
    first = parsed(Kind.METRICS, parts[0].body)
    assert first.resource_metrics[0].resource.attributes[0].value.string_value == "h0"
    assert first.resource_metrics[0].scope_metrics[0].metrics[0].name == "m0"


def test_splitting_again_gives_the_same_keys() -> None:
    request = metrics(4, 1, 1, 1)
    whole = ExportBatch(Kind.METRICS, request.SerializeToString(), 4, 1, "key")
    assert [part.key for part in leaves(whole)] == [part.key for part in leaves(whole)]


def test_traces_logs_and_series_are_split_down_to_one_item() -> None:
    traces = ExportTraceServiceRequest()
    logs = ExportLogsServiceRequest()
    series = WriteRequest()
    spans = traces.resource_spans.add().scope_spans.add().spans
    records = logs.resource_logs.add().scope_logs.add().log_records
    for number in range(5):
        spans.add(name=str(number))
        records.add(severity_text=str(number))
        series.timeseries.add().samples.add(value=number, timestamp=number)
    series.timeseries[0].samples.add(value=9, timestamp=9)
    for kind, request, items in ((Kind.TRACES, traces, 5), (Kind.LOGS, logs, 5), (Kind.REMOTE_WRITE, series, 6)):
        assert count_items(kind, request) == items
        parts = leaves(ExportBatch(kind, request.SerializeToString(), items, 1))
        assert [part.items for part in parts] == [1] * items


def test_messages_are_split_down_to_one() -> None:
    messages = [ExportMessage("q", "p", seq, str(seq), 0, b"{}") for seq in range(7)]
    parts = leaves(MessageBatch(messages, 1, "key"))
    assert all(isinstance(part, MessageBatch) for part in parts)
    assert [part.messages[0].seq for part in parts if isinstance(part, MessageBatch)] == list(range(7))


def test_an_empty_request_has_no_halves() -> None:
    assert halves(ExportBatch(Kind.METRICS, b"", 0, 1)) == []


def test_requests_that_are_joined_byte_by_byte_are_one_request() -> None:
    """What the metrics buffer relies on: a batch is made of requests without decoding them."""
    one, two = metrics(1, 1, 2, 1), metrics(2, 1, 1, 1)
    joined = parsed(Kind.METRICS, one.SerializeToString() + two.SerializeToString())
    assert count_items(Kind.METRICS, joined) == 4
    assert len(joined.resource_metrics) == 3


@pytest.mark.parametrize("body", [b"\x0a\xff", b"no protobuf at all", b"\x0a\x05\x01"])
def test_bytes_that_are_no_request_are_refused(body: bytes) -> None:
    with pytest.raises(ValueError, match="no metrics request"):
        parsed(Kind.METRICS, body)
