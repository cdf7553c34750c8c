"""Opens the send queue of a directory in a mode, with all that a process of any mode has left there."""

from __future__ import annotations

import errno
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Literal, TypeVar

from forebay.clock import Clock
from forebay.errors import SendQueueLocked, SendQueueWriteFailed
from forebay.filesystem import Filesystem, Kind, is_disk_full
from forebay.sendqueue.queue import Codec, Limits, SendQueue
from forebay.sendqueue.queues.fastqueue import FastQueue, FastQueueOptions
from forebay.sendqueue.queues.hybrid import FIRST_FOLDER, HybridQueue
from forebay.sendqueue.queues.memory import MemoryQueue
from forebay.sendqueue.spilling import ALL_TO_DISK, Spilling

Batch = TypeVar("Batch")

Mode = Literal["memory", "disk", "hybrid"]
FAILOVER_FOLDER = "failover"
"""In the directory of a send queue: what its disk refused, if that could be written later."""


def open_send_queue(
    mode: Mode,
    directory: Path,
    limits: Limits,
    codec: Codec[Batch],
    clock: Clock,
    filesystem: Filesystem,
    *,
    options: FastQueueOptions | None = None,
    owner: str = "",
    spill_ratio: float = 0.8,
    is_fifo: bool = False,
) -> SendQueue[Batch]:
    """Raises SendQueueLocked, or OSError. `spill_ratio` and `is_fifo` are of mode `hybrid`.

    A directory that is opened later, at the first spill, and cannot be, is a disk that refuses: SendQueueWriteFailed.
    """
    is_in_use = False

    def open_disk(folder: Path) -> FastQueue[Batch]:
        try:
            return open_now(folder)
        except (OSError, SendQueueLocked) as error:
            if not is_in_use:
                raise
            refusal = error if isinstance(error, OSError) else OSError(errno.EBUSY, str(error))
            raise SendQueueWriteFailed(folder, refusal, is_disk_full=is_disk_full(refusal)) from error

    def open_now(folder: Path) -> FastQueue[Batch]:
        for above in reversed(folder.parents):
            if not is_there(above):
                filesystem.make_directory(above)
        return FastQueue(folder, limits, codec, clock, filesystem, options=options, owner=owner)

    def is_there(folder: Path) -> bool:
        return filesystem.status(folder).kind is Kind.DIRECTORY

    first = directory / FIRST_FOLDER
    if mode == "disk" and not is_there(first):
        return open_disk(directory)
    spilling = {"memory": None, "disk": Spilling(ALL_TO_DISK), "hybrid": Spilling(spill_ratio, is_fifo=is_fifo)}[mode]
    openers: dict[str, Callable[[], FastQueue[Batch]]] = {
        "open_disk": partial(open_disk, directory),
        "open_first": partial(open_disk, first),
    }
    memory = MemoryQueue(limits, codec, clock)
    queue = HybridQueue(
        memory, spilling=spilling, has_left_overs=is_there(directory), has_first=is_there(first), **openers
    )
    is_in_use = True
    return queue
