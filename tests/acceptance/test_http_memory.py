"""Memory for large bodies: the server has as much as it is told, and shows who waits for it."""

from __future__ import annotations

import socket
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

from forebay.testing.running_server import RunningServer

BODY = b'{"items":[{"queue":"orders","payload":"' + b"x" * (5 << 20) + b'"}]}'
WHOLE_BODY = BODY + b" " * (60 << 20)


def begun(server: RunningServer, body: bytes) -> socket.socket:
    """A push whose body is not there yet."""
    parts = urlsplit(server.url)
    opened = socket.create_connection((parts.hostname, parts.port), timeout=60)
    opened.sendall(b"POST /api/v1/push HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n" % len(body))
    return opened


def metric(server: RunningServer, name: str) -> int:
    with urllib.request.urlopen(f"{server.url}/metrics", timeout=60) as answer:
        lines = answer.read().decode().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{name} "))


def until(is_true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not is_true():
        assert time.monotonic() < deadline


def test_body_waits_until_another_gives_its_memory_back(tmp_path: Path) -> None:
    with RunningServer(tmp_path / "data", environment={"FOREBAY_SERVER_MEMORY_SIZE": "64Mi"}) as server:
        first = begun(server, WHOLE_BODY[: 64 << 20])
        until(lambda: metric(server, "forebay_request_memory_bytes") == 64 << 20)
        second = begun(server, BODY)
        until(lambda: metric(server, "forebay_request_memory_waiting") == 1)
        first.sendall(WHOLE_BODY[: 64 << 20])
        assert first.recv(100).startswith(b"HTTP/1.1 201 ")
        second.sendall(BODY)
        assert second.recv(100).startswith(b"HTTP/1.1 201 ")
        until(lambda: metric(server, "forebay_request_memory_bytes") == 0)
        assert metric(server, "forebay_request_memory_waiting") == 0
        assert metric(server, "forebay_request_memory_refused_total") == 0
        first.close()
        second.close()
