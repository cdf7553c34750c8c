"""What a batch of telemetry is."""

from __future__ import annotations

from enum import StrEnum


class Kind(StrEnum):
    """What the body of a batch is."""

    METRICS = "metrics"
    """An OTLP ExportMetricsServiceRequest, protobuf; items are data points."""
    TRACES = "traces"
    """An OTLP ExportTraceServiceRequest; items are spans."""
    LOGS = "logs"
    """An OTLP ExportLogsServiceRequest; items are log records."""
    REMOTE_WRITE = "remote_write"
    """A Prometheus WriteRequest 1.0, protobuf, not compressed; items are samples."""
    MESSAGES = "messages"
    """Messages of a queue, each an item. Such a batch is never written to a send queue's disk."""
