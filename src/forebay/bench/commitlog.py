"""The commit log beside the disk it stands on, and beside what people would use in its place.

| figure                | beside                                                       | goal          |
|-----------------------|--------------------------------------------------------------|---------------|
| append 100 x 1 KiB    | `pwritev` + `fdatasync` of the same bytes                     | 0.8           |
| 64 appenders x 1      | the same grouping, payloads only, no format; threads, tasks  | 0.8           |
| sequential read       | reading the file and its CRC, nothing else                    | 0.5 or 1.5M/s |
| memory of a read      | a log a quarter of the size                                   | 1.2           |
| open, 10,000 segments | open, 10 segments: time and resident memory                   | 1.5 and 1.2   |
| append 100 x 1 KiB    | persist-queue, its file and its SQLite queue                  | 10            |
| append 100 x 1 KiB    | SQLite, WAL and synchronous=FULL, 100 rows per transaction    | 1.5           |
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path

from crc32c import crc32c

from forebay.bench import peers
from forebay.bench.batched_log import BatchedLog
from forebay.bench.harness import Figure, at_least, at_most, in_process, rate
from forebay.commitlog import CommitLog, LogOptions
from forebay.commitlog.group_commit import GroupCommit
from forebay.filesystem import RealFile, RealFilesystem
from forebay.model.batcher import Batcher
from forebay.model.message import MessageBatch

MESSAGE_BYTES = 1024
BATCH = 100
APPENDERS = 64
CHUNK_BYTES = 1 << 20
READ_FLOOR = 1_500_000
"""Messages per second that are enough, however fast the machine reads a file."""


def suite(directory: Path, *, rounds: int, scale: float) -> Iterator[Figure]:
    """All figures. `scale` shrinks the work for a quick look; goals are meant for 1."""
    yield from _append(directory, rounds, appends=_scaled(200, scale))
    yield from _concurrent(directory, rounds, appends=_scaled(40, scale))
    yield from _against_queues(directory, rounds, scale)
    yield from _read(directory, rounds, scale)
    yield from _open(directory, rounds, segments=_scaled(10_000, scale))


def _scaled(count: int, scale: float) -> int:
    return max(1, round(count * scale))


def payloads(count: int = BATCH) -> list[bytes]:
    """Bytes that do not compress, so that the disk has to take all of them."""
    return [os.urandom(MESSAGE_BYTES) for _ in range(count)]


def message_batch(values: list[bytes]) -> MessageBatch:
    count = len(values)
    now = time.time_ns() // 1000
    ids = [os.urandom(18).hex().encode() for _ in range(count)]
    return MessageBatch(values, [now] * count, [b"Default"] * count, ids)


def _append(directory: Path, rounds: int, appends: int) -> Iterator[Figure]:
    batch = message_batch(payloads())
    # The same bytes: what a message consists of, piece by piece, as a program without a format would write it.
    columns = zip(batch.payloads, batch.transaction_ids or (), batch.partitions or (), strict=True)
    values = [piece for message in columns for piece in message]
    with CommitLog.open(directory / "append") as log:

        def ours() -> float:
            return rate(appends * BATCH, lambda: [log.append(batch) for _ in range(appends)])

        with peers.RawFile(directory / "append.raw") as raw:

            def theirs() -> float:
                return rate(appends * BATCH, lambda: [raw.append(values) for _ in range(appends)])

            beside = "pwritev + fdatasync of the same bytes"
            yield at_least(0.8, "append 100 x 1 KiB, durable", "messages/s", ours, beside, theirs, rounds=rounds)


def _concurrent(directory: Path, rounds: int, appends: int) -> Iterator[Figure]:
    values = payloads(APPENDERS)
    batches = [message_batch([value]) for value in values]
    total = APPENDERS * appends
    beside = "the same group commit without format"
    with CommitLog.open(directory / "concurrent") as log, peers.RawFile(directory / "concurrent.raw") as raw:
        bare: GroupCommit[bytes, None] = GroupCommit(raw.commit, group_bytes_max=64 << 20)
        yield at_least(
            0.8,
            "64 threads append one message each, durable",
            "messages/s",
            lambda: rate(total, lambda: _in_threads(lambda index: log.append(batches[index]), appends)),
            beside,
            lambda: rate(total, lambda: _in_threads(lambda index: bare.submit(values[index], MESSAGE_BYTES), appends)),
            rounds=2 * rounds,
        )
        yield at_least(
            0.8,
            "64 tasks append one message each, durable",
            "messages/s",
            lambda: rate(total, lambda: _in_tasks(lambda: _to_log(log, batches), appends)),
            beside,
            lambda: rate(total, lambda: _in_tasks(lambda: _to_file(raw, values), appends)),
            rounds=2 * rounds,
        )


def _in_threads(append_one: Callable[[int], object], appends: int) -> None:
    def produce(index: int) -> None:
        for _ in range(appends):
            append_one(index)

    threads = [threading.Thread(target=produce, args=(index,)) for index in range(APPENDERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _to_log(log: CommitLog, batches: Sequence[MessageBatch]) -> Callable[[int], Awaitable[object]]:
    appends = BatchedLog(log)
    return lambda index: appends.append(batches[index])


def _to_file(raw: peers.RawFile, values: Sequence[bytes]) -> Callable[[int], Awaitable[object]]:
    async def commit(payloads: Sequence[bytes]) -> list[None]:
        return await asyncio.to_thread(raw.commit, list(payloads))

    appends: Batcher[bytes, None] = Batcher(commit, size_max=64 << 20)
    return lambda index: appends.submit(values[index], MESSAGE_BYTES)


def _in_tasks(appender: Callable[[], Callable[[int], Awaitable[object]]], appends: int) -> None:
    async def produce(append_one: Callable[[int], Awaitable[object]], index: int) -> None:
        for _ in range(appends):
            await append_one(index)

    async def run() -> None:
        append_one = appender()
        await asyncio.gather(*(produce(append_one, index) for index in range(APPENDERS)))

    asyncio.run(run())


def _against_queues(directory: Path, rounds: int, scale: float) -> Iterator[Figure]:
    values = payloads()
    appends = _scaled(100, scale)
    with CommitLog.open(directory / "queues") as log:
        batch = message_batch(values)

        def ours() -> float:
            return rate(appends * BATCH, lambda: [log.append(batch) for _ in range(appends)])

        name = "append 100 x 1 KiB, durable"
        for label, peer in peers.persist_queues(directory):
            put = peers.putter(peer, values, _scaled(500, scale))
            yield at_least(
                10, name, "messages/s", ours, label, put, rounds=rounds, note="one put each: it has no batch"
            )
        with peers.SqliteTable(directory / "peer.sqlite") as table:

            def theirs() -> float:
                return rate(appends * BATCH, lambda: [table.append(values) for _ in range(appends)])

            yield at_least(1.5, name, "messages/s", ours, "SQLite WAL FULL, 100 rows a commit", theirs, rounds=rounds)


def _read(directory: Path, rounds: int, scale: float) -> Iterator[Figure]:
    count = _scaled(200_000, scale) // BATCH * BATCH
    path = directory / "read"
    _fill(path, count)
    with CommitLog.open(path) as log:
        segments = [path / log.state.path]

        def ours() -> float:
            return rate(count, lambda: sum(batch.num_rows for batch in log.read(1)))

        def theirs() -> float:
            return rate(count, lambda: [_scan(segment) for segment in segments])

        yield at_least(
            lambda scanned: min(0.5, READ_FLOOR / scanned),
            "sequential read to Arrow, 1 KiB messages",
            "messages/s",
            ours,
            "reading the file with its CRC",
            theirs,
            rounds=rounds,
            note=f"0.5 of the scan, or {READ_FLOOR:,}/s where that is less",
        )
    small = directory / "read-small"
    _fill(small, count // 4)
    yield at_most(
        1.2,
        "peak memory of reading a log",
        "MiB",
        lambda: in_process(_PEAK_OF_READ, str(path)),
        "a log a quarter of the size",
        lambda: in_process(_PEAK_OF_READ, str(small)),
        rounds=3,
    )


def _fill(path: Path, count: int) -> None:
    with CommitLog.open(path, LogOptions(segment_bytes=64 << 30), filesystem=_NoSync()) as log:
        batch = message_batch(payloads())
        for _ in range(count // BATCH):
            log.append(batch)


def _scan(path: Path) -> int:
    file = RealFilesystem().open(path)
    position, checksum = 0, 0
    while chunk := file.read_at(CHUNK_BYTES, position):
        checksum = crc32c(chunk, checksum)
        position += len(chunk)
    file.close()
    return checksum


def _open(directory: Path, rounds: int, segments: int) -> Iterator[Figure]:
    many, few = directory / "many", directory / "few"
    for path, count in ((many, segments), (few, 10)):
        with CommitLog.open(path, filesystem=_NoSync()) as log:
            batch = message_batch([b"x"])
            for _ in range(count):
                log.append(batch)
                log.roll()
            log.append(batch)

    def opened(path: Path) -> float:
        """The fastest of many: what it takes when nothing else gets in between."""
        taken = []
        for _ in range(50):
            started = time.perf_counter()
            log = CommitLog.open(path)
            taken.append(time.perf_counter() - started)
            log.close()
        return min(taken) * 1e6

    beside = "10 segments"
    name = f"open, {segments:,} segments"
    yield at_most(1.5, name, "µs", lambda: opened(many), beside, lambda: opened(few), rounds=rounds)
    yield at_most(
        1.2,
        f"resident memory after opening, {segments:,} segments",
        "MiB",
        lambda: in_process(_MEMORY_OF_OPEN, str(many)),
        beside,
        lambda: in_process(_MEMORY_OF_OPEN, str(few)),
        rounds=3,
    )


_PEAK_OF_READ = """
import resource, sys
from forebay.commitlog import CommitLog
with CommitLog.open(sys.argv[1]) as log:
    for batch in log.read(1):
        pass
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
"""

_MEMORY_OF_OPEN = """
import sys
from forebay.commitlog import CommitLog
with CommitLog.open(sys.argv[1]) as log:
    status = dict(line.split(":", 1) for line in open("/proc/self/status"))
    print(int(status["VmRSS"].split()[0]) / 1024)
"""


class _NoSync(RealFilesystem):
    """For building what is read later: nothing here has to survive a crash."""

    def open(self, path: Path, *, write: bool = False, create: bool = False, append: bool = False) -> RealFile:
        flags = os.O_RDWR if write or create else os.O_RDONLY
        return _NoSyncFile(os.open(path, flags | (os.O_CREAT if create else 0) | os.O_CLOEXEC, 0o666))

    def sync_directory(self, path: Path) -> None:
        pass


class _NoSyncFile(RealFile):
    __slots__ = ()

    def sync(self) -> None:
        pass
