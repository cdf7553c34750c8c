"""OTLP's partial success, both ways: what a collector rejects of a batch is counted, and a source hears of what has no
form at its destination."""

from __future__ import annotations

import asyncio
import json
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import cramjam
import grpc
import grpc.aio
import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceResponse
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

from contract.test_destinations import batch_of
from fixtures.http_sink import HttpSink, http_sink
from fixtures.waiting import until
from forebay.clock import SystemClock
from forebay.export.batch import CODEC
from forebay.export.dead_letters import DeadLetters
from forebay.export.delivery import DeliveryOptions
from forebay.export.destination import Destination
from forebay.export.destinations.otlp_grpc import METHODS, GrpcOptions, OtlpGrpcDestination
from forebay.export.destinations.otlp_http import PROTOBUF, OtlpHttpDestination
from forebay.export.exporter import Exporter, ExporterOptions
from forebay.export.http_sender import HttpOptions
from forebay.export.queue_feed import QueueFeed, QueueFeedOptions
from forebay.filesystem import RealFilesystem
from forebay.otlp.kinds import Kind
from forebay.otlp.protobufs import WriteRequest
from forebay.sendqueue.queue import Limits
from forebay.sendqueue.queues.memory import MemoryQueue
from forebay.testing.running_server import RunningServer
from forebay.testing.servers.machine import free_port

CLOCK = SystemClock()
RESPONSES: dict[Kind, tuple[Any, str]] = {
    Kind.METRICS: (ExportMetricsServiceResponse, "rejected_data_points"),
    Kind.TRACES: (ExportTraceServiceResponse, "rejected_spans"),
    Kind.LOGS: (ExportLogsServiceResponse, "rejected_log_records"),
}


def partial_success(kind: Kind) -> bytes:
    response_type, field = RESPONSES[kind]
    response = response_type()
    setattr(response.partial_success, field, 2)
    response.partial_success.error_message = "two are too old"
    return bytes(response.SerializeToString())


@asynccontextmanager
async def collector_over_http(kind: Kind) -> AsyncIterator[Destination]:
    answer = (200, partial_success(kind).decode(), {"Content-Type": PROTOBUF})
    async with http_sink(HttpSink(answers=[answer])) as sink:
        yield OtlpHttpDestination("collector", HttpOptions(sink.url), CLOCK)


@asynccontextmanager
async def collector_over_grpc(kind: Kind) -> AsyncIterator[Destination]:
    async def export(body: bytes, context: Any) -> bytes:
        return partial_success(kind)

    service, _, name = METHODS[kind].strip("/").rpartition("/")
    server = grpc.aio.server()
    method = grpc.unary_unary_rpc_method_handler(export)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, {name: method}),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield OtlpGrpcDestination("collector", GrpcOptions(f"127.0.0.1:{port}"))
    finally:
        await server.stop(None)


@pytest.mark.parametrize("kind", RESPONSES)
@pytest.mark.parametrize("collector", [collector_over_http, collector_over_grpc])
async def test_batch_of_which_a_collector_rejects_some_is_confirmed_and_the_rejected_are_counted(
    collector: Any, kind: Kind, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    queue = MemoryQueue(Limits(10, 1_000_000), CODEC, CLOCK)
    letters = DeadLetters(RealFilesystem(), tmp_path, CLOCK)
    feed = QueueFeed("out", queue, MemoryQueue(Limits(10, 1_000_000), CODEC, CLOCK), letters, CLOCK, QueueFeedOptions())
    async with collector(kind) as destination:
        exporter = Exporter(destination, feed, CLOCK, ExporterOptions(DeliveryOptions()), asyncio.Semaphore(1))
        await exporter.start()
        try:
            await feed.push(batch_of(kind))
            await until(lambda: exporter.delivery.counts["sent"] == 1 and feed.is_empty())
        finally:
            await exporter.stop(0.0)
    counts = exporter.delivery.counts
    assert (counts["rejected_items"], counts["retried"], counts["buried"]) == (2, 0, 0)
    assert "rejected 2 of its 4 items: two are too old" in caplog.text


# the other way round


def request_with_deltas() -> ExportMetricsServiceRequest:
    """Four data points that have no form in remote write, and one that has."""
    request = ExportMetricsServiceRequest()
    metrics = request.resource_metrics.add().scope_metrics.add().metrics
    delta = metrics.add(name="delta").sum
    delta.aggregation_temporality = 1
    for _ in range(3):
        delta.data_points.add(as_int=1, time_unix_nano=10**18)
    metrics.add(name="sizes").exponential_histogram.data_points.add(count=1, time_unix_nano=10**18)
    metrics.add(name="up").gauge.data_points.add(as_int=1, time_unix_nano=10**18)
    return request


WHY = "exponential histograms have no form in remote write 1.0; sums have to be cumulative"


def posted(url: str, body: bytes, content_type: str) -> bytes:
    request = urllib.request.Request(url, body, {"Content-Type": content_type})
    with urllib.request.urlopen(request, timeout=60) as answer:
        assert answer.status == 200
        return bytes(answer.read())


def told_over(protocol: str, port: int, body: bytes) -> tuple[int, str]:
    """What the answer says of it: how many were rejected, and why."""
    if protocol == "json":
        from google.protobuf.json_format import MessageToJson

        text = MessageToJson(ExportMetricsServiceRequest.FromString(body)).encode()
        partial = json.loads(posted(f"http://127.0.0.1:{port}/v1/metrics", text, "application/json"))["partialSuccess"]
        return int(partial["rejectedDataPoints"]), str(partial["errorMessage"])
    if protocol == "protobuf":
        answer = posted(f"http://127.0.0.1:{port}/v1/metrics", body, PROTOBUF)
    else:
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            answer = channel.unary_unary(METHODS[Kind.METRICS])(body, timeout=60)
    response = ExportMetricsServiceResponse.FromString(answer)
    return response.partial_success.rejected_data_points, response.partial_success.error_message


@pytest.mark.parametrize("protocol", ["protobuf", "json", "grpc"])
async def test_source_is_told_what_has_no_form_at_its_prometheus_and_the_rest_arrives(
    protocol: str, tmp_path: Path
) -> None:
    ports = {"http": free_port(), "grpc": free_port(), "queue": free_port()}
    async with http_sink() as sink:
        file = tmp_path / "forebay.yaml"
        file.write_text(f"""
receivers:
  otlp_http: {{listen: "127.0.0.1:{ports["http"]}", to: "destination:prometheus"}}
  otlp_grpc: {{listen: "127.0.0.1:{ports["grpc"]}", to: "destination:prometheus"}}
destinations:
  - {{name: prometheus, type: remote_write, url: "{sink.url}/api/v1/write"}}
""")
        running = RunningServer(tmp_path / "data", arguments=("-c", str(file)))
        await asyncio.to_thread(running.start)
        try:
            port = ports["grpc" if protocol == "grpc" else "http"]
            body = request_with_deltas().SerializeToString()
            assert await asyncio.to_thread(told_over, protocol, port, body) == (4, WHY)
            await until(lambda: len(sink.received) == 1)
            metrics = await asyncio.to_thread(_metrics, running.url)
        finally:
            await asyncio.to_thread(running.stop)
    written: Any = WriteRequest.FromString(bytes(cramjam.snappy.decompress_raw(sink.received[0].body)))
    assert [label.value for series in written.timeseries for label in series.labels] == ["up"]
    assert 'forebay_export_rejected_items_total{destination="prometheus"} 4' in metrics


def _metrics(url: str) -> str:
    with urllib.request.urlopen(f"{url}/metrics", timeout=60) as answer:
        return bytes(answer.read()).decode()
