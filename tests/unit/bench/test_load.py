"""The load generator measures answers, and says so when it gets none."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest

from forebay.bench import load

TAKEN = b"HTTP/1.1 201 Created\r\nContent-Length: 2\r\n\r\n[]"
REFUSED = b"HTTP/1.1 400 Bad Request\r\ncontent-length: 7\r\n\r\nmissing"


@contextmanager
def server(answer: bytes) -> Iterator[tuple[int, list[bytes]]]:
    """Answers every request with the same bytes, or closes the connection when there are none."""
    seen: list[bytes] = []
    request_bytes = len(load.post("/push", b"x"))

    def serve(connection: socket.socket) -> None:
        # A load that has heard enough cuts its connections.
        with connection, suppress(ConnectionError):
            while len(request := connection.recv(request_bytes, socket.MSG_WAITALL)) == request_bytes:
                seen.append(request)
                if not answer:
                    return
                connection.sendall(answer)

    def accept() -> None:
        while True:
            try:
                connection, _ = listening.accept()
            except OSError:
                return
            threading.Thread(target=serve, args=(connection,), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        yield listening.getsockname()[1], seen
        listening.shutdown(socket.SHUT_RDWR)
        thread.join()


def drive(port: int) -> float:
    requests = [load.post("/push", b"a"), load.post("/push", b"b")]
    return load.drive("127.0.0.1", port, requests, connections=3, count=10)


def test_load_sends_as_many_requests_as_asked_in_turns() -> None:
    with server(TAKEN) as (port, seen):
        assert drive(port) > 0
    assert sorted(request[-1:] for request in seen) == [b"a"] * 5 + [b"b"] * 5


def test_load_ends_with_the_answer_of_a_server_that_refuses() -> None:
    with server(REFUSED) as (port, _), pytest.raises(load.LoadRefused, match=r"400 Bad Request.*missing"):
        drive(port)


def test_load_ends_when_the_server_closes_its_connections() -> None:
    with server(b"") as (port, _), pytest.raises(load.LoadRefused, match="closed a connection"):
        drive(port)
