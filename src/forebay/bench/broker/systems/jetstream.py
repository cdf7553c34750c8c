"""NATS JetStream on files: asynchronous publishing, each batch waits for all its acknowledgements."""

from __future__ import annotations

import asyncio
import importlib
import uuid
from collections.abc import Sequence
from typing import Any

from forebay.bench.broker.systems.system import PushesOnly


class JetStream(PushesOnly):
    def __init__(self) -> None:
        self.place = ""

    async def open(self, url: str, lanes: int) -> None:
        nats = importlib.import_module("nats")
        self._connections: list[Any] = [await nats.connect(url) for _ in range(lanes)]
        self._lanes = [connection.jetstream() for connection in self._connections]

    async def close(self) -> None:
        for connection in self._connections:
            await connection.close()

    async def empty_place(self) -> None:
        if self.place:
            await self._lanes[0].delete_stream(self.place)
        self.place = uuid.uuid4().hex
        # File storage is the default.
        await self._lanes[0].add_stream(name=self.place, subjects=[f"{self.place}.*"])

    def prepared(self, texts: Sequence[str], lane: int) -> list[bytes]:
        return [f'"{text}"'.encode() for text in texts]

    async def push(self, lane: int, messages: list[bytes]) -> None:
        publish, subject = self._lanes[lane].publish_async, f"{self.place}.{lane}"
        await asyncio.gather(*[await publish(subject, payload) for payload in messages])
