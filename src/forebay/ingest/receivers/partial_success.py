"""What an OTLP request is answered with that was accepted: nothing, or how much of it the destination cannot take."""

from __future__ import annotations

from google.protobuf import json_format
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceResponse

from forebay.ingest.receivers.decoding import Telemetry


def response_to(telemetry: Telemetry, *, is_json: bool) -> bytes:
    """Only data points are rejected: of traces and logs everything is taken."""
    if not telemetry.rejected:
        return b"{}" if is_json else b""
    response = ExportMetricsServiceResponse()
    response.partial_success.rejected_data_points = telemetry.rejected
    response.partial_success.error_message = telemetry.why_rejected
    return json_format.MessageToJson(response).encode() if is_json else bytes(response.SerializeToString())
