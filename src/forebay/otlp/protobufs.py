"""The protobuf messages that batches are made of: OTLP's from its own package, Prometheus' WriteRequest described here.

Prometheus publishes no Python package for its remote write protocol, and the part of version 1.0 that is used is small.
Fields that are not described (exemplars, native histograms) are kept by protobuf as they came.
"""

from __future__ import annotations

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError, Message
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from forebay.otlp.kinds import Kind

_Field = descriptor_pb2.FieldDescriptorProto


def _write_request_class() -> type[Message]:
    file = descriptor_pb2.FileDescriptorProto(name="forebay/prometheus_remote_write.proto", package="prometheus")
    for name, fields in {
        "Label": [("name", 1, "string"), ("value", 2, "string")],
        "Sample": [("value", 1, "double"), ("timestamp", 2, "int64")],
        "TimeSeries": [("labels", 1, "Label"), ("samples", 2, "Sample")],
        "WriteRequest": [("timeseries", 1, "TimeSeries")],
    }.items():
        message = file.message_type.add(name=name)
        for field_name, number, kind in fields:
            is_message = kind[0].isupper()
            field = message.field.add(name=field_name, number=number)
            field.label = _Field.LABEL_REPEATED if is_message else _Field.LABEL_OPTIONAL
            field.type = _Field.TYPE_MESSAGE if is_message else getattr(_Field, f"TYPE_{kind.upper()}")
            if is_message:
                field.type_name = f".prometheus.{kind}"
    file.syntax = "proto3"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    found: type[Message] = message_factory.GetMessageClass(pool.FindMessageTypeByName("prometheus.WriteRequest"))
    return found


WriteRequest: Any = _write_request_class()

REQUESTS: dict[Kind, Any] = {
    Kind.METRICS: ExportMetricsServiceRequest,
    Kind.TRACES: ExportTraceServiceRequest,
    Kind.LOGS: ExportLogsServiceRequest,
    Kind.REMOTE_WRITE: WriteRequest,
}

_LEVELS: dict[Kind, tuple[str, ...]] = {
    Kind.METRICS: ("resource_metrics", "scope_metrics", "metrics"),
    Kind.TRACES: ("resource_spans", "scope_spans", "spans"),
    Kind.LOGS: ("resource_logs", "scope_logs", "log_records"),
    Kind.REMOTE_WRITE: ("timeseries", "samples"),
}


def levels_of(kind: Kind) -> tuple[str, ...]:
    """The names of the repeated fields from a request down to its items; below a metric come its data points."""
    return _LEVELS[kind]


def parsed(kind: Kind, body: bytes) -> Any:
    """The request in these bytes. Raises ValueError if they are none."""
    request = REQUESTS[kind]()
    try:
        request.ParseFromString(body)
    except DecodeError as error:
        raise ValueError(f"no {kind} request: {error}") from error
    return request


def points_of(metric: Any) -> Any:
    """The repeated field with a metric's data points; an empty tuple for a metric without any."""
    kind = metric.WhichOneof("data")
    return getattr(metric, kind).data_points if kind else ()


def count_items(kind: Kind, request: Any) -> int:
    """Data points, spans, log records or samples."""
    *outer, inner = _LEVELS[kind]
    groups = [request]
    for level in outer:
        groups = [below for group in groups for below in getattr(group, level)]
    if kind is Kind.METRICS:
        return sum(len(points_of(metric)) for group in groups for metric in getattr(group, inner))
    return sum(len(getattr(group, inner)) for group in groups)
