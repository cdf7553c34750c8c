"""`forebay bench sendqueue`: the send queue beside what it is made of, and beside what people would use in its place.

| figure | beside | goal |
|---|---|---|
| memory: push, claim, confirm | `queue.Queue`: put, get | 0.25 |
| disk: push and sync, 50 KiB | a raw buffered append of the same compressed bytes, and one sync | 0.7 |
| disk: push and sync, 1 KiB | persist-queue, its file and its SQLite queue | 10 |
| hybrid below its threshold | memory | at most 1.2 |
| opening a queue of 1M batches | opening one of 100 | at most 1.5 |

Of large batches compression is the cost, of small ones what a queue does for each: persist-queue, which does not
compress, is beside batches of 1 KiB. The raw append is given blocks that are compressed already: what is compared is
how they get to the disk. A second line beside it, without a goal, compresses each batch too.
"""

from __future__ import annotations

import os
import queue
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from forebay.bench import peers
from forebay.bench.harness import Figure, Measure, at_least, at_most, for_information, rate
from forebay.clock import SystemClock
from forebay.export.batch import CODEC, ExportBatch, encode
from forebay.filesystem import RealFilesystem
from forebay.otlp.kinds import Kind
from forebay.sendqueue.disk.blocks import packed
from forebay.sendqueue.queue import Limits, SendQueue
from forebay.sendqueue.queues.fastqueue import FastQueue, FastQueueOptions
from forebay.sendqueue.queues.hybrid import HybridQueue
from forebay.sendqueue.queues.memory import MemoryQueue
from forebay.sendqueue.spilling import Spilling

BATCH_BYTES = 50 << 10
BUFFER_BYTES = 256 << 10
OPENINGS = 20
VARIETY = 32


@dataclass(frozen=True, slots=True)
class SendQueuePlan:
    """How much is measured."""

    rounds: int = 5
    in_memory: int = 100_000
    on_disk: int = 4000
    persisted: int = 500
    recovered: int = 1_000_000

    @classmethod
    def quick(cls, rounds: int = 2) -> SendQueuePlan:
        """All of it, but small: for trying it out, and for the tests."""
        return cls(rounds, 5000, 100, 10, 5000)


def suite(directory: Path, plan: SendQueuePlan, tell: Callable[[str], None]) -> Iterator[Figure]:
    """All figures. `directory` is scratch on the disk to measure."""
    yield _memory(plan)
    yield _hybrid(directory, plan)
    yield from _disk(directory, plan)
    tell(f"writing {plan.recovered:,} batches for the recovery")
    yield _recovery(directory, plan)


def batch(size: int = BATCH_BYTES) -> ExportBatch:
    """Bytes of which Snappy saves about half, as it does of telemetry."""
    body = b"".join(os.urandom(16) + b"service.name=checkout;" for _ in range(size // 38 + 1))[:size]
    return ExportBatch(Kind.METRICS, body, 500, time.time_ns() // 1000)


def _memory_queue(count: int) -> MemoryQueue[ExportBatch]:
    return MemoryQueue(Limits(2 * count, 1 << 60), CODEC, SystemClock())


def _through(send_queue: SendQueue[ExportBatch], one: ExportBatch, count: int) -> None:
    """In and out, a hundred at a time, as workers and receivers take turns."""
    for _ in range(count // 100):
        for _ in range(100):
            send_queue.push(one)
        for _ in range(100):
            entry = send_queue.claim()
            if entry is not None:
                send_queue.confirm(entry)


def _memory(plan: SendQueuePlan) -> Figure:
    one = batch()

    def theirs() -> None:
        line: queue.Queue[ExportBatch] = queue.Queue(2 * plan.in_memory)
        for _ in range(plan.in_memory // 100):
            for _ in range(100):
                line.put(one)
            for _ in range(100):
                line.get()

    return at_least(
        0.25,
        "memory: push, claim, confirm",
        "batches/s",
        lambda: rate(plan.in_memory, lambda: _through(_memory_queue(plan.in_memory), one, plan.in_memory)),
        "queue.Queue: put, get",
        lambda: rate(plan.in_memory, theirs),
        rounds=plan.rounds,
        note="one thread; ours bounded by batches and bytes",
    )


def _hybrid(directory: Path, plan: SendQueuePlan) -> Figure:
    one = batch()

    def open_disk() -> FastQueue[ExportBatch]:
        return _fast_queue(directory / "hybrid")

    def seconds(send_queue: SendQueue[ExportBatch]) -> float:
        return 1e6 / rate(plan.in_memory, lambda: _through(send_queue, one, plan.in_memory))

    def hybrid() -> SendQueue[ExportBatch]:
        return HybridQueue(_memory_queue(plan.in_memory), open_disk, Spilling(0.8), has_left_overs=False)

    return at_most(
        1.2,
        "hybrid below its threshold: push, claim, confirm",
        "µs",
        lambda: seconds(hybrid()),
        "memory",
        lambda: seconds(HybridQueue(_memory_queue(plan.in_memory), open_disk, None, has_left_overs=False)),
        rounds=plan.rounds,
        note="the mode `memory` as it is served: it too has a disk behind it for a stop",
    )


def _fast_queue(directory: Path, options: FastQueueOptions | None = None) -> FastQueue[ExportBatch]:
    limits = Limits(1 << 40, 1 << 60)
    return FastQueue(directory, limits, CODEC, SystemClock(), RealFilesystem(), options=options)


def _disk(directory: Path, plan: SendQueuePlan) -> Iterator[Figure]:
    batches = [batch() for _ in range(VARIETY)]
    encoded = [encode(one) for one in batches]
    blocks = [packed(data, 0, compress=True) for data in encoded]
    name = "disk: push and sync, 50 KiB"
    ours = _pushing(directory, batches, plan.on_disk)
    yield at_least(
        0.7,
        name,
        "batches/s",
        ours,
        "raw buffered append of the same compressed bytes",
        _appending(directory, lambda index: blocks[index], plan.on_disk),
        rounds=plan.rounds,
        note="ours compresses and checks each batch",
    )
    yield for_information(
        name,
        "batches/s",
        ours,
        "the same append that compresses each batch",
        _appending(directory, lambda index: packed(encoded[index], 0, compress=True), plan.on_disk),
        rounds=plan.rounds,
        note="the same compression on both sides",
    )
    small = [batch(1024) for _ in range(VARIETY)]
    ours = _pushing(directory, small, 10 * plan.on_disk)
    for label, peer in peers.persist_queues(directory):
        put = peers.putter(peer, [encode(one) for one in small], plan.persisted)
        name, note = "disk: push and sync, 1 KiB", "one put each: it has no sync"
        yield at_least(10, name, "batches/s", ours, label, put, rounds=plan.rounds, note=note)


def _pushing(directory: Path, batches: list[ExportBatch], count: int) -> Measure:
    """How many batches a new queue takes, until all are durable."""
    numbers = iter(range(1 << 30))

    def measure() -> float:
        directory_of_round = directory / f"disk-{count}-{next(numbers)}"
        fast_queue = _fast_queue(directory_of_round)

        def push_all() -> None:
            for index in range(count):
                fast_queue.push(batches[index % VARIETY])
            fast_queue.sync()

        found = rate(count, push_all)
        fast_queue.close()
        _remove(directory_of_round)
        return found

    return measure


def _appending(directory: Path, block_of: Callable[[int], bytes], count: int) -> Measure:
    """How many blocks a buffered file takes, until all are durable."""
    path = directory / "raw"

    def append_all() -> None:
        with path.open("wb", buffering=BUFFER_BYTES) as file:
            for index in range(count):
                file.write(block_of(index % VARIETY))
            file.flush()
            os.fdatasync(file.fileno())

    def measure() -> float:
        found = rate(count, append_all)
        path.unlink()
        return found

    return measure


def _remove(directory: Path) -> None:
    for path in directory.iterdir():
        path.unlink()
    directory.rmdir()


def _recovery(directory: Path, plan: SendQueuePlan) -> Figure:
    many, few = directory / "many", directory / "few"
    one = batch(100)
    for path, count in ((many, plan.recovered), (few, 100)):
        made = _fast_queue(path, FastQueueOptions(chunk_bytes=1 << 20))
        for _ in range(count):
            made.push(one)
        made.close()
    chunks = len(list(many.iterdir())) - 2

    def opened(path: Path) -> float:
        """The fastest of several: what it takes when nothing else gets in between."""
        taken = []
        for _ in range(OPENINGS):
            started = time.perf_counter()
            found = _fast_queue(path)
            taken.append(time.perf_counter() - started)
            found.close()
        return min(taken) * 1e6

    return at_most(
        1.5,
        f"open a queue of {plan.recovered:,} batches",
        "µs",
        lambda: opened(many),
        "a queue of 100",
        lambda: opened(few),
        rounds=plan.rounds,
        note=f"{chunks:,} chunks, meta of version 2",
    )
