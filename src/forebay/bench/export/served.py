"""A started server as the way out: telemetry through it, and a queue out of it."""

from __future__ import annotations

import asyncio
import json
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import aiohttp
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.metrics.v1.metrics_pb2 import AGGREGATION_TEMPORALITY_CUMULATIVE

from forebay.bench.memory import PeakMemory, resident_mib
from forebay.client import Client
from forebay.testing.running_server import RunningServer
from forebay.testing.servers.machine import descendants, free_port

POINTS = 1000
CONNECTIONS = 32
"""A request waits until its batch is full or 200 ms old: with few sources the wait is what would be measured."""
QUEUE_MIB, IN_FLIGHT_MIB = 32, 32
"""What the settings allow a server whose memory is measured: of batches that wait, and of requests under way."""
POLL_SECONDS = 0.01
DEADLINE_SECONDS = 300.0
PUSHED_AT_ONCE = 5000
PAYLOAD = {"order": 4711, "customer": "a customer with a name", "note": "x" * 120}


@contextmanager
def server(directory: Path, name: str, settings: str) -> Iterator[RunningServer]:
    """`forebay serve` with these settings."""
    file = directory / f"{name}.yaml"
    file.write_text(settings)
    running = RunningServer(directory / name, arguments=("-c", str(file)))
    running.start()
    try:
        yield running
    finally:
        running.kill()


def points_per_second(directory: Path, sink_url: str, name: str, requests: int) -> float:
    """OTLP in, remote write out: data points per second, until the last one was taken."""
    port = free_port()
    settings = (
        f'receivers:\n  otlp_http: {{listen: "127.0.0.1:{port}", to: "destination:out"}}\n'
        f"destinations:\n  - {{name: out, type: remote_write, url: '{sink_url}/api/v1/write'}}\n"
    )
    with server(directory, name, settings) as running:
        _send(port, 10)
        _wait_for_items(running.url, "out", 10 * POINTS)
        started = time.perf_counter()
        _send(port, requests)
        _wait_for_items(running.url, "out", (10 + requests) * POINTS)
        return requests * POINTS / (time.perf_counter() - started)


def memory_under_load(directory: Path, slow_sink_url: str, name: str, requests: int) -> tuple[float, float]:
    """OTLP in, faster than remote write goes out: MiB of the server at most, and what it had while it was idle."""
    port = free_port()
    settings = (
        f"receivers:\n  in_flight_size: {IN_FLIGHT_MIB}Mi\n"
        f'  otlp_http: {{listen: "127.0.0.1:{port}", to: "destination:out"}}\n'
        f"destinations:\n  - {{name: out, type: remote_write, url: '{slow_sink_url}/api/v1/write', "
        f"queue: {{mode: memory, max_bytes: {QUEUE_MIB}Mi}}}}\n"
    )
    with server(directory, name, settings) as running:
        _send(port, 10)
        _wait_for_items(running.url, "out", 10 * POINTS)

        def pids() -> list[int]:
            return [running.pid, *descendants(running.pid)]

        idle = resident_mib(pids())
        with PeakMemory(server=pids) as memory:
            _send(port, requests)
        return memory.mib["server"], idle


def messages_per_second(directory: Path, sink_url: str, name: str, messages: int) -> float:
    """A queue out to an HTTP destination, in batches of 500: messages per second, until the last one was taken."""
    settings = (
        f"destinations:\n  - {{name: out, type: http, url: '{sink_url}/in'}}\n"
        "exports:\n  - {name: orders, from: orders@out, to: out, batch: {max_messages: 500}}\n"
    )
    with server(directory, name, settings) as running:
        _post(f"{running.url}/api/v1/exports/orders/pause")
        with Client(running.url) as client:
            for first in range(0, messages, PUSHED_AT_ONCE):
                count = min(PUSHED_AT_ONCE, messages - first)
                partition = f"p{first // PUSHED_AT_ONCE % 8}"
                client.push_many(f"orders/{partition}", [PAYLOAD] * count)
        started = time.perf_counter()
        _post(f"{running.url}/api/v1/exports/orders/resume")
        _wait_for_items(running.url, "orders", messages)
        return messages / (time.perf_counter() - started)


def _request() -> bytes:
    """A thousand series with a point each, as an SDK sends them."""
    request = ExportMetricsServiceRequest()
    resource = request.resource_metrics.add()
    resource.resource.attributes.add(key="service.name").value.string_value = "checkout"
    scope = resource.scope_metrics.add()
    now = time.time_ns()
    for number in range(10):
        metric = scope.metrics.add(name=f"requests.{number}", unit="1")
        metric.sum.aggregation_temporality = AGGREGATION_TEMPORALITY_CUMULATIVE
        metric.sum.is_monotonic = True
        for series in range(POINTS // 10):
            point = metric.sum.data_points.add(time_unix_nano=now, as_int=series)
            point.attributes.add(key="route").value.string_value = f"/orders/{series}"
            point.attributes.add(key="code").value.string_value = "200"
    body: bytes = request.SerializeToString()
    return body


def _send(port: int, requests: int) -> None:
    asyncio.run(_send_all(f"http://127.0.0.1:{port}/v1/metrics", _request(), requests))


async def _send_all(url: str, body: bytes, requests: int) -> None:
    left = iter(range(requests))

    async def work(session: aiohttp.ClientSession) -> None:
        for _ in left:
            async with session.post(url, data=body, headers={"Content-Type": "application/x-protobuf"}) as response:
                response.raise_for_status()
                await response.read()

    async with aiohttp.ClientSession() as session:
        await asyncio.gather(*(work(session) for _ in range(CONNECTIONS)))


def _wait_for_items(url: str, name: str, items: int) -> None:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while _sent_items(url, name) < items:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{name} has sent {_sent_items(url, name)} of {items} items")
        time.sleep(POLL_SECONDS)


def _sent_items(url: str, name: str) -> int:
    with urllib.request.urlopen(f"{url}/api/v1/exports", timeout=30) as answer:
        found = json.load(answer)["exports"]
    return next(int(one["sentItems"]) for one in found if one["name"] == name)


def _post(url: str) -> None:
    request = urllib.request.Request(url, data=b"{}", method="POST", headers={"Content-Type": "application/json"})
    urllib.request.urlopen(request, timeout=30).close()
