"""Spans on their way to an endpoint that answers, refuses, and is away. Requests never wait for any of it."""

from __future__ import annotations

import asyncio

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from fixtures.http_sink import HttpSink, http_sink
from fixtures.waiting import until
from forebay.telemetry.span_export import END_SECONDS, SpanExport
from forebay.telemetry.tracing import Kind, Tracer


def noted(tracer: Tracer, count: int) -> None:
    for number in range(count):
        tracer.end(tracer.begin(f"span {number}", Kind.SERVER, None))


def names(sink: HttpSink) -> list[str]:
    found = []
    for request in sink.received:
        [resource] = ExportTraceServiceRequest.FromString(request.body).resource_spans
        found += [span.name for span in resource.scope_spans[0].spans]
    return found


def quick_export(tracer: Tracer, url: str) -> SpanExport:
    return SpanExport(tracer, url, {"service.name": "forebay"}, batch_spans=10, interval_seconds=0.1)


async def test_spans_arrive_in_order_in_batches() -> None:
    async with http_sink() as sink:
        tracer = Tracer(is_on=True)
        export = quick_export(tracer, f"{sink.url}/v1/traces")
        export.start()
        noted(tracer, 25)
        await until(lambda: export.sent == 25)
        await export.stop()
        assert names(sink) == [f"span {number}" for number in range(25)]
        assert {request.path for request in sink.received} == {"/v1/traces"}
        assert len(sink.received) == 3


async def test_what_an_endpoint_cannot_take_now_is_sent_again() -> None:
    async with http_sink(HttpSink(answers=[503, 429])) as sink:
        tracer = Tracer(is_on=True)
        export = quick_export(tracer, sink.url)
        export.start()
        noted(tracer, 3)
        await until(lambda: export.sent == 3)
        await export.stop()
        assert (names(sink), len(sink.attempts), tracer.dropped) == (["span 0", "span 1", "span 2"], 3, 0)


async def test_what_an_endpoint_refuses_for_good_is_dropped() -> None:
    async with http_sink(HttpSink(answers=[400])) as sink:
        tracer = Tracer(is_on=True)
        export = quick_export(tracer, sink.url)
        export.start()
        noted(tracer, 2)
        await until(lambda: tracer.dropped == 2)
        noted(tracer, 1)
        await until(lambda: export.sent == 1)
        await export.stop()


async def test_an_endpoint_that_is_away_costs_spans_beyond_the_buffer_and_nothing_else() -> None:
    tracer = Tracer(is_on=True, spans_max=20)
    export = quick_export(tracer, "http://127.0.0.1:9/v1/traces")
    export.start()
    noted(tracer, 50)
    await until(lambda: export.failures > 0)
    noted(tracer, 50)
    assert len(tracer.waiting) <= 20 + 10  # those of the request under way come back
    assert tracer.dropped >= 70
    async with asyncio.timeout(END_SECONDS + 30):
        await export.stop()


async def test_what_waits_at_the_end_is_sent_once() -> None:
    async with http_sink() as sink:
        tracer = Tracer(is_on=True)
        export = quick_export(tracer, sink.url)
        export.start()
        noted(tracer, 15)
        await export.stop()
        assert len(names(sink)) == 15
