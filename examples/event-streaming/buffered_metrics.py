# ruff: noqa: T201 - an example prints
"""Metrics at a high rate: QoS 0 pushes, which the server gathers in a file and stores many at a time.

forebay serve &
python examples/event-streaming/buffered_metrics.py

Ends with 1 if not every metric can be read afterwards.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import sys
import time
import urllib.request
import uuid

from forebay.client import AsyncClient

STORE_SECONDS_MAX = 60.0


async def publish(client: AsyncClient, queue: str, machine: str, count: int) -> None:
    """One machine's readings, a push each."""
    for number in range(count):
        reading = {"machine": machine, "number": number, "cpu": round(random.uniform(0, 100), 1)}
        # Stored after 100 ms at the latest, or as soon as 100 readings wait.
        await client.push(f"{queue}/{machine}", reading, buffer_ms=100, buffer_max=100)


async def wait_until_stored(client: AsyncClient, queue: str) -> None:
    async with asyncio.timeout(STORE_SECONDS_MAX):
        while queue in (await client.get("/api/v1/status/buffers"))["queues"]:
            await asyncio.sleep(0.02)


def store_writes(url: str) -> int:
    """How many writes to the store buffered messages have taken since the server started."""
    with urllib.request.urlopen(f"{url}/metrics/prometheus") as answer:
        lines = answer.read().decode().splitlines()
    return sum(int(line.split()[-1]) for line in lines if line.startswith("forebay_buffer_store_writes_total{"))


async def main(url: str, machines: int, count: int) -> int:
    queue = f"metrics-{uuid.uuid4().hex[:8]}"
    total = machines * count
    writes_before = store_writes(url)
    async with AsyncClient(url) as client:
        began = time.monotonic()
        await asyncio.gather(*(publish(client, queue, f"machine-{n}", count) for n in range(machines)))
        seconds = time.monotonic() - began
        print(f"accepted {total} metrics in {seconds:.2f} s, {total / seconds:,.0f} a second")
        await wait_until_stored(client, queue)
        stored = (await client.read_arrow(queue)).num_rows
    print(f"stored {stored} metrics with {store_writes(url) - writes_before} writes to the store, in queue {queue}")
    return 0 if stored == total else 1


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Push metrics with QoS 0 and see how few writes they take.")
    parser.add_argument("--server", default=os.environ.get("FOREBAY_URL", "http://127.0.0.1:6632"), metavar="URL")
    parser.add_argument("--machines", type=int, default=20)
    parser.add_argument("--count", type=int, default=50, help="readings of each machine")
    given = parser.parse_args()
    sys.exit(asyncio.run(main(given.server, given.machines, given.count)))
