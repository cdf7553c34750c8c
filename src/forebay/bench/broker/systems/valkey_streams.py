"""Valkey streams: XADD, 100 of them in one pipeline; XREADGROUP and XACK. With libvalkey, the client parses in C."""

from __future__ import annotations

import importlib
import uuid
from collections.abc import Sequence
from typing import Any

_GROUP = "bench"
_WAIT_MS = 30_000


class ValkeyStreams:
    def __init__(self) -> None:
        self.place = ""

    async def open(self, url: str, lanes: int) -> None:
        library = importlib.import_module("valkey.asyncio")
        self._client: Any = library.Valkey(connection_pool=library.ConnectionPool.from_url(url, max_connections=lanes))

    async def close(self) -> None:
        await self._client.aclose()

    async def empty_place(self) -> None:
        if self.place:
            await self._client.unlink(self.place)
        self.place = uuid.uuid4().hex
        await self._client.xgroup_create(self.place, _GROUP, id="0", mkstream=True)

    def prepared(self, texts: Sequence[str], lane: int) -> Sequence[dict[str, bytes]]:
        return [{"payload": f'"{text}"'.encode()} for text in texts]

    async def push(self, lane: int, messages: Sequence[dict[str, bytes]]) -> None:
        if len(messages) == 1:
            await self._client.xadd(self.place, messages[0])
            return
        pipeline = self._client.pipeline(transaction=False)
        for fields in messages:
            pipeline.xadd(self.place, fields)
        await pipeline.execute()

    async def pop(self, lane: int, count: int, *, wait: bool = False) -> Sequence[tuple[bytes, Any]]:
        block = _WAIT_MS if wait else None
        found = await self._client.xreadgroup(_GROUP, str(lane), {self.place: ">"}, count=count, block=block)
        return found[0][1] if found else []

    async def acknowledge(self, messages: Sequence[tuple[bytes, Any]]) -> None:
        await self._client.xack(self.place, _GROUP, *(entry_id for entry_id, _ in messages))
