"""Destinations that cannot be reached: TLS that does not fit, names that do not exist, nobody who listens."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from fixtures.certificates import make_certificate
from forebay.clock import SystemClock
from forebay.export.batch import ExportBatch
from forebay.export.destination import Destination
from forebay.export.destinations.otlp_grpc import GrpcOptions, OtlpGrpcDestination
from forebay.export.destinations.otlp_http import OtlpHttpDestination
from forebay.export.destinations.remote_write import RemoteWriteDestination
from forebay.export.http_sender import HttpOptions
from forebay.export.outcome import ErrorClass, SendFailed
from forebay.ingest.receivers.decoding import Telemetry
from forebay.ingest.receivers.in_flight import InFlight
from forebay.ingest.receivers.otlp_grpc import GrpcReceiver
from forebay.ingest.receivers.otlp_http import HttpReceiver
from forebay.otlp.kinds import Kind
from forebay.testing.servers.machine import free_port
from unit.export.test_splitting import metrics

CLOCK = SystemClock()
BATCH = ExportBatch(Kind.METRICS, metrics(1, 1, 1, 1).SerializeToString(), 1, 1)
TYPES = ["remote_write", "otlp_http", "otlp_grpc"]


def destination(kind: str, scheme: str, address: str, *, ca_file: str = "") -> Destination:
    if kind == "otlp_grpc":
        is_insecure = scheme == "http"
        return OtlpGrpcDestination("d", GrpcOptions(address, {}, 20.0, is_insecure, ca_file))
    options = HttpOptions(f"{scheme}://{address}", timeout_seconds=20.0, ca_file=ca_file)
    if kind == "otlp_http":
        return OtlpHttpDestination("d", options, CLOCK)
    return RemoteWriteDestination("d", options, CLOCK)


async def failure(found: Destination) -> SendFailed:
    await found.open()
    try:
        with pytest.raises(SendFailed) as failed:
            await found.send(found.prepare(BATCH))
    finally:
        await found.close()
    return failed.value


@asynccontextmanager
async def tls_server(folder: Path) -> AsyncIterator[str]:
    certificate, key = make_certificate(folder)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=context)
    async with server:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"


@pytest.mark.parametrize("kind", TYPES)
async def test_certificate_that_is_not_trusted_is_trouble_of_the_network(kind: str, tmp_path: Path) -> None:
    async with tls_server(tmp_path) as address:
        failed = await failure(destination(kind, "https", address))
    assert (failed.error, failed.is_retryable) == (ErrorClass.NETWORK, True)
    assert "certificate" in failed.message.lower() or kind == "otlp_grpc"


@pytest.mark.parametrize("kind", TYPES)
async def test_certificate_for_another_name_is_trouble_of_the_network(kind: str, tmp_path: Path) -> None:
    async with tls_server(tmp_path) as address:
        other = address.replace("127.0.0.1", "localhost")
        failed = await failure(destination(kind, "https", other, ca_file=str(tmp_path / "cert.pem")))
    assert failed.error is ErrorClass.NETWORK


@pytest.mark.parametrize("kind", TYPES)
async def test_name_that_does_not_exist_is_trouble_of_the_network(kind: str) -> None:
    failed = await failure(destination(kind, "http", "no-such-host.invalid:1234"))
    assert failed.error is ErrorClass.NETWORK
    assert "no-such-host.invalid" in failed.message


@pytest.mark.parametrize("kind", TYPES)
async def test_refused_connection_is_trouble_of_the_network(kind: str) -> None:
    assert (await failure(destination(kind, "http", f"127.0.0.1:{free_port()}"))).error is ErrorClass.NETWORK


@pytest.mark.parametrize("kind", TYPES)
async def test_server_that_speaks_something_else_is_trouble_of_the_network(kind: str) -> None:
    async def garbage(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"220 mail.example ESMTP\r\n" * 3)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(garbage, "127.0.0.1", 0)
    async with server:
        address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        assert (await failure(destination(kind, "http", address))).error is ErrorClass.NETWORK


@pytest.mark.parametrize("kind", ["otlp_http", "otlp_grpc"])
async def test_one_forebay_sends_to_another(kind: str) -> None:
    taken: list[Telemetry] = []

    async def accept(telemetry: Telemetry) -> str:
        taken.append(telemetry)
        return "memory"

    arguments: tuple[Any, ...] = (
        "r",
        "127.0.0.1",
        0,
        accept,
        1 << 20,
        frozenset({Kind.METRICS}),
        InFlight(0, body_bytes_max=1 << 20),
    )
    receiver = GrpcReceiver(*arguments) if kind == "otlp_grpc" else HttpReceiver(*arguments)
    await receiver.start()
    found = destination(kind, "http", f"127.0.0.1:{receiver.port}")
    await found.open()
    try:
        assert (await found.send(found.prepare(BATCH))).rejected == 0
    finally:
        await found.close()
        await receiver.stop()
    assert [telemetry.body for telemetry in taken] == [BATCH.body]
