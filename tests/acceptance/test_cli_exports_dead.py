"""`forebay exports dead list|show|replay|purge`, against a server whose destination answers 400."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from fixtures.waiting import wait_until
from forebay.testing.running_server import RunningServer
from forebay.testing.servers.machine import free_port

SETTINGS = """\
receivers:
  otlp_http: {{listen: "127.0.0.1:{receiver}", to: "destination:collector"}}
  buffer: {{flush_interval: 0s}}
exporter:
  queue: {{retry_interval: 10ms, max_attempts: 2}}
destinations:
  - name: collector
    type: otlp_http
    url: http://127.0.0.1:{sink}
    compression: none
"""


class Collector(ThreadingHTTPServer):
    """Answers 400 until it is told to take what comes."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.is_taking = False
        self.taken: list[tuple[str, bytes]] = []


class Handler(BaseHTTPRequestHandler):
    server: Collector
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.server.is_taking:
            self.server.taken.append((self.headers["Idempotency-Key"], body))
        answer = b"" if self.server.is_taking else b"no such tenant"
        self.send_response(200 if self.server.is_taking else 400)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_: object) -> None:
        """Not into the test's output."""


@pytest.fixture
def collector() -> Iterator[Collector]:
    server = Collector()
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


def request(number: int) -> bytes:
    made = ExportMetricsServiceRequest()
    metric = made.resource_metrics.add().scope_metrics.add().metrics.add(name=f"metric.{number}")
    metric.gauge.data_points.add(time_unix_nano=1, as_int=number)
    body: bytes = made.SerializeToString()
    return body


def test_dead_letters_are_listed_shown_replayed_and_purged(collector: Collector, tmp_path: Path) -> None:
    receiver = free_port()
    file = tmp_path / "forebay.yaml"
    file.write_text(SETTINGS.format(receiver=receiver, sink=collector.server_address[1]))
    server = RunningServer(tmp_path / "data", arguments=("-c", str(file)))
    server.start()

    def exports(*words: str, code: int = 0) -> str:
        command = [sys.executable, "-m", "forebay", "exports", *words, "--url", server.url]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == code, done.stderr
        return done.stdout + done.stderr

    def push(number: int) -> None:
        headers = {"Content-Type": "application/x-protobuf"}
        url = f"http://127.0.0.1:{receiver}/v1/metrics"
        urllib.request.urlopen(urllib.request.Request(url, request(number), headers), timeout=60).close()

    def dead() -> list[dict[str, str]]:
        with urllib.request.urlopen(f"{server.url}/api/v1/exports/collector/dead-letters", timeout=60) as answer:
            found: list[dict[str, str]] = json.load(answer)["letters"]
        return found

    try:
        push(1)
        push(2)
        wait_until(lambda: len(dead()) == 2)
        listed = json.loads(exports("dead", "list", "collector", "-o", "json"))
        assert [(one["error"], one["message"]) for one in listed] == 2 * [("client_error", "HTTP 400: no such tenant")]
        table = exports("dead", "list", "collector")
        assert all(one["id"] in table for one in listed)
        shown = json.loads(exports("dead", "show", "collector", listed[0]["id"]))
        assert (shown["attempts"], shown["kind"], shown["items"]) == (2, "metrics", 1)
        assert "no dead letter" in exports("dead", "show", "collector", "1-nothing", code=1)
        assert "no destination 'elsewhere'" in exports("dead", "list", "elsewhere", code=1)

        collector.is_taking = True
        assert exports("dead", "replay", "collector").startswith("2 batches are in the send queue of collector again")
        wait_until(lambda: len(collector.taken) == 2)
        assert sorted(body for _, body in collector.taken) == [request(1), request(2)]
        assert dead() == []

        collector.is_taking = False
        push(3)
        wait_until(lambda: len(dead()) == 1)
        assert exports("dead", "purge", "collector", "--yes").startswith("1 dead letters of collector are deleted")
        assert dead() == []
        assert "collector" in exports("list")
    finally:
        server.kill()
