"""A process that pushes to a send queue and confirms some of it, and says so, until it is killed.

Usage: sendqueue_process.py DIRECTORY MODE FIRST SYNC_SECONDS PACE_SECONDS. Batches are numbered from FIRST on, one each
PACE_SECONDS. Each line on standard output was written after what it tells had happened; times are those of the
monotonic clock, in nanoseconds.

    pushed NUMBER TIME        when the push returned
    spilled NUMBER TIME       the same, of a batch that a hybrid queue put on disk
    confirmed NUMBER TIME
    synced TIME               when a sync began that has returned now
"""

from __future__ import annotations

import os
import sys
import threading
import time
from pathlib import Path

from forebay.assemble_export import send_queue
from forebay.clock import SystemClock
from forebay.config.export_model import SendQueueSettings
from forebay.errors import SendQueueFull
from forebay.export.batch import ExportBatch
from forebay.otlp.kinds import Kind
from forebay.sendqueue.queues.hybrid import HybridQueue

BATCHES_MAX = 400


def main(directory: str, mode: str, first: int, sync_seconds: float, pace_seconds: float) -> None:
    settings = SendQueueSettings.model_validate(
        {"mode": mode, "max_size": BATCHES_MAX, "inmemory_blocks": 32, "chunk_size": "16Ki", "write_buffer_size": 1024}
    )
    clock = SystemClock()
    queue = send_queue(settings, Path(directory), clock)

    def keep_synced() -> None:
        while True:
            began = time.monotonic_ns()
            queue.sync()
            os.write(1, b"synced %d\n" % began)
            time.sleep(sync_seconds)

    os.write(1, b"open\n")
    threading.Thread(target=keep_synced, daemon=True).start()
    for number in range(first, sys.maxsize):
        if pace_seconds:
            time.sleep(pace_seconds)
        spilled = queue.spilled if isinstance(queue, HybridQueue) else 0
        try:
            queue.push(
                ExportBatch(Kind.METRICS, b"%d " % number + b"x" * (number % 900), 1, clock.now_us(), str(number))
            )
        except SendQueueFull:
            word = b""
        else:
            is_spilled = isinstance(queue, HybridQueue) and queue.spilled > spilled
            word = b"spilled" if is_spilled else b"pushed"
            os.write(1, b"%b %d %d\n" % (word, number, time.monotonic_ns()))
        # Two of three are confirmed while there is room, so that queues fill up slowly; of a full one more are.
        if not word or number % 3:
            entry = queue.claim()
            if entry is not None:
                queue.confirm(entry)
                os.write(1, b"confirmed %b %d\n" % (entry.batch.key.encode(), time.monotonic_ns()))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4]), float(sys.argv[5]))
