"""A server is stopped while its destination takes requests and answers none: it stops in time, whatever the mode of the
send queue, and what it could not send is sent after the next start."""

from __future__ import annotations

import asyncio
import time
import urllib.request
from pathlib import Path

import pytest

from fixtures.http_sink import HttpSink, http_sink
from fixtures.waiting import until
from forebay.export.destinations.otlp_http import PROTOBUF
from forebay.testing.running_server import RunningServer
from forebay.testing.servers.machine import free_port
from unit.export.test_splitting import metrics

BATCHES = 40
DRAIN_SECONDS = 0.5
STOP_SECONDS_MAX = 20.0
"""Generous, for a machine that is busy. A server that waits for an answer waits for `timeout`, three times as long."""
SETTINGS = """
receivers:
  otlp_http: {{listen: "127.0.0.1:{port}", to: "destination:collector"}}
  buffer: {{flush_interval: 0s}}
destinations:
  - name: collector
    type: otlp_http
    url: {url}
    compression: none
    timeout: 60s
    queue: {{mode: {mode}, max_size: 1000, max_bytes: {size}, workers: 2, drain_timeout: {drain}s}}
"""


def body_of(number: int) -> bytes:
    request = metrics(1, 1, 1, 1)
    request.resource_metrics[0].scope_metrics[0].metrics[0].name = f"batch-{number:04}-{'x' * 200}"
    return bytes(request.SerializeToString())


def push(port: int) -> None:
    for number in range(BATCHES):
        headers = {"Content-Type": PROTOBUF}
        request = urllib.request.Request(f"http://127.0.0.1:{port}/v1/metrics", body_of(number), headers)
        with urllib.request.urlopen(request, timeout=60) as answer:
            assert answer.status == 200


@pytest.mark.parametrize(("mode", "size"), [("memory", "1Mi"), ("disk", "1Mi"), ("hybrid", "10Ki")])  # which spills
async def test_stop_does_not_wait_for_a_destination_that_hangs_and_loses_nothing(
    mode: str, size: str, tmp_path: Path
) -> None:
    async with http_sink(HttpSink(hang=asyncio.Event())) as sink:
        assert sink.hang is not None
        port, file = free_port(), tmp_path / "forebay.yaml"
        file.write_text(SETTINGS.format(port=port, url=sink.url, mode=mode, size=size, drain=DRAIN_SECONDS))
        running = RunningServer(tmp_path / "data", arguments=("-c", str(file)))
        await asyncio.to_thread(running.start)
        try:
            await asyncio.to_thread(push, port)
            await until(lambda: len(sink.attempts) >= 2)
            began = time.monotonic()
            await asyncio.to_thread(running.stop)
            assert time.monotonic() - began < STOP_SECONDS_MAX
            assert sink.received == []
            sink.hang.set()
            await asyncio.to_thread(running.start)
            expected = {body_of(number) for number in range(BATCHES)}
            await until(lambda: expected <= {request.body for request in sink.received}, 60)
        finally:
            sink.hang.set()
            await asyncio.to_thread(running.stop)
