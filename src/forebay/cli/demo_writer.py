"""The process that `forebay demo` kills: appends click events and says after each append what is durable.

Usage: python -m forebay.cli.demo_writer DIRECTORY COUNT OPTIONS, with the log's options as JSON. Prints the last seq
that is durable, a line per append.
"""

from __future__ import annotations

import json
import os
import sys
import time

from forebay.commitlog import CommitLog, LogOptions
from forebay.model.message import MessageBatch

BATCH = 100
PAGES = ("/", "/search", "/cart", "/checkout", "/help")


def click(seq: int) -> bytes:
    """The event that belongs to a seq: the reader computes it again and compares."""
    event = {"user": f"user-{seq * 7919 % 5000}", "page": PAGES[seq % len(PAGES)], "ms": seq * 31 % 900, "n": seq}
    return json.dumps(event).encode()


def main(directory: str, count: int, options: LogOptions) -> None:
    with CommitLog.open(directory, options) as log:
        while log.next_seq <= count:
            first = log.next_seq
            size = min(BATCH, count + 1 - first)
            payloads = [click(seq) for seq in range(first, first + size)]
            partitions = [b"user-%d" % (seq * 7919 % 5000) for seq in range(first, first + size)]
            _, last = log.append(MessageBatch(payloads, [time.time_ns() // 1000] * size, partitions))
            os.write(sys.stdout.fileno(), b"%d\n" % last)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), LogOptions(**json.loads(sys.argv[3])))
