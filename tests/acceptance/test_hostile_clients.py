"""Clients that hold connections, dribble, or send nonsense cost the others nothing that they would notice."""

from __future__ import annotations

import contextlib
import resource
import socket
import statistics
import threading
import time
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest

from fixtures.running_stores import Http, fresh
from forebay.testing.running_server import RunningServer

IDLE_CONNECTIONS = 5_000
SLOW_CLIENTS = 50
REQUESTS = 100
ROUNDS = 6
TIMES_AS_LONG = 2.0
NOISE_SECONDS = 0.005
"""On a machine on which other tests run too."""
NONSENSE = (
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    b"GET / HTTP/9.9\r\n\r\n",
    b"POST /api/v1/push HTTP/1.1\r\nHost: h\r\nContent-Length: 99999999999\r\n\r\n",
    b"POST /api/v1/push HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\nContent-Length: 8\r\n\r\n[",
    b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\nHost: h\r\n\r\n",
    b"POST /api/v1/push HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\nContent-Length: 8\r\n\r\n{{{{}}}}",
    b"GET /api/v1/messages?queue=%ff%fe HTTP/1.1\r\nHost: h\r\n\r\n",
)


@pytest.fixture
def many_handles() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert hard == resource.RLIM_INFINITY or hard > IDLE_CONNECTIONS + 1_000, "the test needs file handles"
    resource.setrlimit(resource.RLIMIT_NOFILE, (IDLE_CONNECTIONS + 1_000, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def seconds_of_a_push(http: Http, queue: str) -> float:
    """The median of many."""
    found = []
    for number in range(REQUESTS):
        began = time.perf_counter()
        http.push(queue, number)
        found.append(time.perf_counter() - began)
    return statistics.median(found)


def connected(server: RunningServer) -> socket.socket:
    parts = urlsplit(server.url)
    return socket.create_connection((str(parts.hostname), parts.port or 0), timeout=30)


class Tormentors:
    """Threads that do as hostile clients do, until they are told to stop."""

    def __init__(self, server: RunningServer) -> None:
        self._server = server
        self._end = threading.Event()
        self._threads = [threading.Thread(target=self._nonsense), threading.Thread(target=self._dribble)]
        self.sent = 0

    def __enter__(self) -> Tormentors:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._end.set()
        for thread in self._threads:
            thread.join()

    def _nonsense(self) -> None:
        while not self._end.wait(0.01):
            for raw in NONSENSE:
                with contextlib.suppress(OSError), connected(self._server) as client:
                    client.sendall(raw)
                    client.shutdown(socket.SHUT_WR)
                    while client.recv(65_536):
                        pass
                self.sent += 1

    def _dribble(self) -> None:
        """Bodies of a megabyte, a byte at a time."""
        head = b"POST /api/v1/push HTTP/1.1\r\nHost: h\r\nContent-Length: 1000000\r\n\r\n"
        with contextlib.ExitStack() as stack:
            clients = [stack.enter_context(connected(self._server)) for _ in range(SLOW_CLIENTS)]
            for client in clients:
                client.sendall(head)
            while not self._end.wait(0.2):
                for client in clients:
                    with contextlib.suppress(OSError):
                        client.sendall(b" ")


def test_others_are_served_in_twice_the_usual_time_at_most(server: RunningServer, many_handles: None) -> None:
    queue = fresh()
    with Http(server.url) as http, contextlib.ExitStack() as stack:
        usual = min(seconds_of_a_push(http, queue) for _ in range(ROUNDS))
        for _ in range(IDLE_CONNECTIONS):
            stack.enter_context(connected(server))
        with Tormentors(server) as tormentors:
            among_them = []
            for _ in range(ROUNDS):
                among_them.append(seconds_of_a_push(http, queue))
                if among_them[-1] <= TIMES_AS_LONG * usual:
                    break
            assert min(among_them) <= TIMES_AS_LONG * usual + NOISE_SECONDS, (usual, among_them)
        assert tormentors.sent >= len(NONSENSE)
        assert len(http.get(f"/api/v1/messages?queue={queue}&limit=1000").json["messages"]) > 0
    assert "Traceback" not in server.errors()
