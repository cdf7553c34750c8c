"""OTLP over gRPC on a port of its own. Requests are taken as bytes; gzip is gRPC's business."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from functools import partial
from typing import Any

import grpc
import grpc.aio
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.duration_pb2 import Duration
from google.rpc.error_details_pb2 import RetryInfo
from google.rpc.status_pb2 import Status

from forebay.errors import ForebayError
from forebay.ingest.receivers.decoding import BodyRefused, Telemetry, decoded
from forebay.ingest.receivers.in_flight import InFlight
from forebay.ingest.receivers.intake_sink import RETRY_SECONDS, Accept, status_of
from forebay.ingest.receivers.otlp_http import DECODED_INLINE_BYTES
from forebay.ingest.receivers.partial_success import response_to
from forebay.otlp.kinds import Kind

SERVICES = {
    "opentelemetry.proto.collector.metrics.v1.MetricsService": Kind.METRICS,
    "opentelemetry.proto.collector.trace.v1.TraceService": Kind.TRACES,
    "opentelemetry.proto.collector.logs.v1.LogsService": Kind.LOGS,
}
_log = logging.getLogger("forebay.receivers")
_CODE = grpc.StatusCode
_CODES = {
    400: _CODE.INVALID_ARGUMENT,
    404: _CODE.UNIMPLEMENTED,
    413: _CODE.RESOURCE_EXHAUSTED,
    429: _CODE.RESOURCE_EXHAUSTED,
    503: _CODE.UNAVAILABLE,
}


class GrpcReceiver:
    """A gRPC server with those services of OTLP whose `kinds` are wanted. `requests` are counted by the HTTP status
    that stands for theirs, accepted `items` by kind."""

    def __init__(
        self,
        name: str,
        host: str,
        port: int,
        accept: Accept,
        size_max: int,
        kinds: frozenset[Kind],
        in_flight: InFlight,
        *,
        is_for_prometheus: bool = False,
    ) -> None:
        self.name = name
        self.requests: Counter[int] = Counter()
        self.items: Counter[str] = Counter()
        self.port = port
        self._host = host
        self._accept = accept
        self._size_max = size_max
        self._kinds = kinds
        self._in_flight = in_flight
        self._is_for_prometheus = is_for_prometheus
        self._server: Any = None

    async def start(self) -> None:
        """Listen. Raises OSError if the address is taken."""
        options = [("grpc.max_receive_message_length", self._size_max), ("grpc.so_reuseport", 0)]
        server = grpc.aio.server(options=options)
        for service, kind in SERVICES.items():
            if kind not in self._kinds:
                continue
            method = grpc.unary_unary_rpc_method_handler(self._export(kind))
            server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, {"Export": method}),))
        try:
            port = server.add_insecure_port(f"{self._host}:{self.port}")
        except RuntimeError as error:
            raise OSError(f"cannot listen on {self._host}:{self.port}: {error}") from error
        if not port:
            raise OSError(f"cannot listen on {self._host}:{self.port}")
        self.port = port
        await server.start()
        self._server = server

    async def stop(self) -> None:
        if self._server is not None:
            await self._server.stop(5.0)
            self._server = None

    def _export(self, kind: Kind) -> Any:
        async def export(body: bytes, context: Any) -> bytes:
            try:
                with self._in_flight.request() as share:
                    share.add(len(body))
                    telemetry = await self._decoded(kind, body)
                    await self._accept(telemetry)
            except BodyRefused as refused:
                await self._abort(context, refused.status, refused.message)
            except ForebayError as error:
                await self._abort(context, status_of(error), str(error))
            except Exception:  # noqa: BLE001 - logged, counted and answered
                _log.exception("%s: a bug", self.name, extra={"action": "receiver_failed"})
                await self._abort(context, 500, "an error of this server, see its log")
            else:
                self.items[kind] += telemetry.items
                self.requests[200] += 1
                return response_to(telemetry, is_json=False)
            return b""

        return export

    async def _decoded(self, kind: Kind, body: bytes) -> Telemetry:
        judge = partial(decoded, kind, body, is_json=False, is_for_prometheus=self._is_for_prometheus)
        return judge() if len(body) <= DECODED_INLINE_BYTES else await asyncio.to_thread(judge)

    async def _abort(self, context: Any, status: int, message: str) -> None:
        self.requests[status] += 1
        code = _CODES.get(status, _CODE.INTERNAL)
        if status in (429, 503):
            detail = AnyMessage()
            detail.Pack(RetryInfo(retry_delay=Duration(seconds=RETRY_SECONDS)))
            details = Status(code=code.value[0], message=message, details=[detail]).SerializeToString()
            context.set_trailing_metadata((("grpc-status-details-bin", details),))
        await context.abort(code, message)
