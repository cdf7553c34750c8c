"""RabbitMQ: a durable queue, persistent messages, publisher confirms; each batch waits for all its confirms."""

from __future__ import annotations

import asyncio
import importlib
import uuid
from collections.abc import Sequence
from typing import Any

from forebay.bench.broker.systems.system import PushesOnly


class RabbitQueue(PushesOnly):
    def __init__(self) -> None:
        self.place = ""

    async def open(self, url: str, lanes: int) -> None:
        self._library: Any = importlib.import_module("aio_pika")
        self._connections = [await self._library.connect(url) for _ in range(lanes)]
        self._channels = [await connection.channel(publisher_confirms=True) for connection in self._connections]

    async def close(self) -> None:
        for connection in self._connections:
            await connection.close()

    async def empty_place(self) -> None:
        channel = self._channels[0]
        if self.place:
            await channel.queue_delete(self.place)
        self.place = uuid.uuid4().hex
        await channel.declare_queue(self.place, durable=True)

    def prepared(self, texts: Sequence[str], lane: int) -> list[bytes]:
        return [f'"{text}"'.encode() for text in texts]

    async def push(self, lane: int, messages: list[bytes]) -> None:
        exchange, persistent = self._channels[lane].default_exchange, self._library.DeliveryMode.PERSISTENT
        made = [self._library.Message(payload, delivery_mode=persistent) for payload in messages]
        await asyncio.gather(*(exchange.publish(message, routing_key=self.place) for message in made))
