"""OTLP over HTTP: metrics, traces and logs as they came in, protobuf, compressed."""

from __future__ import annotations

from typing import Any

from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceResponse
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceResponse
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

from forebay.clock import Clock
from forebay.export.batch import ExportBatch
from forebay.export.compression import Compression, compressed
from forebay.export.destination import TAKEN, Prepared, Receipt
from forebay.export.http_sender import HttpOptions, HttpSender
from forebay.otlp.kinds import Kind

PROTOBUF = "application/x-protobuf"
PATHS = {Kind.METRICS: "/v1/metrics", Kind.TRACES: "/v1/traces", Kind.LOGS: "/v1/logs"}
KINDS = frozenset(PATHS)

_RESPONSES: dict[Kind, tuple[Any, str]] = {
    Kind.METRICS: (ExportMetricsServiceResponse, "rejected_data_points"),
    Kind.TRACES: (ExportTraceServiceResponse, "rejected_spans"),
    Kind.LOGS: (ExportLogsServiceResponse, "rejected_log_records"),
}


class OtlpHttpDestination:
    """A `Destination` that speaks OTLP/HTTP. `url` is the base, without `/v1/metrics`."""

    kinds = KINDS
    is_in_order = False

    def __init__(self, name: str, options: HttpOptions, clock: Clock, *, compression: Compression = "gzip") -> None:
        self.name = name
        self._sender = HttpSender(options, clock)
        self._base, _, query = options.url.partition("?")
        self._base = self._base.rstrip("/")
        self._query = f"?{query}" if query else ""
        self._compression: Compression = compression
        self.is_prepared_inline = compression == "none"

    async def open(self) -> None:
        self._sender.open()

    def prepare(self, batch: ExportBatch) -> Prepared:
        headers = {"Content-Type": PROTOBUF, "Idempotency-Key": batch.key}
        if self._compression != "none":
            headers["Content-Encoding"] = self._compression
        return Prepared(batch, compressed(batch.body, self._compression), headers)

    async def send(self, prepared: Prepared) -> Receipt:
        kind = prepared.batch.kind
        url = f"{self._base}{PATHS[kind]}{self._query}"
        answer = await self._sender.post(url, prepared.body, prepared.headers)
        return receipt_of(kind, answer.body) if answer.content_type == PROTOBUF else TAKEN

    async def close(self) -> None:
        await self._sender.close()


def receipt_of(kind: Kind, body: bytes) -> Receipt:
    """What a destination says that it did not take. An answer that cannot be read is a yes: its status said so."""
    response_type, rejected = _RESPONSES[kind]
    response = response_type()
    try:
        response.ParseFromString(body)
    except DecodeError:
        return TAKEN
    partial = response.partial_success
    return Receipt(getattr(partial, rejected), partial.error_message)
