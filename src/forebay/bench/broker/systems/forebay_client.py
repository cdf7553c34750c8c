"""Forebay through `forebay.client.AsyncClient`. Each lane pushes to a partition of its own."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Sequence
from http import HTTPStatus
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from forebay.client import Address, AsyncClient, Message
from forebay.errors import Transient

_REQUEST_SECONDS_MAX = 60
_PAUSES_SECONDS = (1, 2, 4, 8, 16)
_WAIT_SECONDS = 30


class ForebayClient:
    def __init__(self) -> None:
        self.place = ""

    async def open(self, url: str, lanes: int) -> None:
        self._url = url
        self._client = AsyncClient(url)

    async def close(self) -> None:
        await self._client.close()

    async def empty_place(self) -> None:
        if self.place:
            await asyncio.to_thread(delete_queue, self._url, self.place)
        self.place = f"bench-{uuid.uuid4().hex}"
        await self._client.configure(self.place)

    def prepared(self, texts: Sequence[str], lane: int) -> Sequence[str]:
        return texts

    async def push(self, lane: int, messages: Sequence[str]) -> None:
        address = Address(self.place, str(lane))
        if len(messages) == 1:
            await self._client.push(address, messages[0])
        else:
            await self._client.push_many(address, messages)

    async def pop(self, lane: int, count: int, *, wait: bool = False) -> Sequence[Message]:
        return await self._client.pop(Address(self.place), batch=count, wait=wait, timeout=_WAIT_SECONDS)

    async def acknowledge(self, messages: Sequence[Message]) -> None:
        if not await self._client.ack(messages):
            raise Transient(f"an ack of {len(messages)} messages was refused")


def delete_queue(url: str, queue: str) -> None:
    """Away with it. A server whose disk is behind with what was just pushed gets time to catch up."""
    request = Request(f"{url}/api/v1/resources/queues/{queue}", method="DELETE")
    for pause in (*_PAUSES_SECONDS, None):
        try:
            urlopen(request, timeout=_REQUEST_SECONDS_MAX).close()
        except HTTPError as error:
            if error.code != HTTPStatus.SERVICE_UNAVAILABLE or pause is None:
                detail = error.read().decode(errors="replace")
                raise Transient(f"{queue} could not be deleted: {error.code} {detail}") from error
            time.sleep(pause)
        else:
            return
