"""Push to many queues, close, and again, with few file handles. Prints what it counted, as JSON.

With `unsynced` at the end the logs sync nothing: no power is cut here, and a new queue costs the disk fifteen syncs.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import sys
import time
from pathlib import Path

from fixtures.store_steps import item
from forebay.broker.messages import PopRequest
from forebay.broker.stores.embedded import EmbeddedStore
from forebay.filesystem import Buffers, RealFile, RealFilesystem
from forebay.model.queue import DEFAULT_GROUP


class UnsyncedFile(RealFile):
    def sync(self) -> None: ...

    def write_durably_at(self, buffers: Buffers, position: int) -> int:
        return self.write_at(buffers, position)


class UnsyncedFilesystem(RealFilesystem):
    def open(self, path: Path, *, write: bool = False, create: bool = False, append: bool = False) -> RealFile:
        found = super().open(path, write=write, create=create, append=append)
        return UnsyncedFile(found._fd)

    def sync_directory(self, path: Path) -> None: ...


def handles() -> int:
    return len(os.listdir("/proc/self/fd"))  # noqa: PTH208 -- names, not paths


async def main(directory: Path, queues: int, filesystem: RealFilesystem) -> None:
    most = 0
    seconds: dict[str, float] = {}
    for round_number in range(2):
        started = time.monotonic()
        store = EmbeddedStore(directory, filesystem=filesystem)
        await store.open(lambda queue, count: None)
        seconds[f"open {round_number}"] = time.monotonic() - started
        most = max(most, handles())
        started = time.monotonic()
        for start in range(0, queues, 50):
            names = [f"q{number}" for number in range(start, min(start + 50, queues))]
            await asyncio.gather(*(store.push([item(f"{round_number}", queue=name)]) for name in names))
            most = max(most, handles())
        seconds[f"push {round_number}"] = time.monotonic() - started
        await store.close()
    store = EmbeddedStore(directory, filesystem=filesystem)
    await store.open(lambda queue, count: None)
    wrong = 0
    for number in range(queues):
        popped = await store.pop(PopRequest(queue=f"q{number}", group=DEFAULT_GROUP, batch=10))
        wrong += [message.transaction_id for message in popped.messages] != ["0", "1"]
    most = max(most, handles())
    await store.close()
    sys.stdout.write(json.dumps({"most": most, "wrong": wrong, "seconds": seconds}))


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_NOFILE, (int(sys.argv[3]),) * 2)
    disk = UnsyncedFilesystem() if "unsynced" in sys.argv else RealFilesystem()
    asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2]), disk))
