"""An HTTP server that takes every request and answers 200, as cheaply as Python can: what benchmarks send to.

Run as a process: `python -m forebay.bench.export.sink DELAY_SECONDS` prints its port, and ends with its standard input.
"""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
from collections.abc import Iterator

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"


class SinkProtocol(asyncio.Protocol):
    """One connection: requests with a Content-Length, one behind the other."""

    def __init__(self, delay_seconds: float) -> None:
        self._delay_seconds = delay_seconds
        self._head = b""
        self._missing = 0
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        if self._missing:
            taken = min(self._missing, len(data))
            self._missing -= taken
            data = data[taken:]
            if self._missing:
                return
            self._answer()
        self._head += data
        while b"\r\n\r\n" in self._head:
            head, _, rest = self._head.partition(b"\r\n\r\n")
            length = _length(head)
            self._missing = max(length - len(rest), 0)
            self._head = rest[length:]
            if self._missing:
                self._head = b""
                return
            self._answer()

    def _answer(self) -> None:
        if self._transport is None:
            return
        if self._delay_seconds:
            asyncio.get_running_loop().call_later(self._delay_seconds, self._transport.write, ANSWER)
        else:
            self._transport.write(ANSWER)


def _length(head: bytes) -> int:
    for line in head.split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            return int(value)
    return 0


async def _serve(delay_seconds: float) -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: SinkProtocol(delay_seconds), "127.0.0.1", 0)
    sys.stdout.write(f"{server.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    await loop.run_in_executor(None, sys.stdin.read)


@contextlib.contextmanager
def sink_process(delay_seconds: float = 0.0) -> Iterator[str]:
    """A sink of its own; its URL."""
    command = [sys.executable, "-m", "forebay.bench.export.sink", str(delay_seconds)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield f"http://127.0.0.1:{int(process.stdout.readline())}"
    finally:
        process.kill()
        process.wait()


if __name__ == "__main__":
    asyncio.run(_serve(float(sys.argv[1])))
