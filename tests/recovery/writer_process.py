"""A process that appends as fast as it can and says what was acknowledged, until it is killed.

Usage: writer_process.py DIRECTORY THREADS. Each line on standard output is `first_seq last_seq thread number`, written
after the append returned: what stands there was acknowledged.
"""

from __future__ import annotations

import os
import sys
import threading
import time

from forebay.commitlog import CommitLog, LogOptions
from forebay.model.message import MessageBatch


def main(directory: str, threads: int) -> None:
    log = CommitLog.open(directory, LogOptions(segment_bytes=200_000))
    os.write(1, b"open %d\n" % log.next_seq)

    def produce(thread: int) -> None:
        number = 0
        while True:
            count = 1 + number % 4
            payloads = [b"%d %d %d " % (thread, number + i, os.getpid()) + b"x" * (number % 900) for i in range(count)]
            first, last = log.append(MessageBatch(payloads, [time.time_ns() // 1000] * count))
            os.write(1, b"%d %d %d %d\n" % (first, last, thread, number))
            number += count

    for thread in range(threads):
        threading.Thread(target=produce, args=(thread,), daemon=True).start()
    threading.Event().wait()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
