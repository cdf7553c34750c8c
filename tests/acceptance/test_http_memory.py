"""Memory for large bodies: the server has as much as it is told, and shows who waits for it."""

from __future__ import annotations

import socket
import urllib.request
from pathlib import Path
from urllib.parse import urlsplit

from fixtures.waiting import wait_until
from forebay.testing.running_server import RunningServer

BODY = b'{"items":[{"queue":"orders","payload":"' + b"x" * (5 << 20) + b'"}]}'
WHOLE_BODY = BODY + b" " * (60 << 20)


def begun(server: RunningServer, body: bytes) -> socket.socket:
    """A push whose body is not there yet."""
    parts = urlsplit(server.url)
    opened = socket.create_connection((parts.hostname, parts.port), timeout=60)
    opened.sendall(b"POST /api/v1/push HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body))
    return opened


def metric(server: RunningServer, name: str) -> int:
    with urllib.request.urlopen(f"{server.url}/metrics", timeout=60) as answer:
        lines = answer.read().decode().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{name} "))


def test_body_waits_until_another_gives_its_memory_back(tmp_path: Path) -> None:
    with RunningServer(tmp_path / "data", environment={"FOREBAY_SERVER_MEMORY_SIZE": "64Mi"}) as server:
        first = begun(server, WHOLE_BODY[: 64 << 20])
        wait_until(lambda: metric(server, "forebay_request_memory_bytes") == 64 << 20)
        second = begun(server, BODY)
        wait_until(lambda: metric(server, "forebay_request_memory_waiting") == 1)
        first.sendall(WHOLE_BODY[: 64 << 20])
        assert first.recv(100).startswith(b"HTTP/1.1 201 ")
        second.sendall(BODY)
        assert second.recv(100).startswith(b"HTTP/1.1 201 ")
        wait_until(lambda: metric(server, "forebay_request_memory_bytes") == 0)
        assert metric(server, "forebay_request_memory_waiting") == 0
        assert metric(server, "forebay_request_memory_refused_total") == 0
        first.close()
        second.close()


MESSAGES = 24
MESSAGE_BYTES = 8 << 20


def test_answers_that_are_not_taken_stay_within_the_memory_and_give_it_back(tmp_path: Path) -> None:
    """As many pops as there are messages arrive together, of 192 MiB in all, and no client reads its answer."""
    limit = 64 << 20
    item = b'{"queue":"orders","partition":"%d","payload":"' + b"x" * MESSAGE_BYTES + b'"}'
    with RunningServer(tmp_path / "data", environment={"FOREBAY_SERVER_MEMORY_SIZE": "64Mi"}) as server:
        for number in range(MESSAGES):
            push = urllib.request.Request(f"{server.url}/api/v1/push", b'{"items":[' + item % number + b"]}")
            with urllib.request.urlopen(push, timeout=60):
                pass
        before = resident_bytes(server.pid)
        parts = urlsplit(server.url)
        asking = [socket.create_connection((parts.hostname, parts.port), timeout=60) for _ in range(MESSAGES)]
        for one in asking:
            one.sendall(b"GET /api/v1/pop/queue/orders HTTP/1.1\r\nHost: %b\r\n\r\n" % parts.netloc.encode())
        wait_until(lambda: metric(server, "forebay_request_memory_waiting") > MESSAGES // 2)
        wait_until(lambda: metric(server, "forebay_request_memory_bytes") > limit // 2)
        assert metric(server, "forebay_request_memory_bytes") <= limit * 5 // 4
        assert resident_bytes(server.pid) - before < 3 * limit
        for one in asking:
            one.close()
        wait_until(lambda: metric(server, "forebay_request_memory_bytes") == 0)
        wait_until(lambda: resident_bytes(server.pid) - before < limit)


def resident_bytes(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return next(int(line.split()[1]) << 10 for line in status.splitlines() if line.startswith("VmRSS"))


def test_slow_bodies_lose_their_memory_to_one_that_waits_for_it(tmp_path: Path) -> None:
    with RunningServer(tmp_path / "data", environment={"FOREBAY_SERVER_MEMORY_SIZE": "64Mi"}) as server:
        slow = [begun(server, WHOLE_BODY[: 32 << 20]) for _ in range(2)]
        wait_until(lambda: metric(server, "forebay_request_memory_bytes") == 64 << 20)
        other = begun(server, BODY)
        other.sendall(BODY)
        assert other.recv(100).startswith(b"HTTP/1.1 201 ")
        for one in slow:
            assert one.recv(100).startswith(b"HTTP/1.1 408 ")
            one.close()
        other.close()
        assert metric(server, "forebay_request_memory_slow_total") == 2
