"""A server by hand: a socket that says what it is told to, byte for byte."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"


def answer(status: int, document: object) -> bytes:
    body = json.dumps(document).encode()
    return b"HTTP/1.1 %d Said\r\ncontent-length: %d\r\n\r\n%b" % (status, len(body), body)


DELIVERY = answer(
    200,
    {
        "queue": "q",
        "leaseId": "lease",
        "messages": [
            {
                "transactionId": "a",
                "partitionId": "1-1",
                "partition": "p",
                "createdAt": "now",
                "seq": 1,
                "attempts": 1,
                "data": 7,
            }
        ],
    },
)
"""A pop's answer: one message, leased."""

Script = Callable[[int, bytes], list[bytes] | None]
"""What to send in return for the request of that number, piece by piece; None ends the connection after it."""


class Peer:
    """A server by hand. `requests` are what came, head and body; `connections` how many clients connected."""

    def __init__(self, script: Script) -> None:
        self.requests: list[bytes] = []
        self.connections = 0
        self._script = script
        self._asked = asyncio.Condition()

    async def until_asked(self, count: int) -> None:
        """Returns when so many requests have come."""
        async with self._asked:
            await self._asked.wait_for(lambda: len(self.requests) >= count)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = next((int(line[15:]) for line in head.split(b"\r\n") if line[:15] == b"Content-Length:"), 0)
                self.requests.append(head + await reader.readexactly(length))
                async with self._asked:
                    self._asked.notify_all()
                pieces = self._script(len(self.requests), self.requests[-1])
                for piece in pieces or []:
                    writer.write(piece)
                    await writer.drain()
                    await asyncio.sleep(0.001)
                if pieces is None or pieces[-1:] == [b""]:
                    return
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        finally:
            writer.close()


@asynccontextmanager
async def serving(script: Script) -> AsyncIterator[tuple[Peer, str]]:
    peer = Peer(script)
    server = await asyncio.start_server(peer.serve, "127.0.0.1", 0)
    try:
        yield peer, f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
