# ruff: noqa: T201 - an example prints
"""A slow action class is flooded until it is cold; Valkey is killed and comes back empty; then workers drain it.

python examples/dispatch/flood.py

It starts a Valkey and a Forebay of its own in a temporary directory, with room for 1,000 warm parcels, and prints what
`GET /api/v2/metrics/queues/detailed` says after each step. Ends with 1 if a parcel was lost, or worked on twice.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from forebay.client import AsyncClient, DispatchWorker, ParcelWork
from forebay.testing.running_server import RunningServer
from forebay.testing.servers import ValkeyServer

PARCELS = 3_000
MESSAGES_EACH = 5
WARM_MAX = 1_000
SECONDS_MAX = 120.0
FLOW = {
    "source": {"queue": "images", "parcelMessages": MESSAGES_EACH},
    "steps": [{"action": "shrink", "actionClass": "images.Shrink"}],
}


async def counts(client: AsyncClient) -> tuple[int, int]:
    """Parcels that wait warm, and cold."""
    told = await client.get("/api/v2/metrics/queues/detailed")
    return sum(row["count"] for row in told["warmQueues"]), sum(row["count"] for row in told["coldQueues"])


async def show(client: AsyncClient, what: str) -> None:
    warm, cold = await counts(client)
    print(f"{what:<44} warm {warm:>5}   cold {cold:>5}", flush=True)


async def flood(client: AsyncClient) -> None:
    await client.define_flow("thumbnails", FLOW)
    for first in range(0, PARCELS * MESSAGES_EACH, 1_000):
        await client.push_many("images", [{"image": number} for number in range(first, first + 1_000)])
    deadline = time.monotonic() + SECONDS_MAX
    while sum(await counts(client)) < PARCELS:
        if time.monotonic() > deadline:
            raise SystemExit(f"only {await counts(client)} parcels were cut")
        await asyncio.sleep(0.1)


async def drain(client: AsyncClient, seen: Counter[int], until: int) -> None:
    """Two workers, until so many parcels are done."""

    async def shrink(work: ParcelWork) -> None:
        async for message in work.messages():
            seen[message["seq"]] += 1

    workers = [DispatchWorker(client, {"images.*": shrink}, parcels=50, wait_seconds=1.0) for _ in range(2)]
    running = [asyncio.create_task(worker.run()) for worker in workers]
    deadline = time.monotonic() + SECONDS_MAX
    while sum(seen.values()) < until * MESSAGES_EACH and time.monotonic() < deadline:
        await asyncio.sleep(0.05)
    for worker in workers:
        worker.stop()
    await asyncio.gather(*running)


async def main() -> int:
    seen: Counter[int] = Counter()
    with tempfile.TemporaryDirectory() as folder, ValkeyServer() as valkey:
        arguments = ["--warm", valkey.url, "--dispatch-in-memory-queue-size", str(WARM_MAX)]
        arguments += ["--dispatch-metrics-time", "0s"]
        with RunningServer(Path(folder) / "data", arguments=arguments) as server:
            async with AsyncClient(server.url) as client:
                await flood(client)
                await show(client, f"{PARCELS:,} parcels for room for {WARM_MAX:,}:")
                await drain(client, seen, 500)
                await show(client, "two workers did the first 500:")
                valkey.stop("kill")
                await drain(client, seen, 1_000)
                await show(client, "Valkey is killed; leases ask the database:")
                valkey.start()
                await drain(client, seen, 1_500)
                await show(client, "Valkey is back, empty, and rebuilt:")
                await drain(client, seen, PARCELS)
                await show(client, "drained:")
    again = sum(count > 1 for count in seen.values())
    print(f"{len(seen):,} of {PARCELS * MESSAGES_EACH:,} messages were worked on, {again} of them twice")
    return 0 if len(seen) == PARCELS * MESSAGES_EACH and not again else 1


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
