"""Make the golden send queues and the JSON file that says which batches must be read from them.

Usage, from the root of the checkout::

    .venv/bin/python tests/data/sendqueue/make_golden.py NEW_DIRECTORY

The golden bytes beside this script were made once and are never made again: queues in these formats are on people's
disks. The script only writes where nothing is, and is kept to show how each byte came about.

| directory | how it came about |
|---|---|
| `v2` | five batches pushed and the queue closed: four chunks, blocks with and without Snappy, meta of version 2 |
| `confirmed` | the same; the second and fourth confirmed, and a sync (a chunk is gone); then a sixth, after the meta |
| `v1` | as metrics-governor writes it: blocks without CRC, one with Snappy, meta of version 1, which counts nothing |
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from struct import Struct

import cramjam

from forebay.clock import SystemClock
from forebay.export.batch import CODEC, ExportBatch, encode
from forebay.filesystem import RealFilesystem
from forebay.otlp.kinds import Kind
from forebay.sendqueue.disk.blocks import IS_SNAPPY
from forebay.sendqueue.queue import Limits
from forebay.sendqueue.queues.fastqueue import LOCK_FILE, FastQueue, FastQueueOptions

NEW_YEAR_US = 1_767_225_600_000_000
"""2026-01-01T00:00:00Z."""
OPTIONS = FastQueueOptions(inmemory_blocks=100, chunk_bytes=300, write_buffer_bytes=64)
LIMITS = Limits(1000, 1 << 20)


def batches() -> list[ExportBatch]:
    """Six batches: bodies that Snappy makes smaller, and bodies that it does not."""
    bodies = [
        b"compressible " * 20,
        bytes(range(200)),
        b"x",
        b"again and again " * 10,
        bytes(range(255, 100, -1)),
        b"y",
    ]
    kinds = [Kind.METRICS, Kind.TRACES, Kind.LOGS, Kind.REMOTE_WRITE, Kind.METRICS, Kind.METRICS]
    return [
        ExportBatch(kind, body, index + 1, NEW_YEAR_US + index, f"key-{index}")
        for index, (kind, body) in enumerate(zip(kinds, bodies, strict=True))
    ]


def open_queue(directory: Path) -> FastQueue[ExportBatch]:
    return FastQueue(directory, LIMITS, CODEC, SystemClock(), RealFilesystem(), options=OPTIONS)


def make_closed(directory: Path) -> None:
    queue = open_queue(directory)
    for batch in batches()[:5]:
        queue.push(batch)
    queue.close()
    (directory / LOCK_FILE).unlink()


def make_confirmed(directory: Path) -> None:
    working = directory.with_name(directory.name + ".working")
    queue = open_queue(working)
    for batch in batches()[:5]:
        queue.push(batch)
    queue.sync()
    claimed = [queue.claim() for _ in range(5)]
    for entry in (claimed[1], claimed[3]):
        if entry is not None:
            queue.confirm(entry)
    queue.sync()
    meta = (working / "fastqueue.meta").read_bytes()
    queue.push(batches()[5])
    queue.close()
    (working / LOCK_FILE).unlink()
    # Killed before the last meta was written: the sixth batch stands behind what meta vouches for.
    (working / "fastqueue.meta").write_bytes(meta)
    shutil.copytree(working, directory)
    shutil.rmtree(working)


def make_originals(directory: Path) -> None:
    stream = b""
    for index, batch in enumerate(batches()[:5]):
        data, flag = encode(batch), 0
        if index == 0:
            data, flag = bytes(cramjam.snappy.compress_raw(data)), IS_SNAPPY
        stream += Struct("<Q").pack(len(data) | flag) + data
    directory.mkdir()
    (directory / f"{0:016x}").write_bytes(stream)
    meta = {"name": "fastqueue", "reader_offset": 0, "writer_offset": len(stream), "version": 1}
    (directory / "fastqueue.meta").write_text(json.dumps(meta, indent=2))


def told(numbers: list[int]) -> list[dict[str, object]]:
    return [_told(batches()[number]) for number in numbers]


def _told(batch: ExportBatch) -> dict[str, object]:
    head = {"kind": batch.kind.value, "items": batch.items, "key": batch.key}
    return {**head, "acceptedUs": batch.accepted_us, "body": batch.body.hex()}


def main(target: Path) -> None:
    target.mkdir()
    make_closed(target / "v2")
    make_confirmed(target / "confirmed")
    make_originals(target / "v1")
    expected = {"v2": told([0, 1, 2, 3, 4]), "confirmed": told([0, 2, 4, 5]), "v1": told([0, 1, 2, 3, 4])}
    (target / "expected.json").write_text(json.dumps(expected, indent=2) + "\n", encoding="ascii")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
