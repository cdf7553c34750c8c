"""How long pushes take, one by one: plain sockets, prepared requests, each connection waits for its answer."""

from __future__ import annotations

import asyncio
import json
import time
from urllib.parse import urlsplit

from forebay.bench.load import LoadRefused


def push_seconds(url: str, queue: str, connections: int, count: int) -> list[float]:
    """`count` single pushes over so many connections, each to a partition of its own."""
    return asyncio.run(_measure(url, queue, connections, count))


async def _measure(url: str, queue: str, connections: int, count: int) -> list[float]:
    seconds: list[float] = []
    parts = urlsplit(url)

    async def connection(number: int) -> None:
        reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
        item = {"queue": queue, "partition": str(number), "payload": {"user": "u-1", "ms": 123}}
        body = json.dumps({"items": [item]}).encode()
        head = b"POST /api/v1/push HTTP/1.1\r\nhost: localhost\r\ncontent-length: %d\r\n\r\n" % len(body)
        try:
            for _ in range(count // connections):
                began = time.perf_counter()
                writer.write(head + body)
                await _answer(reader)
                seconds.append(time.perf_counter() - began)
        finally:
            writer.close()

    await asyncio.gather(*[connection(number) for number in range(connections)])
    return seconds


async def _answer(reader: asyncio.StreamReader) -> None:
    head = await reader.readuntil(b"\r\n\r\n")
    if not head.startswith(b"HTTP/1.1 201"):
        raise LoadRefused(f"the server answered {head[:200]!r}")
    length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
    await reader.readexactly(int(length.partition(b":")[2]))
