"""A process that pushes, pops and acks on PostgreSQL until it is killed, and says each thing after it was answered.

pushed <id> <seq>      the store has answered a push
finished <id>          the store has accepted an ack
"""

from __future__ import annotations

import asyncio
import sys
from itertools import count

from forebay.broker.delivery import COMPLETED, Verdict
from forebay.broker.messages import Acknowledgement, PopRequest
from forebay.broker.stores.postgres import PostgresStore
from forebay.model.push_run import run_of_one
from forebay.model.queue import DEFAULT_GROUP

PARTITIONS = 3


def say(*words: object) -> None:
    # One write per line: a killed process leaves no line half told that was not half written.
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


async def produce(store: PostgresStore, run: str, partition: int) -> None:
    for number in count():
        names = [f"{run}:{partition}:{number * 3 + k}" for k in range(3)]
        pushed = await store.push([run_of_one("orders", str(partition), name.encode(), name) for name in names])
        for name, one in zip(names, pushed, strict=True):
            say("pushed", name, one.seq)


async def consume(store: PostgresStore) -> None:
    while True:
        popped = await store.pop(PopRequest(queue="orders", batch=4, partitions=2))
        answers = [
            Acknowledgement(m.partition_id, DEFAULT_GROUP, popped.lease_id, Verdict(m.transaction_id, COMPLETED))
            for m in popped.messages
        ]
        for acknowledged in await store.acknowledge(answers):
            if acknowledged.answered.is_accepted:
                say("finished", acknowledged.answered.transaction_id)


async def main(url: str, run: str) -> None:
    store = PostgresStore(url)
    await store.open(lambda queue, count: None)
    say("open")
    await asyncio.gather(*[produce(store, run, n) for n in range(PARTITIONS)], consume(store), consume(store))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:3]))
