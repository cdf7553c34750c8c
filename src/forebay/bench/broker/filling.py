"""Fills a queue through the store itself, before a server is started on it: the quickest way to a big backlog.

The records are as eight producers over HTTP would make them: batches of 100 messages, each batch for one partition,
each message with an id, as Forebay's own client gives it one.

Usage: python -m forebay.bench.broker.filling STORE DATA_DIRECTORY QUEUE MESSAGES PARTITIONS. Prints how many messages
are stored, a line now and then.
"""

from __future__ import annotations

import asyncio
import itertools
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import cast

from forebay.bench.broker.plan import BATCH, BATCH_CONNECTIONS, text
from forebay.broker.store import Store
from forebay.errors import Permanent
from forebay.model.ids import minted_ids
from forebay.model.push_run import PushRun

_TELLS = 10


def fill(store: str, data: Path, queue: str, messages: int, partitions: int, tell: Callable[[str], None]) -> None:
    """In a process of its own, so that its memory is gone when the figures begin."""
    arguments = [store, str(data), queue, str(messages), str(partitions)]
    command = [sys.executable, "-m", __name__, *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
        try:
            for line in process.stdout or ():
                tell(f"filling {queue}: {int(line):,} of {messages:,} messages")
        except BaseException:
            process.kill()
            raise
    if process.returncode:
        raise Permanent(f"filling {queue} with {messages:,} messages ended with code {process.returncode}, see above")


async def _fill(store: Store, queue: str, messages: int, partitions: int) -> None:
    await store.open(lambda name, count: None)
    payloads = [f'"{text()}"'.encode() for _ in range(BATCH)]
    starts = iter(range(0, messages, BATCH))
    stored = itertools.count(1)
    tell_every = max(1, messages // BATCH // _TELLS) * BATCH

    async def produce() -> None:
        for start in starts:
            partition = str(start // BATCH % partitions)
            await store.push([PushRun.of(queue, partition, payloads, minted_ids(BATCH))])
            pushed = next(stored) * BATCH
            if pushed % tell_every == 0 or pushed >= messages:
                sys.stdout.write(f"{pushed}\n")
                sys.stdout.flush()

    await asyncio.gather(*(produce() for _ in range(BATCH_CONNECTIONS)))
    await store.close()


def _store(url: str, data: Path) -> Store:
    if url == "embedded":
        from forebay.broker.stores.embedded import EmbeddedStore

        return cast(Store, EmbeddedStore(data))
    from forebay.broker.stores.postgres import PostgresStore

    return cast(Store, PostgresStore(url))


if __name__ == "__main__":
    import uvloop

    given_store, given_data, given_queue, given_messages, given_partitions = sys.argv[1:]
    opened = _store(given_store, Path(given_data))
    uvloop.run(_fill(opened, given_queue, int(given_messages), int(given_partitions)))
