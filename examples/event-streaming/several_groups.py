# ruff: noqa: T201 - an example prints
"""One stream, three groups: each gets every event. Two acknowledge by taking (auto-ack), one when the work is done.

forebay serve &
python examples/event-streaming/several_groups.py

Ends with 1 if a group did not get every event, or if an alert was not sent.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import uuid

from forebay.client import AsyncClient

HOT = 90
SECONDS_MAX = 60.0


class Alerts:
    """Sends alerts through something that fails the first time."""

    def __init__(self) -> None:
        self.seen: set[int] = set()
        self.sent: list[int] = []
        self.failures = 0

    def handle(self, event: dict[str, int]) -> None:
        if event["cpu"] > HOT and not self.failures:
            self.failures += 1
            raise ConnectionError("the pager does not answer")
        if event["cpu"] > HOT:
            self.sent.append(event["number"])
        self.seen.add(event["number"])


async def follow(client: AsyncClient, address: str, count: int) -> set[int]:
    """With auto-ack: delivered is done. What is lost between the server and here is not delivered again."""
    seen: set[int] = set()
    async for event in client.take(address, batch=10, auto_ack=True):
        seen.add(event.data["number"])
        if len(seen) == count:
            break
    return seen


async def alert(client: AsyncClient, address: str, count: int) -> Alerts:
    """Without: an event that was not answered, or answered as failed, comes again, before those behind it."""
    alerts = Alerts()
    while len(alerts.seen) < count:
        for event in await client.pop(address, batch=10, wait=True):
            try:
                alerts.handle(event.data)
            except ConnectionError as error:
                await client.ack(event, "failed", error=str(error))
                break  # what is left of the batch is delivered again, behind this one
            await client.ack(event)
    return alerts


async def main(url: str, count: int) -> int:
    queue = f"readings-{uuid.uuid4().hex[:8]}"
    events = [{"number": n, "cpu": (n * 37) % 101} for n in range(count)]
    hot = [event["number"] for event in events if event["cpu"] > HOT]
    async with AsyncClient(url) as client, asyncio.timeout(SECONDS_MAX):
        await client.configure(queue, {"leaseTime": 5})
        pushing = client.push_many(f"{queue}/room-1", events, buffer_ms=50)
        _, dashboard, analytics, alerts = await asyncio.gather(
            pushing,
            follow(client, f"{queue}@dashboard", count),
            follow(client, f"{queue}@analytics", count),
            alert(client, f"{queue}@alerts", count),
        )
    print(f"dashboard got {len(dashboard)}, analytics {len(analytics)}, alerts {len(alerts.seen)} of {count} events")
    print(
        f"alerts sent {len(alerts.sent)} of {len(hot)}, in order: {alerts.sent == hot}; failed {alerts.failures} time"
    )
    everything = set(range(count))
    is_good = dashboard == analytics == alerts.seen == everything and alerts.sent == hot
    return 0 if is_good else 1


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Follow one stream with three groups.")
    parser.add_argument("--server", default=os.environ.get("FOREBAY_URL", "http://127.0.0.1:6632"), metavar="URL")
    parser.add_argument("--count", type=int, default=200)
    given = parser.parse_args()
    sys.exit(asyncio.run(main(given.server, given.count)))
