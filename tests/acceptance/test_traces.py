"""A trace through a whole server: from the push's header to what an export sends, and its spans at a collector."""

from __future__ import annotations

import asyncio
import json
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from fixtures.http_sink import HttpSink, http_sink
from fixtures.running_stores import Http
from fixtures.waiting import until
from forebay.client import AsyncClient, DispatchWorker, ParcelWork
from forebay.telemetry.tracing import context_of
from forebay.testing.running_server import RunningServer

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
SETTINGS = """
destinations:
  - {{name: lake, type: http, url: "http://127.0.0.1:{port}/lake"}}
  - {{name: copies, type: queue, queue_name: copies}}
exports:
  - {{name: copies, from: orders@copies, to: copies, batch: {{max_wait: 10ms}}}}
  - {{name: lake, from: copies@lake, to: lake, batch: {{max_wait: 10ms}}}}
telemetry:
  traces: {{endpoint: "{endpoint}", sample_ratio: 0}}
"""


@pytest.fixture(params=["embedded", "postgres"])
def store(request: pytest.FixtureRequest) -> str:
    return "embedded" if request.param == "embedded" else str(request.getfixturevalue("postgres_database"))


def server(folder: Path, store: str, port: int, endpoint: str) -> RunningServer:
    file = folder / "forebay.yaml"
    file.write_text(SETTINGS.format(port=port, endpoint=endpoint))
    return RunningServer(folder / "data", store=store, arguments=("-c", str(file)))


def push(running: RunningServer, *payloads: object, header: str = "", queue: str = "orders") -> None:
    items = [{"queue": queue, "payload": payload} for payload in payloads]
    with closing(Http(running.url)) as http:
        headers = {"Content-Type": "application/json"} | ({"traceparent": header} if header else {})
        assert http.send("POST", "/api/v1/push", {"items": items}, headers=headers).status == 201


def spans(sink: HttpSink) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for request in sink.received:
        if request.path == "/v1/traces":
            [resource] = ExportTraceServiceRequest.FromString(request.body).resource_spans
            found |= {span.name: span for span in resource.scope_spans[0].spans}
    return found


def sent(sink: HttpSink) -> list[tuple[list[Any], str]]:
    """What the lake got: payloads, and the trace's header."""
    return [
        (json.loads(request.body), request.headers.get("traceparent", ""))
        for request in sink.received
        if request.path == "/lake"
    ]


async def test_a_trace_is_carried_from_push_to_export_and_its_spans_are_a_chain(tmp_path: Path, store: str) -> None:
    async with http_sink() as sink:
        with server(tmp_path, store, sink.port, f"{sink.url}/v1/traces") as running:
            await asyncio.to_thread(push, running, 1, 2, header=f"00-{TRACE}-{SPAN}-01")
            await until(lambda: {"push", "send copies", "send lake"} <= spans(sink).keys())
            found = spans(sink)
            assert {span.trace_id.hex() for span in found.values()} == {TRACE}
            assert found["push"].parent_span_id.hex() == SPAN
            assert found["send copies"].parent_span_id == found["push"].span_id
            [(payloads, header)] = sent(sink)
            context = context_of(header.encode())
            assert context is not None
            assert (payloads, context.trace_id) == ([1, 2], TRACE)
            assert context.span_id == found["send lake"].span_id.hex()
            with closing(Http(running.url)) as http:
                popped = http.pop("orders", batch=2, consumerGroup="me")
            assert {message["traceId"] for message in popped} == {TRACE}
            await until(lambda: "queue" in spans(sink))
            assert spans(sink)["queue"].parent_span_id == found["push"].span_id


async def test_a_trace_is_carried_through_a_flow_on_parcels_and_the_outbox_of_its_destination(tmp_path: Path) -> None:
    async with http_sink() as sink:
        with server(tmp_path, "embedded", sink.port, f"{sink.url}/v1/traces") as running:
            async with AsyncClient(running.url) as client:

                async def exported(work: ParcelWork) -> None:
                    for of in work.parcel.ranges:
                        rows = await client.read_arrow(of.queue, of.first_seq, of.last_seq + 1)
                        await work.export("lake", rows.select(["payload", "headers"]))

                step = {"action": "out", "actionClass": "out.All"}
                source = {"queue": "clicks", "parcelMessages": 2, "parcelWaitSeconds": 0.05}
                await client.define_flow("clicks", {"source": source, "steps": [step]})
                await asyncio.to_thread(push, running, 1, 2, queue="clicks", header=f"00-{TRACE}-{SPAN}-01")
                worker = DispatchWorker(client, {"out.*": exported}, wait_seconds=5)
                running_worker = asyncio.create_task(worker.run())
                await until(lambda: len(sent(sink)) == 1 and "send .export.lake" in spans(sink))
                worker.stop()
                await running_worker
                [(payloads, header)] = sent(sink)
                found, context = spans(sink), context_of(header.encode())
                assert context is not None
                assert (payloads, context.trace_id) == ([1, 2], TRACE)
                assert context.span_id == found["send .export.lake"].span_id.hex()
                assert found["send .export.lake"].parent_span_id == found["push"].span_id


async def test_without_an_endpoint_the_header_goes_out_as_it_came_and_without_one_nothing_does(
    tmp_path: Path, store: str
) -> None:
    async with http_sink() as sink:
        with server(tmp_path, store, sink.port, "") as running:
            header = f"00-{TRACE}-{SPAN}-00"
            await asyncio.to_thread(push, running, 1, header=header)
            await until(lambda: len(sent(sink)) == 1)
            await asyncio.to_thread(push, running, 2, header="nonsense")
            await until(lambda: len(sent(sink)) == 2)
            await asyncio.to_thread(push, running, 3)
            await until(lambda: len(sent(sink)) == 3)
            assert sent(sink) == [([1], header), ([2], ""), ([3], "")]


async def test_a_collector_that_hangs_holds_no_push_up(tmp_path: Path) -> None:
    hanging = HttpSink(hang=asyncio.Event())
    async with http_sink(hanging) as collector, http_sink() as sink:
        assert hanging.hang is not None
        with server(tmp_path, "embedded", sink.port, f"{collector.url}/v1/traces") as running:
            for number in range(20):
                await asyncio.to_thread(push, running, number, header=f"00-{TRACE}-{SPAN}-01")
            await until(lambda: sum(len(payloads) for payloads, _ in sent(sink)) == 20)
            await until(lambda: len(hanging.attempts) > 0)
            hanging.hang.set()
