"""OTLP over gRPC: what each status of a real server means for a batch."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.duration_pb2 import Duration
from google.rpc.error_details_pb2 import RetryInfo
from google.rpc.status_pb2 import Status

from fixtures.certificates import make_authority, make_certificate, make_client_certificate
from fixtures.destinations import configured
from forebay.export.batch import ExportBatch
from forebay.export.destinations.otlp_grpc import METHODS, GrpcOptions, OtlpGrpcDestination
from forebay.export.outcome import ErrorClass, SendFailed
from forebay.otlp.kinds import Kind
from unit.export.test_splitting import metrics

CODE = grpc.StatusCode
BATCH = ExportBatch(Kind.METRICS, metrics(1, 1, 1, 3).SerializeToString(), 3, 1, "key")


class Collector:
    """Answers every export with one status."""

    def __init__(self, code: grpc.StatusCode, details: str, delay_seconds: int | None) -> None:
        self.code, self.details, self.delay_seconds = code, details, delay_seconds
        self.metadata: dict[str, str | bytes] = {}

    async def export(self, body: bytes, context: Any) -> bytes:
        self.metadata = dict(context.invocation_metadata())
        if self.delay_seconds is not None:
            detail = AnyMessage()
            detail.Pack(RetryInfo(retry_delay=Duration(seconds=self.delay_seconds)))
            status = Status(code=self.code.value[0], message=self.details, details=[detail])
            context.set_trailing_metadata((("grpc-status-details-bin", status.SerializeToString()),))
        await context.abort(self.code, self.details)
        return b""


@asynccontextmanager
async def sending_to(collector: Collector) -> AsyncIterator[OtlpGrpcDestination]:
    service, _, name = METHODS[Kind.METRICS].strip("/").rpartition("/")
    method = grpc.unary_unary_rpc_method_handler(collector.export)
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, {name: method}),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    destination = OtlpGrpcDestination("collector", GrpcOptions(f"127.0.0.1:{port}", {"X-Tenant": "a"}))
    await destination.open()
    try:
        yield destination
    finally:
        await destination.close()
        await server.stop(None)


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (CODE.UNAVAILABLE, ErrorClass.NETWORK),
        (CODE.DEADLINE_EXCEEDED, ErrorClass.TIMEOUT),
        (CODE.INTERNAL, ErrorClass.SERVER_ERROR),
        (CODE.ABORTED, ErrorClass.SERVER_ERROR),
        (CODE.RESOURCE_EXHAUSTED, ErrorClass.RATE_LIMIT),
        (CODE.UNAUTHENTICATED, ErrorClass.AUTH),
        (CODE.PERMISSION_DENIED, ErrorClass.AUTH),
        (CODE.INVALID_ARGUMENT, ErrorClass.CLIENT_ERROR),
        (CODE.UNIMPLEMENTED, ErrorClass.CLIENT_ERROR),
    ],
)
async def test_status_has_its_class_and_only_a_wrong_argument_is_searched_for(
    code: grpc.StatusCode, error: ErrorClass
) -> None:
    collector = Collector(code, "no", None)
    async with sending_to(collector) as destination:
        with pytest.raises(SendFailed, match=f"gRPC {code.name}: no") as failed:
            await destination.send(destination.prepare(BATCH))
    assert failed.value.error is error
    assert failed.value.is_of_content is (code is CODE.INVALID_ARGUMENT)
    assert (collector.metadata["idempotency-key"], collector.metadata["x-tenant"]) == ("key", "a")


async def test_server_that_asks_for_patience_says_for_how_long() -> None:
    async with sending_to(Collector(CODE.RESOURCE_EXHAUSTED, "slow down", 7)) as destination:
        with pytest.raises(SendFailed) as failed:
            await destination.send(destination.prepare(BATCH))
    assert (failed.value.error, failed.value.retry_after) == (ErrorClass.RATE_LIMIT, 7.0)


async def test_message_that_is_larger_than_the_server_takes_is_too_large() -> None:
    details = "Received message larger than max (900 vs 100)"
    async with sending_to(Collector(CODE.RESOURCE_EXHAUSTED, details, None)) as destination:
        with pytest.raises(SendFailed) as failed:
            await destination.send(destination.prepare(BATCH))
    assert failed.value.error is ErrorClass.TOO_LARGE


@asynccontextmanager
async def accepting(credentials: grpc.ServerCredentials | None = None) -> AsyncIterator[int]:
    """A collector that takes everything: its port."""

    async def export(body: bytes, context: Any) -> bytes:
        return b""

    service, _, name = METHODS[Kind.METRICS].strip("/").rpartition("/")
    method = grpc.unary_unary_rpc_method_handler(export)
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, {name: method}),))
    address = "127.0.0.1:0"
    port = server.add_secure_port(address, credentials) if credentials else server.add_insecure_port(address)
    await server.start()
    try:
        yield port
    finally:
        await server.stop(None)


@pytest.mark.parametrize("is_one_file", [False, True])
async def test_a_server_that_asks_for_a_certificate_gets_the_one_of_the_settings(
    is_one_file: bool, tmp_path: Path
) -> None:
    certificate, key = make_certificate(tmp_path)
    authority = make_authority(tmp_path, "clients")
    both = make_client_certificate(tmp_path, "forebay", authority)
    own = {"certificate": str(both)}
    if not is_one_file:
        own = {"certificate": str(tmp_path / "forebay.crt"), "certificate_key": str(tmp_path / "forebay.key")}
    pair = [(key.read_bytes(), certificate.read_bytes())]
    credentials = grpc.ssl_server_credentials(pair, authority[0].read_bytes(), require_client_auth=True)
    async with accepting(credentials) as port:
        to = {"url": f"127.0.0.1:{port}", "ca_file": str(certificate)}
        async with configured("otlp_grpc", **to, **own) as destination:
            await destination.send(destination.prepare(BATCH))
        async with configured("otlp_grpc", **to) as destination:
            with pytest.raises(SendFailed) as failed:
                await destination.send(destination.prepare(BATCH))
    assert failed.value.error is ErrorClass.NETWORK


@pytest.mark.parametrize(("compression", "is_small"), [("none", False), ("gzip", True), (None, True)])
async def test_bytes_on_the_wire_are_compressed_as_the_settings_say(compression: str | None, is_small: bool) -> None:
    body = metrics(1, 1, 1, 5_000).SerializeToString()
    batch = ExportBatch(Kind.METRICS, body, 5_000, 1, "key")
    sent = 0

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, is_counted: bool) -> None:
        nonlocal sent
        while data := await reader.read(1 << 16):
            sent += len(data) * is_counted
            writer.write(data)
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()

    async with accepting() as port:
        forwarding: list[asyncio.Task[None] | None] = []

        async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            forwarding.append(asyncio.current_task())
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", port)
            there, back = (reader, far_writer), (far_reader, writer)
            await asyncio.gather(pump(*there, is_counted=True), pump(*back, is_counted=False), return_exceptions=True)

        proxy = await asyncio.start_server(forward, "127.0.0.1", 0)
        url = f"http://127.0.0.1:{proxy.sockets[0].getsockname()[1]}"
        given = {"compression": compression} if compression else {}
        async with proxy, configured("otlp_grpc", url=url, **given) as destination:
            await destination.send(destination.prepare(batch))
        await asyncio.wait_for(asyncio.gather(*filter(None, forwarding)), 60)
    assert (sent < len(body) / 2) is is_small, (sent, len(body))
