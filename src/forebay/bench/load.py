"""Load for an HTTP server: prepared requests over many connections, each sent when the last was answered.

It runs in a process of its own and does as little as it can per request, so that the server is what is measured.

Usage: python -m forebay.bench.load HOST PORT CONNECTIONS COUNT, with the requests' bytes on standard input, each
preceded by its length as 8 bytes. Connections take turns with the requests. Prints requests per second. An answer that
is not 2xx, or a connection that the server closes, ends it with code 1 and the reason on standard error.
"""

from __future__ import annotations

import asyncio
import itertools
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from functools import lru_cache

from forebay.errors import Permanent

_LENGTH_BYTES = 8


class LoadRefused(Permanent):
    """The server did not take the load: a benchmark of refusals would say nothing. See what it answered."""


class _Connection(asyncio.Protocol):
    """Sends the next request as soon as the whole answer to the last one is there."""

    def __init__(self, requests: Iterator[bytes], left: list[int], done: asyncio.Future[None]) -> None:
        self._requests = requests
        self._left = left
        self._done = done
        self._buffer = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: asyncio.Transport = transport  # type: ignore[assignment]  # a TCP connection's is one
        self._next()

    def data_received(self, data: bytes) -> None:
        self._buffer = self._buffer + data if self._buffer else data
        while (end := self._buffer.find(b"\r\n\r\n")) >= 0:
            size = end + 4 + _content_length(self._buffer[:end])
            if len(self._buffer) < size:
                return
            if not self._buffer.startswith((b"HTTP/1.1 2", b"HTTP/1.0 2")):
                self._fail(f"the server answered {self._buffer[:300]!r}")
                return
            self._buffer = self._buffer[size:]
            self._left[1] -= 1
            if self._left[1] == 0 and not self._done.done():
                self._done.set_result(None)
            self._next()

    def connection_lost(self, error: Exception | None) -> None:
        self._fail(f"the server closed a connection: {error}")

    def _fail(self, reason: str) -> None:
        # Raised through the future: an exception in a callback would end the connection and let all of them wait.
        if not self._done.done():
            self._done.set_exception(LoadRefused(reason))

    def _next(self) -> None:
        if self._left[0] > 0:
            self._left[0] -= 1
            self._transport.write(next(self._requests))


@lru_cache(maxsize=256)
def _content_length(head: bytes) -> int:
    """Remembered: answers of one second mostly have one head, and the load is to cost less than what it measures."""
    at = head.lower().find(b"content-length:")
    return int(head[at + 15 :].split(b"\r\n", 1)[0]) if at >= 0 else 0


async def _drive(host: str, port: int, connections: int, count: int, requests: Sequence[bytes]) -> float:
    loop = asyncio.get_running_loop()
    left, done = [count, count], loop.create_future()
    turns = itertools.cycle(requests)
    started = time.perf_counter()
    opened = [
        await loop.create_connection(lambda: _Connection(turns, left, done), host, port) for _ in range(connections)
    ]
    await done
    seconds = time.perf_counter() - started
    for transport, _ in opened:
        transport.close()
    return count / seconds


def drive(host: str, port: int, requests: Sequence[bytes], *, connections: int, count: int) -> float:
    """Requests per second, from a process of its own."""
    command = [sys.executable, "-m", "forebay.bench.load", host, str(port), str(connections), str(count)]
    prepared = b"".join(len(request).to_bytes(_LENGTH_BYTES, "little") + request for request in requests)
    # In a session of its own: when this process is interrupted, it ends the other without a last word.
    done = subprocess.run(command, input=prepared, capture_output=True, check=False, start_new_session=True)
    if done.returncode:
        raise LoadRefused(done.stderr.decode(errors="replace").strip())
    return float(done.stdout)


def post(path: str, body: bytes) -> bytes:
    head = (
        f"POST {path} HTTP/1.1\r\nHost: localhost\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def get(path: str) -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()


def _prepared(data: bytes) -> Iterator[bytes]:
    at = 0
    while at < len(data):
        size = int.from_bytes(data[at : at + _LENGTH_BYTES], "little")
        yield data[at + _LENGTH_BYTES : at + _LENGTH_BYTES + size]
        at += _LENGTH_BYTES + size


if __name__ == "__main__":
    import uvloop

    host, port, connections, count = sys.argv[1], *map(int, sys.argv[2:5])
    given = list(_prepared(sys.stdin.buffer.read()))
    try:
        sys.stdout.write(f"{uvloop.run(_drive(host, port, connections, count, given))}\n")
    except (LoadRefused, OSError) as error:
        raise SystemExit(str(error)) from None
