"""The OpenTelemetry SDK and its exporters push into a started Forebay; what arrives is compared with what was measured.

SDK over HTTP ──▶ queues otlp-metrics, otlp-traces, otlp-logs; the first is exported to Prometheus
SDK over gRPC ──▶ the send queue of a destination, which is a queue
remote write  ──▶ the send queue of Prometheus
"""

from __future__ import annotations

import base64
import gzip
import json
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import cramjam
import pytest
from google.protobuf import json_format
from opentelemetry._logs import LogRecord
from opentelemetry.exporter.otlp.proto.grpc._log_exporter import OTLPLogExporter as GrpcLogs
from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter as GrpcMetrics
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as GrpcSpans
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter as HttpLogs
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter as HttpMetrics
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as HttpSpans
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import SimpleLogRecordProcessor
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor

from fixtures.telemetry import PROTOBUF, Proxy, gauges, now_ms, post, remote_write
from fixtures.waiting import wait_until
from forebay.otlp.protobufs import WriteRequest
from forebay.testing.servers import PrometheusServer

RESOURCE = Resource.create({"service.name": "shop", "service.instance.id": "i1"})


@pytest.fixture(scope="module")
def proxy(prometheus: PrometheusServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxy]:
    settings = {
        "destinations": [
            remote_write(prometheus.write_url),
            {"name": "kept", "type": "queue", "queue_name": "kept"},
        ],
        "exports": [
            {"name": "durable", "from": "otlp-metrics@prometheus", "to": "prometheus", "format": "metrics"},
        ],
        "receivers": {"body_size": "1Mi"},
    }
    receivers = {
        "otlp_http": "queue:otlp-{signal}",
        "otlp_grpc": "destination:kept",
        "remote_write": "destination:prometheus",
    }
    with Proxy(tmp_path_factory.mktemp("proxy"), settings, receivers=receivers) as running:
        yield running


def measure(exporter: Any, name: str) -> None:
    """A counter of 7, a histogram of two values, pushed by the SDK."""
    provider = MeterProvider([PeriodicExportingMetricReader(exporter, export_interval_millis=3_600_000)], RESOURCE)
    meter = provider.get_meter("test")
    meter.create_counter(name).add(7, {"where": "eu"})
    took = meter.create_histogram(f"{name}.took", unit="s")
    took.record(0.3)
    took.record(30)
    assert provider.force_flush(30_000)
    provider.shutdown()


def trace(exporter: Any, name: str) -> None:
    provider = TracerProvider(resource=RESOURCE)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    with provider.get_tracer("test").start_as_current_span(name):
        pass
    provider.shutdown()


def log(exporter: Any, text: str) -> None:
    provider = LoggerProvider(RESOURCE)
    provider.add_log_record_processor(SimpleLogRecordProcessor(exporter))
    provider.get_logger("test").emit(LogRecord(body=text))
    provider.shutdown()


def requests_in(proxy: Proxy, queue: str, request_type: Any, partition: str) -> list[Any]:
    found = [message for message in proxy.messages(queue) if message["partition"] == partition]
    return [request_type.FromString(base64.b64decode(message["data"])) for message in found]


def names_of(requests: list[Any]) -> set[str]:
    groups = [group for one in requests for group in one.resource_spans]
    return {span.name for group in groups for at in group.scope_spans for span in at.spans}


def texts_of(requests: list[Any]) -> set[str]:
    groups = [group for one in requests for group in one.resource_logs]
    return {record.body.string_value for group in groups for at in group.scope_logs for record in at.log_records}


def test_sdk_over_http_to_queues_and_from_there_to_prometheus(proxy: Proxy, prometheus: PrometheusServer) -> None:
    measure(HttpMetrics(proxy.url(), compression=Compression.Gzip), "http.orders")
    trace(HttpSpans(proxy.url(path="/v1/traces"), compression=Compression.Deflate), "http-span")
    log(HttpLogs(proxy.url(path="/v1/logs")), "http-log")
    assert names_of(requests_in(proxy, "otlp-traces", ExportTraceServiceRequest, "traces")) == {"http-span"}
    assert texts_of(requests_in(proxy, "otlp-logs", ExportLogsServiceRequest, "logs")) == {"http-log"}

    def values() -> dict[str, float]:
        found = prometheus.samples('{__name__=~"http_orders.*",job="shop",instance="i1"}')
        return {labels: of[-1][1] for labels, of in found.items()}

    wait_until(lambda: len(values()) >= 3)
    by_name = {
        (json.loads(labels)["__name__"], json.loads(labels).get("le")): value for labels, value in values().items()
    }
    assert by_name["http_orders_total", None] == 7
    assert by_name["http_orders_took_seconds_count", None] == 2
    assert by_name["http_orders_took_seconds_bucket", "5"] == 1
    assert by_name["http_orders_took_seconds_bucket", "+Inf"] == 2
    assert proxy.metric("receiver_items_total", receiver="otlp_http", kind="traces") == 1


def test_sdk_over_grpc_through_a_send_queue(proxy: Proxy) -> None:
    endpoint = f"127.0.0.1:{proxy.ports['otlp_grpc']}"
    measure(GrpcMetrics(endpoint, insecure=True), "grpc.orders")
    trace(GrpcSpans(endpoint, insecure=True), "grpc-span")
    log(GrpcLogs(endpoint, insecure=True), "grpc-log")

    def everything() -> tuple[bool, ...]:
        bodies = [base64.b64decode(message["data"]) for message in proxy.messages("kept")]
        return tuple(any(text in body for body in bodies) for text in (b"grpc.orders", b"grpc-span", b"grpc-log"))

    wait_until(lambda: everything() == (True, True, True))
    # The SDK pushes its metrics once more when it is shut down.
    assert proxy.metric("receiver_requests_total", receiver="otlp_grpc", status="200") == 4
    assert proxy.metric("receiver_items_total", receiver="otlp_grpc", kind="metrics") == 4


def identity(body: bytes) -> bytes:
    return body


ENCODINGS: dict[str, Callable[[bytes], bytes]] = {
    "": identity,
    "gzip": gzip.compress,
    "deflate": zlib.compress,
    "zstd": lambda body: bytes(cramjam.zstd.compress(body)),
    "snappy": lambda body: bytes(cramjam.snappy.compress_raw(body)),
}


def test_every_encoding_in_protobuf_and_json_arrives_in_prometheus(proxy: Proxy, prometheus: PrometheusServer) -> None:
    at_ms = now_ms()
    for encoding, encode in ENCODINGS.items():
        headers = {"Content-Encoding": encoding} if encoding else {}
        body = gauges("encoded", {at_ms: 1.0}, {"as": "protobuf", "encoding": encoding or "none"})
        answer = post(proxy.url(), encode(body), {**PROTOBUF, **headers})
        assert (answer.status, answer.headers["Forebay-Receipt"]) == (200, "log"), answer
        assert ExportMetricsServiceRequest.FromString(answer.body) == ExportMetricsServiceRequest()
        request = ExportMetricsServiceRequest.FromString(
            gauges("encoded", {at_ms: 1.0}, {"as": "json", "encoding": encoding or "none"})
        )
        text = json_format.MessageToJson(request).encode()
        answer = post(proxy.url(), encode(text), {"Content-Type": "application/json", **headers})
        assert (answer.status, answer.body) == (200, b"{}")

    def arrived() -> int:
        return len(prometheus.samples("encoded"))

    wait_until(lambda: arrived() == 2 * len(ENCODINGS))
    assert set(map(str, prometheus.samples("encoded").values())) == {str([(at_ms, 1.0)])}


def test_remote_write_in_is_remote_write_out(proxy: Proxy, prometheus: PrometheusServer) -> None:
    write = WriteRequest()
    start_ms = now_ms() - 1000
    for number in range(20):
        series = write.timeseries.add()
        series.labels.add(name="__name__", value="written")
        series.labels.add(name="n", value=str(number))
        for at in range(5):
            series.samples.add(value=at, timestamp=start_ms + at)
    body = bytes(cramjam.snappy.compress_raw(write.SerializeToString()))
    answer = post(proxy.url("remote_write", "/api/v1/write"), body, {**PROTOBUF, "Content-Encoding": "snappy"})
    assert (answer.status, answer.headers["Forebay-Receipt"]) == (204, "memory")
    wait_until(lambda: len(prometheus.samples("written")) == 20)
    assert all(of == [(start_ms + at, float(at)) for at in range(5)] for of in prometheus.samples("written").values())
    assert proxy.metric("receiver_items_total", receiver="remote_write", kind="remote_write") == 100


def test_signal_that_the_destination_does_not_take_has_no_path(proxy: Proxy) -> None:
    assert post(proxy.url("remote_write", "/v1/traces"), b"").status == 404
    bad = {"gzip": gzip.compress(bytes(3 << 20)), "br": b"x"}
    statuses = [post(proxy.url(), body, {**PROTOBUF, "Content-Encoding": name}).status for name, body in bad.items()]
    assert statuses == [413, 415]
    assert proxy.metric("receiver_requests_total", receiver="otlp_http", status="413") == 1
    assert proxy.metric("receiver_requests_total", receiver="otlp_http", status="415") == 1
