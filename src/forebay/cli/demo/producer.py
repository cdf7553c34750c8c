"""What pushes clicks and metrics, and counts what was answered."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import aiohttp

from forebay.cli.demo.clicks import Clicks
from forebay.cli.demo.metrics import otlp_request
from forebay.cli.demo.pipeline import DemoFailed
from forebay.client import AsyncClient

CLICKS = "clicks"
BATCH_CLICKS_MAX = 1000
METRICS_SECONDS_MAX = 60.0
RETRY_SECONDS = 0.2

Advance = Callable[[float], None]


class Producer:
    """Clicks go through the client, metrics over OTLP to the receiver."""

    def __init__(self, clicks: Clicks, client: AsyncClient, receiver_url: str) -> None:
        self._clicks = clicks
        self._client = client
        self._receiver_url = receiver_url
        self.batch_clicks = min(BATCH_CLICKS_MAX, clicks.count // 50)
        self.accepted = 0
        self.repeated = 0
        self.metrics_requests = 0

    async def push(self, start: int, end: int, advance: Advance) -> None:
        """A batch of clicks from the number `start` on, none of them as high as `end`."""
        batch = [self._clicks.click(n) for n in range(start, min(start + self.batch_clicks, end))]
        answers = await self._client.push_many(CLICKS, batch)
        self.accepted += len(answers)
        self.repeated += sum(answer.status == "duplicate" for answer in answers)
        advance(len(answers))

    async def push_closing(self) -> None:
        await self._client.push(CLICKS, self._clicks.closing())

    async def push_metrics(self) -> None:
        """The next metrics request; again while nothing listens, which is safe: nothing was accepted then."""
        body = otlp_request(self.metrics_requests)
        async with asyncio.timeout(METRICS_SECONDS_MAX), aiohttp.ClientSession() as session:
            while True:
                try:
                    headers = {"Content-Type": "application/x-protobuf"}
                    async with session.post(self._receiver_url, data=body, headers=headers) as answer:
                        if answer.status != 200:
                            raise DemoFailed(f"metrics were answered with {answer.status}: {await answer.text()}")
                        break
                except aiohttp.ClientConnectorError:
                    await asyncio.sleep(RETRY_SECONDS)
        self.metrics_requests += 1
