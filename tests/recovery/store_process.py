"""A process that pushes, pops and acks on an embedded store until it is killed, and says what it was told.

Usage: store_process.py DIRECTORY. Lines on standard output, each written after the answer came:
`pushed PARTITION NUMBER`, `acked PARTITION NUMBER`, `moved NUMBER` (a transaction: ack on `work`, push to `done`).
"""

from __future__ import annotations

import asyncio
import os
import sys

from forebay.broker.delivery import Verdict
from forebay.broker.messages import Acknowledgement, PopRequest
from forebay.broker.stores.embedded import EmbeddedStore
from forebay.model.push_run import run_of_one

GROUP = "__QUEUE_MODE__"


def tell(line: str) -> None:
    os.write(1, line.encode() + b"\n")


async def push(store: EmbeddedStore, partition: int, first: int) -> None:
    number = first
    while True:
        count = 1 + number % 3
        items = [
            run_of_one("work", f"p{partition}", b"%d" % (number + i), f"{partition}:{number + i}") for i in range(count)
        ]
        await store.push(items)
        for i in range(count):
            tell(f"pushed {partition} {number + i}")
        number += count


async def consume(store: EmbeddedStore) -> None:
    while True:
        popped = await store.pop(PopRequest("work", batch=7, partitions=2))
        if not popped.messages:
            await asyncio.sleep(0)
            continue
        if popped.messages[0].seq % 2:
            (completed,) = await store.complete([popped.lease_id])
            if completed is not None and completed.messages == len(popped.messages):
                for message in popped.messages:
                    tell(f"acked {message.partition[1:]} {message.payload.decode()}")
            continue
        for message in popped.messages:
            done = Acknowledgement(
                message.partition_id, GROUP, popped.lease_id, Verdict(message.transaction_id, "completed")
            )
            if int(message.payload) % 5:
                (outcome,) = await store.acknowledge([done])
                if outcome.answered.is_accepted:
                    tell(f"acked {message.partition[1:]} {message.payload.decode()}")
            else:
                result = run_of_one("done", "all", message.payload, f"done:{message.transaction_id}")
                moved = await store.transact([result], [done])
                if not moved.error:
                    tell(f"moved {message.partition[1:]} {message.payload.decode()}")


async def main(directory: str) -> None:
    store = EmbeddedStore(directory)
    await store.open(lambda queue, count: None)
    starts = {0: 0, 1: 0, 2: 0}
    if await store.queue("work"):
        for partition in await store.partitions("work", 10, 0):
            starts[int(partition.name[1:])] = partition.messages
    tell("open")
    await asyncio.gather(*(push(store, number, first) for number, first in starts.items()), consume(store))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
