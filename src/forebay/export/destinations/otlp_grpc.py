"""OTLP over gRPC: the same requests as over HTTP, handed to gRPC as the bytes they are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from forebay.export.batch import ExportBatch
from forebay.export.destination import Prepared, Receipt
from forebay.export.destinations.otlp_http import KINDS, receipt_of
from forebay.export.outcome import ErrorClass, SendFailed
from forebay.otlp.kinds import Kind

METHODS = {
    Kind.METRICS: "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export",
    Kind.TRACES: "/opentelemetry.proto.collector.trace.v1.TraceService/Export",
    Kind.LOGS: "/opentelemetry.proto.collector.logs.v1.LogsService/Export",
}

_CODE = grpc.StatusCode
_CLASSES = {
    _CODE.UNAVAILABLE: ErrorClass.NETWORK,
    _CODE.DEADLINE_EXCEEDED: ErrorClass.TIMEOUT,
    _CODE.RESOURCE_EXHAUSTED: ErrorClass.RATE_LIMIT,
    _CODE.UNAUTHENTICATED: ErrorClass.AUTH,
    _CODE.PERMISSION_DENIED: ErrorClass.AUTH,
    _CODE.INVALID_ARGUMENT: ErrorClass.CLIENT_ERROR,
    _CODE.NOT_FOUND: ErrorClass.CLIENT_ERROR,
    _CODE.FAILED_PRECONDITION: ErrorClass.CLIENT_ERROR,
    _CODE.UNIMPLEMENTED: ErrorClass.CLIENT_ERROR,
    _CODE.ALREADY_EXISTS: ErrorClass.CLIENT_ERROR,
}
"""All others are the server's trouble, and are tried again."""


@dataclass(frozen=True, slots=True)
class GrpcOptions:
    endpoint: str
    """`host:port`."""
    headers: Mapping[str, str] = field(default_factory=dict)
    timeout_seconds: float = 30.0
    is_insecure: bool = True
    ca_file: str = ""
    certificate: str = ""
    """Of this client, for a server that asks for one (mutual TLS)."""
    certificate_key: str = ""
    """Its key; empty if that is in the same file."""
    is_compressed: bool = True


class OtlpGrpcDestination:
    """A `Destination` that speaks OTLP/gRPC."""

    kinds = KINDS
    is_in_order = False
    is_prepared_inline = True

    def __init__(self, name: str, options: GrpcOptions) -> None:
        self.name = name
        self._options = options
        self._channel: grpc.aio.Channel | None = None
        self._calls: dict[Kind, Any] = {}

    async def open(self) -> None:
        options = self._options
        compression = grpc.Compression.Gzip if options.is_compressed else grpc.Compression.NoCompression
        limits = [("grpc.max_send_message_length", -1), ("grpc.enable_retries", 0)]
        if options.is_insecure:
            self._channel = grpc.aio.insecure_channel(options.endpoint, limits, compression)
        else:
            key = options.certificate_key or options.certificate
            credentials = grpc.ssl_channel_credentials(
                _content(options.ca_file), _content(key), _content(options.certificate)
            )
            self._channel = grpc.aio.secure_channel(options.endpoint, credentials, limits, compression)
        self._calls = {kind: self._channel.unary_unary(method) for kind, method in METHODS.items()}

    def prepare(self, batch: ExportBatch) -> Prepared:
        return Prepared(batch, batch.body, {"idempotency-key": batch.key})

    async def send(self, prepared: Prepared) -> Receipt:
        kind = prepared.batch.kind
        metadata = [(name.lower(), value) for name, value in {**self._options.headers, **prepared.headers}.items()]
        try:
            answer = await self._calls[kind](prepared.body, timeout=self._options.timeout_seconds, metadata=metadata)
        except grpc.aio.AioRpcError as error:
            raise failure_of(error) from error
        return receipt_of(kind, answer)

    async def close(self) -> None:
        if self._channel is not None:
            await self._channel.close()
            self._channel = None


def _content(path: str) -> bytes | None:
    return Path(path).read_bytes() if path else None


def failure_of(error: grpc.aio.AioRpcError) -> SendFailed:
    """What a gRPC status other than OK means."""
    details = error.details() or ""
    found = _CLASSES.get(error.code(), ErrorClass.SERVER_ERROR)
    if error.code() is _CODE.RESOURCE_EXHAUSTED and "larger than max" in details:
        found = ErrorClass.TOO_LARGE
    return SendFailed(
        found,
        f"gRPC {error.code().name}: {details}",
        retry_after=_retry_after(error),
        is_of_content=error.code() is _CODE.INVALID_ARGUMENT,
    )


def _retry_after(error: grpc.aio.AioRpcError) -> float | None:
    """The delay of a google.rpc.RetryInfo among the details of the status, if there is one."""
    from google.rpc import error_details_pb2, status_pb2

    for name, value in error.trailing_metadata() or ():
        if name == "grpc-status-details-bin" and isinstance(value, bytes):
            status = status_pb2.Status.FromString(value)
            for detail in status.details:
                info = error_details_pb2.RetryInfo()
                if detail.Unpack(info):
                    return float(info.retry_delay.ToTimedelta().total_seconds())
    return None
